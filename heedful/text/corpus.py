"""Parallel corpora: two plain text files, or one TSV, CSV or JSONL file, read as sentence pairs line by line.

The text of a language model is read as pairs of each line with itself, so that everything after it is the same.

Whitespace around a sentence is removed; inside, nothing changes and no Unicode normalisation is applied. A line is a
record in every format: a quoted CSV field may contain separators and doubled quotes, but no line break. Line breaks
inside a JSON string become spaces.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import PurePath
from typing import NamedTuple, cast

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.text_files import SUFFIXES, read_lines

HOME_PARENTS = ("home", "Users")
"""Folders that contain one folder for each user."""
EARLY_CHECK_LINES = 1000
"""A file that is mostly not text is refused after this many lines, not after the last."""
DEFAULT_COLUMNS = ("source", "target")
TABLE_FORMATS = {".tsv": "table", ".csv": "table", ".jsonl": "jsonl", ".ndjson": "jsonl"}


class SentencePair(NamedTuple):
    """One sentence and its translation."""

    source: str
    target: str


class TrainingPair(NamedTuple):
    """A pair for training, validation or test, with its corpus and the tags its source gets."""

    source: str
    target: str
    corpus_index: int
    """Index of its corpus in `data.train` (or `valid`, `test`); held-out pairs keep that of their training corpus."""
    target_language: str | None
    """Language of the tag in front of the source; None in a model without tags."""
    source_tag: str | None = None
    """Tag in front of the source that identifies its corpus; only in training."""


class BadLine(NamedTuple):
    """A line that is not text. It takes the place of its pair, so that later lines stay aligned."""

    file: str
    number: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} ({self.problem})"


class Direction(NamedTuple):
    """Language codes of source and target; None where unknown."""

    source: str | None
    target: str | None


# ---- corpus descriptions ---------------------------------------------------------------------------------------------


def direction(corpus: CorpusConfig, data: DataConfig) -> Direction:
    """The languages of a corpus: its own codes, or by default those of `data`."""
    return Direction(
        source=corpus.source_language or data.source_language,
        target=corpus.target_language or data.target_language,
    )


def corpus_files(corpus: CorpusConfig) -> tuple[str, ...]:
    """The files of a corpus: one, or source and target."""
    check_corpus(corpus)
    single = corpus.text or corpus.path
    files = (single,) if single else (cast(str, corpus.source), cast(str, corpus.target))
    return tuple(_existing_path(path) for path in files)


def _existing_path(path: str) -> str:
    """The path, or that of its compressed form if only that exists: `train.en.xz` for `train.en`."""
    if os.path.exists(path):
        return path
    return next((path + suffix for suffix in SUFFIXES if os.path.exists(path + suffix)), path)


def corpus_name(corpus: CorpusConfig) -> str:
    """A short name of the corpus for tables and messages."""
    first, *others = corpus_files(corpus)
    return " + ".join([short_name(first), *(short_name(other, num_folders=0) for other in others)])


def short_name(path: str, *, num_folders: int = 1) -> str:
    """A file name with its folder, such as `europarl-en-de/train.en`, since many files are called `train.en`.

    Home directories and the folders above them describe the machine, not the text: they are never part of the name.
    """
    *folders, name = path.replace("\\", "/").rstrip("/").split("/")
    is_absolute = bool(folders) and (folders[0] in ("", "~", "..") or folders[0].endswith(":"))
    folders = [folder for folder in folders if folder not in ("", ".", "..", "~") and not folder.endswith(":")]
    for parent in HOME_PARENTS if is_absolute else ():
        if parent in folders:
            folders = folders[folders.index(parent) + 2 :]
    return "/".join([*folders[max(0, len(folders) - num_folders) :], name])


def check_corpus(corpus: CorpusConfig) -> None:
    """Raise `ConfigError` for an incomplete or contradictory corpus description."""
    if corpus.text:
        _check_text(corpus)
        return
    if corpus.path and (corpus.source or corpus.target):
        raise ConfigError(f"corpus {corpus.path}: give either path, or source and target, not both.")
    if not corpus.path and not (corpus.source and corpus.target):
        missing, given = ("target", corpus.source) if corpus.source else ("source", corpus.target)
        if given:
            raise ConfigError(f"corpus {given}: the {missing} file is missing; name it as `{missing}`.")
        raise ConfigError(
            "a corpus needs `source` and `target` (two text files) or `path` (one .tsv, .csv or .jsonl file)."
        )
    if corpus.source and corpus.target and _same_file(corpus.source, corpus.target):
        raise ConfigError(
            f"corpus {corpus.source}: source and target are the same file; name one file for each side, or a TSV, CSV "
            f"or JSONL file with both as `path` (--data)."
        )
    if corpus.path:
        _format_of(corpus.path)


def _check_text(corpus: CorpusConfig) -> None:
    """Raise `ConfigError` if the text of a language model has what only pairs have."""
    for name in ("path", "source", "target", "source_column", "target_column", "both_directions", "source_tag"):
        if getattr(corpus, name):
            raise ConfigError(f"corpus {corpus.text}: text is one file for a language model; leave out {name}.")
    if PurePath(corpus.text or "").suffix.lower() in TABLE_FORMATS:
        raise ConfigError(f"corpus {corpus.text}: the text of a language model is a plain file with one text a line.")


def _format_of(path: str) -> str:
    name = PurePath(path)
    suffix = (PurePath(name.stem) if name.suffix.lower() in SUFFIXES else name).suffix.lower()
    if suffix not in TABLE_FORMATS:
        raise ConfigError(
            f"corpus {path}: `path` must end in .tsv, .csv or .jsonl (optionally .gz, .xz or .bz2 after it); "
            f"two plain files are named with `source` and `target`."
        )
    return TABLE_FORMATS[suffix]


def _same_file(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return os.path.abspath(first) == os.path.abspath(second)


# ---- reading pairs ---------------------------------------------------------------------------------------------------


def read_pairs(corpus: CorpusConfig) -> Iterator[SentencePair | BadLine]:
    """The pairs of a corpus, exactly one item a line: item n (from 1) is line n.

    A line that is not UTF-8 or contains a NUL character becomes a `BadLine`. Everything that would misalign or lose
    text raises `CorpusError`: different numbers of lines, damaged or empty files, missing columns, and files that are
    mostly not text.
    """
    bad_lines = BadLineCounter()
    number = 0
    for number, item in enumerate(parse_lines(corpus, _aligned_lines(corpus_files(corpus))), start=1):
        if type(item) is BadLine:
            bad_lines.add(item)
        if number == EARLY_CHECK_LINES:
            bad_lines.refuse_too_many(number)
        yield item
    bad_lines.refuse_too_many(number)


class BadLineCounter:
    """Counts the bad lines of each file, and refuses a file that is mostly not text."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, BadLine] = {}

    def add(self, line: BadLine) -> None:
        """Count a bad line."""
        self._counts[line.file] += 1
        self._first.setdefault(line.file, line)

    def refuse_too_many(self, num_lines: int) -> None:
        """Raise `CorpusError` if more than half of the lines of a file are bad."""
        for file, count in self._counts.items():
            if 2 * count > num_lines:
                first = self._first[file]
                raise CorpusError(
                    f"{file}: {count} of {num_lines} lines are not UTF-8 text (first: line {first.number}, "
                    f"{first.problem}). Find its encoding (`file {file}`) and convert it, for example: "
                    f"iconv -f ISO-8859-1 -t UTF-8 {file} > {file}.utf8"
                )


def parse_lines(
    corpus: CorpusConfig, lines: Iterable[tuple[bytes, ...]], first_number: int = 1
) -> Iterator[SentencePair | BadLine]:
    """The sentence pairs of lines: each item of `lines` has one line for each file of the corpus."""
    files = corpus_files(corpus)
    if corpus.text:
        return _parse_text(files[0], lines, first_number)
    if not corpus.path:
        return _parse_two_files(files, lines, first_number)
    if _format_of(corpus.path) == "table":
        return _parse_table(corpus, files[0], lines, first_number)
    return _parse_jsonl(corpus, files[0], lines, first_number)


def unequal_lines_error(files: Sequence[str], counts: Sequence[int]) -> CorpusError:
    """The error for two files with different numbers of lines."""
    return CorpusError(
        f"{files[0]} has {counts[0]:,} lines but {files[1]} has {counts[1]:,}: line n of one must be the "
        f"translation of line n of the other. Find the missing or extra line and correct it."
    )


def _aligned_lines(files: tuple[str, ...]) -> Iterator[tuple[bytes, ...]]:
    readers = [read_lines(path) for path in files]
    for number, lines in enumerate(zip_longest(*readers), start=1):
        if None in lines:
            rest = [sum(1 for _ in reader) for reader in readers]
            counts = [number - (line is None) + num_more for line, num_more in zip(lines, rest, strict=True)]
            raise unequal_lines_error(files, counts)
        yield lines


def _parse_two_files(
    files: tuple[str, ...], lines: Iterable[tuple[bytes, ...]], first_number: int
) -> Iterator[SentencePair | BadLine]:
    source, target = files
    for number, (source_line, target_line) in enumerate(lines, start=first_number):
        try:
            source_text, target_text = source_line.decode(), target_line.decode()
        except UnicodeDecodeError:
            file = source if not _is_utf8(source_line) else target
            yield BadLine(file, number, "not UTF-8")
            continue
        if "\0" in source_text or "\0" in target_text:
            yield BadLine(source if "\0" in source_text else target, number, "NUL character")
            continue
        yield SentencePair(source_text.strip(), target_text.strip())


def _parse_text(path: str, lines: Iterable[tuple[bytes, ...]], first_number: int) -> Iterator[SentencePair | BadLine]:
    for number, (line,) in enumerate(lines, start=first_number):
        text = _decode(line, path, number)
        yield text if isinstance(text, BadLine) else SentencePair(text.strip(), text.strip())


def _parse_jsonl(
    corpus: CorpusConfig, path: str, lines: Iterable[tuple[bytes, ...]], first_number: int
) -> Iterator[SentencePair | BadLine]:
    fields = (corpus.source_column or "source", corpus.target_column or "target")
    for number, (line,) in enumerate(lines, start=first_number):
        text = _decode(line, path, number)
        if isinstance(text, BadLine):
            yield text
        elif not text.strip():
            yield SentencePair("", "")
        else:
            source, target = _json_fields(text, fields, f"{path}:{number}")
            problem = _text_problem(source) or _text_problem(target)
            yield BadLine(path, number, problem) if problem else SentencePair(_one_line(source), _one_line(target))


def _json_fields(text: str, fields: tuple[str, str], where: str) -> list[str]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: not valid JSON ({error}); each line must be one object.") from None
    if not isinstance(record, dict):
        raise CorpusError(
            f"{where}: expected an object with {fields[0]!r} and {fields[1]!r}, found {type(record).__name__}."
        )
    for name in fields:
        if name not in record:
            known = ", ".join(map(repr, list(record)[:8])) or "none"
            raise CorpusError(
                f"{where}: the field {name!r} is missing (fields here: {known}); set source_column and target_column."
            )
        if not isinstance(record[name], str):
            raise CorpusError(f"{where}: the field {name!r} must be text, found {type(record[name]).__name__}.")
    return [record[name] for name in fields]


def _decode(line: bytes, path: str, number: int) -> str | BadLine:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return BadLine(path, number, "not UTF-8")
    return BadLine(path, number, "NUL character") if "\0" in text else text


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text_problem(text: str) -> str | None:
    """JSON escapes can produce what a UTF-8 line cannot contain: NUL and lone surrogates."""
    if "\0" in text:
        return "NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "not UTF-8"
    return None


def _one_line(text: str) -> str:
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ").strip()


# ---- TSV and CSV -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """The layout of a TSV or CSV file."""

    path: str
    separator: str
    """A tab, where quotes are ordinary text; or the comma or semicolon of a CSV file."""
    source_column: int
    """From 0."""
    target_column: int
    header: str | None = None
    """The first line, if it is not a pair."""

    def pair(self, line: str, number: int) -> tuple[str, str]:
        """Source and target of a line; both empty for the header."""
        if not line.strip() or line == self.header:
            return "", ""
        columns = split_columns(line, self.separator, f"{self.path}:{number}")
        needed = max(self.source_column, self.target_column) + 1
        if len(columns) < needed:
            kind = "one tab" if self.separator == "\t" else f"{self.separator!r}"
            raise CorpusError(
                f"{self.path}:{number}: {len(columns)} column{'s' * (len(columns) != 1)}, but column {needed} is "
                f"needed; columns are separated by {kind}. Correct the line or set source_column and target_column."
            )
        return columns[self.source_column].strip(), columns[self.target_column].strip()


def open_table(path: str, first_line: str, source_column: str | None, target_column: str | None) -> Table:
    """The layout of a file, from its first line and the columns given by number (from 1) or name.

    The first line is a header if columns are given by name, or if it has columns called source and target.
    """
    is_csv = _is_csv(path)
    separator = _separator(first_line) if is_csv else "\t"
    header = [name.strip() for name in split_columns(first_line, separator, f"{path}:1")]
    columns = [source_column, target_column]
    if columns == [None, None] and set(DEFAULT_COLUMNS) <= {name.casefold() for name in header}:
        columns = list(DEFAULT_COLUMNS)
    if columns == [None, None] and is_csv:
        raise ConfigError(
            f"corpus {path}: which columns are source and target? Its first line is {_listed(header)}; name them "
            f"with --source-column and --target-column (source_column, target_column), or by number from 1."
        )
    if all(name is None or _is_number(name) for name in columns):
        source, target = (int(name) - 1 if name else index for index, name in enumerate(columns))
        return Table(path, separator, source, target)
    if None in columns:
        raise ConfigError(f"corpus {path}: name both source_column and target_column, or neither.")
    source, target = (_column_index(str(name), header, path) for name in columns)
    return Table(path, separator, source, target, first_line)


def split_columns(line: str, separator: str, where: str) -> list[str]:
    """The columns of a line."""
    if separator == "\t":
        return line.split("\t")
    try:
        return next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error as error:
        raise CorpusError(
            f"{where}: not a line of CSV ({error}): a quoted field must end on its line, since a sentence is one line."
        ) from None


def _parse_table(
    corpus: CorpusConfig, path: str, lines: Iterable[tuple[bytes, ...]], first_number: int
) -> Iterator[SentencePair | BadLine]:
    table = open_table(path, _first_line(path), corpus.source_column, corpus.target_column)
    for number, (line,) in enumerate(lines, start=first_number):
        text = _decode(line, path, number)
        yield text if isinstance(text, BadLine) else SentencePair(*table.pair(text, number))


def _first_line(path: str) -> str:
    """The first line of a file, cached while the file does not change: every chunk of the file needs it."""
    try:
        status = os.stat(path)
    except OSError:
        raise CorpusError(f"{path}: there is no such file.") from None
    return _cached_first_line(path, status.st_size, status.st_mtime_ns).decode(errors="replace")


@lru_cache(maxsize=100)
def _cached_first_line(path: str, size: int, time: int) -> bytes:
    return next(read_lines(path), b"")


def _column_index(name: str, header: Sequence[str], path: str) -> int:
    """The index of a column given by its name in the header or its number."""
    for index, column in enumerate(header):
        if name.casefold() == column.casefold():
            return index
    if _is_number(name):
        return int(name) - 1
    raise ConfigError(f"corpus {path}: there is no column {name!r}; the first line is {_listed(header)}.")


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and int(name) >= 1


def _listed(header: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in header[:8]) or "empty"


def _separator(first_line: str) -> str:
    """Comma or semicolon, which spreadsheets of many countries write."""
    return ";" if first_line.count(";") > first_line.count(",") else ","


def _is_csv(path: str) -> bool:
    name = path.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name.endswith(".csv")
