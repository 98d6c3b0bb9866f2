"""An output file written chunk by chunk, with a manifest beside it, that can be resumed after being killed."""

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
from heedful.decoding.files.line_chunks import ChunkSizes, LineChunk
from heedful.errors import DecodingError, TextError
from heedful.text.text_files import compressed

FORMAT, FORMAT_VERSION = "heedful-translation", 1
MAX_LISTED = 6  # differences in one message


@dataclass(frozen=True)
class RunSettings:
    """Everything that determines the bytes of an output, except the text."""

    identity: Mapping[str, Any]
    """Model, engine and search settings, from `TranslationJob.identity`."""
    chunk_lines: int
    """Maximum number of input lines per chunk."""
    shard: str = "1/1"
    """The part of the input: "3/16" has chunks 3, 19, 35 …"""
    first_chunk_lines: int | None = None
    """Lines of the first chunk; each later chunk is twice as large. None: all chunks have `chunk_lines`."""

    @property
    def sizes(self) -> ChunkSizes:
        """The chunk sizes."""
        return ChunkSizes(self.chunk_lines, self.first_chunk_lines)


@dataclass(frozen=True)
class Manifest:
    """The state of an output, saved after each chunk is flushed to disk."""

    settings: RunSettings
    input_chunks: int = 0
    """Number of input chunks that are done, including those of other shards."""
    input_lines: int = 0
    input_digest: str = ""
    """SHA-256 of the input up to there."""
    lines: int = 0
    """Number of output lines."""
    bytes: int = 0
    """Size of the output; anything after it belongs to an unfinished chunk."""
    finished: bool = False

    def save(self, path: Path) -> None:
        """Replace the previous manifest."""
        plain = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        replace_file(path, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def load_manifest(path: Path) -> Manifest | None:
    """Read a manifest; None if there is none."""
    try:
        plain = json.loads(path.read_bytes())
        if plain.pop("format") != FORMAT or plain.pop("format_version") != FORMAT_VERSION:
            raise KeyError("format")
        return replace(Manifest(**{**plain, "settings": RunSettings(**plain["settings"])}))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DecodingError(
            f"{path} is not a manifest of this version of heedful, or it is damaged; delete it, or add --overwrite."
        ) from None


def differences(before: RunSettings, now: RunSettings) -> str:
    """A description of how two runs differ; empty if they do not."""
    old, new = _flatten(asdict(before)), _flatten(asdict(now))
    found = []
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            name = key.removeprefix("identity.")
            if name.startswith("model."):
                found.append(f"another {name.removeprefix('model.')} of the model")
            else:
                found.append(f"{name} {_format_value(old.get(key))}, not {_format_value(new.get(key))}")
    more = [f"and {len(found) - MAX_LISTED} more"] if len(found) > MAX_LISTED else []
    return "; ".join(found[:MAX_LISTED] + more)


def _flatten(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in plain.items():
        # file names of the model contain dots, which is harmless here
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _format_value(value: Any) -> str:
    return "none" if value is None else str(value)


@dataclass
class ResumableOutput:
    """A partial output, locked by this process."""

    path: Path
    """Its final path."""
    file: FileIO
    manifest: Manifest
    keep_manifest: bool
    """Whether the manifest stays beside the finished output; merging shards needs it."""
    is_renamed: bool = False
    """Whether it already has its final path."""

    @property
    def partial(self) -> Path:
        """Its path until it is complete."""
        return partial_path(self.path)

    def append(self, lines: bytes) -> None:
        """Write lines; they are kept on resuming only after `commit`."""
        write_all(self.file, compressed(lines, self.path))

    def commit(self, chunk: LineChunk) -> None:
        """Save in the manifest that everything up to this input chunk is written."""
        self._update_manifest(chunk, num_lines=len(chunk.lines), finished=False)

    def finish(self, last: LineChunk | None) -> None:
        """Rename the output to its final path; `last` is the last chunk of the input, if there is one."""
        if not self.manifest.finished:
            if not self.manifest.bytes:  # an empty compressed file still has a header
                self.append(b"")
            self._update_manifest(last, num_lines=0, finished=True)
        if not self.is_renamed:
            rename_durably(self.partial, self.path)
        if not self.keep_manifest:
            manifest_path(self.path).unlink(missing_ok=True)

    @contextmanager
    def noting_partial_output(self) -> Iterator[None]:
        """Add a note about the partial output, and how to resume, to any exception raised inside."""
        try:
            yield
        except TextError as error:
            if manifest_path(self.path).exists():  # the same command would fail at this line again
                error.add_note(
                    f"The {self.manifest.lines:,} lines before its chunk are kept in {self.partial}: after that line "
                    f"is changed, the same command resumes there; other flags (--from, --to, …) start over and need "
                    f"--overwrite."
                )
            raise
        except BaseException as error:
            if manifest_path(self.path).exists():
                error.add_note(f"The work done so far is in {self.partial}; run the same command to resume.")
            elif self.partial.stat().st_size:
                error.add_note(f"The work done so far is in {self.partial}.")
            raise

    def _update_manifest(self, chunk: LineChunk | None, *, num_lines: int, finished: bool) -> None:
        os.fsync(self.file.fileno())
        if chunk is not None:
            self.manifest = replace(
                self.manifest,
                input_chunks=chunk.number + 1,
                input_lines=chunk.last_line,
                input_digest=chunk.digest,
            )
        self.manifest = replace(
            self.manifest, lines=self.manifest.lines + num_lines, bytes=self.file.tell(), finished=finished
        )
        self.manifest.save(manifest_path(self.path))


def partial_path(path: Path) -> Path:
    """The path of an output until it is complete."""
    return path.with_name(f"{path.name}.partial")


def manifest_path(path: Path) -> Path:
    """The path of the manifest of an output."""
    return path.with_name(f"{path.name}.manifest.json")


@contextmanager
def open_output(
    path: Path, settings: RunSettings, *, overwrite: bool, keep_manifest: bool
) -> Iterator[ResumableOutput]:
    """Open the partial output, truncated to the size in its manifest; empty without a manifest or with `overwrite`."""
    partial = partial_path(path)
    with locked(partial) as file:
        try:
            if overwrite:
                manifest_path(path).unlink(missing_ok=True)
            manifest = load_manifest(manifest_path(path)) or Manifest(settings)
            check_settings(path, manifest, settings)
            size = os.fstat(file.fileno()).st_size
            is_renamed = manifest.finished and not size and path.exists() and path.stat().st_size == manifest.bytes
            if size < manifest.bytes and not is_renamed:
                raise DecodingError(
                    f"{partial} has {size:,} bytes, but {manifest_path(path).name} records {manifest.bytes:,}; "
                    f"add --overwrite to start over."
                )
            if not is_renamed:
                file.truncate(manifest.bytes)
                file.seek(manifest.bytes)
            yield ResumableOutput(path, file, manifest, keep_manifest, is_renamed)
        finally:
            if _is_same_file(partial, file) and not partial.stat().st_size:  # it only served as the lock
                partial.unlink()


def check_settings(path: Path, manifest: Manifest, settings: RunSettings) -> None:
    """Raise an error if an output was started with other settings."""
    if found := differences(manifest.settings, settings):
        started = path if manifest.finished else partial_path(path)
        raise DecodingError(f"{started} was made with {found}; use the same again, or add --overwrite to start over.")


@contextmanager
def locked(path: Path) -> Iterator[FileIO]:
    """Open a file for writing with an exclusive lock, where the file system supports locks."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            _lock(file, path)
            if not _is_same_file(path, file):
                continue  # another run finished and renamed it in between
            yield file
            return


def write_all(file: FileIO, content: bytes) -> None:
    """Write without a buffer: on a full disk, flushing a buffer would fail a second time when the file is closed."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _lock(file: FileIO, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not available on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DecodingError(f"{path}: another run is writing it; wait for it, or choose another output.") from None
    except OSError:
        return  # this file system has no locks


def _is_same_file(path: Path, file: FileIO) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    return False
