"""A cache around the tokenizer for one call of the translator: each text is encoded once, each result decoded once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from heedful.cpu_count import usable_cores
from heedful.text.tokenizer import Tokenizer

MIN_TEXTS_FOR_THREADS = 512
"""Fewer texts are tokenized in less time than it takes to start threads."""
MAX_THREADS = 8
LINE_BREAKS = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
"""Characters that some program treats as the end of a line."""


class TokenizerCache:
    """Encodes source texts and decodes translations, in batches, and remembers the results."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._ids: dict[tuple[str, str | None], tuple[int, ...]] = {}
        self._texts: dict[tuple[int, ...], str] = {}

    def encode_all(self, texts: Iterable[tuple[str, str | None]]) -> None:
        """Encode many (text, target language) pairs into the cache."""
        missing: dict[str | None, list[str]] = {}
        for text, target in dict.fromkeys(texts):
            if (text, target) not in self._ids:
                missing.setdefault(target, []).append(text)
        for target, group in missing.items():
            encoded = self.tokenizer.encode_sources(group, target, num_threads=num_threads(group))
            self._ids.update(((text, target), tuple(ids)) for text, ids in zip(group, encoded, strict=True))

    def num_tokens(self, text: str, target: str | None) -> int:
        """Number of source ids of a text. Does not cache: cutting a long line tries many candidates."""
        known = self._ids.get((text, target))
        return len(self.tokenizer.encode_source(text, target) if known is None else known)

    def encode(self, text: str, target: str | None) -> tuple[int, ...]:
        """The source ids of a text for a target language."""
        if (text, target) not in self._ids:
            self.encode_all([(text, target)])
        return self._ids[text, target]

    def decode_all(self, translations: Iterable[Sequence[int]]) -> None:
        """Decode many translations into the cache."""
        missing = [ids for ids in dict.fromkeys(map(tuple, translations)) if ids not in self._texts]
        decoded = self.tokenizer.decode_all(missing, num_threads=num_threads(missing))
        self._texts.update(zip(missing, map(one_line, decoded), strict=True))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a translation, on one line."""
        if (key := tuple(ids)) not in self._texts:
            self.decode_all([key])
        return self._texts[key]


def one_line(text: str) -> str:
    """A translated sentence without surrounding white space and line breaks, whatever bytes the model generates."""
    return LINE_BREAKS.sub(" ", text).strip()


def num_threads(texts: Sequence[object]) -> int:
    """Number of threads worth using for this many texts."""
    return 1 if len(texts) < MIN_TEXTS_FOR_THREADS else min(usable_cores(), MAX_THREADS)
