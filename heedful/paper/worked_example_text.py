"""The worked example of attention as plain text and as a LaTeX document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.paper.plot_style import in_language
from heedful.paper.worked_example import (
    CJK,
    D_MODEL,
    DECIMALS,
    NUM_HEADS,
    QUOTES,
    WORDS,
    Matrix,
    WorkedExample,
    difference_from_module,
    joined,
    numbers,
    steps,
)

if TYPE_CHECKING:
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
