"""Position mixing and channel mixing: feed-forward as 1×1 convolutions, and what four layers cost and reach.

A feed-forward sublayer computes the same at each position, as two convolutions of width 1 do (section 3.3);
self-attention exchanges between positions. Depthwise and pointwise convolutions divide it alike (ConvMixer, 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model.attention import MultiHeadAttention
from heedful.model.batch_invariance import silu
from heedful.model.layers import ACTIVATIONS, FeedForward
from heedful.paper.layer_costs import counted_flops
from heedful.paper.plot_style import in_language
from heedful.paper.text_tables import Table
from heedful.tensor_types import Float

WORDS = {
    "caption": (
        "Mixing of positions and channels: n = {n}, d_model = {d}, d_ff = {f}, k = {k}",
        "位置混合与通道混合：n = {n}，d_model = {d}，d_ff = {f}，k = {k}",
    ),
    "layer": ("layer", "层"),
    "parameters": ("parameters", "参数量"),
    "flops": ("operations", "运算量"),
    "positions": ("positions seen", "可见位置数"),
    "channels": ("channels seen", "可见通道数"),
    "fixed": ("fixed linear map", "固定线性映射"),
    "self_attention": ("self-attention", "自注意力"),
    "feed_forward": ("feed-forward", "前馈"),
    "depthwise": ("depthwise convolution", "逐通道卷积"),
    "pointwise": ("pointwise convolution (1×1)", "逐点卷积（1×1）"),
    "yes": ("yes", "是"),
    "no": ("no", "否"),
    "flops_note": (
        "Operations: matrix products and convolutions of one forward pass over n positions, two per multiply-add.",
        "运算量：对 n 个位置做一次前向计算的矩阵乘法和卷积，每次乘加计 2 次运算。",
    ),
    "seen_note": (
        "Seen: the positions and channels of the input on which one number in the middle of the output depends.",
        "可见：输出中间位置的一个数所依赖的输入位置数与通道数。",
    ),
    "fixed_note": (
        "Fixed linear map: whether the gradient is the same for every input. The weights of attention depend on it.",
        "固定线性映射：梯度是否与输入无关。注意力的权重取决于输入。",
    ),
}


# ---- feed-forward as convolutions ------------------------------------------------------------------------------------


class ConvolutionalFeedForward(nn.Module):
    """A feed-forward sublayer as convolutions of width 1: the same weights, positions last."""

    def __init__(self, d_model: int, d_ff: int, *, activation: str, bias: bool) -> None:
        super().__init__()
        self.activation = activation
        self.inner = nn.Conv1d(d_model, d_ff, kernel_size=1, bias=bias)
        self.gate = nn.Conv1d(d_model, d_ff, kernel_size=1, bias=bias) if activation == "swiglu" else None
        self.output = nn.Conv1d(d_ff, d_model, kernel_size=1, bias=bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        x = x.transpose(1, 2)
        inner = self.inner(x)
        inner = silu(self.gate(x)) * inner if self.gate is not None else ACTIVATIONS[self.activation](inner)
        return self.output(inner).transpose(1, 2)


def feed_forward_to_conv1d(feed_forward: FeedForward) -> ConvolutionalFeedForward:
    """The same function as convolutions: each matrix (F, D) becomes a kernel (F, D, 1). Dropout is left out."""
    d_ff, d_model = feed_forward.inner.weight.shape
    converted = ConvolutionalFeedForward(
        d_model, d_ff, activation=feed_forward.activation, bias=feed_forward.inner.bias is not None
    ).to(feed_forward.inner.weight)
    state = feed_forward.state_dict()
    converted.load_state_dict({name: x[..., None] if x.ndim == 2 else x for name, x in state.items()})
    return converted


def conv1d_to_feed_forward(convolutional: ConvolutionalFeedForward) -> FeedForward:
    """The inverse of `feed_forward_to_conv1d`."""
    d_ff, d_model, width = convolutional.inner.weight.shape
    if width != 1:
        raise ValueError(f"only convolutions of width 1 are feed-forward sublayers, not of width {width}")
    config = ModelConfig(
        d_model=d_model, d_ff=d_ff, num_heads=1, activation=convolutional.activation,  # type: ignore[arg-type]
        bias=convolutional.inner.bias is not None, positions="learned",
    )  # fmt: skip
    converted = FeedForward(config).to(convolutional.inner.weight)
    state = convolutional.state_dict()
    converted.load_state_dict({name: x[..., 0] if x.ndim == 3 else x for name, x in state.items()})
    return converted


# ---- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MixingSizes:
    """The sizes of the four layers; a feed-forward sublayer is four times as wide inside."""

    length: int = 64
    width: int = 512
    kernel_size: int = 9

    def __post_init__(self) -> None:
        if min(self.length, self.width, self.kernel_size) < 1:
            raise ConfigError("--length, --width and --kernel-size must be at least 1.")
        if self.kernel_size % 2 == 0:
            raise ConfigError(f"--kernel-size must be odd, so that a kernel has a middle, not {self.kernel_size}.")

    @property
    def d_ff(self) -> int:
        """The inner width of the feed-forward sublayer."""
        return 4 * self.width


@dataclass(frozen=True)
class Mixing:
    """What one layer costs and reaches."""

    parameters: int
    flops: int
    positions: int
    channels: int
    is_fixed: bool


class Attending(nn.Module):
    """Self-attention over one sentence."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config)
        self.attention.backend = "explicit"

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        mask = torch.ones(1, 1, 1, x.shape[1], dtype=torch.bool, device=x.device)
        output: Tensor = self.attention(x, mask=mask)[0]
        return output


class Convolving(nn.Module):
    """A convolution over the positions that keeps the length."""

    def __init__(self, width: int, kernel_size: int, *, depthwise: bool) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, kernel_size, padding="same", groups=width if depthwise else 1)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.convolution(x.transpose(1, 2)).transpose(1, 2)


def mixing_layers(sizes: MixingSizes) -> dict[str, Callable[[], nn.Module]]:
    """How to build each of the four layers."""
    num_heads = next(heads for heads in (8, 4, 2, 1) if sizes.width % heads == 0)
    config = ModelConfig(d_model=sizes.width, d_ff=sizes.d_ff, num_heads=num_heads, dropout=0.0, positions="learned")
    return {
        "self_attention": lambda: Attending(config),
        "depthwise": lambda: Convolving(sizes.width, sizes.kernel_size, depthwise=True),
        "feed_forward": lambda: FeedForward(config),
        "pointwise": lambda: Convolving(sizes.width, 1, depthwise=False),
    }


def measure_mixing(build: Callable[[], nn.Module], sizes: MixingSizes, *, seed: int = 1) -> Mixing:
    """Count the parameters and operations of a layer, and read its reach from gradients."""
    with torch.device("meta"):
        on_meta = build().eval()
        x = torch.zeros(1, sizes.length, sizes.width)
    flops = counted_flops(lambda: on_meta(x))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = build().eval().double()
        one, other = (_input_gradient(layer, sizes) for _ in range(2))
    return Mixing(
        parameters=sum(parameter.numel() for parameter in on_meta.parameters()),
        flops=flops,
        positions=int((one != 0).any(dim=1).sum()),
        channels=int((one != 0).any(dim=0).sum()),
        is_fixed=torch.allclose(one, other),
    )


def _input_gradient(layer: nn.Module, sizes: MixingSizes) -> Float[Tensor, "T D"]:
    """The gradient of one output channel in the middle of a random input."""
    x = torch.randn(1, sizes.length, sizes.width, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0, sizes.length // 2, 0], x)
    return gradient[0]


def mixing_table(sizes: MixingSizes, language: str) -> Table:
    """A row for each layer: position mixing first, then channel mixing."""
    words = in_language(WORDS, language)
    rows = []
    for name, build in mixing_layers(sizes).items():
        measured = measure_mixing(build, sizes)
        rows.append([
            words[name], f"{measured.parameters:,}", f"{measured.flops:,}", str(measured.positions),
            str(measured.channels), words["yes" if measured.is_fixed else "no"],
        ])  # fmt: skip
    return Table(
        caption=words["caption"].format(n=sizes.length, d=sizes.width, f=sizes.d_ff, k=sizes.kernel_size),
        heading=[words[name] for name in ("layer", "parameters", "flops", "positions", "channels", "fixed")],
        rows=rows,
        notes=[words["flops_note"], words["seen_note"], words["fixed_note"]],
    )
