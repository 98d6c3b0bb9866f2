"""Corpora in chunks of lines, as bytes that another process can parse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress, islice, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig
from heedful.text.corpus import EARLY_CHECK_LINES, BadLine, SentencePair, corpus_files, parse_lines, unequal_lines_error
from heedful.text.text_files import read_lines

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
        """The sentence pairs, one item a line."""
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
