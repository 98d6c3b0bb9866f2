"""Work on chunks of lines in several processes, with results in the order of the chunks, whatever their number.

Each process runs `python -m heedful.text.chunk_workers`, reads chunks from a pipe and writes arrays to another. Nothing
is imported from the calling program, and nothing is pickled. The task is a `Work`, sent as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, TypeVar

import numpy as np

import heedful.errors
from heedful.config import CorpusConfig
from heedful.errors import CorpusError, HeedfulError
from heedful.text.line_chunks import Arrays, Chunk

Tag = TypeVar("Tag")
_SMALL = 8 << 20  # bytes of corpora below which starting processes costs more than it saves


class Work(Protocol):
    """Something to do with every chunk of a corpus: a dataclass of plain values, so that it can travel as JSON."""

    @property
    def name(self) -> str:
        """Which work it is, for `_work`."""
        ...

    def __call__(self, chunk: Chunk) -> Arrays:
        """The result for one chunk; it depends on nothing but the work's fields and the chunk."""
        ...


def num_workers(wanted: int | None, num_bytes: int) -> int:
    """How many processes to use: what is wanted, else one for each core, or none but this one for a small corpus."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if num_bytes >= _SMALL else 1


class Workers:
    """So many processes, started as they are needed and ended with the `with` block; one is this process itself."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._stack = ExitStack()
        self._idle: queue.LifoQueue[_Process] = queue.LifoQueue()  # what has started is asked before what has not

    def __enter__(self) -> Workers:
        if self.number > 1:
            self._threads = self._stack.enter_context(
                ThreadPoolExecutor(self.number, thread_name_prefix="worker"),
            )
            for _ in range(self.number):  # these end before the threads do, which then wait for nothing
                self._idle.put(self._stack.enter_context(_Process()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def in_order(self, work: Work, chunks: Iterable[tuple[Tag, Chunk]]) -> Iterator[tuple[Tag, Arrays]]:
        """What `work` makes of each chunk, beside what came with the chunk."""
        if self.number == 1:
            for tag, chunk in chunks:
                yield tag, work(chunk)
            return
        waiting: deque[tuple[Tag, Future[Arrays]]] = deque()
        try:
            for tag, chunk in chunks:
                waiting.append((tag, self._threads.submit(self._ask, work, chunk)))
                if len(waiting) >= 2 * self.number:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()

    def _ask(self, work: Work, chunk: Chunk) -> Arrays:
        process = self._idle.get()
        try:
            return process.ask(work, chunk)
        finally:
            self._idle.put(process)


class _Process:
    """One process, from the first time it is asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._work: Work | None = None
        self._ended = False
        self._lock = threading.Lock()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:  # a thread may get here when the others have ended already, after an error
            if self._ended:
                raise CorpusError("the worker processes have ended.")
            self._process = self._process or start_module("heedful.text.chunk_workers", {"OMP_NUM_THREADS": "1"})
            return self._process

    def ask(self, work: Work, chunk: Chunk) -> Arrays:
        """Have one chunk worked on."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if self._work is not work:
                described = {"name": work.name, "fields": asdict(work)}  # type: ignore[call-overload]
                send(process.stdin, [json.dumps(described).encode()])
                self._work = work
            send(process.stdin, [struct.pack("<q", chunk.first_number), *map(b"\n".join, chunk.files)])
            answer = receive(process.stdout)
        except OSError:
            answer = []
        if not answer:
            raise CorpusError(
                f"a worker process ended early (exit code {process.wait()}): its message stands above; if there "
                f"is none, memory may be short. Use fewer with data.num_workers."
            )
        said = json.loads(answer[0])
        if "error" in said:
            raise getattr(heedful.errors, said["error"])(said["message"])
        return [np.frombuffer(part, dtype=dtype) for part, dtype in zip(answer[1:], said["dtypes"], strict=True)]

    def __enter__(self) -> _Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended, process = True, self._process
        if process is None:
            return
        process.kill()  # it has nothing that could be lost
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def start_module(module: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process that runs a module of this package and is spoken to through pipes; `environment` is laid over ours."""
    package = Path(heedful.errors.__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    laid_over = {**os.environ, "PYTHONPATH": path, **environment}
    command = [sys.executable, "-P", "-m", module]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=laid_over)


def send(pipe: IO[bytes], parts: Sequence[bytes]) -> None:
    """Write a message, which has one part or more."""
    pipe.write(struct.pack(f"<q{len(parts)}q", len(parts), *map(len, parts)))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def receive(pipe: IO[bytes]) -> list[bytes]:
    """The parts of a message, or none at the end of the pipe (also one in the midst of a message)."""
    start = pipe.read(8)
    count = struct.unpack("<q", start)[0] if len(start) == 8 else 0
    head = pipe.read(8 * count)
    sizes = struct.unpack(f"<{count}q", head) if len(head) == 8 * count else ()
    parts = [pipe.read(size) for size in sizes]
    return parts if [len(part) for part in parts] == list(sizes) else []


def _work(described: dict[str, Any]) -> Work:
    """The work that a description tells of."""
    fields = {**described["fields"], "corpus": CorpusConfig(**described["fields"]["corpus"])}
    if described["name"] == "judging":
        from heedful.text.line_filters import Judging

        return Judging(**fields)
    from heedful.text.encode_chunks import Encoding

    return Encoding(**fields)


def main() -> None:
    """Be one of the processes: a message of one part is the work from now on, one of more parts a chunk."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the one that started this ends it
    requests, results = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what anything prints must not get between the arrays
    gc.disable()  # chunks make no cycles, only very many small lists, which would be looked through again and again
    while message := receive(requests):
        if len(message) == 1:
            work = _work(json.loads(message[0]))
            continue
        (first_number,) = struct.unpack("<q", message[0])
        chunk = Chunk(first_number, tuple(part.split(b"\n") for part in message[1:]))
        try:
            arrays = work(chunk)
        except HeedfulError as error:
            send(results, [json.dumps({"error": type(error).__name__, "message": str(error)}).encode()])
            continue
        dtypes = json.dumps({"dtypes": [array.dtype.str for array in arrays]}).encode()
        send(results, [dtypes, *(array.tobytes() for array in arrays)])


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # who started this is gone
        os._exit(1)
