"""Work on fixed tensors, recorded as a CUDA graph when it is first done; on other devices it is just done."""

from __future__ import annotations

from collections.abc import Callable

import torch


class GraphedCallable:
    """`work()`, which neither waits for the device nor allocates, nor does anything when there is nothing to do."""

    def __init__(self, work: Callable[[], None], device: torch.device) -> None:
        """Record the work, first done once so that its kernels are compiled: let there be nothing to do just now."""
        self.work, self.graph = work, None
        if device.type != "cuda":
            return
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            work()
        torch.cuda.synchronize(device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            work()

    def __call__(self) -> None:
        """Do it again."""
        if self.graph is not None:
            self.graph.replay()
        else:
            self.work()


class AsyncFlags:
    """AsyncFlags that the device sets, seen by the host some steps later without stopping the device."""

    def __init__(self, flags: torch.Tensor, depth: int = 4) -> None:
        self.flags, self.on_device = flags, flags.is_cuda
        self.seen = torch.zeros_like(flags, device="cpu", pin_memory=self.on_device)
        self.events = [torch.cuda.Event() for _ in range(depth)] if self.on_device else []

    def send(self, number: int) -> None:
        """Start to fetch them as they are after step `number`."""
        self.seen.copy_(self.flags, non_blocking=True)
        if self.on_device:
            self.events[number % len(self.events)].record()

    def after(self, number: int) -> torch.Tensor:
        """The flags after step `number` or a later one."""
        if self.on_device:
            self.events[number % len(self.events)].synchronize()
        return self.seen
