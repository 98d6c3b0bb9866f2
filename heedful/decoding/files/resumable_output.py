"""An output that grows portion by portion and survives a kill at any moment.

    corpus.de.partial       what is translated so far, and perhaps part of a portion that did not get ready
    corpus.de.record.json   how much of it is whole, and what it was made with
    corpus.de               the whole, from the moment it is complete

A portion is on the disk before the record tells of it. So whoever goes on cuts the partial output to what the record
says, and has lost nothing but the portions that were being translated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

from heedful.decoding.files.line_chunks import Portion
from heedful.decoding.files.manifest import Made, Record, differences, load_record
from heedful.errors import DecodingError, TextError
from heedful.text.compression import compressed


@dataclass
class Output:
    """A partial output that this process alone writes to."""

    path: Path
    """Its name once it is complete."""
    file: FileIO
    record: Record
    keep_record: bool
    """Whether the record stays beside the finished output, as that of a shard does for the merge."""
    is_named: bool = False
    """Whether it has its name already."""

    @property
    def partial(self) -> Path:
        """Where it is until it is complete."""
        return partial_of(self.path)

    def append(self, lines: bytes) -> None:
        """Write lines that no record tells of yet."""
        write_all(self.file, compressed(lines, self.path))

    def commit(self, portion: Portion) -> None:
        """Record that all up to this portion of the input is written."""
        self._record(portion, num_lines=len(portion.lines), finished=False)

    def finish(self, last: Portion | None) -> None:
        """Give the output its name; `last` is the last portion of the input, if it has any."""
        if not self.record.finished:
            if not self.record.bytes:  # a compressed file of nothing is not empty
                self.append(b"")
            self._record(last, num_lines=0, finished=True)
        if not self.is_named:
            self.partial.replace(self.path)
        if not self.keep_record:
            record_of(self.path).unlink(missing_ok=True)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let an error of the work inside tell where to find what was done before it."""
        try:
            yield
        except TextError as error:
            if record_of(self.path).exists():  # the same command would meet this line again
                error.add_note(
                    f"The {self.record.lines:,} lines before its portion are kept in {self.partial}: once that line is "
                    f"changed, the same command goes on from there; other flags (--from, --to, …) begin anew, with "
                    f"--overwrite."
                )
            raise
        except BaseException as error:
            if record_of(self.path).exists():
                error.add_note(f"What was done so far is in {self.partial}; the same command goes on from there.")
            elif self.partial.stat().st_size:
                error.add_note(f"What was done so far is in {self.partial}.")
            raise

    def _record(self, portion: Portion | None, *, num_lines: int, finished: bool) -> None:
        os.fsync(self.file.fileno())
        if portion is not None:
            self.record = replace(
                self.record,
                input_portions=portion.number + 1,
                input_lines=portion.last_line,
                input_digest=portion.digest,
            )
        self.record = replace(
            self.record, lines=self.record.lines + num_lines, bytes=self.file.tell(), finished=finished
        )
        self.record.save(record_of(self.path))


def partial_of(path: Path) -> Path:
    """Where an output is until it is complete."""
    return path.with_name(f"{path.name}.partial")


def record_of(path: Path) -> Path:
    """Where the record of an output is."""
    return path.with_name(f"{path.name}.record.json")


@contextmanager
def open_output(path: Path, made: Made, *, overwrite: bool, keep_record: bool) -> Iterator[Output]:
    """The partial output, cut to what its record tells of; a new one if there is no record, or for `overwrite`."""
    partial = partial_of(path)
    with locked(partial) as file:
        try:
            if overwrite:
                record_of(path).unlink(missing_ok=True)
            record = load_record(record_of(path)) or Record(made)
            refuse_other(path, record, made)
            size = os.fstat(file.fileno()).st_size
            is_named = record.finished and not size and path.exists() and path.stat().st_size == record.bytes
            if size < record.bytes and not is_named:
                raise DecodingError(
                    f"{partial} has {size:,} bytes where {record_of(path).name} tells of {record.bytes:,}; "
                    f"add --overwrite to begin anew."
                )
            if not is_named:
                file.truncate(record.bytes)
                file.seek(record.bytes)
            yield Output(path, file, record, keep_record, is_named)
        finally:
            if _is_still(partial, file) and not partial.stat().st_size:  # it was there for the lock alone
                partial.unlink()


def refuse_other(path: Path, record: Record, made: Made) -> None:
    """An output is not gone on with in another way than it was begun."""
    if found := differences(record.made, made):
        begun = path if record.finished else partial_of(path)
        raise DecodingError(f"{begun} was made with {found}; give the same again, or add --overwrite to begin anew.")


@contextmanager
def locked(path: Path) -> Iterator[FileIO]:
    """A file, opened to be written by this process alone, as far as the file system can tell."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            _lock(file, path)
            if not _is_still(path, file):
                continue  # another run finished and gave it its name in between
            yield file
            return


def write_all(file: FileIO, content: bytes) -> None:
    """Write without a buffer, which would fail a second time when a full disk's file is closed."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _lock(file: FileIO, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DecodingError(
            f"{path}: another run is writing it; wait for that one, or choose another output."
        ) from None
    except OSError:
        return  # this file system has no locks


def _is_still(path: Path, file: FileIO) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    return False
