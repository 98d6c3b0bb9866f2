"""BatchNorm and LayerNorm on one padded batch: values, what padding and batch mates do to them, and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.model.norms import BatchNorm, LayerNorm
from heedful.paper.plot_style import in_language, new_figure
from heedful.tensor_types import Bool, Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTHS = (12, 9, 7, 5, 3, 2)
WIDTH, PADDING_VALUE, FEATURE = 16, 4.0, 0

WORDS = {
    "input": ("input: feature 1 of a padded batch", "输入：一个填充批次的第 1 个特征"),
    "layer": ("LayerNorm", "LayerNorm"),
    "batch": ("BatchNorm, padding left out", "BatchNorm(不计填充)"),
    "batch_padded": ("BatchNorm, padding counted", "BatchNorm(计入填充)"),
    "sentence": ("sentence", "句子"),
    "token": ("token (grey: padding)", "词元(灰色为填充)"),
    "padding": ("Change of the real tokens by what the padding holds", "填充内容引起的真实词元变化"),
    "held": ("value in the padding", "填充处的数值"),
    "change": ("largest change", "最大变化"),
    "mates": ("Change of sentence 1 by other batch mates", "换掉同批句子后句子 1 的变化"),
    "gradient": ("Gradient of sentence 1's loss at each sentence", "句子 1 的损失对各句的梯度"),
    "norm": ("gradient norm", "梯度范数"),
}


def padded_batch(padding: float = PADDING_VALUE, *, mates_seed: int = 2) -> tuple[Tensor, Tensor]:
    """Sentences of several lengths: (B, T, D) values and (B, T) which are real; the first is always the same."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    scale = torch.linspace(0.5, 2.0, WIDTH)
    first = torch.randn(1, max(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(1))
    others = torch.randn(len(LENGTHS) - 1, max(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(mates_seed))
    x = torch.cat((first, others)) * scale + 0.5
    return x.masked_fill(~mask[..., None], padding), mask


def normalised(kind: str, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    """The batch after one of the three norms, as in training."""
    if kind == "layer":
        return LayerNorm(WIDTH, eps=1e-5).train()(x)
    norm = BatchNorm(WIDTH, eps=1e-5, bias=True).train()
    return norm(x, torch.ones_like(mask) if kind == "batch_padded" else mask)


def change_by_padding(kind: str, padding: float) -> float:
    """How far a real token moves at most when the padding holds this value instead of 0."""
    (x, mask), (other, _) = padded_batch(0.0), padded_batch(padding)
    return (normalised(kind, x, mask) - normalised(kind, other, mask))[mask].abs().max().item()


def change_by_mates(kind: str) -> float:
    """How far the first sentence moves at most when the others of its batch are replaced."""
    (x, mask), (other, _) = padded_batch(), padded_batch(mates_seed=3)
    return (normalised(kind, x, mask) - normalised(kind, other, mask))[0].abs().max().item()


def gradient_by_sentence(kind: str) -> list[float]:
    """Norm of the gradient of a loss on the first sentence alone, at every sentence of the batch."""
    x, mask = padded_batch()
    x.requires_grad_()
    wanted = torch.randn(max(LENGTHS), WIDTH, generator=torch.Generator().manual_seed(4))
    ((normalised(kind, x, mask)[0] - wanted)[mask[0]].square().mean()).backward()
    assert x.grad is not None
    return x.grad.flatten(1).norm(dim=1).tolist()


def draw(language: str) -> Figure:
    """Values above, effects below."""
    words = in_language(WORDS, language)
    kinds = ("layer", "batch", "batch_padded")
    figure = new_figure(14.5, 7)
    grid = figure.add_gridspec(2, 12)
    x, mask = padded_batch()
    shown = {"input": x, **{kind: normalised(kind, x, mask).detach() for kind in kinds}}
    for index, (name, values) in enumerate(shown.items()):
        _heat_map(figure.add_subplot(grid[0, 3 * index : 3 * index + 3]), values[..., FEATURE], mask, words, name)
    left, middle, right = (figure.add_subplot(grid[1, 4 * index : 4 * index + 4]) for index in range(3))
    paddings = [value / 2 for value in range(-16, 17)]
    for kind, style in zip(kinds, ("-", "--", "-"), strict=True):
        left.plot(paddings, [change_by_padding(kind, value) for value in paddings], style, label=words[kind])
    left.set(title=words["padding"], xlabel=words["held"], ylabel=words["change"])
    left.set_ylim(top=1.45 * left.get_ylim()[1])  # room for the legend above the curve
    left.legend(frameon=False, loc="upper center")
    bars = middle.bar(range(3), [change_by_mates(kind) for kind in kinds], color=["C0", "C1", "C2"], width=0.6)
    middle.bar_label(bars, fmt="%.2f")
    middle.set_xticks(range(3), [words[kind].replace(", ", ",\n").replace("(", "\n(") for kind in kinds])
    middle.set(title=words["mates"], ylabel=words["change"])
    for index, kind in enumerate(kinds):
        places = [number + 1 + 0.27 * (index - 1) for number in range(len(LENGTHS))]
        right.bar(places, gradient_by_sentence(kind), width=0.25, label=words[kind])
    right.set_yscale("symlog", linthresh=1e-3)
    right.set(title=words["gradient"], xlabel=words["sentence"], ylabel=words["norm"], ylim=(0, 3))
    right.legend(frameon=False)
    return figure


def _heat_map(panel: Axes, values: Tensor, mask: Tensor, words: dict[str, str], name: str) -> None:
    shown = values.masked_fill(~mask, float("nan")).numpy()
    panel.set_facecolor("#d8d8d8")
    panel.pcolormesh(shown, cmap="RdBu", vmin=-3, vmax=3, edgecolors="white", linewidth=0.5)
    panel.invert_yaxis()
    panel.set_yticks([index + 0.5 for index in range(len(LENGTHS))], [str(index + 1) for index in range(len(LENGTHS))])
    panel.set_xticks([])
    panel.set(title=words[name], xlabel=words["token"], ylabel=words["sentence"] if name == "input" else "")
