"""Holding pairs out of training for validation: by a hash of the source, so that no source stands on both sides.

Every source sentence gets a number from its text and the seed. The sources with the smallest numbers are held out, each
with all its translations. The choice does not depend on the order of the corpus and hardly on its other sentences.
"""

from __future__ import annotations

import hashlib
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
        self._seed = str(seed).encode()
        self._groups: dict[int, list[HeldOutPair]] = {}
        self._heap: list[int] = []

    def wants(self, source: bytes, target_language: str | None) -> int | None:
        """The number of a source if its pairs may be held out, else None; in another direction it is another source."""
        salt = b"%s|%s|" % (self._seed, (target_language or "").encode())
        number = int.from_bytes(hashlib.blake2b(salt + source, digest_size=8).digest(), "little")
        return number if len(self._heap) < self._num_sources or number <= -self._heap[0] else None

    def offer(self, number: int, pair: HeldOutPair) -> None:
        """Keep a pair whose source is wanted."""
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
