"""Compressed text files by their names: .gz, .xz and .bz2 are read and written like plain ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from pathlib import Path
from typing import BinaryIO, cast

SUFFIXES = (".gz", ".xz", ".bz2")


def is_compressed(path: str | Path) -> bool:
    """Whether the name of a file says so."""
    return str(path).lower().endswith(SUFFIXES)


def decompressed(stored: BinaryIO | str | Path, path: str | Path) -> BinaryIO:
    """The bytes of a file, or behind an open one, decompressed if its name (`path`) says that it is compressed."""
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
    """What compresses all that is written into an open file, if its name says so; closing it leaves the file open."""
    name = str(path).lower()
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile("", "wb", fileobj=file, mtime=0))
    if name.endswith(".xz"):
        return cast(BinaryIO, lzma.open(file, "wb"))
    return cast(BinaryIO, bz2.open(file, "wb")) if name.endswith(".bz2") else file


def compressed(content: bytes, path: str | Path) -> bytes:
    """Bytes as they stand in a file of this name: compressed, a part of a file that may follow others."""
    if not is_compressed(path):
        return content
    parts = io.BytesIO()
    with compressing(parts, path) as file:
        file.write(content)
    return parts.getvalue()
