"""Encoding word by word: the ids of a word are looked up, not computed again, each time it comes back.

A BPE model whose pieces never run on past a space merges inside words only, so that a sentence's ids are the ids of its
words, one after the other. Most words of a corpus are old acquaintances: looking them up is many times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character
_MOST_WORDS = 1 << 18  # remembered at a time: some 60 MB


class WordByWord:
    """Encodes sentences with a SentencePiece model for which `suits` holds; the same ids, sooner."""

    def __init__(self, model: Any) -> None:
        self._known = _Words(model)

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

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The subword ids of each text; no text may hold U+2581."""
        known = self._known
        if len(known) > _MOST_WORDS:
            known.clear()
        encoded = []
        for text in texts:
            ids: list[int] = []
            if text:
                for word in text.split(" "):
                    ids += known[word]
            encoded.append(ids)
        return encoded


class _Words(dict[str, list[int]]):
    def __init__(self, model: Any) -> None:
        self._model = model

    def __missing__(self, word: str) -> list[int]:
        # a mark is put before the first word, but not before nothing: of three equal marks take one
        ids: list[int] = self._model.encode(word or "  ")
        self[word] = ids if word else ids[: len(ids) // 3]
        return self[word]
