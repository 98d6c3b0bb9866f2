"""Reading a text file in chunks of consecutive lines, with a running digest that detects changes between runs.

Chunk boundaries depend on line numbers only, so a resumed run or a shard translates the same chunks as a full run.
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
MAX_CHUNK_BYTES = 2 * MAX_TRANSLATED_LINE_BYTES
"""Limit for the lines of one chunk; otherwise a compressed file could exhaust memory."""


@dataclass(frozen=True)
class ChunkSizes:
    """Number of lines per chunk. Sizes double from `first` up to `most`, so that the first output appears early."""

    most: int
    first: int | None = None
    """None: every chunk has `most` lines, except the last of the file."""

    def __getitem__(self, number: int) -> int:
        """Size of chunk `number`, counted from 0."""
        return min(self.most, (self.first or self.most) << min(number, 32))

    def chunks(self, total: int) -> Iterator[tuple[int, int, int]]:
        """(number, lines before it, size) of each chunk of a text with `total` lines."""
        number = before = 0
        while before < total:
            count = min(self[number], total - before)
            yield number, before, count
            number, before = number + 1, before + count


@dataclass(frozen=True)
class LineChunk:
    """Consecutive lines of a file."""

    number: int
    """Index of the chunk in the file, from 0."""
    first_line: int
    """Number of its first line in the file, from 1."""
    lines: list[bytes]
    """The raw lines, including line ends."""
    digest: str
    """SHA-256 of the decompressed text up to the end of this chunk."""
    position: int
    """Read position in the stored file, in bytes."""
    read_error: CorpusError | None = None
    """Why nothing after these lines can be read."""

    @property
    def last_line(self) -> int:
        """Number of its last line in the file; `first_line - 1` if the chunk is empty."""
        return self.first_line + len(self.lines) - 1

    def texts(self, path: str) -> tuple[list[str], CorpusError | None]:
        """The decoded lines up to the first one that is not UTF-8, and the error to raise after them."""
        texts: list[str] = []
        for number, line in enumerate(self.lines, start=self.first_line):
            plain = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            try:
                texts.append(plain.removesuffix(b"\n").removesuffix(b"\r").decode())
            except UnicodeDecodeError:
                error = CorpusError(f"{path}:{number}: this line is not UTF-8; convert the text (see `iconv`).")
                return texts, error
        return texts, self.read_error


def read_chunks(path: str, sizes: ChunkSizes) -> Iterator[LineChunk]:
    """All lines of a plain or compressed file in chunks of these sizes; the last chunk may be smaller.

    A damaged file yields every line before the damage.
    """
    if Path(path).is_dir():
        raise CorpusError(f"{path}: this is a directory; name a file in it.")
    digest = hashlib.sha256()
    number, first_line = 0, 1
    try:
        with open(path, "rb", buffering=1 << 20) as stored, decompressed(stored, path) as file:
            while True:
                lines, read_error = _read_lines(file.readline, sizes[number], path, first_line)
                digest.update(b"".join(lines))
                if lines or read_error:
                    yield LineChunk(number, first_line, lines, digest.hexdigest(), stored.tell(), read_error)
                if read_error or len(lines) < sizes[number]:
                    return
                number, first_line = number + 1, first_line + len(lines)
    except FileNotFoundError:
        raise CorpusError(f"{path}: there is no such file.") from None


def _read_lines(
    read: Callable[[int], bytes], count: int, path: str, first_line: int
) -> tuple[list[bytes], CorpusError | None]:
    lines: list[bytes] = []
    size = 0
    try:
        while len(lines) < count and (line := read(MAX_TRANSLATED_LINE_BYTES)):
            if len(line) == MAX_TRANSLATED_LINE_BYTES:
                location = f"{path}:{first_line + len(lines)}"
                limit = f"{MAX_TRANSLATED_LINE_BYTES:,}"
                return lines, CorpusError(f"{location}: this line has {limit} bytes or more; break it into lines.")
            lines.append(line)
            size += len(line)
            if size > MAX_CHUNK_BYTES:
                location = f"{path}:{first_line + len(lines) - 1}"
                problem = f"the {len(lines)} lines up to this one exceed {MAX_CHUNK_BYTES:,} bytes"
                return lines[:-1], CorpusError(f"{location}: {problem}; use a smaller --chunk-lines.")
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        problem = f"{path}: cannot be read: {error}. The file is damaged, truncated or not readable."
        return lines, CorpusError(problem)
    return lines, None
