"""Convolutional, recurrent and self-attention encoder-decoders side by side, and the path of information in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from heedful.paper.layer_costs import MeasuredLayer, build_layer, dependent_operations, gradient_reach, layers_to_span
from heedful.paper.plot_style import Canvas, Place, in_language, theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH, TARGETS, KERNEL, WIDTH_OF_LAYER = 7, 4, 5, 16
LENGTHS = (4, 8, 16, 32, 64, 128)
KINDS = ("convolutional", "recurrent", "self_attention")

SEQUENCE_MODEL_WORDS = {
    "convolutional": ("Convolutions", "卷积网络"),
    "recurrent": ("Recurrent network", "循环网络"),
    "self_attention": ("Transformer", "Transformer"),
    "how_convolutional": ("kernel of {k} positions", "卷积核宽 {k} 个位置"),
    "how_recurrent": ("one state after another", "状态逐个计算"),
    "how_self_attention": ("every position sees all", "每个位置关注所有位置"),
    "layers": ("layers from x₁ to x₇: {n}", "x₁ 到 x₇ 的层数：{n}"),
    "steps": ("dependent operations: {n}", "须依次进行的运算：{n}"),
    "curve": ("dependent operations from the first to the last position", "从首位置到末位置须依次进行的运算数"),
    "length": ("length of the sequence", "序列长度"),
    "lines": (
        "coloured: path from x₁ to x₇ in the encoder; dashed: attention of the last output to the source",
        "彩线：编码器中 x₁ 到 x₇ 的路径；虚线：末输出对源句的注意力",
    ),
    "title": ("Three encoder-decoders: how x₁ reaches x₇", "三种编码器-解码器：x₁ 如何到达 x₇"),
}


@dataclass(frozen=True)
class Path:
    """What separates the first from the last position of a sequence."""

    layers: int
    """Stacked layers until the last position depends on the first."""
    operations: int
    """Dependent operations in one layer."""

    @property
    def total(self) -> int:
        """Dependent operations from the first input to the last output."""
        return self.layers * self.operations


def path_between_ends(kind: str, length: int) -> Path:
    """Measured on a layer of the package as for Table 1: by gradients, and by the graph of operations."""
    layer = build_layer(
        kind,
        d_model=WIDTH_OF_LAYER,
        window=KERNEL,
        kernel_size=KERNEL,
        device=torch.device("cpu"),
        attention="explicit",
    )
    operations = dependent_operations(layer, length=length, d_model=WIDTH_OF_LAYER)
    reach = gradient_reach(layer, length=length, d_model=WIDTH_OF_LAYER)
    return Path(layers_to_span(reach, length), operations)


def inputs_of(kind: str, length: int = LENGTH) -> list[list[int]]:
    """For each output of one layer, the inputs that it depends on, by gradients."""
    layer = build_layer(
        kind,
        d_model=WIDTH_OF_LAYER,
        window=KERNEL,
        kernel_size=KERNEL,
        device=torch.device("cpu"),
        attention="explicit",
    ).double()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, length, WIDTH_OF_LAYER, dtype=torch.float64, generator=generator).requires_grad_()
    output = layer(x)[0]
    found = []
    for position in range(length):
        (gradient,) = torch.autograd.grad(output[position].sum(), x, retain_graph=True)
        found.append(gradient[0].abs().sum(dim=-1).nonzero()[:, 0].tolist())
    return found


def _layer(kind: str) -> MeasuredLayer:
    sizes = {"d_model": WIDTH_OF_LAYER, "window": KERNEL, "kernel_size": KERNEL}
    return build_layer(kind, device=torch.device("cpu"), attention="explicit", **sizes)


WIDTH, HEIGHT = 500.0, 486.0
COLUMN, STEP, RADIUS = 164.0, 20.0, 4.2
BOTTOM, ROW = 222.0, 28.0


def draw_sequence_models(language: str) -> Figure:
    """Draw the three models above, and below the operations on the path against the length."""
    words = in_language(SEQUENCE_MODEL_WORDS, language)
    canvas = Canvas(WIDTH, HEIGHT)
    canvas.text((WIDTH / 2, HEIGHT - 15), words["title"], size=11.5)
    canvas.text((WIDTH / 2, HEIGHT - 33), words["lines"], size=8.5, colour=theme().muted)
    for index, kind in enumerate(KINDS):
        left = 20 + index * COLUMN
        middle = left + (LENGTH - 1) * STEP / 2
        canvas.text((middle, HEIGHT - 60), words[kind], size=10.5, colour=theme().colours[index])
        canvas.text((middle, HEIGHT - 75), words[f"how_{kind}"].format(k=KERNEL), size=8.5, colour=theme().muted)
        path = path_between_ends(kind, LENGTH)
        _model(canvas, kind, left, path, theme().colours[index])
        canvas.text((middle, 190), words["layers"].format(n=path.layers), size=8.5)
        canvas.text((middle, 176), words["steps"].format(n=path.total), size=8.5)
    _curves(canvas, words)
    return canvas.figure


def _model(canvas: Canvas, kind: str, left: float, path: Path, colour: str) -> None:
    """Encoder below, decoder above it; the path from the first to the last source position in colour."""
    rows = [
        [(left + index * STEP, BOTTOM + level * ROW) for index in range(LENGTH)] for level in range(path.layers + 1)
    ]
    start, floor = left + (LENGTH - TARGETS) * STEP / 2, BOTTOM + 3 * ROW + 34
    inputs, outputs = ([(start + i * STEP, floor + rise) for i in range(TARGETS)] for rise in (0.0, ROW))
    links = inputs_of(kind)
    for below, above in pairwise(rows):
        _links(canvas, kind, below, above, links)
    causal = [[source for source in sources if source <= output] for output, sources in enumerate(links[:TARGETS])]
    _links(canvas, kind, inputs, outputs, causal)
    for place in rows[-1]:
        canvas.line(place, outputs[-1], colour=theme().muted, width=0.6, linestyle=(0, (2, 2)), zorder=0.5)
    _highlight(canvas, kind, rows, links, colour)
    ring: dict[str, Any] = {"color": theme().background, "markeredgecolor": theme().muted, "markersize": 6, "zorder": 3}
    for x, y in (place for row in (*rows, inputs, outputs) for place in row):
        canvas.panel.plot(x, y, "o", **ring)
    for place in (rows[0][0], rows[-1][-1]):
        canvas.panel.plot(*place, "o", color=colour, markersize=7, zorder=4)
    for index, (x, y) in enumerate(rows[0]):
        canvas.text((x, y - 13), f"$x_{index + 1}$", size=9)
    for index, (x, y) in enumerate(outputs):
        canvas.text((x, y + 12), f"$y_{index + 1}$", size=9)


def _links(canvas: Canvas, kind: str, below: Sequence[Place], above: Sequence[Place], links: list[list[int]]) -> None:
    """The connections of one layer; in a recurrent one, each state follows from its input and the state before it."""
    for output, sources in enumerate(links):
        if kind == "recurrent":
            canvas.line(below[output], above[output], colour=theme().faint, width=0.9)
            if output:
                canvas.line(above[output - 1], above[output], colour=theme().faint, width=0.9)
            continue
        for source in sources:
            canvas.line(below[source], above[output], colour=theme().faint, width=0.7)


def _highlight(canvas: Canvas, kind: str, rows: Sequence[Sequence[Place]], links: list[list[int]], colour: str) -> None:
    """The path from the first position below to the last above."""
    if kind == "recurrent":
        places = [rows[0][0], *rows[1]]
    else:
        at, places = 0, [rows[0][0]]
        for row in rows[1:]:
            at = max(output for output, sources in enumerate(links) if at in sources)
            places.append(row[at])
    canvas.line(*places, colour=colour, width=2.4, zorder=2.5)


def _curves(canvas: Canvas, words: dict[str, str]) -> None:
    panel = canvas.figure.add_axes((0.1, 0.085, 0.84, 0.215))
    for index, kind in enumerate(KINDS):
        operations = [path_between_ends(kind, length).total for length in LENGTHS]
        panel.plot(LENGTHS, operations, marker="o", markersize=4, color=theme().colours[index], label=words[kind])
        panel.annotate(
            str(operations[-1]), (LENGTHS[-1], operations[-1]), xytext=(5, 0), textcoords="offset points", fontsize=8.5,
            va="center", color=theme().colours[index],
        )  # fmt: skip
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    panel.minorticks_off()
    panel.grid(visible=True, alpha=0.25)
    panel.set_xlabel(words["length"], fontsize=9)
    panel.set_title(words["curve"], fontsize=9.5, loc="left")
    panel.tick_params(labelsize=8.5)
