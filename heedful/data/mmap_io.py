"""Files of numbers: written under another name until they are complete, and read through memory maps."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from heedful.errors import CorpusError

REMEDY = "run `heedful prepare` again"


class PartialFile:
    """A file that gets its name only when it is complete and on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        try:
            self.file: BinaryIO = self.partial.open("wb")
        except OSError as error:
            raise cannot_write(self.partial, error) from None

    def write(self, values: NDArray[Any] | bytes) -> None:
        """Append."""
        try:
            self.file.write(values if isinstance(values, bytes) else values.tobytes())
        except OSError as error:
            raise cannot_write(self.path, error) from None

    def finish(self) -> None:
        """Flush to the disk and take the final name."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            os.replace(self.partial, self.path)
        except OSError as error:
            raise cannot_write(self.path, error) from None

    def discard(self) -> None:
        """Remove what was written so far."""
        with suppress(OSError):  # a full disk fails once more while flushing: the file goes anyway
            self.file.close()
        self.partial.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> CorpusError:
    """The error for a disk that refuses."""
    reason = error.strerror or error
    return CorpusError(f"{path}: cannot write: {reason}; free some space or choose another directory.")


def sync_directory(directory: Path) -> None:
    """Make the new names themselves durable, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def map_numbers(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Map `count` numbers, which must be all that the file holds."""
    try:
        size = path.stat().st_size
        if size != count * dtype.itemsize:
            raise CorpusError(f"{path}: {size:,} bytes where there should be {count * dtype.itemsize:,}; {REMEDY}.")
        # A plain array over the map: indexing np.memmap itself costs more than it reads.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if count else np.zeros(0, dtype=dtype)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror or error}); {REMEDY}.") from None


# ---- checksums -------------------------------------------------------------------------------------------------------

_verified: set[tuple[str, str, int, int, int]] = set()
"""Files that this process has compared with their checksums, by path, checksum, inode, size and time of writing."""


def with_checksums(folder: Path, manifest: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A manifest that also holds the SHA-256 of files in its folder, and that of its own contents."""
    files = {name: _sha256(folder / name) for name in sorted(names)}
    return {**manifest, "files": files, "sha256": _sha256_of_values({**manifest, "files": files})}


def check_checksums(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise `CorpusError` unless a manifest and the files beside it are as they were written."""
    contents = {name: value for name, value in manifest.items() if name != "sha256"}
    files = manifest.get("files")
    if not isinstance(files, dict) or manifest.get("sha256") != _sha256_of_values(contents):
        raise CorpusError(f"{path}: the contents are not what was written (SHA-256); {REMEDY}.")
    for name, expected in files.items():
        file = path.parent / name
        try:
            status = file.stat()
            seen = (str(file.absolute()), expected, status.st_ino, status.st_size, status.st_mtime_ns)
            if seen not in _verified and _sha256(file) != expected:
                raise CorpusError(f"{file}: the contents are not what was written (SHA-256); {REMEDY}.")
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read ({error.strerror or error}); {REMEDY}.") from None
        _verified.add(seen)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256_of_values(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
