"""The order `blocks`, a formula on two levels: blocks of neighbours in random order, rows shuffled inside windows.

For corpora that memory cannot hold, and for many ranks. An epoch permutes the blocks of `ArrangedRows`, takes
neighbours of that order as windows, and permutes the rows of each window. Reading stays within one window at a time,
and a rank looks up only its own rows: nothing is packed, and all row counts are known from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from heedful.data.packing import Placement
from heedful.data.permutation import Integers, combined_key, permuted, require_weights
from heedful.data.prepacked import ArrangedRows
from heedful.errors import CorpusError

BLOCKS_PER_WINDOW = 256
"""Two million pairs, a quarter of a gigabyte: so much is read anew for each window, and shuffled together."""


@dataclass(frozen=True)
class _Plan:
    """One epoch: its blocks in their order, and which rows each of them shows."""

    blocks: Integers
    starts: Integers
    """How many rows of the epoch stand before each block."""
    begin: Integers
    """With which of its own rows each block goes on from the epoch before."""
    window_ends: Integers
    """How many rows of the epoch there are up to the end of each window."""

    @property
    def num_rows(self) -> int:
        return int(self.window_ends[-1])


class BlockRows:
    """The rows of every epoch, end to end, as `PackedRows` gives them, from rows that were arranged once.

    A corpus of weight 2 shows each block's rows twice an epoch; of weight 0.5 half of them, and then the other half.
    """

    def __init__(self, arranged: ArrangedRows, *, seed: int, blocks_per_window: int = BLOCKS_PER_WINDOW) -> None:
        self.arranged, self.seed, self.blocks_per_window = arranged, seed, blocks_per_window
        weights = arranged.store.corpus_weights
        require_weights(weights)
        exact = [Fraction(weight).limit_denominator(1_000_000) for weight in weights]
        corpus = arranged.store.corpora[arranged.pair_starts[:-1]]
        self._numerators = np.array([weight.numerator for weight in exact])[corpus]
        self._denominators = np.array([weight.denominator for weight in exact])[corpus]
        self._sizes = np.diff(arranged.row_starts)
        self._used = np.flatnonzero(self._numerators)
        if not self._used.size:
            raise CorpusError("there are no pairs to learn from: the prepared corpora are empty or all have weight 0.")
        self._plan = lru_cache(maxsize=2)(self._make_plan)

    def count(self, epoch: int, wanted: int | None) -> int:
        """How many rows the epoch has; they are all known, whatever is wanted."""
        return self._plan(epoch).num_rows

    def estimate(self) -> int:
        """How many rows an epoch has."""
        return self._plan(0).num_rows

    def placement(self, epoch: int, rows: Integers, batch_rows: Integers) -> Placement:
        """Which pairs stand where, if the given rows of the epoch stand at `batch_rows`."""
        return self.arranged.placement(self.rows(epoch, rows), batch_rows)

    def num_tokens(self, epoch: int, rows: Integers) -> int:
        """Real target tokens of the rows: one number is looked up for each."""
        return int(self.arranged.tokens[self.rows(epoch, rows)].sum())

    def remembered(self, epoch: int, num_rows: int) -> dict[str, Any]:
        """Nothing needs to be remembered."""
        return {}

    def recall(self, remembered: Any) -> bool:
        """Nothing needs to be recalled."""
        return True

    def rows(self, epoch: int, numbers: Integers) -> Integers:
        """Which of the arranged rows are the epoch's rows of these numbers."""
        plan = self._plan(epoch)
        which = np.searchsorted(plan.window_ends, numbers, side="right")
        shown = np.empty_like(numbers)
        for window in np.unique(which).tolist():
            inside, start = which == window, int(plan.window_ends[window - 1]) if window else 0
            key = combined_key(self.seed, epoch, 5, window)
            shown[inside] = start + permuted(numbers[inside] - start, int(plan.window_ends[window]) - start, key)
        place = np.searchsorted(plan.starts, shown, side="right") - 1
        block = plan.blocks[place]
        turn = plan.begin[place] + shown - plan.starts[place]
        return np.asarray(self.arranged.row_starts[block] + turn % self._sizes[block])

    def _make_plan(self, epoch: int) -> _Plan:
        num_blocks = self._used.size
        blocks = self._used[permuted(np.arange(num_blocks), num_blocks, combined_key(self.seed, epoch, 4))]
        begin, end = self._shown_before(epoch)[blocks], self._shown_before(epoch + 1)[blocks]
        ends = np.cumsum(end - begin)
        num_windows = max(1, round(num_blocks / self.blocks_per_window))  # all of about one size
        last_blocks = num_blocks * np.arange(1, num_windows + 1) // num_windows - 1
        return _Plan(blocks, ends - (end - begin), begin, ends[last_blocks])

    def _shown_before(self, epoch: int) -> Integers:
        """How many rows of each block all earlier epochs have shown, going round from the first to the last."""
        return self._numerators * self._sizes * epoch // self._denominators
