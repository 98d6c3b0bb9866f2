"""From the lines of a chunk to ids, as flat arrays ready to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig
from heedful.text.chunks import Chunk
from heedful.text.corpus import SentencePair, TrainingPair
from heedful.text.tokenizer import Tokenizer
from heedful.text.workers import Arrays


class Encoded(NamedTuple):
    """Pairs as ids: the sentences of each side end to end, and their lengths."""

    source: npt.NDArray[Any]
    source_lengths: npt.NDArray[np.int64]
    target: npt.NDArray[Any]
    target_lengths: npt.NDArray[np.int64]
    num_long: npt.NDArray[np.int64]
    """One number: how many pairs were left out because a row cannot hold them."""


@dataclass(frozen=True)
class Encoding:
    """Tokenises every line of a chunk: a `Work`."""

    name: ClassVar[str] = "encoding"
    corpus: CorpusConfig
    tokenizer: str
    """Directory of the tokenizer."""
    width: int
    languages: list[str | None]
    """Target language for the tag of each line; a second one: of the line turned round, which follows it."""

    def __call__(self, chunk: Chunk) -> Arrays:
        """The arrays of `Encoded`."""
        pairs: list[TrainingPair] = []
        for pair in chunk.pairs(self.corpus):
            assert isinstance(pair, SentencePair), "a line that was kept"
            pairs.append(TrainingPair(pair.source, pair.target, 0, self.languages[0]))
            pairs += [TrainingPair(pair.target, pair.source, 0, language) for language in self.languages[1:]]
        encoded, _ = flat_ids(self._loaded, pairs, self.width)
        return list(encoded)

    @cached_property
    def _loaded(self) -> Tokenizer:
        return Tokenizer.load(self.tokenizer)


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[TrainingPair]) -> list[tuple[list[int], list[int]]]:
    """Source and target ids of each pair."""
    sources: list[list[int]] = [[] for _ in pairs]
    for language in {pair.target_language for pair in pairs}:
        places = [place for place, pair in enumerate(pairs) if pair.target_language == language]
        encoded = tokenizer.encode_sources([pairs[place].source for place in places], language)
        for place, ids in zip(places, encoded, strict=True):
            sources[place] = ids
    targets = tokenizer.encode_targets([pair.target for pair in pairs])
    return list(zip(sources, targets, strict=True))


def flat_ids(tokenizer: Tokenizer, pairs: Sequence[TrainingPair], width: int) -> tuple[Encoded, npt.NDArray[np.bool_]]:
    """The ids of the pairs of which no side is longer than `width`, and which pairs these are."""
    ids = encode_pairs(tokenizer, pairs)
    fits = [len(source) <= width and len(target) <= width for source, target in ids]
    kept = [both for both, fit in zip(ids, fits, strict=True) if fit]
    sides = [_flat([both[side] for both in kept], size) for side, size in enumerate(_vocab_sizes(tokenizer))]
    num_long = np.array([len(ids) - len(kept)], dtype=np.int64)
    return Encoded(*sides[0], *sides[1], num_long), np.array(fits, dtype=np.bool_)


def _vocab_sizes(tokenizer: Tokenizer) -> tuple[int, int]:
    return tokenizer.source_vocab_size, tokenizer.target_vocab_size


def _flat(sentences: list[list[int]], vocab_size: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    dtype = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    return np.fromiter(chain.from_iterable(sentences), dtype=dtype, count=int(lengths.sum())), lengths
