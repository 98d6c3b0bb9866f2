"""The cube of batch, positions and features: which values share a mean and a variance in LayerNorm and BatchNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.model.norms import BatchNorm, LayerNorm
from heedful.paper.figures.canvas import Canvas, Place
from heedful.paper.plot_style import in_language, theme
from heedful.tensor_types import Bool

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = (3, 5, 4)
"""Of the sentences, the nearest first; the shorter ones are padded to the longest."""
FEATURES = 4
CELLS = {"layer": (0, 1, 0), "batch": (0, 1, 0), "batch_padded": (0, 1, 0)}
"""By norm: the value whose mean and variance are shown, by sentence, position and feature (0 is uppermost)."""

NORM_AXES_WORDS = {
    "layer": ("LayerNorm", "LayerNorm"),
    "batch": ("BatchNorm without padding", "BatchNorm，不计填充"),
    "batch_padded": ("BatchNorm with padding", "BatchNorm，计入填充"),
    "layer_note": ("one token, all features", "一个词元，全部特征"),
    "batch_note": ("one feature, all real tokens", "一个特征，全部真实词元"),
    "batch_padded_note": ("one feature, padding too", "一个特征，连同填充"),
    "count": ("mean of {n} values", "{n} 个值的均值"),
    "batch_axis": ("sentence", "句子"),
    "position_axis": ("position", "位置"),
    "feature_axis": ("feature", "特征"),
    "shared": ("same mean and variance as the marked value", "与标记的值共用均值和方差"),
    "real": ("other values", "其他值"),
    "padding": ("padding", "填充"),
    "title": ("Which axis is normalised?", "沿哪个轴归一化？"),
}


def shared_statistics(kind: str) -> Bool[Tensor, "B T D"]:
    """The inputs whose change reaches the normalised value at `CELLS[kind]`, found with autograd."""
    mask = real_tokens()
    x = torch.randn(len(LENGTHS), max(LENGTHS), FEATURES, generator=torch.Generator().manual_seed(1))
    x = x.double().requires_grad_()
    if kind == "layer":
        output = LayerNorm(FEATURES, eps=1e-5).double().train()(x)
    else:
        norm = BatchNorm(FEATURES, eps=1e-5, bias=True).double().train()
        output = norm(x, torch.ones_like(mask) if kind == "batch_padded" else mask)
    (gradient,) = torch.autograd.grad(output[CELLS[kind]], x)
    return gradient.abs() > 1e-12


def real_tokens() -> Bool[Tensor, "B T"]:
    """Which positions are not padding."""
    return torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]


SIDE, DEPTH = 21.0, (10.0, 8.0)
"""Size of a cell in points, and the offset from one sentence to the next."""
WIDTH, HEIGHT = 500.0, 254.0


def draw_norm_axes(language: str) -> Figure:
    """Draw the three cubes side by side."""
    words = in_language(NORM_AXES_WORDS, language)
    canvas = Canvas(WIDTH, HEIGHT)
    canvas.text((WIDTH / 2, HEIGHT - 15), words["title"], size=11.5)
    for index, kind in enumerate(("layer", "batch", "batch_padded")):
        left = 26 + index * 162
        shared = shared_statistics(kind)
        middle = left + max(LENGTHS) * SIDE / 2 + 8
        canvas.text((middle, HEIGHT - 42), words[kind], size=10.5)
        canvas.text((middle, HEIGHT - 58), words[f"{kind}_note"], size=8.5, colour=theme().muted)
        _cube(canvas, (left, 74), shared, CELLS[kind])
        canvas.text((middle - 8, 62), words["position_axis"] + " →", size=8.5)
        canvas.text((left - 10, 74 + FEATURES * SIDE / 2), "← " + words["feature_axis"], size=8.5, rotation=90)
        right = left + max(LENGTHS) * SIDE
        slope = (right + 1.5 * DEPTH[0] + 8, 74 + 1.5 * DEPTH[1] - 8)
        canvas.text(slope, words["batch_axis"] + " →", size=8, rotation=39)
        canvas.text((middle, 44), words["count"].format(n=int(shared.sum())), size=9.5, colour=theme().colours[0])
    _legend(canvas, words)
    return canvas.figure


def _cube(canvas: Canvas, corner: Place, shared: Bool[Tensor, "B T D"], cell: tuple[int, int, int]) -> None:
    """The front (first sentence), the top (first feature) and the right side (last position) of the cube."""
    real = real_tokens()
    num_sentences, length, num_features = shared.shape

    def place(sentence: float, position: float, feature: float) -> Place:
        """The point at these distances from the corner that is first in every axis, which is at the upper left."""
        across = corner[0] + position * SIDE + sentence * DEPTH[0]
        return across, corner[1] + (num_features - feature) * SIDE + sentence * DEPTH[1]

    def face(index: tuple[int, int, int], *corners: tuple[float, float, float]) -> None:
        sentence, position, _ = index
        colours = theme()
        fill = colours.colours[0] if shared[index] else colours.heat[1] if real[sentence, position] else colours.blank
        points = [place(*one) for one in corners]
        shape = canvas.polygon(*points, fill=fill)
        if not real[sentence, position]:
            shape.set(hatch="////", linewidth=0.7)
        if index == cell:
            middle = [sum(axis) / 4 for axis in zip(*points, strict=True)]
            canvas.panel.plot(*middle, "o", color=colours.background, markersize=4.5, zorder=5)

    for t in range(length):
        for d in range(num_features):
            face((0, t, d), (0, t, d), (0, t + 1, d), (0, t + 1, d + 1), (0, t, d + 1))
        for b in range(num_sentences):
            face((b, t, 0), (b, t, 0), (b, t + 1, 0), (b + 1, t + 1, 0), (b + 1, t, 0))
    for b in range(num_sentences):
        for d in range(num_features):
            face((b, length - 1, d), (b, length, d), (b + 1, length, d), (b + 1, length, d + 1), (b, length, d + 1))


def _legend(canvas: Canvas, words: dict[str, str]) -> None:
    colours = theme()
    entries = (("shared", colours.colours[0]), ("real", colours.heat[1]), ("padding", colours.blank))
    across = 20.0
    for name, fill in entries:
        corners = (across, 12), (across + 12, 12), (across + 12, 24), (across, 24)
        shape = canvas.polygon(*corners, fill=fill)
        if name == "padding":
            shape.set(hatch="////")
        text = canvas.text((across + 17, 18), words[name], size=9, ha="left")
        across += 17 + canvas.width_of(text) + 20
