"""Packing: several sentence pairs share one row of fixed width, so `(rows, width)` arrays have almost no padding.

A pair is never split; a row holds up to `width` source and `width` target tokens. Filling both sides of a row
is two-dimensional bin packing; `pack` solves it greedily in about fifty vectorised rounds, each of which adds at most
one pair to each row, without a Python loop over sentences. `assemble` copies the ids into a `Batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.data.permutation import Integers
from heedful.data.store import PairStore, Side

LARGE_PAIR_DIVISOR = 6
"""Pairs above width / 6 are placed by `place_large`, the rest by `top_up`."""
NUM_LARGE_ROUNDS = 32
"""Rounds of `place_large`."""
BALANCE_GROUP_SIZE = 64
"""Pairs of similar size that may be swapped between rows to balance source and target."""


@dataclass(frozen=True)
class Packing:
    """For each pair its row, its segment number in that row (from 1) and its first position on both sides."""

    num_rows: int
    row: Integers
    segment: Integers
    source_offset: Integers
    target_offset: Integers
    order: Integers
    """The pairs, sorted by row and segment."""
    row_starts: Integers
    """The pairs of row r are `order[row_starts[r]:row_starts[r + 1]]`."""

    def pairs_in(self, rows: Integers) -> tuple[Integers, Integers]:
        """The pairs in the given rows, and for each pair the index in `rows` of its row."""
        counts = self.row_starts[rows + 1] - self.row_starts[rows]
        return self.order[ranges(self.row_starts[rows], counts)], np.repeat(np.arange(rows.size), counts)


@dataclass(frozen=True)
class Placement:
    """Positions of pairs of a store in a batch, one entry for each pair."""

    pair: Integers
    row: Integers
    segment: Integers
    source_offset: Integers
    target_offset: Integers

    @staticmethod
    def from_rows(pairs: Integers, packing: Packing, rows: Integers, batch_rows: Integers) -> Placement:
        """Place `rows` of a packing at `batch_rows`; `pairs` are the store indices of the packed pairs."""
        members, which = packing.pairs_in(rows)
        return Placement(
            pair=pairs[members],
            row=batch_rows[which],
            segment=packing.segment[members],
            source_offset=packing.source_offset[members],
            target_offset=packing.target_offset[members],
        )

    @staticmethod
    def concatenate(parts: Sequence[Placement]) -> Placement:
        """One placement from several; without any, an empty one."""
        if not parts:
            return Placement(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
        return Placement(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])})


@dataclass(frozen=True)
class PackedBlock:
    """Some pairs of a store, and their packing into rows."""

    pairs: Integers
    packing: Packing

    @staticmethod
    def pack(store: PairStore, pairs: Integers, width: int) -> PackedBlock:
        """Pack pairs into rows of `width` tokens."""
        return PackedBlock(pairs, pack(store.source.lengths(pairs), store.target.lengths(pairs), width))


def pack(source_lengths: Integers, target_lengths: Integers, width: int) -> Packing:
    """Assign pairs to as few rows as possible so that neither side of a row exceeds `width` tokens; deterministic."""
    source, target = np.asarray(source_lengths, dtype=np.int64), np.asarray(target_lengths, dtype=np.int64)
    if source.shape != target.shape or source.ndim != 1:
        raise ValueError(f"lengths of both sides must be two equal vectors, not {source.shape} and {target.shape}.")
    if source.size and (min(source.min(), target.min()) < 1 or max(source.max(), target.max()) > width):
        raise ValueError(f"every pair must have 1 to {width} tokens on both sides: drop longer ones before packing.")
    packer = _Packer(source, target, width)
    while packer.unplaced.size:
        packer.open_rows()
        packer.place_large()
        packer.top_up()
    return _build_packing(source, target, packer.row)


class _Packer:
    """Rows while they are being filled. `unplaced` are the pairs without a row, smallest first."""

    def __init__(self, source: Integers, target: Integers, width: int) -> None:
        self.width = width
        self.source = source
        self.target = target
        self.size = source + target
        self.excess = source - target
        self.row = np.full(source.size, -1, dtype=np.int64)
        self.unplaced = np.argsort(self.size, kind="stable")
        self.num_rows = 0
        self.free_source = self.free_target = self.open = np.zeros(0, dtype=np.int64)
        # numpy sorts 16-bit numbers in linear time
        self.key_type = np.int16 if 2 * width < 1 << 15 else np.int64

    def open_rows(self) -> None:
        """Open as many rows as the unplaced pairs need at least; pairs that do not fit wait for the next round."""
        tokens = max(self.source[self.unplaced].sum(), self.target[self.unplaced].sum())
        added = -int(-tokens // self.width)
        empty = np.full(added, self.width, dtype=np.int64)
        self.free_source = np.concatenate([self.free_source, empty])
        self.free_target = np.concatenate([self.free_target, empty])
        self.open = self.num_rows + np.arange(added)
        self.num_rows += added

    def place_large(self) -> None:
        """Best fit decreasing: place pairs, largest first, in the row with the least space left afterwards."""
        start = np.searchsorted(self.size[self.unplaced], 2 * self.width / LARGE_PAIR_DIVISOR)
        large = self.unplaced[start:]
        step = max(-(-large.size // NUM_LARGE_ROUNDS), BALANCE_GROUP_SIZE)
        for stop in range(large.size, 0, -step):
            pairs = large[max(stop - step, 0) : stop]
            rows, free = self._rows_by_free_space(self.free_source + self.free_target)
            chosen = _tightest_rows(self.size[pairs], free)
            fits = chosen < rows.size
            self._place(*self._balanced(rows[chosen[fits]], pairs[fits]))
        self._drop_placed()

    def top_up(self) -> None:
        """Add to each row the largest unplaced pair that fits, and repeat while any fits."""
        balanced_rounds_left = 2
        while self.unplaced.size:
            before = self.unplaced.size
            min_source, min_target = self.source[self.unplaced].min(), self.target[self.unplaced].min()
            is_open = (self.free_source[self.open] >= min_source) & (self.free_target[self.open] >= min_target)
            self.open = self.open[is_open]
            if balanced_rounds_left:
                self._top_up_balanced()
            else:
                self._top_up_fitting()
            self._drop_placed()
            placed = before - self.unplaced.size
            if not balanced_rounds_left and not placed:
                return
            if balanced_rounds_left and placed <= self.open.size // 50:
                balanced_rounds_left -= 1

    def _top_up_balanced(self) -> None:
        """Match on the sum of both sides, then balance; pairs that do not fit on one side stay unplaced."""
        rows, free = self._rows_by_free_space(self.free_source + self.free_target)
        chosen = _largest_pairs(self.size[self.unplaced], free)
        self._place(*self._balanced(rows[chosen >= 0], self.unplaced[chosen[chosen >= 0]]))

    def _top_up_fitting(self) -> None:
        """Match the longer side of the pair with the fuller side of the row: every match fits."""
        longer = np.maximum(self.source[self.unplaced], self.target[self.unplaced])
        order = np.argsort(longer.astype(self.key_type), kind="stable")
        rows, free = self._rows_by_free_space(np.minimum(self.free_source, self.free_target))
        chosen = _largest_pairs(longer[order], free)
        self._place(rows[chosen >= 0], self.unplaced[order[chosen[chosen >= 0]]])

    def _rows_by_free_space(self, free: Integers) -> tuple[Integers, Integers]:
        """The open rows from the fullest to the emptiest, and the free space in each."""
        space = free[self.open]
        order = np.argsort(space.astype(self.key_type), kind="stable")
        return self.open[order], space[order]

    def _balanced(self, rows: Integers, pairs: Integers) -> tuple[Integers, Integers]:
        """In groups of similar size, assign pairs with more source than target to rows with more free source tokens."""
        group = np.arange(rows.size) // BALANCE_GROUP_SIZE * (4 * self.width)
        spare = self.free_source[rows] - self.free_target[rows]
        return rows[np.argsort(group + spare, kind="stable")], pairs[
            np.argsort(group + self.excess[pairs], kind="stable")
        ]

    def _place(self, rows: Integers, pairs: Integers) -> None:
        """Put each pair into its row (all rows differ) unless one side does not fit."""
        fits = (self.source[pairs] <= self.free_source[rows]) & (self.target[pairs] <= self.free_target[rows])
        rows, pairs = rows[fits], pairs[fits]
        self.row[pairs] = rows
        self.free_source[rows] -= self.source[pairs]
        self.free_target[rows] -= self.target[pairs]

    def _drop_placed(self) -> None:
        self.unplaced = self.unplaced[self.row[self.unplaced] < 0]


def _largest_pairs(sizes: Integers, free: Integers) -> Integers:
    """For each row (free space ascending) the index of the largest size (ascending) that fits, all different; or < 0.

    chosen[i] = min over j >= i of (fit[j] - j) + i, which is strictly increasing.
    """
    index = np.arange(free.size)
    fit = np.searchsorted(sizes, free, side="right") - 1
    return np.asarray(index + np.minimum.accumulate((fit - index)[::-1])[::-1])


def _tightest_rows(sizes: Integers, free: Integers) -> Integers:
    """For each size (ascending) the index of the fullest row (free space ascending) that it fits, all different.

    chosen[i] = max over j <= i of (fit[j] - j) + i; an index past the last row means that no row is left.
    """
    index = np.arange(sizes.size)
    fit = np.searchsorted(free, sizes, side="left")
    return np.asarray(index + np.maximum.accumulate(fit - index))


def _build_packing(source: Integers, target: Integers, row: Integers) -> Packing:
    """Number the rows without gaps and the pairs of each row from 1, and compute their offsets."""
    used = np.bincount(row) > 0
    row = (np.cumsum(used) - 1)[row]
    num_rows = int(used.sum())
    order = np.argsort(row, kind="stable")
    row_starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=num_rows))]).astype(np.int64)
    first = row_starts[row[order]]
    segment, source_offset, target_offset = (np.empty(row.size, dtype=np.int64) for _ in range(3))
    segment[order] = np.arange(row.size) - first + 1
    for offset, lengths in ((source_offset, source), (target_offset, target)):
        before = np.cumsum(lengths[order]) - lengths[order]
        offset[order] = before - before[first]
    return Packing(num_rows, row, segment, source_offset, target_offset, order, row_starts)


def ranges(starts: Integers, counts: Integers) -> Integers:
    """Concatenated ranges: start, start + 1, … (count numbers) for each start."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def assemble(store: PairStore, placement: Placement, *, num_rows: int, width: int, bos_id: int, pad_id: int) -> Batch:
    """Copy the placed pairs into `(num_rows, width)` tensors; reads only the tokens of these pairs from the store."""
    place = placement.row * width
    source = _FlatTokens(store.source, placement.pair, place + placement.source_offset)
    target = _FlatTokens(store.target, placement.pair, place + placement.target_offset)
    shifted = np.empty_like(target.ids)
    shifted[1:] = target.ids[:-1]
    shifted[target.first] = bos_id

    def to_rows(tokens: _FlatTokens, values: NDArray[np.int64], padding: int) -> torch.Tensor:
        rows = np.full(num_rows * width, padding, dtype=np.int64)
        rows[tokens.place] = values
        return torch.from_numpy(rows.reshape(num_rows, width))

    return Batch(
        source=to_rows(source, source.ids, pad_id),
        source_segments=to_rows(source, np.repeat(placement.segment, source.lengths), 0),
        source_positions=to_rows(source, source.positions, 0),
        target_input=to_rows(target, shifted, pad_id),
        target_output=to_rows(target, target.ids, pad_id),
        target_segments=to_rows(target, np.repeat(placement.segment, target.lengths), 0),
        target_positions=to_rows(target, target.positions, 0),
    )


class _FlatTokens:
    """The concatenated tokens of some sentences: ids, positions in the sentence, and places in the flattened batch."""

    def __init__(self, side: Side, pairs: Integers, starts: Integers) -> None:
        begin = side.offsets[pairs]
        self.lengths: Integers = side.offsets[pairs + 1] - begin
        self.first: Integers = np.cumsum(self.lengths) - self.lengths
        index = np.arange(int(self.lengths.sum()))
        self.positions: Integers = index - np.repeat(self.first, self.lengths)
        self.place: Integers = np.repeat(starts, self.lengths) + self.positions
        self.ids: Integers = side.ids[np.repeat(begin, self.lengths) + self.positions].astype(np.int64)
