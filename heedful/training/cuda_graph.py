"""A step recorded as one CUDA graph: the host says "again" instead of starting a thousand kernels one by one.

The first calls run as they are, so that everything is compiled and warm; then the work is recorded once, with tensors
of its own for what goes in, and from then on replayed. The work must not wait for the device, nor change its shapes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from heedful.data.batch import Batch

PLAIN_CALLS = 3

Work = Callable[[Batch], tuple[Tensor, ...]]


class Recorded:
    """`work(batch)`, replayed. What it returns stays valid until the next call."""

    def __init__(self, work: Work, device: torch.device) -> None:
        self.work, self.device = work, device
        self.stream = torch.cuda.Stream(device)
        self.arrivals = DevicePrefetcher(device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Batch | None = None
        self.outputs: tuple[Tensor, ...] = ()
        self.num_calls, self.has_room = 0, True

    def __call__(self, batch: Batch) -> tuple[Tensor, ...]:
        """Do the work on a batch, which may still be in (pinned) memory of the host."""
        if self.inputs is None:
            self.inputs = batch.to(self.device, non_blocking=True)
        elif batch.source.shape != self.inputs.source.shape:
            return self.work(batch.to(self.device, non_blocking=True))
        else:
            self.arrivals.fill(self.inputs, batch)
        self.num_calls += 1
        if self.graph is None and self.num_calls > PLAIN_CALLS and self.has_room:
            self.graph = self._record_if_there_is_room(self.inputs)
        if self.graph is None:
            return self._plainly(self.inputs)
        self.graph.replay()
        return self.outputs

    def _record_if_there_is_room(self, inputs: Batch) -> torch.cuda.CUDAGraph | None:
        """A recording keeps memory to itself; where that is not there, the work goes on without one."""
        try:
            return self._record(inputs)
        except torch.OutOfMemoryError:
            self.has_room = False
        torch.cuda.empty_cache()
        return None

    def forget(self) -> bool:
        """Give the memory of the recording back, if there is one; the next call records anew."""
        had_one, self.graph, self.outputs = self.graph is not None, None, ()
        torch.cuda.empty_cache()
        return had_one

    def _plainly(self, inputs: Batch) -> tuple[Tensor, ...]:
        """Beside the usual stream, as recording will be: what autograd remembers of streams must not change then."""
        here = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            outputs = self.work(inputs)
        here.wait_stream(self.stream)
        return outputs

    def _record(self, inputs: Batch) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self.device)
        # Other threads make batches meanwhile and may ask for pinned memory; that must not end the recording.
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            self.outputs = self.work(inputs)
        return graph


class DevicePrefetcher:
    """Brings batches to the device beside the work on the ones before, in two places that take turns."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.stream = device, torch.cuda.Stream(device)
        self.places: list[Batch] = []
        self.taken = [torch.cuda.Event(), torch.cuda.Event()]
        self.turn = 0

    def fill(self, inputs: Batch, batch: Batch) -> None:
        """Copy a batch, which may be in (pinned) memory of the host, into tensors of its shapes on the device."""
        if not self.places or self.places[0].source.shape != batch.source.shape:
            self.places = [Batch(**{name: torch.empty_like(one) for name, one in vars(inputs).items()}) for _ in "12"]
            torch.cuda.synchronize(self.device)
        place, taken, here = self.places[self.turn], self.taken[self.turn], torch.cuda.current_stream(self.device)
        self.turn = 1 - self.turn
        self.stream.wait_event(taken)
        if batch.source.is_cuda:
            self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            for name, tensor in vars(batch).items():
                getattr(place, name).copy_(tensor, non_blocking=True)
        here.wait_stream(self.stream)
        torch._foreach_copy_(list(vars(inputs).values()), list(vars(place).values()))
        taken.record(here)
