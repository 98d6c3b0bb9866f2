"""A text file read in chunks of consecutive lines, and an output written chunk by chunk that can be resumed.

Chunk boundaries depend on line numbers only, so a resumed run or a shard translates the same chunks as a full run. A
running digest detects changes of the input between runs. The manifest next to the output records what is complete.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from io import FileIO
from pathlib import Path
from typing import Any

from heedful.atomic_files import rename_durably, replace_file
from heedful.errors import CorpusError, DecodingError, TextError
from heedful.text.text_files import MAX_TRANSLATED_LINE_BYTES, compressed, decompressed

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_CHUNK_BYTES = 2 * MAX_TRANSLATED_LINE_BYTES
"""Limit for the lines of one chunk; otherwise a compressed file could exhaust memory."""
FORMAT, FORMAT_VERSION = "heedful-translation", 1
MAX_LISTED = 6  # differences in one message


@dataclass(frozen=True)
class ChunkSizes:
    """Number of lines per chunk. Sizes double from `first` up to `maximum`, so that the first output appears early."""

    maximum: int
    first: int | None = None
    """None: every chunk has `maximum` lines, except the last of the file."""

    def __getitem__(self, number: int) -> int:
        """Size of chunk `number`, counted from 0."""
        return min(self.maximum, (self.first or self.maximum) << min(number, 32))

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
    """Whether the manifest is kept with the finished output; merging shards needs it."""
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
