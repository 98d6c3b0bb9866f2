"""TSV and CSV files of sentence pairs: which columns hold source and target, and whether the first line is a heading.

A line is a record, as everywhere in corpora: a quoted field may hold separators and doubled quotes, but no line break.
The first line is a heading if columns are given by name, or if it says so itself with the names source and target.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.errors import ConfigError, CorpusError
from heedful.text.compression import SUFFIXES

USUAL_NAMES = ("source", "target")


@dataclass(frozen=True)
class Table:
    """How the lines of one file are read."""

    path: str
    separator: str
    """A tab, and then quotes are text; or the comma or semicolon of a CSV file."""
    source_column: int
    """From 0."""
    target_column: int
    heading: str | None = None
    """The first line, if it is none of the pairs."""

    def pair(self, line: str, number: int) -> tuple[str, str]:
        """Source and target of a line; both empty for the heading."""
        if not line.strip() or line == self.heading:
            return "", ""
        columns = cells(line, self.separator, f"{self.path}:{number}")
        needed = max(self.source_column, self.target_column) + 1
        if len(columns) < needed:
            kind = "one tab" if self.separator == "\t" else f"{self.separator!r}"
            raise CorpusError(
                f"{self.path}:{number}: {len(columns)} column{'s' * (len(columns) != 1)} where column {needed} is "
                f"wanted; columns are separated by {kind}. Put the line right or set source_column and target_column."
            )
        return columns[self.source_column].strip(), columns[self.target_column].strip()


def open_table(path: str, first_line: str, source_column: str | None, target_column: str | None) -> Table:
    """The table that a file is, by its first line and the columns that were asked for, by number from 1 or by name."""
    is_csv = _is_csv(path)
    separator = _separator(first_line) if is_csv else "\t"
    heading = [name.strip() for name in cells(first_line, separator, f"{path}:1")]
    wanted = [source_column, target_column]
    if wanted == [None, None] and set(USUAL_NAMES) <= {name.casefold() for name in heading}:
        wanted = list(USUAL_NAMES)
    if wanted == [None, None] and is_csv:
        raise ConfigError(
            f"corpus {path}: which columns are source and target? Its first line is {_listed(heading)}; name them "
            f"with --source-column and --target-column (source_column, target_column), or by number from 1."
        )
    if all(name is None or _is_number(name) for name in wanted):
        source, target = (int(name) - 1 if name else place for place, name in enumerate(wanted))
        return Table(path, separator, source, target)
    if None in wanted:
        raise ConfigError(f"corpus {path}: name both source_column and target_column, or neither.")
    places = [_place(str(name), heading, path) for name in wanted]
    return Table(path, separator, places[0], places[1], first_line)


def cells(line: str, separator: str, where: str) -> list[str]:
    """The columns of a line."""
    if separator == "\t":
        return line.split("\t")
    try:
        return next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error as error:
        raise CorpusError(
            f"{where}: not a line of CSV ({error}): a quoted field must end on its line, for a sentence is one line."
        ) from None


def _place(name: str, heading: Sequence[str], path: str) -> int:
    """Where a column is, by its name in the heading or its number."""
    for place, found in enumerate(heading):
        if found == name or found.casefold() == name.casefold():
            return place
    if _is_number(name):
        return int(name) - 1
    raise ConfigError(f"corpus {path}: there is no column {name!r}; the first line is {_listed(heading)}.")


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) >= 1


def _listed(heading: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in heading[:8]) or "empty"


def _separator(first_line: str) -> str:
    """Comma or semicolon, as spreadsheets of many countries write."""
    return ";" if first_line.count(";") > first_line.count(",") else ","


def _is_csv(path: str) -> bool:
    name = path.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name.endswith(".csv")
