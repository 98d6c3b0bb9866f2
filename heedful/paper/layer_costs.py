"""What one layer costs and how far it reaches: time, operations, memory, reach, and chain of dependent operations."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from heedful.paper.layer_variants import MeasuredLayer


def median_seconds(run: Callable[[], object], device: torch.device, *, enough: float) -> float:
    """Median time of a run: three warm ones first, then at least five and until `enough` seconds have passed."""

    def timed() -> float:
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        return time.perf_counter() - start

    with torch.inference_mode():
        warm = [timed() for _ in range(3)]
        times: list[float] = []
        while len(times) < 5 or sum(times) < min(enough, 100 * min(warm)):
            times.append(timed())
    return sorted(times)[len(times) // 2]


def counted_flops(run: Callable[[], object]) -> int:
    """Operations of the matrix products and convolutions of a run, as torch's counter sees them."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


class LiveBytes(TorchDispatchMode):
    """Follows the tensors that operations make: how many bytes live at the same time, at most."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self.seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation and count the storages that are new."""
        old = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if not isinstance(leaf, Tensor):
                continue
            storage = leaf.untyped_storage()
            if storage._cdata not in old and storage not in self.seen:
                self.seen[storage] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._free, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return made

    def _free(self, size: int) -> None:
        self.now -= size


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Most memory that a run needs beyond its weights and input: the device's own count, else that of the tensors."""
    with torch.no_grad():
        if device.type == "cuda":
            run()
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            run()
            return torch.cuda.max_memory_allocated(device) - before
        with LiveBytes() as live:
            run()
        return live.peak


def gradient_reach(layer: MeasuredLayer, *, length: int, d_model: int) -> int:
    """How far one layer carries information: the farthest input with a gradient from the last output.

    In double precision. A recurrent layer's gates are set to keep its state, because what is asked is which inputs an
    output can depend on; with fresh weights the gradient itself underflows to zero after some 1,600 steps.
    """
    layer = layer.double()
    for module in layer.modules():
        if isinstance(module, nn.GRU):
            with torch.no_grad():
                dict(module.named_parameters())["bias_hh_l0"][d_model : 2 * d_model] = 8.0
    x = torch.randn(1, length, d_model, dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[0, -1].sum(), x)
    touched = gradient[0].abs().sum(dim=-1).nonzero()[:, 0]
    return length - 1 - int(touched.min())


def dependent_operations(layer: MeasuredLayer, *, length: int, d_model: int) -> int:
    """The longest chain of operations in one layer that must wait for each other, read off the autograd graph."""
    x = torch.randn(1, length, d_model, requires_grad=True)
    output = layer.float()(x)
    order: list[Any] = []
    done: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(output.grad_fn, False)]
    while stack:
        node, finished = stack.pop()
        if finished:
            order.append(node)
        elif node is not None and node not in done:
            done.add(node)
            stack.append((node, True))
            stack.extend((before, False) for before, _ in node.next_functions)
    depth: dict[Any, int] = {}
    for node in order:
        befores = [depth[before] for before, _ in node.next_functions if before is not None]
        depth[node] = 1 + max(befores, default=0)
    return depth[output.grad_fn]


def layers_to_span(reach: int, length: int) -> int:
    """How many such layers, one on another, until the last output depends on the first input."""
    return max(1, -(-(length - 1) // max(reach, 1)))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
