"""The four layer types of Table 1 and what one layer costs: time, operations, memory, reach, sequential operations.

The layers consist of the modules that the models use. Each has three parts: `project` computes what the positions
exchange, `mix` is the exchange, `finish` follows it. Table 1 counts only the mixing of attention; its four projections
(n·d² each) are left out there.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from heedful.baselines.convolutional import GatedConvolution
from heedful.baselines.recurrent import CELLS
from heedful.config import ModelConfig
from heedful.model.attention import ATTENTION, MultiHeadAttention
from heedful.tensor_types import Float

Parts = tuple[Tensor, ...]


class MeasuredLayer(nn.Module, ABC):
    """A layer whose mixing of positions can be run and measured separately."""

    def project(self, x: Float[Tensor, "1 T D"]) -> Parts:
        """The tensors that the positions exchange."""
        return (x,)

    @abstractmethod
    def mix(self, *parts: Tensor) -> Tensor:
        """Mix the positions."""

    def finish(self, mixed: Tensor) -> Float[Tensor, "1 T D"]:
        """The computation after the mixing, at each position separately."""
        return mixed

    def forward(self, x: Float[Tensor, "1 T D"]) -> Float[Tensor, "1 T D"]:
        return self.finish(self.mix(*self.project(x)))


class SelfAttention(MeasuredLayer):
    """Every position attends to every position: n²·d."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config)

    def project(self, x: Float[Tensor, "1 T D"]) -> Parts:
        return (self.attention.queries(x), *self.attention.keys_values(x))

    def mix(self, *parts: Tensor) -> Tensor:
        query, key, value = parts
        return self._attend(query, key, value, query.new_ones(1, 1, 1, key.shape[2], dtype=torch.bool))

    def finish(self, mixed: Tensor) -> Float[Tensor, "1 T D"]:
        return self.attention.output(mixed.transpose(1, 2).flatten(2))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        attend = ATTENTION[self.attention.backend]
        return attend(query, key, value, mask, scoring=self.attention.scoring, dropout=0.0).values


class RestrictedSelfAttention(SelfAttention):
    """Every position attends only to the r positions around it, and only these scores are computed: r·n·d."""

    def __init__(self, config: ModelConfig, window: int) -> None:
        super().__init__(config)
        self.window = window

    def mix(self, *parts: Tensor) -> Tensor:
        query, key, value = parts
        before = (self.window - 1) // 2
        around = (before, self.window - 1 - before)

        def windows(x: Tensor) -> Tensor:  # (1, H, T, Dh) -> (T, H, r, Dh): the neighbours of each position as a row
            padded = F.pad(x, (0, 0, *around))
            return padded.unfold(2, self.window, 1)[0].permute(1, 0, 3, 2)

        real = F.pad(query.new_ones(query.shape[2]), around).unfold(0, self.window, 1) > 0
        rows = query[0].transpose(0, 1)[:, :, None]  # (T, H, 1, Dh)
        mixed = self._attend(rows, windows(key), windows(value), real[:, None, None])
        return mixed[:, :, 0].transpose(0, 1)[None]


class Recurrent(MeasuredLayer):
    """A gated recurrent unit, one position after another: n·d²."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.cell = CELLS[config.cell](config.d_model, config.d_model, batch_first=True)

    def mix(self, *parts: Tensor) -> Tensor:
        return self.cell(parts[0])[0]


class Convolutional(MeasuredLayer):
    """A gated convolution over k neighbours: k·n·d² (twice, for values and gates)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width = config.kernel_size
        self.convolution = GatedConvolution(config)

    def mix(self, *parts: Tensor) -> Tensor:
        before = (self.width - 1) // 2
        return self.convolution(F.pad(parts[0], (0, 0, before, self.width - 1 - before)))


LAYERS: dict[str, Callable[[ModelConfig, int], MeasuredLayer]] = {
    "self_attention": lambda config, window: SelfAttention(config),
    "restricted": RestrictedSelfAttention,
    "recurrent": lambda config, window: Recurrent(config),
    "convolutional": lambda config, window: Convolutional(config),
}


def build_layer(
    kind: str, *, d_model: int, window: int, kernel_size: int, device: torch.device, attention: str = "fused"
) -> MeasuredLayer:
    """One layer of a type in `LAYERS`, without dropout, in evaluation mode; attention has at most eight heads."""
    num_heads = next(heads for heads in (8, 4, 2, 1) if d_model % heads == 0)
    config = ModelConfig(
        d_model=d_model, num_heads=num_heads, kernel_size=kernel_size, dropout=0.0, positions="learned"
    )
    with device:
        layer = LAYERS[kind](config, window)
    if isinstance(layer, SelfAttention):
        layer.attention.backend = attention
    return layer.eval()


def product_flops(kind: str, *, length: int, d_model: int, window: int, kernel_size: int) -> int:
    """The floating-point operations of the mixing by formula, two per multiply-add."""
    n, d = length, d_model
    return {
        "self_attention": 4 * n * n * d,
        "restricted": 4 * n * window * d,
        "recurrent": 12 * n * d * d,
        "convolutional": 4 * kernel_size * n * d * d,
    }[kind]


def counted_flops(run: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products and convolutions of `run`, by torch's counter."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


class LiveBytes(TorchDispatchMode):
    """Tracks the storages that operations allocate: bytes in use now, and their peak."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self.seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation and count the storages that it allocates."""
        old = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if not isinstance(leaf, Tensor):
                continue
            storage = leaf.untyped_storage()
            if storage._cdata not in old and storage not in self.seen:
                self.seen[storage] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._free, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return result

    def _free(self, size: int) -> None:
        self.now -= size


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Peak memory of `run` beyond weights and input: by the CUDA allocator, otherwise by `LiveBytes`."""
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
    """How far one layer carries information: the distance to the farthest input with a gradient from the last output.

    In double precision. The gates of a recurrent layer are set to keep its state, since the question is which inputs an
    output can depend on; with initial weights the gradient underflows to zero after about 1,600 steps.
    """
    layer = layer.double()
    for module in layer.modules():
        if isinstance(module, nn.GRU):
            with torch.no_grad():
                dict(module.named_parameters())["bias_hh_l0"][d_model : 2 * d_model] = 8.0
    x = torch.randn(1, length, d_model, dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x)[0, -1].sum(), x)
    reached = gradient[0].abs().sum(dim=-1).nonzero()[:, 0]
    return length - 1 - int(reached.min())


def dependent_operations(layer: MeasuredLayer, *, length: int, d_model: int) -> int:
    """The longest chain of dependent operations in one layer, read from the autograd graph."""
    x = torch.randn(1, length, d_model, requires_grad=True)
    output = layer.float()(x)
    order: list[Any] = []
    seen: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(output.grad_fn, False)]
    while stack:
        node, finished = stack.pop()
        if finished:
            order.append(node)
        elif node is not None and node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((before, False) for before, _ in node.next_functions)
    depth: dict[Any, int] = {}
    for node in order:
        depths = [depth[before] for before, _ in node.next_functions if before is not None]
        depth[node] = 1 + max(depths, default=0)
    return depth[output.grad_fn]


def layers_to_span(reach: int, length: int) -> int:
    """The number of stacked layers until the last output depends on the first input."""
    return max(1, -(-(length - 1) // max(reach, 1)))
