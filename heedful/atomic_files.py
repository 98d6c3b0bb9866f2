"""Atomic replacement of files and directories: after a crash or power failure either the old or the new contents exist.

The new contents are written under a temporary name, flushed to the disk, and renamed.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

INCOMPLETE = ".incomplete"
"""Suffix of a file that is being written."""
REPLACED = ".replaced"
"""Suffix of a directory that has been replaced."""


class AtomicFile:
    """A file with a temporary name until `commit`."""

    def __init__(self, path: Path, temporary: Path | None = None) -> None:
        self.path = path
        self.temporary = temporary or path.with_name(path.name + INCOMPLETE)
        self.file: BinaryIO = self.temporary.open("wb")

    def commit(self) -> None:
        """Flush to the disk and take the final name."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.temporary, self.path)
        fsync_path(self.path.parent)

    def discard(self) -> None:
        """Remove what was written so far; does nothing after `commit`."""
        with suppress(OSError):  # flushing to a full disk fails again
            self.file.close()
        self.temporary.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: Path, *, shared: bool = False) -> Iterator[BinaryIO]:
    """Write a file that replaces the old one at the end of the block; after an error the old contents remain.

    With `shared`, several processes or threads may write the same path at once, each under a different temporary name.
    """
    unique = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}") if shared else None
    atomic = AtomicFile(path, unique)
    try:
        yield atomic.file
        atomic.commit()
    except BaseException:
        atomic.discard()
        raise


def replace_file(path: Path, contents: str | bytes) -> None:
    """Replace the contents of a file atomically; text is encoded as UTF-8."""
    with atomic_write(path) as file:
        file.write(contents.encode("utf-8") if isinstance(contents, str) else contents)


def replace_directory(staging: Path, directory: Path) -> None:
    """Rename a finished directory; an existing one is kept as `<name>.replaced`, which the caller removes.

    The files in `staging` must have been flushed (see `write_durably` and `fsync_path`).
    """
    if os.path.lexists(directory):  # not removed before the new one is in place
        replaced = directory.with_name(directory.name + REPLACED)
        shutil.rmtree(replaced, ignore_errors=True)
        os.replace(directory, replaced)
    fsync_path(staging)
    rename_durably(staging, directory)


def rename_durably(old: Path, new: Path) -> None:
    """Rename a file or directory and flush the new name to the disk."""
    os.replace(old, new)
    fsync_path(new.parent)


def write_durably(path: Path, contents: bytes) -> None:
    """Write a new file and flush it to the disk; an `OSError` names the file."""
    try:
        with path.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def fsync_path(path: Path) -> None:
    """Flush a file, or the names in a directory if the system can do that, to the disk."""
    is_directory = path.is_dir()
    if os.name == "nt" and is_directory:
        return
    try:
        descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # directories that cannot be read, and file systems that cannot flush one
        if not is_directory or error.errno not in (errno.EACCES, errno.EBADF, errno.EINVAL, errno.ENOTSUP):
            raise
