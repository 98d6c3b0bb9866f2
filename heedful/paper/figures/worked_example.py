"""The worked example of attention as a figure: every matrix with its numbers, from the vectors to the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.paper.plot_style import heat_colours, in_language, new_figure, text_on, theme
from heedful.paper.worked_example import SIMILAR, WORDS, WorkedExample, joined, number, similarities
from heedful.tensor_types import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

COLUMNS = 5

WORKED_EXAMPLE_WORDS = {
    "title": WORDS["title"],
    "similar": ("dot product with a", "与 a 的点积"),
    "x": ("words", "词向量"),
    "embeddings": ("embeddings", "词嵌入"),
    "positions": ("positions", "位置编码"),
    "query": ("queries", "查询"),
    "key": ("keys", "键"),
    "value": ("values", "值"),
    "columns": ("columns 1–2: head 1\ncolumns 3–4: head 2", "第 1–2 列：第 1 个头\n第 3–4 列：第 2 个头"),
    "scores": ("scores", "分数"),
    "scaled": ("scaled", "缩放"),
    "masked": ("masked", "掩码"),
    "weights": ("weights", "权重"),
    "heads": ("weighted sum", "加权和"),
    "head": ("head {i}: query", "第 {i} 个头：查询"),
    "looked_at": ("key: the word looked at", "键：被关注的词"),
    "concatenated": ("concatenation", "拼接"),
    "output": ("output", "输出"),
}
FORMULAS = {
    "x": "$X = E + P$",
    "query": "$Q = X W_Q$",
    "key": "$K = X W_K$",
    "value": "$V = X W_V$",
    "scores": "$Q_i K_i^T$",
    "scaled": r"$Q_i K_i^T / \sqrt{d_k}$",
    "masked": r"$+\, M$",
    "weights": r"$A_i = \mathrm{softmax}$",
    "heads": "$O_i = A_i V_i$",
    "concatenated": "$C$",
    "output": "$C\\, W_O$",
}
"""Set apart from the words: matplotlib cannot set formulas and Chinese in one text."""


def draw_worked_example(language: str, example: WorkedExample) -> Figure:
    """Draw all steps: inputs and projections, a row for each head, and the output."""
    words = in_language(WORKED_EXAMPLE_WORDS, language)
    tall = 0.27 * max(len(example.words), 4) + 0.95
    figure = new_figure(max(11.0, 0.52 * len(example.words) * COLUMNS), 5 * tall + 0.5)
    grid = figure.subplots(5, COLUMNS)
    _draw_similarity(grid[0][0], words)
    _draw_matrix(grid[0][1], example.x, words["x"], FORMULAS["x"], example.words)
    _draw_matrix(grid[1][0], example.embeddings, words["embeddings"], "$E$", example.words)
    _draw_matrix(grid[1][1], example.positions, words["positions"], "$P$", example.words)
    for column, name in enumerate(("query", "key", "value"), 2):
        _draw_matrix(grid[0][column], example.matrix_of(name), "", f"$W_{name[0].upper()}$")
        whole = getattr(example, name).transpose(0, 1).flatten(1)
        _draw_matrix(grid[1][column], whole, words[name], FORMULAS[name], example.words, in_heads=True)
    for head in range(2):
        _draw_head(grid[2 + head], example, head, words)
    concatenated = words["concatenated"], FORMULAS["concatenated"]
    _draw_matrix(grid[4][1], example.concatenated, *concatenated, example.words, in_heads=True)
    _draw_matrix(grid[4][2], example.matrix_of("output"), "", "$W_O$")
    _draw_matrix(grid[4][3], example.output, words["output"], FORMULAS["output"], example.words)
    for unused in (grid[4][0], grid[4][4]):
        unused.axis("off")
    grid[4][0].text(0.5, 0.5, words["columns"], ha="center", va="center", transform=grid[4][0].transAxes)
    figure.suptitle(words["title"].format(words=joined(example.words)).replace("$", r"\$"))
    return figure


def _draw_head(row: Sequence[Axes], example: WorkedExample, head: int, words: dict[str, str]) -> None:
    formulas = {name: formula.replace("_i", f"_{head + 1}") for name, formula in FORMULAS.items()}
    for panel, name in zip(row, ("scores", "scaled", "masked", "weights"), strict=False):
        cmap, limits = (heat_colours(), (0.0, 1.0)) if name == "weights" else (None, None)
        values, names = getattr(example, name)[head], example.words
        _draw_matrix(panel, values, words[name], formulas[name], names, columns=names, cmap=cmap, limits=limits)
        panel.set_xlabel(words["looked_at"], fontsize=8)
    row[0].set_ylabel(words["head"].format(i=head + 1), color=theme().colours[head], fontsize=9.5)
    _draw_matrix(row[4], example.heads[head], words["heads"], formulas["heads"], example.words)


def _draw_matrix(
    panel: Axes,
    values: Float[Tensor, "T K"],
    title: str,
    formula: str,
    rows: Sequence[str] = (),
    *,
    columns: Sequence[str] = (),
    cmap: Colormap | None = None,
    limits: tuple[float, float] | None = None,
    in_heads: bool = False,
) -> None:
    """A heat map with the number in every cell; −∞ is grey."""
    finite = values[values.isfinite()]
    most = 1.6 * max(finite.abs().max().item(), 1e-6)
    low, high = limits or (-most, most)
    panel.set_facecolor(theme().blank)
    shown = torch.where(values.isfinite(), values, torch.nan)
    image = panel.imshow(shown.numpy(), cmap=cmap or heat_colours(signed=True), vmin=low, vmax=high, aspect="auto")
    for index, row in enumerate(values.tolist()):
        for column, value in enumerate(row):
            colour = text_on(image.to_rgba(value)) if math.isfinite(value) else theme().muted
            panel.text(column, index, number(value, 2), ha="center", va="center", fontsize=8.5, color=colour)
    panel.set_yticks(range(len(values)), [_plain(word) for word in rows] or [""] * len(values), fontsize=8.5)
    labels = [_plain(word) for word in columns]
    panel.set_xticks(range(values.shape[1]), labels or [""] * values.shape[1], fontsize=8.5)
    if len(columns) > 4:
        panel.tick_params(axis="x", rotation=30)
    panel.tick_params(length=0)
    panel.set_title(title, loc="left", fontsize=9.5)
    panel.set_title(formula, loc="right", fontsize=9.5)
    for side in panel.spines.values():
        side.set_visible(False)
    if in_heads:
        half = values.shape[1] / 2
        for head, colour in enumerate(theme().colours[:2]):
            left = head * half - 0.5
            panel.plot([left + 0.06, left + half - 0.06], [-0.5, -0.5], color=colour, linewidth=4, clip_on=False)
        panel.axvline(half - 0.5, color=theme().background, linewidth=3)


def _draw_similarity(panel: Axes, words: dict[str, str]) -> None:
    """Two-dimensional vectors as arrows, each with its dot product with the first."""
    products = similarities()[:, -1].tolist()
    offsets = {"a": (0.1, -0.42), "b": (0.08, 0.12), "c": (0.1, 0.08), "d": (-0.3, 0.16), "e": (-0.35, 0.16)}
    for index, (name, (x, y)) in reversed(list(enumerate(SIMILAR.items()))):
        panel.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": f"C{index}", "linewidth": 1.6})
        right, up = offsets[name]
        panel.text(x + right, y + up, f"{name}: {products[index]:.1f}", color=f"C{index}", fontsize=8.5)
    panel.set(xlim=(-1.5, 2.5), ylim=(-0.6, 1.45), xticks=[], yticks=[])
    panel.axhline(0, color=theme().faint, linewidth=0.6, zorder=0)
    panel.axvline(0, color=theme().faint, linewidth=0.6, zorder=0)
    panel.set_title(words["similar"], fontsize=9.5)
    for side in panel.spines.values():
        side.set_visible(False)


def _plain(word: str) -> str:
    return word.replace("$", r"\$")
