"""The four kinds of layer in the paper's Table 1, made of the modules that the models are made of.

Each layer has three parts: `project` makes what the positions exchange, `mix` is the exchange itself, `finish` is what
follows. Table 1 counts only the mixing of attention; its four projections (n·d² each) are left out there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.baselines.cells import CELLS
from heedful.baselines.convolutional import GatedConvolution
from heedful.config import ModelConfig
from heedful.model.attention import ATTENTION, MultiHeadAttention
from heedful.tensor_types import Float

Parts = tuple[Tensor, ...]


class MeasuredLayer(nn.Module, ABC):
    """A layer whose exchange between positions can be run and measured alone."""

    def project(self, x: Float[Tensor, "1 T D"]) -> Parts:
        """What each position brings."""
        return (x,)

    @abstractmethod
    def mix(self, *parts: Tensor) -> Tensor:
        """The exchange between positions."""

    def finish(self, mixed: Tensor) -> Float[Tensor, "1 T D"]:
        """What each position makes of what it got."""
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
    """Every position attends to the r positions around it and to no others: r·n·d, for only these are computed."""

    def __init__(self, config: ModelConfig, window: int) -> None:
        super().__init__(config)
        self.window = window

    def mix(self, *parts: Tensor) -> Tensor:
        query, key, value = parts
        before = (self.window - 1) // 2
        around = (before, self.window - 1 - before)

        def windows(x: Tensor) -> Tensor:  # (1, H, T, Dh) -> (T, H, r, Dh): each position's neighbours as a row
            padded = F.pad(x, (0, 0, *around))
            return padded.unfold(2, self.window, 1)[0].permute(1, 0, 3, 2)

        real = F.pad(query.new_ones(query.shape[2]), around).unfold(0, self.window, 1) > 0
        rows = query[0].transpose(0, 1)[:, :, None]  # (T, H, 1, Dh)
        mixed = self._attend(rows, windows(key), windows(value), real[:, None, None])
        return mixed[:, :, 0].transpose(0, 1)[None]


class Recurrent(MeasuredLayer):
    """A gated recurrent unit, position after position: n·d²."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.cell = CELLS[config.cell](config.d_model, config.d_model, batch_first=True)

    def mix(self, *parts: Tensor) -> Tensor:
        return self.cell(parts[0])[0]


class Convolutional(MeasuredLayer):
    """A gated convolution over k neighbours: k·n·d² (twice, for the values and their gates)."""

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
    """One layer of a kind in `LAYERS`, without dropout, in evaluation mode; attention has eight heads or fewer."""
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
    """Floating-point operations of the mixing's matrix products by formula, two for each multiply-add."""
    n, d = length, d_model
    return {
        "self_attention": 4 * n * n * d,
        "restricted": 4 * n * window * d,
        "recurrent": 12 * n * d * d,
        "convolutional": 4 * kernel_size * n * d * d,
    }[kind]
