"""A text file in portions of neighbouring lines, each with what tells later whether the file is still the same.

The boundaries depend on line numbers alone. So a run that goes on after a kill, or one shard of many, translates
the very same portions as a run that does everything at once.
"""

from __future__ import annotations

import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import CorpusError
from heedful.text.text_files import MAX_TRANSLATED_LINE_BYTES, decompressed

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MOST_BYTES_AT_ONCE = 2 * MAX_TRANSLATED_LINE_BYTES
"""Of the lines of a portion; a compressed file could fill the memory."""


@dataclass(frozen=True)
class Sizes:
    """How many lines portions have: each twice as many as the one before, so that the first is done soon."""

    most: int
    first: int | None = None
    """None: all have `most` lines, but for the last of the file."""

    def __getitem__(self, number: int) -> int:
        """The lines of a portion, from 0."""
        return min(self.most, (self.first or self.most) << min(number, 32))

    def portions(self, total: int) -> Iterator[tuple[int, int, int]]:
        """Number, lines before it and lines of each portion of a text with `total` lines."""
        number = before = 0
        while before < total:
            count = min(self[number], total - before)
            yield number, before, count
            number, before = number + 1, before + count


@dataclass(frozen=True)
class Portion:
    """Neighbouring lines of a file."""

    number: int
    """Its place in the file, from 0."""
    first_line: int
    """Number of its first line in the file, from 1."""
    lines: list[bytes]
    """The lines as they stand there, with their ends."""
    digest: str
    """SHA-256 of the whole text up to the end of this portion, decompressed."""
    position: int
    """How far the reader is in the file as it lies on the disk, in bytes."""
    damage: CorpusError | None = None
    """Why nothing can be read after these lines."""

    @property
    def last_line(self) -> int:
        """Number of its last line in the file; before the first if it has none."""
        return self.first_line + len(self.lines) - 1

    def texts(self, path: str) -> tuple[list[str], CorpusError | None]:
        """The lines as text, up to the first that is none, and the error to raise after these."""
        texts: list[str] = []
        for number, line in enumerate(self.lines, start=self.first_line):
            plain = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            try:
                texts.append(plain.removesuffix(b"\n").removesuffix(b"\r").decode())
            except UnicodeDecodeError:
                error = CorpusError(f"{path}:{number}: this line is not UTF-8; convert the text (see `iconv`).")
                return texts, error
        return texts, self.damage


def read_portions(path: str, sizes: Sizes) -> Iterator[Portion]:
    """All lines of a file, plain or compressed, in portions of these sizes, of which the last may have fewer lines.

    A file that cannot be read to its end gives all lines before the damage.
    """
    if Path(path).is_dir():
        raise CorpusError(f"{path}: this is a directory; name a file in it.")
    digest = hashlib.sha256()
    number, first_line = 0, 1
    try:
        with open(path, "rb", buffering=1 << 20) as stored, decompressed(stored, path) as file:
            while True:
                lines, damage = _take(file.readline, sizes[number], path, first_line)
                digest.update(b"".join(lines))
                if lines or damage:
                    yield Portion(number, first_line, lines, digest.hexdigest(), stored.tell(), damage)
                if damage or len(lines) < sizes[number]:
                    return
                number, first_line = number + 1, first_line + len(lines)
    except FileNotFoundError:
        raise CorpusError(f"{path}: there is no such file.") from None


def _take(
    read: Callable[[int], bytes], count: int, path: str, first_line: int
) -> tuple[list[bytes], CorpusError | None]:
    lines: list[bytes] = []
    size = 0
    try:
        while len(lines) < count and (line := read(MAX_TRANSLATED_LINE_BYTES)):
            if len(line) == MAX_TRANSLATED_LINE_BYTES:
                place = f"{path}:{first_line + len(lines)}"
                longest = f"{MAX_TRANSLATED_LINE_BYTES:,}"
                return lines, CorpusError(f"{place}: this line has {longest} bytes or more; break it into lines.")
            lines.append(line)
            size += len(line)
            if size > MOST_BYTES_AT_ONCE:
                place = f"{path}:{first_line + len(lines) - 1}"
                problem = f"{len(lines)} lines up to this one have more than {MOST_BYTES_AT_ONCE:,} bytes together"
                return lines[:-1], CorpusError(f"{place}: {problem}; translate fewer at once, with --chunk-lines.")
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        damage = f"{path}: cannot be read: {error}. The file is damaged, cut off or not readable."
        return lines, CorpusError(damage)
    return lines, None
