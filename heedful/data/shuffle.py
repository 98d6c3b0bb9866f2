"""The order of training rows: a pure function of seed and epoch.

`data.shuffle` selects one of two orders. `PairShuffle` ("pairs") draws all pairs in a new order each epoch and packs
them into new rows. `BlockShuffle` ("blocks") shuffles rows that were packed once, by `heedful.data.packing`; it is
for corpora larger than memory and for many ranks.

Both are formulas over `heedful.data.permutation`, so no epoch needs a list of its pairs in memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from heedful.data.packing import PackedBlock, Placement, PrepackedRows
from heedful.data.permutation import Integers, combined_key, permuted
from heedful.data.store import PairStore
from heedful.errors import ConfigError, CorpusError

PAIRS_PER_BLOCK = 65_536
NUM_CACHED_BLOCKS = 3
BLOCKS_PER_WINDOW = 256
"""Pairs that are read and shuffled together in a window: about a quarter of a gigabyte."""


# ---- data.shuffle=pairs ----------------------------------------------------------------------------------------------


class EpochOrder:
    """The pairs of each epoch in order, without a list of them in memory: a function of seed, epoch and position.

    A corpus of weight 2 appears twice in an epoch. Of a corpus of weight 0.5, one half appears, and the other half in
    the next epoch. Memory grows only with the number of times the corpus changes from one pair to the next.
    """

    def __init__(self, store: PairStore, *, weights: Sequence[float] | None, seed: int) -> None:
        """`weights` replaces the weights recorded in the store."""
        self.seed = seed
        corpora = _weighted_corpora(store, store.corpus_weights if weights is None else weights)
        self.corpora = [corpus for corpus in corpora if corpus.num_pairs and corpus.weight]
        if not self.corpora:
            raise CorpusError("there are no pairs to train on: the prepared corpora are empty or all have weight 0.")

    def size(self, epoch: int) -> int:
        """The number of pairs in the epoch."""
        return sum(corpus.size(epoch) for corpus in self.corpora)

    def pairs(self, epoch: int, start: int, stop: int) -> Integers:
        """Pairs `start` to `stop` of the epoch, as indices into the store."""
        sizes = np.array([corpus.size(epoch) for corpus in self.corpora])
        ends = np.cumsum(sizes)
        positions = permuted(np.arange(start, stop), int(ends[-1]), combined_key(self.seed, epoch, 1))
        corpus_numbers = np.searchsorted(ends, positions, side="right")
        pairs = np.empty_like(positions)
        for number, corpus in enumerate(self.corpora):
            members = corpus_numbers == number
            local = positions[members] - (ends[number] - sizes[number])
            pairs[members] = corpus.pairs(epoch, local, combined_key(self.seed, number, 2))
        return pairs

    def fingerprint(self) -> str:
        """A hash of the positions and weights of the corpora."""
        digest = hashlib.sha256()
        for corpus in self.corpora:
            digest.update(str(corpus.weight).encode() + corpus.ends.tobytes() + corpus.shift.tobytes())
        return digest.hexdigest()


class _WeightedCorpus:
    """The pairs of one corpus, as consecutive runs in the store, and its weight."""

    def __init__(self, starts: Integers, lengths: Integers, weight: float) -> None:
        self.ends = np.cumsum(lengths)
        self.shift = starts - (self.ends - lengths)
        self.num_pairs = int(lengths.sum())
        self.weight = Fraction(weight).limit_denominator(1_000_000)
        self.repeats = int(self.weight)
        self.fraction = self.weight - self.repeats

    def size(self, epoch: int) -> int:
        """The number of pairs of this corpus in the epoch."""
        return self.repeats * self.num_pairs + self._fraction_start(epoch + 1) - self._fraction_start(epoch)

    def pairs(self, epoch: int, positions: Integers, key: int) -> Integers:
        """Store indices of the pairs at these positions: the whole corpus `repeats` times, then the fraction due."""
        in_fraction = positions >= self.repeats * self.num_pairs
        members = positions % self.num_pairs
        due = (self._fraction_start(epoch) + positions[in_fraction] - self.repeats * self.num_pairs) % self.num_pairs
        members[in_fraction] = permuted(due, self.num_pairs, key)
        return np.asarray(members + self.shift[np.searchsorted(self.ends, members, side="right")])

    def _fraction_start(self, epoch: int) -> int:
        """How many pairs the fractions of all earlier epochs used."""
        return int(self.fraction * epoch * self.num_pairs)


def _weighted_corpora(store: PairStore, weights: Sequence[float]) -> list[_WeightedCorpus]:
    """The corpora of a store; where all weights are 1, the whole store counts as one."""
    require_weights(weights)
    if all(weight == 1 for weight in weights):
        return [_WeightedCorpus(np.zeros(1, dtype=np.int64), np.array([len(store)]), 1.0)]
    starts = store.corpus_run_starts()
    lengths = np.diff(starts, append=len(store))
    corpus = store.corpora[starts]
    if corpus.size and int(corpus.max()) >= len(weights):
        raise ConfigError(f"data.train has {len(weights)} weights, but the prepared pairs come from more corpora.")
    return [_WeightedCorpus(starts[corpus == n], lengths[corpus == n], weight) for n, weight in enumerate(weights)]


def require_weights(weights: Sequence[float]) -> None:
    """Raise `ConfigError` for a negative or infinite weight."""
    for number, weight in enumerate(weights):
        if not (weight >= 0 and math.isfinite(weight)):
            raise ConfigError(f"data.train[{number}].weight must be a number of at least 0, not {weight}.")


class PairShuffle:
    """All rows of all epochs. Pairs in `EpochOrder` are packed block by block; rows are shuffled within a block.

    The row count of each block is cached once known. Reaching a row far inside an epoch packs the lengths of all pairs
    before it, but never reads their ids; with the `resume_cache` of an earlier run, it packs one block.
    """

    def __init__(self, store: PairStore, *, width: int, seed: int, pairs_per_block: int = PAIRS_PER_BLOCK) -> None:
        self.store = store
        self.width = width
        self.seed = seed
        self.pairs_per_block = pairs_per_block
        self.order = EpochOrder(store, weights=None, seed=seed)
        self._row_ends: dict[int, list[int]] = {}
        self._blocks: OrderedDict[tuple[int, int], PackedBlock] = OrderedDict()
        self._lock = threading.RLock()

    def count_rows(self, epoch: int, at_least: int | None) -> int:
        """Pack blocks until `at_least` rows are known, or the epoch ends; returns how many rows are known."""
        with self._lock:
            ends = self._row_ends.setdefault(epoch, [0])
            while (at_least is None or ends[-1] < at_least) and len(ends) <= self._num_blocks(epoch):
                ends.append(ends[-1] + self._block(epoch, len(ends) - 1).packing.num_rows)
            return ends[-1]

    def estimate_num_rows(self) -> int | float:
        """About how many rows an epoch has, extrapolated from its first block: fast for corpora of any size."""
        size = self.order.size(0)
        if size <= self.pairs_per_block:
            return self.count_rows(0, None)
        return self._block(0, 0).packing.num_rows * size / self.pairs_per_block

    def placement(self, epoch: int, rows: Integers, batch_rows: Integers) -> Placement:
        """The placement of each pair if the given rows of the epoch (counted before) become `batch_rows`."""
        parts = []
        with self._lock:
            ends = np.array(self._row_ends[epoch])
            block_numbers = np.searchsorted(ends, rows, side="right") - 1
            for number in np.unique(block_numbers).tolist():
                block, inside = self._block(epoch, number), block_numbers == number
                key = combined_key(self.seed, epoch, 3, number)
                shuffled = permuted(rows[inside] - ends[number], block.packing.num_rows, key)
                parts.append(Placement.from_rows(block.pairs, block.packing, shuffled, batch_rows[inside]))
        return Placement.concatenate(parts)

    def num_tokens(self, epoch: int, rows: Integers) -> int:
        """Target tokens of the rows, padding excluded; computed from the lengths alone."""
        return int(self.store.target.lengths(self.placement(epoch, rows, rows).pair).sum())

    def resume_cache(self, epoch: int, num_rows: int) -> dict[str, Any]:
        """Row counts of the blocks that hold the first `num_rows` rows, with a fingerprint of all they depend on."""
        with self._lock:
            ends = self._row_ends.get(epoch, [0])
            counts = [end - start for start, end in pairwise(ends) if start < num_rows]
        return {"mark": self._fingerprint(epoch), "epoch": epoch, "row_counts": counts}

    def load_resume_cache(self, cache: Any) -> bool:
        """Use what `resume_cache` returned; False, changing nothing, unless data and settings are the same.

        The last block, where a run resumes, is packed again and must have the recorded number of rows.
        """
        try:
            epoch, counts = int(cache["epoch"]), [int(count) for count in cache["row_counts"]]
            is_valid = cache["mark"] == self._fingerprint(epoch) and 0 < len(counts) <= self._num_blocks(epoch)
        except (KeyError, TypeError, ValueError):
            return False
        if not is_valid or min(counts) < 1 or self._block(epoch, len(counts) - 1).packing.num_rows != counts[-1]:
            return False
        with self._lock:
            self._row_ends[epoch] = [0, *accumulate(counts)]
        return True

    def _fingerprint(self, epoch: int) -> str:
        """A hash of everything the row counts of an epoch depend on."""
        lengths, order = self.store.lengths_fingerprint, self.order.fingerprint()
        settings = [self.seed, epoch, self.width, self.pairs_per_block, lengths, order]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()

    def _num_blocks(self, epoch: int) -> int:
        return -(-self.order.size(epoch) // self.pairs_per_block)

    def _block(self, epoch: int, number: int) -> PackedBlock:
        """Pairs and packing of one block; the most recent ones are cached."""
        with self._lock:
            block = self._blocks.pop((epoch, number), None)
            if block is None:
                start = number * self.pairs_per_block
                stop = min(start + self.pairs_per_block, self.order.size(epoch))
                block = PackedBlock.pack(self.store, self.order.pairs(epoch, start, stop), self.width)
            self._blocks[epoch, number] = block
            if len(self._blocks) > NUM_CACHED_BLOCKS:
                self._blocks.popitem(last=False)
            return block


# ---- data.shuffle=blocks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _EpochPlan:
    """The blocks of one epoch in order, and which of their rows the epoch uses."""

    blocks: Integers
    starts: Integers
    """Rows of the epoch before each block."""
    first_rows: Integers
    """The row of each block that the epoch begins with, after those used by the epoch before."""
    window_ends: Integers
    """Rows of the epoch up to the end of each window."""

    @property
    def num_rows(self) -> int:
        return int(self.window_ends[-1])


class BlockShuffle:
    """The rows of all epochs in sequence: prepacked rows, shuffled on two levels.

    An epoch permutes the blocks, takes windows of consecutive blocks, and permutes the rows of each window. Reading
    is limited to one window at a time, a rank looks up only its rows, and all row counts are known in advance.
    A corpus of weight 2 uses the rows of each block twice per epoch; of weight 0.5 one half of them, then the other
    half.
    """

    def __init__(self, prepacked: PrepackedRows, *, seed: int, blocks_per_window: int = BLOCKS_PER_WINDOW) -> None:
        self.prepacked = prepacked
        self.seed = seed
        self.blocks_per_window = blocks_per_window
        weights = prepacked.store.corpus_weights
        require_weights(weights)
        exact = [Fraction(weight).limit_denominator(1_000_000) for weight in weights]
        corpus = prepacked.store.corpora[prepacked.pair_starts[:-1]]
        self._numerators = np.array([weight.numerator for weight in exact])[corpus]
        self._denominators = np.array([weight.denominator for weight in exact])[corpus]
        self._sizes = np.diff(prepacked.row_starts)
        self._used = np.flatnonzero(self._numerators)
        if not self._used.size:
            raise CorpusError("there are no pairs to train on: the prepared corpora are empty or all have weight 0.")
        self._plan = lru_cache(maxsize=2)(self._make_plan)

    def count_rows(self, epoch: int, at_least: int | None) -> int:
        """The number of rows in the epoch; `at_least` is ignored, since all rows are known."""
        return self._plan(epoch).num_rows

    def estimate_num_rows(self) -> int:
        """The number of rows in an epoch."""
        return self._plan(0).num_rows

    def placement(self, epoch: int, rows: Integers, batch_rows: Integers) -> Placement:
        """The placement of each pair if the given rows of the epoch become `batch_rows`."""
        return self.prepacked.placement(self.rows(epoch, rows), batch_rows)

    def num_tokens(self, epoch: int, rows: Integers) -> int:
        """Target tokens of the rows, padding excluded: one lookup for each row."""
        return int(self.prepacked.tokens[self.rows(epoch, rows)].sum())

    def resume_cache(self, epoch: int, num_rows: int) -> dict[str, Any]:
        """Empty: any position is computed directly."""
        return {}

    def load_resume_cache(self, cache: Any) -> bool:
        """Always succeeds: there is nothing to load."""
        return True

    def rows(self, epoch: int, numbers: Integers) -> Integers:
        """The prepacked rows that are the epoch's rows of these numbers."""
        plan = self._plan(epoch)
        windows = np.searchsorted(plan.window_ends, numbers, side="right")
        shuffled = np.empty_like(numbers)
        for window in np.unique(windows).tolist():
            inside, start = windows == window, int(plan.window_ends[window - 1]) if window else 0
            key = combined_key(self.seed, epoch, 5, window)
            shuffled[inside] = start + permuted(numbers[inside] - start, int(plan.window_ends[window]) - start, key)
        place = np.searchsorted(plan.starts, shuffled, side="right") - 1
        block = plan.blocks[place]
        row = plan.first_rows[place] + shuffled - plan.starts[place]
        return np.asarray(self.prepacked.row_starts[block] + row % self._sizes[block])

    def _make_plan(self, epoch: int) -> _EpochPlan:
        num_blocks = self._used.size
        blocks = self._used[permuted(np.arange(num_blocks), num_blocks, combined_key(self.seed, epoch, 4))]
        first, last = self._rows_used_before(epoch)[blocks], self._rows_used_before(epoch + 1)[blocks]
        ends = np.cumsum(last - first)
        num_windows = max(1, round(num_blocks / self.blocks_per_window))  # all of about one size
        last_blocks = num_blocks * np.arange(1, num_windows + 1) // num_windows - 1
        return _EpochPlan(blocks, ends - (last - first), first, ends[last_blocks])

    def _rows_used_before(self, epoch: int) -> Integers:
        """How many rows of each block all earlier epochs used; the count wraps around after the last row."""
        return self._numerators * self._sizes * epoch // self._denominators
