"""Texts as ids and ids as texts for one call of the translator: each is found once, and many at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from heedful.cpu_count import usable_cores
from heedful.text.tokenizer import Tokenizer

MANY = 512
"""So many texts are worth a thread for each core; fewer are done before the threads stand."""
MOST_THREADS = 8
LINE_BREAKS = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
"""What some program takes for the end of a line."""


class Spelling:
    """What the tokenizer makes of a call's texts: asked for the length of each, its ids, and its translation."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._ids: dict[tuple[str, str | None], tuple[int, ...]] = {}
        self._texts: dict[tuple[int, ...], str] = {}

    def read(self, texts: Iterable[tuple[str, str | None]]) -> None:
        """Find the ids of many texts, each for a target language."""
        wanted: dict[str | None, list[str]] = {}
        for text, target in dict.fromkeys(texts):
            if (text, target) not in self._ids:
                wanted.setdefault(target, []).append(text)
        for target, group in wanted.items():
            found = self.tokenizer.encode_sources(group, target, num_threads=threads_for(group))
            self._ids.update(((text, target), tuple(ids)) for text, ids in zip(group, found, strict=True))

    def count(self, text: str, target: str | None) -> int:
        """How many source ids a text has; of one that was not read nothing is kept: cutting a long line tries many."""
        known = self._ids.get((text, target))
        return len(self.tokenizer.encode_source(text, target) if known is None else known)

    def ids(self, text: str, target: str | None) -> tuple[int, ...]:
        """The source ids of a text that is translated into this language."""
        if (text, target) not in self._ids:
            self.read([(text, target)])
        return self._ids[text, target]

    def write(self, many: Iterable[Sequence[int]]) -> None:
        """Find the texts of many translations."""
        wanted = [ids for ids in dict.fromkeys(map(tuple, many)) if ids not in self._texts]
        found = self.tokenizer.decode_all(wanted, num_threads=threads_for(wanted))
        self._texts.update(zip(wanted, map(one_line, found), strict=True))

    def text(self, ids: Sequence[int]) -> str:
        """The text of a translation."""
        if (key := tuple(ids)) not in self._texts:
            self.write([key])
        return self._texts[key]


def one_line(text: str) -> str:
    """A translated sentence without white space around it and without line breaks, whatever bytes the model wrote."""
    return LINE_BREAKS.sub(" ", text).strip()


def threads_for(many: Sequence[object]) -> int:
    """Threads that are of use for so many texts."""
    return 1 if len(many) < MANY else min(usable_cores(), MOST_THREADS)
