"""Which target tokens a source token becomes, learned from pairs of sentences by IBM's first alignment model.

Brown et al. (1993): every target token comes from one token of its source, and t(target | source) is what makes the
pairs likeliest, found by expectation and maximisation. Here with numpy alone: a portion of the pairs is one array of
links, one for every source and target token of the same pair, and what a portion taught is where the next begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer]
Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
FIRST_ROUNDS, ROUNDS = 5, 2
SMOOTHING, LEAST_COUNT = 0.01, 0.02


class Links(NamedTuple):
    """Every source token beside every target token of its pair."""

    codes: Places
    """The different pairs of tokens: source · target vocabulary + target, rising."""
    kinds: Places
    """Which of them each link is."""
    starts: Places
    """Where the links of each target token of the text begin."""


class Lexicon:
    """How often each source token became each target token, as far as pairs were shown."""

    def __init__(self, num_sources: int, num_targets: int) -> None:
        """Know nothing yet of vocabularies of these sizes."""
        self.num_sources, self.num_targets = num_sources, num_targets
        self.codes: Places = np.zeros(0, dtype=np.int64)
        self.counts: Numbers = np.zeros(0)

    def add(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> None:
        """Learn from some pairs; a few ten million links at a time need a gigabyte."""
        links = link(sources, targets, num_targets=self.num_targets)
        if not len(links.kinds):
            return
        lengths = np.diff(np.append(links.starts, len(links.kinds)))
        owners = links.codes // self.num_targets
        chances = self._chances(links.codes)
        expected = chances
        for _ in range(ROUNDS if len(self.codes) else FIRST_ROUNDS):
            each = chances[links.kinds]
            each /= np.repeat(np.add.reduceat(each, links.starts), lengths)
            expected = np.bincount(links.kinds, weights=each, minlength=len(links.codes)).astype(np.float64)
            chances = expected / np.bincount(owners, weights=expected)[owners]
        self._merge(links.codes, expected)

    def _chances(self, codes: Places) -> Numbers:
        """t(target | source) by what was counted so far; all alike at the beginning."""
        if not len(self.codes):
            return np.ones(len(codes))
        totals = np.bincount(self.codes // self.num_targets, weights=self.counts, minlength=self.num_sources)
        places = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        counted = np.where(self.codes[places] == codes, self.counts[places], 0.0)
        return np.asarray((counted + SMOOTHING) / (totals[codes // self.num_targets] + 1.0))

    def chances(self, source: Ids, target: Ids) -> Numbers:
        """t(target | source) of a pair of sentences: one row a target token, one column a source token."""
        codes = source.astype(np.int64)[None, :] * self.num_targets + target.astype(np.int64)[:, None]
        return self._chances(codes.ravel()).reshape(codes.shape)

    def _merge(self, codes: Places, counts: Numbers) -> None:
        enough = counts >= LEAST_COUNT
        both = np.concatenate([self.codes, codes[enough]])
        order = np.argsort(both, kind="stable")  # quick, since both parts rise
        both, weights = both[order], np.concatenate([self.counts, counts[enough]])[order]
        firsts = np.flatnonzero(np.append(True, both[1:] != both[:-1])) if len(both) else np.zeros(0, dtype=np.int64)
        self.codes, self.counts = both[firsts], np.add.reduceat(weights, firsts) if len(firsts) else weights

    def likeliest(self, count: int) -> tuple[Places, NDArray[np.int32]]:
        """Where the list of each source token begins, and its `count` likeliest target tokens, each list rising."""
        sources, targets = np.divmod(self.codes, self.num_targets)
        order = np.lexsort((targets, -self.counts, sources))
        firsts = np.searchsorted(sources, np.arange(self.num_sources))
        kept = order[np.arange(len(order)) - firsts[sources] < count]
        kept.sort()
        starts = np.searchsorted(sources[kept], np.arange(self.num_sources + 1))
        return starts.astype(np.int64), targets[kept].astype(np.int32)


def link(sources: Sequence[Ids], targets: Sequence[Ids], *, num_targets: int) -> Links:
    """The links of some pairs; each different source token counts once in a pair."""
    codes, lengths = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for source, target in zip(sources, targets, strict=True):
        different = np.unique(source).astype(np.int64) * num_targets
        codes.append((target.astype(np.int64)[:, None] + different).ravel())
        lengths.append(np.full(len(target), len(different), dtype=np.int64))
    found, kinds = np.unique(np.concatenate(codes), return_inverse=True)
    ends = np.cumsum(np.concatenate(lengths))
    return Links(found, kinds, np.append(0, ends[:-1]).astype(np.int64) if len(ends) else ends)
