"""Corpora in chunks of lines, still as bytes: what can be handed to another process, which then parses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress, islice, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig
from heedful.text.corpus import EARLY_LOOK, BadLine, SentencePair, corpus_files, parse, read_lines, unequal_lines

LINES_PER_CHUNK = 8192

Arrays = list[npt.NDArray[Any]]
"""What work on a chunk gives, ready to be sent through a pipe."""


@dataclass(frozen=True)
class Chunk:
    """Neighbouring lines of a corpus: a list for each of its files."""

    first_number: int
    """Number of its first line in the file, from 1."""
    files: tuple[list[bytes], ...]

    def __len__(self) -> int:
        return len(self.files[0])

    def pairs(self, corpus: CorpusConfig) -> Iterator[SentencePair | BadLine]:
        """The sentences, one item a line."""
        return parse(corpus, zip(*self.files, strict=True), self.first_number)

    def some(self, corpus: CorpusConfig, places: Iterable[int]) -> dict[int, SentencePair]:
        """The sentences of some lines, all of which are known to be text, by their places in the chunk."""
        chosen = list(places)
        pairs = parse(corpus, zip(*([lines[place] for place in chosen] for lines in self.files), strict=True))
        return {place: pair for place, pair in zip(chosen, pairs, strict=True) if isinstance(pair, SentencePair)}

    def only(self, chosen: npt.NDArray[np.bool_]) -> Chunk:
        """The chosen lines alone; they lose their numbers."""
        flags = chosen.tolist()
        return Chunk(self.first_number, tuple(list(compress(lines, flags)) for lines in self.files))


def read_chunks(corpus: CorpusConfig, size: int = LINES_PER_CHUNK) -> Iterator[Chunk]:
    """All lines of a corpus in order, first `EARLY_LOOK`; the files are read, and decompressed, on own threads."""
    files = corpus_files(corpus)
    with ThreadPoolExecutor(len(files), thread_name_prefix="reading") as threads:
        pieces = [_ahead(read_lines(path), size, threads) for path in files]
        number = 1
        for chunk in zip_longest(*pieces, fillvalue=[]):
            if len({len(lines) for lines in chunk}) > 1:
                rest = [sum(map(len, piece)) for piece in pieces]
                raise unequal_lines(files, [number - 1 + len(c) + r for c, r in zip(chunk, rest, strict=True)])
            yield Chunk(number, chunk)
            number += len(chunk[0])


def _ahead(lines: Iterator[bytes], size: int, threads: ThreadPoolExecutor) -> Iterator[list[bytes]]:
    """Lists of lines, the next of which is being read while one is used."""

    def take(count: int) -> list[bytes]:
        return list(islice(lines, count))

    coming = threads.submit(take, EARLY_LOOK)
    while taken := coming.result():
        coming = threads.submit(take, size)
        yield taken
