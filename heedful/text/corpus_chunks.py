"""Corpora in chunks of lines, and worker processes that check or tokenise them and return the results in order.

A worker runs `python -m heedful.text.corpus_chunks`. It receives a `Work` as JSON and the lines of chunks as bytes, and
returns arrays. Nothing is pickled.
"""

from __future__ import annotations

import gc
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from itertools import compress, islice, zip_longest
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig
from heedful.cpu_count import allowed_cores
from heedful.errors import CorpusError
from heedful.process_pool import ProcessPool, WorkerDiedError, WorkerProcess, serve
from heedful.text.corpus import (
    EARLY_CHECK_LINES,
    BadLine,
    SentencePair,
    TrainingPair,
    corpus_files,
    parse_lines,
    unequal_lines_error,
)
from heedful.text.text_files import read_lines
from heedful.text.tokenizer import Tokenizer, id_type


class Encoded(NamedTuple):
    """Tokenised pairs: for each side, the concatenated ids of all sentences, and the length of each sentence."""

    source: npt.NDArray[Any]
    source_lengths: npt.NDArray[np.int64]
    target: npt.NDArray[Any]
    target_lengths: npt.NDArray[np.int64]
    num_long: npt.NDArray[np.int64]
    """One number: the pairs that were dropped because a row cannot hold them."""


@dataclass(frozen=True)
class EncodeLines:
    """Tokenises every line of a chunk: a `Work`."""

    corpus: CorpusConfig
    tokenizer: str
    """Directory of the tokenizer."""
    width: int
    languages: list[str | None]
    """The target language for the tag; a second one if each line is followed by its reversed pair."""

    def __call__(self, chunk: Chunk) -> Arrays:
        """The arrays of `Encoded`."""
        pairs: list[TrainingPair] = []
        for pair in chunk.pairs(self.corpus):
            assert isinstance(pair, SentencePair), "only kept lines are encoded"
            pairs.append(TrainingPair(pair.source, pair.target, 0, self.languages[0], self.corpus.source_tag))
            pairs += [TrainingPair(pair.target, pair.source, 0, language) for language in self.languages[1:]]
        return list(flat_ids(self._loaded_tokenizer, pairs, self.width))

    @cached_property
    def _loaded_tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.tokenizer)


def pack_pairs(tokenizer: Tokenizer, pairs: Sequence[TrainingPair]) -> list[tuple[bytes, bytes]]:
    """Source and target ids of each pair, as the bytes of `id_type` arrays."""
    sources = [b""] * len(pairs)
    for language, source_tag in {(pair.target_language, pair.source_tag) for pair in pairs}:
        indices = [
            i for i, pair in enumerate(pairs) if (pair.target_language, pair.source_tag) == (language, source_tag)
        ]
        packed = tokenizer.pack_sources([pairs[index].source for index in indices], language, source_tag=source_tag)
        for index, ids in zip(indices, packed, strict=True):
            sources[index] = ids
    return list(zip(sources, tokenizer.pack_targets([pair.target for pair in pairs]), strict=True))


def flat_ids(tokenizer: Tokenizer, pairs: Sequence[TrainingPair], width: int) -> Encoded:
    """The ids of all pairs with at most `width` tokens on each side."""
    types = id_type(tokenizer.source_vocab_size), id_type(tokenizer.target_vocab_size)
    source_width, target_width = (width * dtype.itemsize for dtype in types)
    packed = pack_pairs(tokenizer, pairs)
    kept = [pair for pair in packed if len(pair[0]) <= source_width and len(pair[1]) <= target_width]
    sources, targets = [_flat([pair[side] for pair in kept], dtype) for side, dtype in enumerate(types)]
    return Encoded(*sources, *targets, np.array([len(packed) - len(kept)]))


def longest_side(tokenizer: Tokenizer, pairs: Sequence[TrainingPair]) -> npt.NDArray[np.int64]:
    """For each pair, the number of tokens of its longer side."""
    encoded = flat_ids(tokenizer, pairs, width=1 << 40)
    return np.maximum(encoded.source_lengths, encoded.target_lengths)


def _flat(sentences: list[bytes], dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    num_bytes = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    return np.frombuffer(b"".join(sentences), dtype=dtype), num_bytes // dtype.itemsize


LINES_PER_CHUNK = 8192

Arrays = list[npt.NDArray[Any]]
"""The result of processing a chunk, ready to be sent through a pipe."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of a corpus: a list for each of its files."""

    first_number: int
    """Line number of the first line, from 1."""
    files: tuple[list[bytes], ...]

    def __len__(self) -> int:
        return len(self.files[0])

    def pairs(self, corpus: CorpusConfig) -> Iterator[SentencePair | BadLine]:
        """The sentence pairs, one item per line."""
        return parse_lines(corpus, zip(*self.files, strict=True), self.first_number)

    def select(self, corpus: CorpusConfig, indices: Iterable[int]) -> dict[int, SentencePair]:
        """The sentence pairs of some lines, all of which are text, by their index in the chunk."""
        selected = list(indices)
        pairs = parse_lines(corpus, zip(*([lines[index] for index in selected] for lines in self.files), strict=True))
        return {index: pair for index, pair in zip(selected, pairs, strict=True) if isinstance(pair, SentencePair)}

    def filter(self, mask: npt.NDArray[np.bool_]) -> Chunk:
        """The lines where `mask` is true; line numbers are lost."""
        flags = mask.tolist()
        return Chunk(self.first_number, tuple(list(compress(lines, flags)) for lines in self.files))


def read_chunks(corpus: CorpusConfig, size: int = LINES_PER_CHUNK) -> Iterator[Chunk]:
    """All lines of a corpus in order, first `EARLY_CHECK_LINES`; a thread reads and decompresses each file."""
    files = corpus_files(corpus)
    with ThreadPoolExecutor(len(files), thread_name_prefix="reading") as threads:
        pieces = [_read_ahead(read_lines(path), size, threads) for path in files]
        number = 1
        for chunk in zip_longest(*pieces, fillvalue=[]):
            if len({len(lines) for lines in chunk}) > 1:
                rest = [sum(map(len, piece)) for piece in pieces]
                raise unequal_lines_error(files, [number - 1 + len(c) + r for c, r in zip(chunk, rest, strict=True)])
            yield Chunk(number, chunk)
            number += len(chunk[0])


def _read_ahead(lines: Iterator[bytes], size: int, threads: ThreadPoolExecutor) -> Iterator[list[bytes]]:
    """Lists of lines; the next one is read while the current one is in use."""

    def take(count: int) -> list[bytes]:
        return list(islice(lines, count))

    following = threads.submit(take, EARLY_CHECK_LINES)
    while taken := following.result():
        following = threads.submit(take, size)
        yield taken


# ---- worker processes ------------------------------------------------------------------------------------------------

Tag = TypeVar("Tag")
MIN_BYTES = 8 << 20
"""For smaller corpora, starting processes costs more than it saves."""


class Work(Protocol):
    """A function of a chunk: a dataclass of plain values, which is sent to the workers as JSON."""

    @property
    def corpus(self) -> CorpusConfig:
        """The corpus that the chunks are from."""
        ...

    def __call__(self, chunk: Chunk) -> Arrays:
        """The result for one chunk, a function of the fields and the chunk alone."""
        ...


def num_workers(wanted: int | None, num_bytes: int) -> int:
    """The number of processes to use: `wanted`, or by default one for each core; one for small corpora."""
    if wanted is not None:
        return wanted
    return allowed_cores() if num_bytes >= MIN_BYTES else 1


class Workers:
    """Worker processes, started when needed and stopped at the end of the `with` block; one worker is this process."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self._stack = ExitStack()

    def __enter__(self) -> Workers:
        if self.num_workers > 1:
            self._pool = self._stack.enter_context(ProcessPool([_ChunkWorker() for _ in range(self.num_workers)]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def map_in_order(self, work: Work, chunks: Iterable[tuple[Tag, Chunk]]) -> Iterator[tuple[Tag, Arrays]]:
        """The result of `work` for each chunk, with the tag that came with the chunk."""
        if self.num_workers == 1:
            return ((tag, work(chunk)) for tag, chunk in chunks)

        def run(worker: _ChunkWorker, item: tuple[Tag, Chunk]) -> tuple[Tag, Arrays]:
            tag, chunk = item
            return tag, worker.run(work, chunk)

        return self._pool.map_in_order(run, chunks)


class _ChunkWorker(WorkerProcess):
    """One worker process, which remembers the last `Work` it received."""

    def __init__(self) -> None:
        super().__init__("heedful.text.corpus_chunks", {"OMP_NUM_THREADS": "1"})
        self._work: Work | None = None

    def run(self, work: Work, chunk: Chunk) -> Arrays:
        if self._work is not work:
            kind = type(work)
            message = {"module": kind.__module__, "class": kind.__name__, "fields": asdict(work)}  # type: ignore[call-overload]
            self.post([json.dumps(message).encode()])
            self._work = work
        try:
            dtypes, *arrays = self.request([struct.pack("<q", chunk.first_number), *map(b"\n".join, chunk.files)])
        except WorkerDiedError as error:
            raise CorpusError(
                f"a worker process died (exit code {error.exit_code}). Its message is above; without one, the machine "
                f"may be out of memory: use fewer workers with data.num_workers."
            ) from None
        return [np.frombuffer(part, dtype=dtype) for part, dtype in zip(arrays, json.loads(dtypes), strict=True)]


def _parse_work(message: dict[str, Any]) -> Work:
    """The `Work` of a message from `_ChunkWorker.run`."""
    fields = {**message["fields"], "corpus": CorpusConfig(**message["fields"]["corpus"])}
    work: Work = getattr(import_module(message["module"]), message["class"])(**fields)
    return work


def main() -> None:
    """Entry point of a worker: a message of one part is a `Work`, a message of several parts a chunk for it."""
    gc.disable()  # chunks create no cycles, but very many small lists, which would be scanned again and again
    work: Work | None = None

    def answer(message: list[bytes]) -> list[bytes] | None:
        nonlocal work
        if len(message) == 1:
            work = _parse_work(json.loads(message[0]))
            return None
        assert work is not None
        (first_number,) = struct.unpack("<q", message[0])
        arrays = work(Chunk(first_number, tuple(part.split(b"\n") for part in message[1:])))
        return [json.dumps([array.dtype.str for array in arrays]).encode(), *(array.tobytes() for array in arrays)]

    serve(answer)


if __name__ == "__main__":
    main()
