"""Holding pairs out of training for validation: by a hash of the source, so that no source stands on both sides.

Every source sentence gets a number from its text and the seed. The sources with the smallest numbers are held out, each
with all its translations. The choice does not depend on the order of the corpus and hardly on its other sentences.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple


class HeldOutPair(NamedTuple):
    """A pair that may be held out, and where it stands."""

    source: str
    target: str
    corpus_index: int
    line_index: int
    reverse: bool
    """Whether the pair is the line turned round (in a corpus used in both directions)."""


class HeldOutChoice:
    """Keeps the pairs of the sources with the smallest numbers while the corpus streams by."""

    def __init__(self, *, limit: int, seed: int) -> None:
        self._num_sources = 2 * limit + 16  # more than needed: some will turn out to be duplicates
        self._largest_group = limit + 2000  # larger groups are never held out: memory stays small
        self._seed = seed
        self._groups: dict[int, list[HeldOutPair]] = {}
        self._heap: list[int] = []

    def salt(self, target_language: str | None) -> str:
        """What goes before a source when its number is computed; in another direction it is another source."""
        return f"{self._seed}|{target_language or ''}|"

    @property
    def threshold(self) -> int:
        """The largest number whose pairs may still be held out."""
        return -self._heap[0] if len(self._heap) == self._num_sources else (1 << 64) - 1

    def offer(self, number: int, pair: HeldOutPair) -> None:
        """Keep a pair whose number is not above the threshold."""
        group = self._groups.get(number)
        if group is not None:
            if len(group) <= self._largest_group:
                group.append(pair)
        elif len(self._heap) < self._num_sources:
            heapq.heappush(self._heap, -number)
            self._groups[number] = [pair]
        else:
            del self._groups[-heapq.heapreplace(self._heap, -number)]
            self._groups[number] = [pair]

    def groups(self) -> list[list[HeldOutPair]]:
        """Pairs by source, smallest number first; groups too large to hold out are left out."""
        return [group for _, group in sorted(self._groups.items()) if len(group) <= self._largest_group]


def take_groups(groups: list[list[HeldOutPair]], *, wanted: int, available: int) -> list[HeldOutPair]:
    """Whole groups, in order, up to `wanted` pairs; at least the smallest group if that leaves some to train on."""
    chosen: list[HeldOutPair] = []
    for group in groups:
        if group and len(chosen) + len(group) <= min(wanted, available - 1):
            chosen.extend(group)
    if not chosen and wanted > 0:
        chosen = min((group for group in groups if group), key=len, default=[])
    return chosen if len(chosen) < available else []
