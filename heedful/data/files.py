"""Files of numbers: written under another name until they are complete, and read through memory maps."""

from __future__ import annotations

import os
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
