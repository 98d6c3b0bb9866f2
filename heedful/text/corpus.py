"""Aligned corpora, read line by line: two plain files, or one TSV, CSV or JSONL file; any may be compressed.

A line ends at LF and nowhere else (a CR before it goes with it): U+2028, U+0085, vertical tab and form feed stay inside
their line. A UTF-8 byte order mark at the start of a file is no text. Sentences lose the whitespace around them;
what is inside stays as it is: no Unicode normalisation, no other change. Only a line break inside a JSON string
becomes a space, because a sentence is one line everywhere else.
"""

from __future__ import annotations

import json
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import BinaryIO, NamedTuple, cast

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.compression import SUFFIXES, decompressed
from heedful.text.tabular_corpus import open_table

_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)
HOMES = ("home", "Users")
"""Folders that hold one for each user."""
MOST_BYTES_TO_TRANSLATE = 16_000_000
"""Of a line; a longer one is no text that a person wrote, and a file without line ends could fill the memory."""
LONGEST_LINE = 1 << 18
"""Bytes of a line that are kept in memory. No row of a batch takes as many tokens, so a longer line is never used."""
EARLY_LOOK = 1000  # a file that is no text is refused after this many lines, not after the last


class SentencePair(NamedTuple):
    """One sentence and its translation."""

    source: str
    target: str


class TrainingPair(NamedTuple):
    """A pair to learn from (or to validate or test on), the corpus it came from, and the tag it needs."""

    source: str
    target: str
    corpus_index: int
    """Place of its corpus in `data.train` (or `valid`, `test`); held-out pairs keep that of their training corpus."""
    target_language: str | None
    """Language for the tag before the source; None in a model without tags."""
    source_tag: str | None = None
    """Tag in front of the source that identifies its corpus; only in training."""


class BadLine(NamedTuple):
    """A line that is not text: it stands in its pair's place, so that the lines after it stay aligned."""

    file: str
    number: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number} ({self.problem})"


class Direction(NamedTuple):
    """Language codes of a corpus; None where the user gave none."""

    source: str | None
    target: str | None


def direction(corpus: CorpusConfig, data: DataConfig) -> Direction:
    """The languages of a corpus: its own codes, else those of the whole data."""
    return Direction(
        source=corpus.source_language or data.source_language,
        target=corpus.target_language or data.target_language,
    )


def corpus_files(corpus: CorpusConfig) -> tuple[str, ...]:
    """The files a corpus is read from: one, or source and target."""
    check_corpus(corpus)
    files = (corpus.path,) if corpus.path else (cast(str, corpus.source), cast(str, corpus.target))
    return tuple(_as_it_lies(path) for path in files)


def _as_it_lies(path: str) -> str:
    """The file of this name, or its compressed form where only that is there: `train.en` may lie as `train.en.xz`."""
    if os.path.exists(path):
        return path
    return next((path + suffix for suffix in SUFFIXES if os.path.exists(path + suffix)), path)


def corpus_name(corpus: CorpusConfig) -> str:
    """A short name of the corpus for tables and messages."""
    first, *others = corpus_files(corpus)
    return " + ".join([short_name(first), *(short_name(other, num_folders=0) for other in others)])


def short_name(path: str, *, num_folders: int = 1) -> str:
    """The file with the folder it lies in, such as `europarl-en-de/train.en`: many are called `train.en`.

    A user's own folder, and what lies above it, tells of the machine and not of the text: it is never part of a name.
    """
    *folders, name = path.replace("\\", "/").rstrip("/").split("/")
    leads_far = bool(folders) and (folders[0] in ("", "~", "..") or folders[0].endswith(":"))
    folders = [folder for folder in folders if folder not in ("", ".", "..", "~") and not folder.endswith(":")]
    for home in HOMES if leads_far else ():
        if home in folders:
            folders = folders[folders.index(home) + 2 :]
    return "/".join([*folders[max(0, len(folders) - num_folders) :], name])


def check_corpus(corpus: CorpusConfig) -> None:
    """Refuse a corpus description that cannot be meant."""
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


def read_pairs(corpus: CorpusConfig) -> Iterator[SentencePair | BadLine]:
    """The pairs of a corpus, exactly one item a line: item n (from 1) is line n.

    A line that is not UTF-8 or holds a NUL gives a `BadLine`. Everything that would misalign or lose text is a
    `CorpusError`: unequal line counts, damaged or empty files, missing columns, and files that are mostly not text.
    """
    lines = parse(corpus, _aligned_lines(corpus_files(corpus)))
    bad = BadLines()
    number = 0
    for number, item in enumerate(lines, start=1):
        if type(item) is BadLine:
            bad.add(item)
        if number == EARLY_LOOK:
            bad.refuse_too_many(number)
        yield item
    bad.refuse_too_many(number)


def read_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file as bytes, split at LF only, without LF, CR before it, and byte order mark."""
    number = 0
    try:
        with open_file(path) as file:
            for number, line in enumerate(_bounded_lines(file), start=1):
                if number == 1:
                    line = _first_line(line, path)
                if line.endswith(b"\n"):
                    line = line[:-1]
                yield line[:-1] if line.endswith(b"\r") else line
    except FileNotFoundError:
        raise CorpusError(f"{path}: there is no such file.") from None
    except _DAMAGE as error:
        said = str(error) or type(error).__name__
        raise CorpusError(
            f"{path}: cannot be read beyond line {number}: {said}. The file is damaged, cut off or not readable; "
            f"copy or download it again."
        ) from None
    if number == 0:
        raise CorpusError(f"{path}: the file is empty.")


def _bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of one longer than `LONGEST_LINE` only the beginning, up to the end of a character."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            last = next((n for n in range(1, 4) if line[-n] & 0xC0 != 0x80), 1)  # where the last character begins
            line = line[:-last]
        yield line


def open_file(path: str | Path) -> BinaryIO:
    """The bytes of a file, decompressed if its name ends in .gz, .xz or .bz2."""
    if Path(path).is_dir():
        raise CorpusError(f"{path}: this is a directory; name a file in it.")
    return decompressed(path, path)


def _first_line(line: bytes, path: str | Path) -> bytes:
    for magic, suffix in ((b"\x1f\x8b", ".gz"), (b"\xfd7zXZ\x00", ".xz"), (b"BZh", ".bz2")):
        if line.startswith(magic):
            raise CorpusError(f"{path}: this file is compressed; give it a name that ends in {suffix}.")
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CorpusError(
            f"{path}: this file is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 {path} > {path}.utf8"
        )
    return line.removeprefix(b"\xef\xbb\xbf")


class BadLines:
    """Counts the bad lines of each file, and refuses a file that is mostly no text."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, BadLine] = {}

    def add(self, line: BadLine) -> None:
        """Count one more."""
        self._counts[line.file] += 1
        self._first.setdefault(line.file, line)

    def refuse_too_many(self, num_lines: int) -> None:
        """An error if more than half of the lines of a file are bad."""
        for file, count in self._counts.items():
            if 2 * count > num_lines:
                first = self._first[file]
                raise CorpusError(
                    f"{file}: {count} of {num_lines} lines are not UTF-8 text (first: line {first.number}, "
                    f"{first.problem}). Find its encoding (`file {file}`) and convert it, for example: "
                    f"iconv -f ISO-8859-1 -t UTF-8 {file} > {file}.utf8"
                )


def parse(
    corpus: CorpusConfig, lines: Iterable[tuple[bytes, ...]], first_number: int = 1
) -> Iterator[SentencePair | BadLine]:
    """The sentences of a corpus's lines: one item for each line (of its one file) or two (of its two)."""
    files = corpus_files(corpus)
    if not corpus.path:
        return _pairs_of_two_files(files, lines, first_number)
    if _format_of(corpus.path) == "table":
        return _pairs_of_table(corpus, files[0], lines, first_number)
    return _pairs_of_jsonl(corpus, files[0], lines, first_number)


def unequal_lines(files: Sequence[str], counts: Sequence[int]) -> CorpusError:
    """The error for two files that cannot be aligned."""
    return CorpusError(
        f"{files[0]} has {counts[0]:,} lines but {files[1]} has {counts[1]:,}: line n of one must be the "
        f"translation of line n of the other. Find the missing or extra line and put it right."
    )


def _aligned_lines(files: tuple[str, ...]) -> Iterator[tuple[bytes, ...]]:
    readers = [read_lines(path) for path in files]
    for number, lines in enumerate(zip_longest(*readers), start=1):
        if None in lines:
            rest = [sum(1 for _ in reader) for reader in readers]
            raise unequal_lines(files, [number - (line is None) + r for line, r in zip(lines, rest, strict=True)])
        yield lines


def _pairs_of_two_files(
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


def _pairs_of_table(
    corpus: CorpusConfig, path: str, lines: Iterable[tuple[bytes, ...]], first_number: int
) -> Iterator[SentencePair | BadLine]:
    table = open_table(path, _first_line_of(path), corpus.source_column, corpus.target_column)
    for number, (line,) in enumerate(lines, start=first_number):
        text = _decode(line, path, number)
        yield text if isinstance(text, BadLine) else SentencePair(*table.pair(text, number))


def _first_line_of(path: str) -> str:
    """The first line of a file, read once as long as the file does not change: each portion of it asks."""
    try:
        found = os.stat(path)
    except OSError:
        raise CorpusError(f"{path}: there is no such file.") from None
    return _first_line_at(path, found.st_size, found.st_mtime_ns).decode(errors="replace")


@lru_cache(maxsize=100)
def _first_line_at(path: str, size: int, time: int) -> bytes:
    return next(read_lines(path), b"")


def _pairs_of_jsonl(
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
            problem = _problem_of_text(source) or _problem_of_text(target)
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


def _problem_of_text(text: str) -> str | None:
    """JSON escapes can spell what a UTF-8 line cannot: NUL and lone halves of surrogate pairs."""
    if "\0" in text:
        return "NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "not UTF-8"
    return None


def _one_line(text: str) -> str:
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ").strip()


def _format_of(path: str) -> str:
    name = PurePath(path)
    suffix = (PurePath(name.stem) if name.suffix.lower() in SUFFIXES else name).suffix.lower()
    formats = {".tsv": "table", ".csv": "table", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    if suffix not in formats:
        raise ConfigError(
            f"corpus {path}: `path` must end in .tsv, .csv or .jsonl (then perhaps .gz, .xz or .bz2); "
            f"two plain files are named with `source` and `target`."
        )
    return formats[suffix]


def _same_file(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return os.path.abspath(first) == os.path.abspath(second)
