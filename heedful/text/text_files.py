"""Text files line by line, and files compressed with gzip, xz or bzip2 (by name: .gz, .xz, .bz2).

A line ends at LF and nowhere else; a CR before it is removed. U+2028, U+0085, vertical tab and form feed do not end
a line. A UTF-8 byte order mark at the start of a file is skipped.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from heedful.errors import OPEN_FILES, CorpusError, remedy_for

SUFFIXES = (".gz", ".xz", ".bz2")
MAX_TRANSLATED_LINE_BYTES = 16_000_000
"""Of a line to translate; without a limit, a file without line ends could fill the memory."""
MAX_LINE_BYTES = 1 << 18
"""Longer lines are truncated to this size. No row holds as many tokens, so such a line is never used."""
_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


def is_compressed(path: str | Path) -> bool:
    """Whether the file name has a suffix of a compressed file."""
    return str(path).lower().endswith(SUFFIXES)


def decompressed(stored: BinaryIO | str | Path, path: str | Path) -> BinaryIO:
    """The contents of a file name or open file, decompressed if `path` has a suffix of a compressed file."""
    name = str(path).lower()
    opened: object
    if name.endswith(".gz"):
        opened = gzip.open(stored, "rb")  # noqa: SIM115
    elif name.endswith(".xz"):
        opened = lzma.open(stored, "rb")  # noqa: SIM115
    elif name.endswith(".bz2"):
        opened = bz2.open(stored, "rb")  # noqa: SIM115
    else:
        return open(stored, "rb", buffering=1 << 20) if isinstance(stored, (str, Path)) else stored
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, opened), 1 << 20))


def compressing(file: BinaryIO, path: str | Path) -> BinaryIO:
    """A writer that compresses into an open file according to `path`; closing it leaves `file` open."""
    name = str(path).lower()
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile("", "wb", fileobj=file, mtime=0))
    if name.endswith(".xz"):
        return cast(BinaryIO, lzma.open(file, "wb"))
    return cast(BinaryIO, bz2.open(file, "wb")) if name.endswith(".bz2") else file


def compressed(content: bytes, path: str | Path) -> bytes:
    """Bytes as a file of this name stores them: a compressed part that may follow others."""
    if not is_compressed(path):
        return content
    parts = io.BytesIO()
    with compressing(parts, path) as file:
        file.write(content)
    return parts.getvalue()


def open_file(path: str | Path) -> BinaryIO:
    """Open a file for reading, decompressed if its name ends in .gz, .xz or .bz2."""
    if Path(path).is_dir():
        raise CorpusError(f"{path}: this is a directory; name a file in it.")
    return decompressed(path, path)


def read_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file as bytes, split at LF only, without LF, a CR before it, and the byte order mark."""
    number = 0
    try:
        with open_file(path) as file:
            for number, line in enumerate(_bounded_lines(file), start=1):
                if number == 1:
                    line = _check_first_line(line, path)
                if line.endswith(b"\n"):
                    line = line[:-1]
                yield line[:-1] if line.endswith(b"\r") else line
    except FileNotFoundError:
        raise CorpusError(f"{path}: there is no such file.") from None
    except _READ_ERRORS as error:
        reason = str(error) or type(error).__name__
        remedy = "The file is damaged, truncated or not readable; copy or download it again."
        if isinstance(error, OSError) and remedy_for(error, "") == OPEN_FILES:
            reason, remedy = error.strerror or reason, f"{OPEN_FILES.capitalize()}."
        raise CorpusError(f"{path}: cannot be read beyond line {number}: {reason}. {remedy}") from None
    if number == 0:
        raise CorpusError(f"{path}: the file is empty.")


def _bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; lines longer than `MAX_LINE_BYTES` are truncated at the end of a character."""
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            last = next((n for n in range(1, 4) if line[-n] & 0xC0 != 0x80), 1)  # where the last character begins
            line = line[:-last]
        yield line


def _check_first_line(line: bytes, path: str | Path) -> bytes:
    """The first line without a byte order mark; `CorpusError` for compressed data and UTF-16."""
    for magic, suffix in ((b"\x1f\x8b", ".gz"), (b"\xfd7zXZ\x00", ".xz"), (b"BZh", ".bz2")):
        if line.startswith(magic):
            raise CorpusError(f"{path}: this file is compressed; give it a name that ends in {suffix}.")
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CorpusError(
            f"{path}: this file is UTF-16, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8 {path} > {path}.utf8"
        )
    return line.removeprefix(b"\xef\xbb\xbf")
