"""Work on chunks of lines in several processes, with results in the order of the chunks.

Each process runs `python -m heedful.text.chunk_workers`. It receives a `Work` as JSON and chunks of lines, and answers
with arrays.
"""

from __future__ import annotations

import gc
import json
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np

from heedful.config import CorpusConfig
from heedful.errors import CorpusError
from heedful.process_pool import ProcessPool, WorkerDiedError, WorkerProcess, serve
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
    """Worker processes, started as they are needed and ended with the `with` block; a single one is this process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._stack = ExitStack()

    def __enter__(self) -> Workers:
        if self.number > 1:
            self._pool = self._stack.enter_context(ProcessPool([_ChunkWorker() for _ in range(self.number)]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def in_order(self, work: Work, chunks: Iterable[tuple[Tag, Chunk]]) -> Iterator[tuple[Tag, Arrays]]:
        """The result of `work` for each chunk, with the tag that came with the chunk."""
        if self.number == 1:
            return ((tag, work(chunk)) for tag, chunk in chunks)

        def run(worker: _ChunkWorker, item: tuple[Tag, Chunk]) -> tuple[Tag, Arrays]:
            tag, chunk = item
            return tag, worker.run(work, chunk)

        return self._pool.map_in_order(run, chunks)


class _ChunkWorker(WorkerProcess):
    """One worker process; it keeps the work it was sent last."""

    def __init__(self) -> None:
        super().__init__("heedful.text.chunk_workers", {"OMP_NUM_THREADS": "1"})
        self._work: Work | None = None

    def run(self, work: Work, chunk: Chunk) -> Arrays:
        if self._work is not work:
            self.post([json.dumps({"name": work.name, "fields": asdict(work)}).encode()])  # type: ignore[call-overload]
            self._work = work
        try:
            dtypes, *arrays = self.request([struct.pack("<q", chunk.first_number), *map(b"\n".join, chunk.files)])
        except WorkerDiedError as error:
            raise CorpusError(
                f"a worker process ended early (exit code {error.exit_code}): its message is above; if there "
                f"is none, memory may be short. Use fewer with data.num_workers."
            ) from None
        return [np.frombuffer(part, dtype=dtype) for part, dtype in zip(arrays, json.loads(dtypes), strict=True)]


def _work(described: dict[str, Any]) -> Work:
    """The work that a description tells of."""
    fields = {**described["fields"], "corpus": CorpusConfig(**described["fields"]["corpus"])}
    if described["name"] == "filter":
        from heedful.text.line_filters import FilterLines

        return FilterLines(**fields)
    from heedful.text.encode_chunks import Encoding

    return Encoding(**fields)


def main() -> None:
    """Run a worker: a message of one part is the work from now on, a message of several parts a chunk."""
    gc.disable()  # chunks make no cycles, only very many small lists, which would be looked through again and again
    work: Work | None = None

    def answer(message: list[bytes]) -> list[bytes] | None:
        nonlocal work
        if len(message) == 1:
            work = _work(json.loads(message[0]))
            return None
        assert work is not None
        (first_number,) = struct.unpack("<q", message[0])
        arrays = work(Chunk(first_number, tuple(part.split(b"\n") for part in message[1:])))
        return [json.dumps([array.dtype.str for array in arrays]).encode(), *(array.tobytes() for array in arrays)]

    serve(answer)


if __name__ == "__main__":
    main()
