"""Encoding word by word: the ids of a word are looked up, not computed again, each time it comes back.

A BPE model whose pieces never run on past a space merges inside words only, so that a sentence's ids are the ids of its
words, one after the other. Most words of a corpus are old acquaintances: looking them up is many times faster.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character
_MOST_WORDS = 1 << 18  # remembered at a time: some 50 MB


class WordByWord:
    """Encodes sentences with a SentencePiece model for which `suits` holds; the same ids, sooner."""

    def __init__(self, model: Any, dtype: np.dtype[Any]) -> None:
        self._model, self._letter = model, dtype.char
        self._known: dict[str, bytes] = {}

    @staticmethod
    def suits(model: Any) -> bool:
        """Whether a model's ids of a sentence are those of its words: BPE with bytes, no piece across a space."""
        size = model.get_piece_size()
        # BPE numbers its pieces 0, -1, -2, …; unigram has logarithms there, whose sums could round differently
        ranked = size > 2 and model.get_score(size - 1) == model.get_score(size - 2) - 1
        if not ranked or model.piece_to_id("<0x00>") == model.unk_id():
            return False
        if model.normalize(" ﬁ  x ") != "▁▁ﬁ▁▁x▁":  # spaces must become marks before each word, and nothing else change
            return False
        return not any(_SPACE_MARK in piece[1:] for piece in model.id_to_piece(list(range(size))))

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """The subword ids of each text, as the bytes of an array; no text may hold U+2581."""
        split = [text.split(" ") if text else [] for text in texts]
        if len(self._known) > _MOST_WORDS:
            self._known.clear()
        self._learn(list(set(chain.from_iterable(split)).difference(self._known)))
        known = self._known.__getitem__
        return [b"".join(map(known, words)) for words in split]

    def _learn(self, words: list[str]) -> None:
        # a mark is put before a word, but not before nothing: of the three marks of two spaces take one
        encoded = self._model.encode([word or "  " for word in words])
        for word, ids in zip(words, encoded, strict=True):
            self._known[word] = self._packed(ids if word else ids[: len(ids) // 3])

    def _packed(self, ids: list[int]) -> bytes:
        return struct.pack(f"<{len(ids)}{self._letter}", *ids)
