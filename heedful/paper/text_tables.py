"""Small tables in three formats: aligned text for the terminal, Markdown, and HTML."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1) -> str:
    """A table; columns after the first `names` are numbers, aligned right."""
    rule = "|" + "---|" * names + "---:|" * (len(heading) - names)
    return "\n".join([_line(heading), rule, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def print_table(
    heading: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1, sections: Sequence[int] = ()
) -> None:
    """Print an aligned table; columns after the first `names` are numbers, and a rule follows each row of `sections`.

    On a terminal, cells wrap to its width, but words are not cut; elsewhere the table is as wide as it needs.
    """
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, title in enumerate(heading):
        table.add_column(escape(title), justify="left" if column < names else "right")
    for index, row in enumerate(rows):
        table.add_row(*map(escape, row), end_section=index in sections)
    console = Console(highlight=False)
    if sys.stdout.isatty():  # the measured minimum leaves out some of the space between columns
        unlimited = console.options.update(width=UNLIMITED_WIDTH)
        minimum = Measurement.get(console, unlimited, table).minimum + len(heading)
        console.width = max(console.width, minimum)
    else:
        console.width = UNLIMITED_WIDTH
    console.print(table)


UNLIMITED_WIDTH = 10_000


def number(value: float | None, form: str) -> str:
    """A formatted number, or a dash for None."""
    return "–" if value is None else format(value, form)


def score_text(score: Mapping[str, Any]) -> str:
    """A score such as 34.5 ± 1.1, with half the width of its 95 % confidence interval."""
    interval = score.get("interval")
    half = f" ± {(interval['high'] - interval['low']) / 2:.1f}" if interval else ""
    return "–" if score["value"] is None else f"{score['value']:.1f}{half}"


TABLE_FORMATS = ("text", "markdown", "html")


@dataclass(frozen=True)
class Table:
    """A table with a caption and notes; the columns after the first `num_names` hold numbers."""

    caption: str
    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    num_names: int = 1

    def render(self, form: str, *, language: str = "en") -> str:
        """The table in one of `TABLE_FORMATS`; HTML is a complete page."""
        if form == "markdown":
            table = markdown_table(self.heading, self.rows, names=self.num_names)
            return "\n\n".join([f"**{self.caption}**", table, *self.notes]) + "\n"
        return self._html(language) if form == "html" else self._text()

    def _text(self) -> str:
        from rich.cells import cell_len

        cells = [list(self.heading), *map(list, self.rows)]
        widths = [max(cell_len(row[column]) for row in cells) for column in range(len(self.heading))]

        def line(row: Sequence[str]) -> str:
            padded = []
            for column, cell in enumerate(row):
                space = " " * (widths[column] - cell_len(cell))
                padded.append(cell + space if column < self.num_names else space + cell)
            return "  ".join(padded).rstrip()

        rule = "  ".join("-" * width for width in widths)
        notes = ["", *self.notes] if self.notes else []
        return "\n".join([self.caption, "", line(self.heading), rule, *map(line, self.rows), *notes, ""])

    def _html(self, language: str) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            kinds = ["" if column < self.num_names else ' class="number"' for column in range(len(cells))]
            parts = [f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)]
            return f"<tr>{''.join(parts)}</tr>"

        body = "\n".join(row(cells, "td") for cells in self.rows)
        notes = "".join(f"<p>{escape(note)}</p>\n" for note in self.notes)
        code = "zh-CN" if language == "zh" else "en"
        return (
            f'<!doctype html>\n<html lang="{code}">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width">\n<title>{escape(self.caption)}</title>\n'
            f"<style>{STYLE}</style>\n</head>\n<body>\n<table>\n<caption>{escape(self.caption)}</caption>\n"
            f"<thead>{row(self.heading, 'th')}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n{notes}</body>\n</html>\n"
        )


STYLE = (
    ":root { color-scheme: light dark; } body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem; overflow-x: auto; }"
    " table { border-collapse: collapse; } caption { text-align: left; font-weight: 600; padding-bottom: .5rem; }"
    " th, td { padding: .3rem .7rem; text-align: left; border-bottom: 1px solid #8886; } .number { text-align: right; }"
)
