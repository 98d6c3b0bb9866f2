"""The worked example of attention as plain text, as a LaTeX document, and as a figure with every matrix."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.paper.plot_style import heat_colours, in_language, new_figure, text_on, theme
from heedful.paper.worked_example import (
    CJK,
    D_MODEL,
    DECIMALS,
    NUM_HEADS,
    QUOTES,
    SIMILAR,
    WORDS,
    Matrix,
    WorkedExample,
    difference_from_module,
    joined,
    number,
    numbers,
    similarities,
    steps,
)
from heedful.tensor_types import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from rich.console import Console

TEXT_WIDTH = 100


def as_text(example: WorkedExample, language: str) -> str:
    """The example as plain text of at most `TEXT_WIDTH` columns."""
    from rich.cells import cell_len

    heading, shape, check = _frame(example, language)
    parts = [heading, "=" * cell_len(heading), "", *_wrapped(shape), ""]
    for index, step in enumerate(steps(example, language), 1):
        title = f"{index}. {step.title}"
        parts += [title, "-" * cell_len(title), *_wrapped(step.text), ""]
        for number_of_group, group in enumerate(step.groups):
            if number_of_group < len(step.formulas):
                parts += [step.formulas[number_of_group], ""]
            parts += [*_side_by_side([_block(matrix) for matrix in group]), ""]
        for calculation in step.calculations:
            parts += [f"    {re.sub(f'[{QUOTES[0]}{QUOTES[1]}]', '', calculation)}", ""]
    return "\n".join([*parts, check, ""])


def _frame(example: WorkedExample, language: str) -> tuple[str, str, str]:
    """Heading, shape and closing line."""
    texts = in_language(WORDS, language)
    shape = texts["shape"].format(d=D_MODEL, h=NUM_HEADS, dk=D_MODEL // NUM_HEADS, digits=DECIMALS)
    return (
        texts["title"].format(words=joined(example.words)),
        shape,
        texts["check"].format(difference=difference_from_module(example)),
    )


def _wrapped(text: str) -> list[str]:
    """Lines of at most `TEXT_WIDTH` columns; Chinese text breaks between any two characters."""
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(_measuring_console(), TEXT_WIDTH)]


def _measuring_console() -> Console:
    from rich.console import Console

    return Console(width=TEXT_WIDTH)


def _block(matrix: Matrix) -> list[str]:
    """A matrix as lines of equal width: its name above, labels on the left."""
    from rich.cells import cell_len

    cells = numbers(matrix.values)
    table = [list(matrix.columns), *cells] if matrix.columns else cells
    widths = [max(cell_len(row[column]) for row in table) for column in range(len(cells[0]))]
    label_width = max((cell_len(label) for label in matrix.rows), default=0)
    labels = [*([""] if matrix.columns else []), *(matrix.rows or [""] * len(cells))]

    def right(text: str, width: int) -> str:
        return " " * (width - cell_len(text)) + text

    body = [
        f"{label}{' ' * (label_width - cell_len(label))}  "
        + "  ".join(right(cell, width) for cell, width in zip(row, widths, strict=True))
        for label, row in zip(labels, table, strict=True)
    ]
    full = max(cell_len(line) for line in [matrix.name, *body])
    return [line + " " * (full - cell_len(line)) for line in [matrix.name, *body]]


def _side_by_side(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Blocks next to each other, as many in a row as fit."""
    from rich.cells import cell_len

    lines: list[str] = []
    row: list[Sequence[str]] = []
    for block in [*blocks, []]:
        used = sum(cell_len(one[0]) + 6 for one in row)
        if row and (not block or used + cell_len(block[0]) + 4 > TEXT_WIDTH):
            height = max(map(len, row))
            padded = [[*one, *[" " * cell_len(one[0])] * (height - len(one))] for one in row]
            lines += [
                *([""] if lines else []),
                *("    " + "      ".join(parts).rstrip() for parts in zip(*padded, strict=True)),
            ]
            row = []
        if block:
            row.append(block)
    return lines


# ---- LaTeX -----------------------------------------------------------------------------------------------------------

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}
MATHEMATICS = (
    ("√d_k", r"\sqrt{d_k}"),
    ("d_model", r"d_{\text{model}}"),
    ("ᵀ", r"^\top"),
    ("−∞", r"-\infty"),
    ("·", r" \cdot "),
    ("exp(", r"\exp("),
    ("sin(", r"\sin("),
    ("softmax", r"\operatorname{softmax}"),
    ("Concat", r"\operatorname{Concat}"),
)


def escape_latex(text: str) -> str:
    """Text for LaTeX; √d_k, −∞ and W_O are set as mathematics."""
    symbols = re.compile(r"√\d|√?d_\w+|−∞|W_[QKVO]|Kᵀ|[a-z]_\w\b")
    parts, position = [], 0
    for found in symbols.finditer(text):
        parts += [_escaped(text[position : found.start()]), f"${_mathematics(found[0])}$"]
        position = found.end()
    return "".join([*parts, _escaped(text[position:])])


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(character, character) for character in text)


def _mathematics(formula: str) -> str:
    """A formula of this module in LaTeX; the words of the example are set upright."""
    upright: list[str] = []

    def keep(found: re.Match[str]) -> str:
        upright.append(rf"\text{{{_escaped(found[1])}}}")
        return QUOTES[0]

    formula = re.sub(f"{QUOTES[0]}(.*?){QUOTES[1]}", keep, formula)
    formula = re.sub(r"√(\d[\d.]*)", r"\\sqrt{\1}", formula)
    formula = re.sub(r"\^\((.*?)\)", r"^{\1}", formula)
    for plain, latex in MATHEMATICS:
        formula = formula.replace(plain, latex)
    for text in upright:
        formula = formula.replace(QUOTES[0], text, 1)
    return formula


def as_latex(example: WorkedExample, language: str) -> str:
    """The example as a complete LaTeX document; Chinese characters need XeLaTeX or LuaLaTeX with ctex."""
    heading, shape, check = _frame(example, language)
    body = [rf"\section*{{{escape_latex(heading)}}}", escape_latex(shape)]
    for step in steps(example, language):
        body += ["", rf"\subsection*{{{escape_latex(step.title)}}}", escape_latex(step.text)]
        for index, group in enumerate(step.groups):
            formula = [rf"{_mathematics(step.formulas[index])} \\"] if index < len(step.formulas) else []
            matrices = [_latex_matrix(matrix) for matrix in group]
            rows = [r" \qquad ".join(matrices[start : start + 3]) for start in range(0, len(matrices), 3)]
            body += [r"\begin{gather*}", *formula, " \\\\\n".join(rows), r"\end{gather*}"]
        body += [rf"\[ {_mathematics(calculation)} \]" for calculation in step.calculations]
    text = "\n".join([*body, "", escape_latex(check)])
    packages = [r"\usepackage{amsmath}", r"\usepackage[margin=2cm]{geometry}"]
    if CJK.search(text):
        packages.append(r"\usepackage{ctex}")
    return "\n".join(
        [r"\documentclass{article}", *packages, r"\begin{document}", r"\small", text, r"\end{document}", ""]
    )


def _latex_matrix(matrix: Matrix) -> str:
    columns = matrix.values.shape[1]
    labels = "l|" if matrix.rows else ""

    def cell(text: str) -> str:
        return rf"\text{{{_escaped(text)}}}"

    lines = []
    if matrix.columns:
        lines.append(" & ".join([*([""] if labels else []), *map(cell, matrix.columns)]) + r" \\ \hline")
    for index, row in enumerate(numbers(matrix.values)):
        lines.append(" & ".join([*([cell(matrix.rows[index])] if labels else []), *map(_mathematics, row)]) + r" \\")
    name = re.sub(r"^(\w)_(\w)$", r"\1_\2", matrix.name) if re.fullmatch(r"\w(_\w)?", matrix.name) else ""
    shown = f"{name} = " if name and not CJK.search(name) else ""
    table = "\n".join([rf"\begin{{array}}{{{labels}{'r' * columns}}}", *lines, r"\end{array}"])
    return f"{shown}{table}" if matrix.columns else f"{shown}\\left[{table}\\right]"


# ---- figure

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
