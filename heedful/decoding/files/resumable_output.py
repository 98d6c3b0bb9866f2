"""An output that grows chunk by chunk, with a manifest beside it, and survives a kill at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

from heedful.atomic_files import rename_durably, replace_file
from heedful.decoding.files.line_chunks import Portion, Sizes
from heedful.errors import DecodingError, TextError
from heedful.text.text_files import compressed

FORMAT, FORMAT_VERSION = "heedful-translation", 1
MOST_NAMED = 6  # differences in one message


@dataclass(frozen=True)
class Made:
    """What makes two translations of a text the same, byte for byte."""

    identity: Mapping[str, Any]
    """Model, engine and search, as `Task.identity` tells them."""
    portion_lines: int
    """Lines of the input that were translated together, at most."""
    shard: str = "1/1"
    """Which part of the input: "3/16" has portions 3, 19, 35 …"""
    first_portion_lines: int | None = None
    """Lines of the first portion, each later one having twice as many; None: all are alike."""

    @property
    def sizes(self) -> Sizes:
        """The sizes of the portions."""
        return Sizes(self.portion_lines, self.first_portion_lines)


@dataclass(frozen=True)
class Record:
    """How far an output is; written whenever another portion is safely on the disk."""

    made: Made
    input_portions: int = 0
    """Portions of the input that are behind, those of other shards included."""
    input_lines: int = 0
    input_digest: str = ""
    """SHA-256 of the input up to there."""
    lines: int = 0
    """Lines of the output."""
    bytes: int = 0
    """Size of the output; what stands after it belongs to a portion that did not get ready."""
    finished: bool = False

    def save(self, path: Path) -> None:
        """Put this record in the place of the last one."""
        plain = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        replace_file(path, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def load_record(path: Path) -> Record | None:
    """The record in a file; None if there is none."""
    try:
        plain = json.loads(path.read_bytes())
        if plain.pop("format") != FORMAT or plain.pop("format_version") != FORMAT_VERSION:
            raise KeyError("format")
        return replace(Record(**{**plain, "made": Made(**plain["made"])}))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DecodingError(
            f"{path} is not a record of this version of heedful, or it is damaged; take it away, or add --overwrite."
        ) from None


def differences(before: Made, now: Made) -> str:
    """What differs between two ways to make an output, in words; empty if nothing does."""
    old, new = _flat(asdict(before)), _flat(asdict(now))
    found = []
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            name = key.removeprefix("identity.")
            if name.startswith("model."):
                found.append(f"another {name.removeprefix('model.')} of the model")
            else:
                found.append(f"{name} {_shown(old.get(key))}, not {_shown(new.get(key))}")
    more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return "; ".join(found[:MOST_NAMED] + more)


def _flat(plain: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in plain.items():
        # names of the model's files hold dots of their own, which do no harm here
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return flat


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


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
            rename_durably(self.partial, self.path)
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
