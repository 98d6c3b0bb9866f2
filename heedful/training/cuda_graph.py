"""The training step as one CUDA graph, instead of a thousand kernel launches.

The first calls run eagerly, so that everything is compiled and allocated. Then the work is captured once, with static
input tensors, and replayed from then on. The work must not wait for the device nor change its shapes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from heedful.data.packing import Batch

NUM_WARMUP_CALLS = 3

Work = Callable[[Batch], tuple[Tensor, ...]]


class GraphedStep:
    """`work(batch)` as a CUDA graph. The returned tensors are valid until the next call."""

    def __init__(self, work: Work, device: torch.device) -> None:
        self.work, self.device = work, device
        self.stream = torch.cuda.Stream(device)
        self.prefetcher = DevicePrefetcher(device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Batch | None = None
        self.outputs: tuple[Tensor, ...] = ()
        self.num_calls = 0
        self.fits_in_memory = True

    def __call__(self, batch: Batch) -> tuple[Tensor, ...]:
        """Run the work on a batch, which may be on the device or in (pinned) host memory."""
        if self.inputs is None:
            self.inputs = batch.to(self.device, non_blocking=True)
        elif batch.source.shape != self.inputs.source.shape:
            return self.work(batch.to(self.device, non_blocking=True))
        else:
            self.prefetcher.copy(batch, self.inputs)
        self.num_calls += 1
        if self.graph is None and self.num_calls > NUM_WARMUP_CALLS and self.fits_in_memory:
            self.graph = self._try_capture(self.inputs)
        if self.graph is None:
            return self._run_eagerly(self.inputs)
        self.graph.replay()
        return self.outputs

    def _try_capture(self, inputs: Batch) -> torch.cuda.CUDAGraph | None:
        """The graph, which reserves separate memory; None if there is too little, and calls remain eager."""
        try:
            return self._capture(inputs)
        except torch.OutOfMemoryError:
            self.fits_in_memory = False
        torch.cuda.empty_cache()
        return None

    def release(self) -> bool:
        """Free the memory of the graph and return whether there was one; the next call captures it again."""
        had_graph = self.graph is not None
        self.graph = None
        self.outputs = ()
        torch.cuda.empty_cache()
        return had_graph

    def _run_eagerly(self, inputs: Batch) -> tuple[Tensor, ...]:
        """Run on the stream of the capture: autograd remembers streams, and they must not change later."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            outputs = self.work(inputs)
        current.wait_stream(self.stream)
        return outputs

    def _capture(self, inputs: Batch) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        # "thread_local": the thread that prepares batches may allocate pinned memory during the capture.
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            self.outputs = self.work(inputs)
        return graph


class DevicePrefetcher:
    """Copies batches to the device while the previous ones are computed, through two alternating buffers."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.stream = device, torch.cuda.Stream(device)
        self.buffers: list[Batch] = []
        self.is_free = [torch.cuda.Event(), torch.cuda.Event()]
        self.index = 0

    def copy(self, batch: Batch, inputs: Batch) -> None:
        """Copy a batch, which may be in (pinned) host memory, into the tensors of `inputs`, which have its shapes."""
        if not self.buffers or self.buffers[0].source.shape != batch.source.shape:
            self.buffers = [
                Batch(**{name: torch.empty_like(tensor) for name, tensor in vars(inputs).items()}) for _ in range(2)
            ]
            torch.cuda.synchronize(self.device)
        buffer, is_free = self.buffers[self.index], self.is_free[self.index]
        current = torch.cuda.current_stream(self.device)
        self.index = 1 - self.index
        self.stream.wait_event(is_free)
        if batch.source.is_cuda:
            self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            for name, tensor in vars(batch).items():
                getattr(buffer, name).copy_(tensor, non_blocking=True)
        current.wait_stream(self.stream)
        torch._foreach_copy_(list(vars(inputs).values()), list(vars(buffer).values()))
        is_free.record(current)
