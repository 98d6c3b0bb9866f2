"""Translate one file: find the point to resume from, translate chunk by chunk, rename the complete output.

Several worker processes share the chunks. Each runs `python -m heedful.decoding.files.translate_file`. It receives a
`TranslationJob` as JSON, then texts, and returns lines. A single worker runs in this process.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from heedful.decoding.files.chunked_files import (
    ChunkSizes,
    LineChunk,
    Manifest,
    RunSettings,
    load_manifest,
    manifest_path,
    open_output,
    read_chunks,
)
from heedful.decoding.files.job import TranslationJob, collect_remarks, restore_crlf
from heedful.decoding.files.shards import Shard
from heedful.decoding.translation import Translation
from heedful.errors import ConfigError, CorpusError, DecodingError, TextError
from heedful.process_pool import ProcessPool, WorkerDiedError, WorkerProcess, serve
from heedful.text.text_files import is_compressed

CHUNK_SIZES = {"cuda": ChunkSizes(8192)}
"""Chunk sizes by kind of device: large chunks, sorted by length, fill the batches of a GPU."""
DEFAULT_CHUNK_SIZES = ChunkSizes(256, first=16)
"""For CPUs: larger chunks are no faster, and an interrupted run loses the chunk in progress."""
NATIVE_CORES_PER_PROCESS = 8
"""Cores that one process of the native engine keeps busy; with more, serial work limits it."""
TYPICAL_LINE_BYTES = 64
"""Used to estimate the number of lines: a file shorter than one chunk per worker needs fewer workers."""
TYPICAL_COMPRESSION = 4


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


@dataclass(frozen=True)
class WorkerDevice:
    """The device, threads and cores of one worker."""

    device: str
    """As for `Translator.load`."""
    num_threads: int | None = None
    """None: the engine's default."""
    cores: tuple[int, ...] = ()
    """CPU affinity; empty: all cores of this process."""
    visible_gpu: str | None = None
    """CUDA_VISIBLE_DEVICES of its process."""

    @property
    def kind(self) -> str:
        """cpu, cuda or mps."""
        return self.device.partition(":")[0]

    def __str__(self) -> str:
        return self.device if self.visible_gpu is None else f"{self.device} {self.visible_gpu}"


def assign_devices(engine: str, device: str, *, num_workers: int, max_workers: int, model: str) -> list[WorkerDevice]:
    """The device of each worker. `num_workers`: 0 chooses the number, up to `max_workers`.

    One worker per GPU. On CPUs, torch and CTranslate2 are fastest with many single-threaded processes, as far as memory
    allows; the native engine uses threads. A single worker runs in this process.
    """
    if num_workers < 0:
        raise ConfigError(f"--workers {num_workers}: give a positive number, or 0 to choose automatically.")
    kind = device_kind(engine, device)
    if kind == "cuda":
        gpus = visible_gpus(engine, device)
        number = num_workers or min(len(gpus), max_workers)
        if number == 1:
            return [WorkerDevice(device if device != "auto" else "cuda")]
        return [WorkerDevice("cuda", visible_gpu=gpus[index % len(gpus)]) for index in range(number)]
    if kind != "cpu":
        return [WorkerDevice(kind)] * (num_workers or 1)
    cores = usable_core_ids()
    number = num_workers or max(1, min(max_workers, _useful_processes(engine, len(cores), model)))
    cores_per_worker = max(1, len(cores) // number)
    if number == 1:
        return [WorkerDevice("cpu")]
    if engine == "native":
        starts = [index * cores_per_worker % len(cores) for index in range(number)]
        return [
            WorkerDevice("cpu", cores_per_worker, tuple(cores[start : start + cores_per_worker])) for start in starts
        ]
    return [WorkerDevice("cpu", cores_per_worker)] * number


def max_useful_workers(path: str, chunk_lines: int) -> int:
    """Approximate number of chunks of a file, by its size; more workers would stay idle."""
    size = os.path.getsize(path) * (TYPICAL_COMPRESSION if is_compressed(path) else 1)
    return max(1, size // (chunk_lines * TYPICAL_LINE_BYTES))


def device_kind(engine: str, device: str) -> str:
    """The kind of device that a device name means for this engine: cpu, cuda or mps."""
    if engine == "native":
        from heedful.decoding.engines.native_engine import check_device

        check_device(device)
    if engine == "native" or device == "cpu":
        return "cpu"
    if engine == "ctranslate2":
        from heedful.decoding.engines.ctranslate2_engine import ctranslate2_device, import_ctranslate2

        return ctranslate2_device(import_ctranslate2(), device)[0]
    from heedful.build_model import resolve_device

    return str(resolve_device(device).type)


def visible_gpus(engine: str, device: str) -> list[str]:
    """CUDA_VISIBLE_DEVICES names of all usable GPUs, or of the one that `device` names."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if engine == "ctranslate2":
        from heedful.decoding.engines.ctranslate2_engine import import_ctranslate2

        count: Any = import_ctranslate2().get_cuda_device_count()
    else:
        import torch

        count = torch.cuda.device_count()
    gpus = named[:count] if len(named) >= count else [str(index) for index in range(count)]
    _, _, number = device.partition(":")
    if number and int(number) >= len(gpus):
        raise ConfigError(f"device: {device!r} is not available on this machine; use auto or cpu.")
    return [gpus[int(number)]] if number else gpus


def usable_core_ids() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _useful_processes(engine: str, num_cores: int, model: str) -> int:
    if engine == "native":
        return -(-num_cores // NATIVE_CORES_PER_PROCESS)
    weights = sum(path.stat().st_size for path in Path(model).glob("model.*"))
    needed = 4 * weights + (1 << 30)  # a process with its libraries and activations
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 33
    return min(num_cores, max(1, memory // needed))


@dataclass(frozen=True)
class TranslatedChunk:
    """The translation of a chunk."""

    chunk: LineChunk
    lines: bytes
    """One output line for each input line up to the first that cannot be decoded."""
    error: CorpusError | None
    """Why some lines of the chunk are missing."""
    remarks: Sequence[tuple[int, str]] = ()
    """(index of the line in the chunk, remark)."""


class WorkerPool:
    """One worker process per device, started when the first chunk is assigned to it; a single worker runs here."""

    def __init__(self, job: TranslationJob, devices: Sequence[WorkerDevice], input_file: str) -> None:
        self.job = job
        self.devices = devices
        self.input_file = input_file
        self._stack = ExitStack()

    def __enter__(self) -> WorkerPool:
        count = len(self.devices)
        if count > 1:
            workers = [
                _TranslationWorker(f"worker {number} of {count} ({device})", self.job, device)
                for number, device in enumerate(self.devices, 1)
            ]
            self._pool = self._stack.enter_context(ProcessPool(workers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def translate_chunks(self, chunks: Iterable[LineChunk]) -> Iterator[TranslatedChunk]:
        """Translate chunks and yield them in order, reading only a few chunks ahead."""
        return self._translate_here(chunks) if len(self.devices) == 1 else self._pool.map_in_order(self._remote, chunks)

    def _translate_here(self, chunks: Iterable[LineChunk]) -> Iterator[TranslatedChunk]:
        translate = None
        for chunk in chunks:
            texts, read_error = chunk.texts(self.input_file)
            translate = translate or self.job.load(self.devices[0].device)
            with _with_line_number(chunk, self.input_file):
                translations = translate(texts)
            lines = self._format(chunk, self.job.format_lines(texts, translations))
            yield TranslatedChunk(chunk, lines, read_error, collect_remarks(translations))

    def _format(self, chunk: LineChunk, lines: bytes) -> bytes:
        return lines if self.job.as_json else restore_crlf(lines, chunk.lines)

    def _remote(self, worker: _TranslationWorker, chunk: LineChunk) -> TranslatedChunk:
        texts, read_error = chunk.texts(self.input_file)
        with _with_line_number(chunk, self.input_file):
            lines, remarks = worker.translate(texts)
        return TranslatedChunk(chunk, self._format(chunk, lines), read_error, remarks)


@contextmanager
def _with_line_number(chunk: LineChunk, input_file: str) -> Iterator[None]:
    """Add the file and line number to an error about a text."""
    try:
        yield
    except TextError as error:
        raise error.at(f"{input_file}:{chunk.first_line + error.number - 1}") from None


class _TranslationWorker(WorkerProcess):
    """One worker process."""

    def __init__(self, name: str, job: TranslationJob, device: WorkerDevice) -> None:
        environment = {"OMP_NUM_THREADS": str(device.num_threads)} if device.num_threads else {}
        if device.visible_gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device.visible_gpu
        super().__init__("heedful.decoding.files.translate_file", environment)
        self.name = name
        self._setup: bytes | None = json.dumps({"job": asdict(job), "device": asdict(device)}).encode()

    def translate(self, texts: Sequence[str]) -> tuple[bytes, list[tuple[int, str]]]:
        """The translated lines, and remarks on some of them."""
        if self._setup is not None:
            self.post([self._setup])
            self._setup = None
        try:
            lines, remarks = self.request([json.dumps(texts).encode()])
        except WorkerDiedError as error:
            raise DecodingError(f"{self.name} {_describe_exit(error.exit_code)}") from None
        return lines, [(number, remark) for number, remark in json.loads(remarks)]


def _describe_exit(code: int) -> str:
    """How a worker exited, and what to do."""
    if code >= 0:
        return f"exited with code {code}; its message is above."
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return f"was killed by {name}, probably because memory ran out; use a smaller --workers."


def main() -> None:
    """Run a worker: the first message is the job and the device, each later one is a list of texts."""
    job: TranslationJob | None = None
    device = WorkerDevice("cpu")
    translate: Callable[[Sequence[str]], list[Translation]] | None = None

    def answer(message: list[bytes]) -> list[bytes] | None:
        nonlocal job, device, translate
        values = json.loads(message[0])
        if job is None:
            job = TranslationJob(**values["job"])
            device = WorkerDevice(**values["device"])
            if device.cores and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, device.cores)
            return None
        try:
            translate = translate or job.load(device.device)
            translations = translate(values)
            return [job.format_lines(values, translations), json.dumps(collect_remarks(translations)).encode()]
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            advice = "use a smaller decoding.tokens_per_batch, which may change between runs, or fewer --workers"
            raise DecodingError(f"{device} is out of memory; {advice}.") from None

    serve(answer)


if __name__ == "__main__":
    main()
