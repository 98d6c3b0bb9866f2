"""Markdown tables for the pages of experiments."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1) -> str:
    """A table; columns after the first `names` are numbers, aligned right."""
    rule = "|" + "---|" * names + "---:|" * (len(heading) - names)
    return "\n".join([_line(heading), rule, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
