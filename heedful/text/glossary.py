"""Glossaries: terms of a source language with the translations that must stand for them.

A glossary file has two columns, the term and its translation: separated by a tab, or in a file that ends in .csv by a
comma or semicolon. Empty lines and lines that begin with # do not count, nor does a first line that names the columns
("source", "target") or their languages ("en", "German").

A term is found as a whole word; in scripts without spaces, anywhere. A term in lower case is found in any case, others
only as they are written. Of overlapping terms the longest counts.
"""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from heedful.errors import CorpusError, GlossaryError
from heedful.text.language_names import is_language
from heedful.text.text_files import read_lines

COLUMN_NAMES = ({"source", "term"}, {"target", "translation"})
MAX_TERM_LENGTH = 1000
"""Characters of a term or its translation; longer ones are a mistake in the file."""
_UNSPACED = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0xA4CF), (0xF900, 0xFAFF), (0x16FE0, 0x3FFFF),
)  # fmt: skip
"""Thai, Lao, Burmese, Khmer, Han, kana, Yi: scripts whose words are not separated."""


class Entry(NamedTuple):
    """A term and its translation."""

    source: str
    target: str


class Match(NamedTuple):
    """The term `text[start:end]` and its translation."""

    start: int
    end: int
    target: str


@dataclass(frozen=True)
class Glossary:
    """Terms and their translations."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, pairs: Glossary | Iterable[Sequence[str]]) -> Glossary:
        """A glossary of (term, translation) pairs; `GlossaryError` names an entry that cannot be used by its number."""
        if isinstance(pairs, Glossary):
            return pairs
        return cls(_checked((f"glossary entry {number}", pair) for number, pair in enumerate(pairs, start=1)))

    @classmethod
    def read(cls, path: str | Path) -> Glossary:
        """Read a file; `GlossaryError` names the file and the line."""
        entries = _checked((f"{path}:{number}", cells) for number, cells in _rows(path))
        if not entries:
            raise GlossaryError(f"{path}: there is no entry; give lines with a term, a tab and its translation.")
        return cls(entries)

    def find(self, text: str) -> list[Match]:
        """The terms of a text, in order and without overlap."""
        found = sorted(self._candidates(text), key=lambda match: (match.start - match.end, match.start))
        taken = bytearray(len(text))
        kept = []
        for match in found:
            if not any(taken[match.start : match.end]):
                taken[match.start : match.end] = b"\1" * (match.end - match.start)
                kept.append(match)
        return sorted(kept)

    def _candidates(self, text: str) -> Iterator[Match]:
        """All terms of a text, which may overlap."""
        folded = _folded(text)
        for start, first in enumerate(folded):
            if first not in self._lengths or is_inside_word(text, start):
                continue
            for length in self._lengths[first]:
                end = start + length
                entries = self._by_folded.get(folded[start:end])
                if entries is None or end > len(text) or is_inside_word(text, end):
                    continue
                target = entries.get(text[start:end], entries.get(folded[start:end]))
                if target is not None:
                    yield Match(start, end, target)

    @cached_property
    def _by_folded(self) -> Mapping[str, Mapping[str, str]]:
        """The translation of each spelling of a term, by the term in lower case."""
        found: dict[str, dict[str, str]] = {}
        for source, target in self.entries:
            found.setdefault(_folded(source), {})[source] = target
        return found

    @cached_property
    def _lengths(self) -> Mapping[str, Sequence[int]]:
        """The lengths of the terms that begin with a character, in lower case."""
        found: dict[str, set[int]] = {}
        for term in self._by_folded:
            found.setdefault(term[0], set()).add(len(term))
        return {first: sorted(lengths) for first, lengths in found.items()}


def is_word_character(character: str) -> bool:
    """Whether a character is part of a word that spaces or punctuation end."""
    if not character.isalnum() and unicodedata.category(character)[0] != "M":
        return False
    return not any(first <= ord(character) <= last for first, last in _UNSPACED)


def is_inside_word(text: str, place: int) -> bool:
    """Whether a place in a text has a word on both sides."""
    return 0 < place < len(text) and is_word_character(text[place - 1]) and is_word_character(text[place])


def _folded(text: str) -> str:
    """A text in lower case, character by character, so that places stay the same."""
    if text.isascii():
        return text.lower()
    return "".join(lower if len(lower := one.lower()) == 1 else one for one in text)


def _checked(rows: Iterable[tuple[str, Sequence[str]]]) -> tuple[Entry, ...]:
    """The entries of rows, each with a description of its place."""
    entries: dict[str, Entry] = {}
    places: dict[str, str] = {}
    for place, cells in rows:
        if len(cells) != 2:
            raise GlossaryError(f"{place}: {len(cells)} columns; a glossary has two, a term and its translation.")
        source, target = (" ".join(cell.split()) for cell in cells)
        for name, value in (("term", source), ("translation", target)):
            if not value:
                raise GlossaryError(f"{place}: the {name} is empty.")
            if len(value) > MAX_TERM_LENGTH:
                raise GlossaryError(f"{place}: the {name} has more than {MAX_TERM_LENGTH:,} characters.")
        known = entries.get(source)
        if known is not None and known.target != target:
            raise GlossaryError(
                f"{place}: {source!r} is {target!r} here and {known.target!r} in {places[source]}; keep one of them."
            )
        entries[source] = Entry(source, target)
        places.setdefault(source, place)
    return tuple(entries.values())


def _rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of a file with their numbers, split into cells."""
    delimiter = None if str(path).lower().endswith(".csv") else "\t"
    is_first = True
    try:
        for number, line in enumerate(read_lines(path), start=1):
            text = _decoded(line, f"{path}:{number}")
            if not text.strip() or text.startswith("#"):
                continue
            if delimiter is None:
                delimiter = max(",;", key=text.count)
            cells = text.split("\t") if delimiter == "\t" else next(csv.reader([text], delimiter=delimiter))
            if len(cells) == 1:
                name = {"\t": "tab", ",": "comma", ";": "semicolon"}[delimiter]
                raise GlossaryError(f"{path}:{number}: there is no {name} between a term and its translation.")
            if not (is_first and _is_header(cells)):
                yield number, cells
            is_first = False
    except CorpusError as error:
        raise GlossaryError(str(error)) from None


def _decoded(line: bytes, place: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise GlossaryError(
            f"{place}: this is not UTF-8 (byte {line[error.start]:#04x}); save the file as UTF-8."
        ) from None


def _is_header(cells: Sequence[str]) -> bool:
    """Whether a line names the columns or their languages."""
    names = [cell.strip().lower() for cell in cells]
    if len(names) != 2:
        return False
    return all(name in known for name, known in zip(names, COLUMN_NAMES, strict=True)) or all(map(is_language, names))
