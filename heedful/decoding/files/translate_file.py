"""Translate one file: find the point to resume from, translate chunk by chunk, rename the complete output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

from heedful.decoding.files.job import TranslationJob
from heedful.decoding.files.line_chunks import ChunkSizes, LineChunk, read_chunks
from heedful.decoding.files.resumable_output import Manifest, RunSettings, load_manifest, manifest_path, open_output
from heedful.decoding.files.shards import Shard
from heedful.decoding.files.workers import WorkerDevice, WorkerPool
from heedful.errors import CorpusError

CHUNK_SIZES = {"cuda": ChunkSizes(8192)}
"""Chunk sizes by kind of device: large chunks, sorted by length, fill the batches of a GPU."""
DEFAULT_CHUNK_SIZES = ChunkSizes(256, first=16)
"""For CPUs: larger chunks are no faster, and an interrupted run loses the chunk in progress."""


@dataclass(frozen=True)
class RunProgress:
    """Progress of a run."""

    lines: int
    """Lines of the output, including those of earlier runs."""
    position: int
    """Bytes of the stored input that have been read."""
    remarks: Sequence[tuple[int, str]] = ()
    """(line number in the input, remark) for the last chunk."""


@runtime_checkable
class ProgressListener(Protocol):
    """Receives progress reports of a run."""

    def on_resume(self, manifest: Manifest) -> None:
        """An earlier run is resumed. The resume point in the input has not been reached yet."""
        ...

    def on_start(self, progress: RunProgress) -> None:
        """The first untranslated line has been reached."""
        ...

    def on_chunk_written(self, progress: RunProgress) -> None:
        """Another chunk is on disk."""
        ...


def choose_chunk_sizes(output: Path, requested: int | None, kind: str, *, overwrite: bool) -> ChunkSizes:
    """The requested size, else the sizes of the unfinished output, else the default for the kind of device."""
    if requested is not None:
        return ChunkSizes(requested)
    unfinished = None if overwrite else load_manifest(manifest_path(output))
    return unfinished.settings.sizes if unfinished else CHUNK_SIZES.get(kind, DEFAULT_CHUNK_SIZES)


def translate_file(
    job: TranslationJob,
    input_file: str,
    output: Path,
    settings: RunSettings,
    devices: Sequence[WorkerDevice],
    *,
    shard: Shard,
    overwrite: bool,
    listener: ProgressListener,
) -> Manifest:
    """Translate a file, or one shard of it, into `output`; resume if an earlier run left a partial output."""
    with open_output(output, settings, overwrite=overwrite, keep_manifest=not shard.is_whole) as out:
        reader = InputReader(input_file, settings.sizes, out.manifest)
        if out.manifest.input_chunks or out.manifest.finished:
            listener.on_resume(out.manifest)
            listener.on_start(RunProgress(out.manifest.lines, reader.skip_translated()))
        if not out.manifest.finished:
            with out.noting_partial_output(), WorkerPool(job, devices, input_file) as workers:
                for done in workers.translate_chunks(reader.chunks_of(shard)):
                    out.append(done.lines)
                    if done.error:
                        raise done.error
                    out.commit(done.chunk)
                    remarks = [(done.chunk.first_line + index, remark) for index, remark in done.remarks]
                    listener.on_chunk_written(RunProgress(out.manifest.lines, done.chunk.position, remarks))
        out.finish(reader.last_chunk)
    return out.manifest


class InputReader:
    """Reads the input: skips what is translated already, then yields the chunks of one shard."""

    def __init__(self, path: str, sizes: ChunkSizes, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.last_chunk: LineChunk | None = None
        """The last chunk read, of any shard."""
        self._chunks = read_chunks(path, sizes)

    def skip_translated(self) -> int:
        """Read the translated part, check that it has not changed, and return the position in the stored file."""
        for chunk in islice(self._chunks, self.manifest.input_chunks):
            self.last_chunk = chunk
            if chunk.read_error:
                raise chunk.read_error
        has_more = self.manifest.finished and next(self._chunks, None) is not None
        num_read, digest = (self.last_chunk.number + 1, self.last_chunk.digest) if self.last_chunk else (0, "")
        if has_more or num_read < self.manifest.input_chunks or digest != self.manifest.input_digest:
            raise self._changed_error()
        return self.last_chunk.position if self.last_chunk else 0

    def chunks_of(self, shard: Shard) -> Iterator[LineChunk]:
        """The untranslated chunks of a shard. A damaged chunk of another shard is yielded without lines."""
        for chunk in self._chunks:
            self.last_chunk = chunk
            if shard.contains(chunk.number):
                yield chunk
            elif chunk.read_error:
                yield replace(chunk, lines=[])

    def _changed_error(self) -> CorpusError:
        return CorpusError(
            f"{self.path}: the text has changed since its first {self.manifest.input_lines:,} lines were translated; "
            f"restore the old text, or add --overwrite to start over."
        )
