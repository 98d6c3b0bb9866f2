"""Tokenisation of chunks of a corpus into flat arrays of ids, ready to be written to a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig
from heedful.text.corpus import SentencePair, TrainingPair
from heedful.text.corpus_chunks import Arrays, Chunk
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
