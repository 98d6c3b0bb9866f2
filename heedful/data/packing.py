"""Packing: several sentence pairs share one row of fixed width, as `(rows, width)` arrays that have almost no padding.

A pair goes whole into one row, which has room for `width` source and `width` target tokens. Filling rows on two sides
at once is two-dimensional bin packing; `pack` solves it greedily in some fifty vectorised rounds, each of which gives
at most one pair to each row, and never looks at a single sentence in Python. `assemble` copies the ids into place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.data.store import PairStore, Side

Integers = NDArray[np.int64]

LARGE_SHARE = 6
"""Pairs above width / 6 are placed by `place_large`, the rest by `top_up`."""
LARGE_ROUNDS = 32
"""Rounds of `place_large`."""
EXCHANGE = 64
"""Neighbours in size among which pairs are exchanged to even out a row's two sides."""


@dataclass(frozen=True)
class Packing:
    """For each pair its row, its segment number in that row (from 1) and where it starts on both sides."""

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
        """The pairs that stand in the given rows, and for each of them the index in `rows` of its row."""
        counts = self.row_starts[rows + 1] - self.row_starts[rows]
        return self.order[ranges(self.row_starts[rows], counts)], np.repeat(np.arange(rows.size), counts)


@dataclass(frozen=True)
class Placement:
    """Where pairs of a store stand in a batch: one entry a pair."""

    pair: Integers
    row: Integers
    segment: Integers
    source_offset: Integers
    target_offset: Integers

    @staticmethod
    def of_rows(pairs: Integers, packing: Packing, rows: Integers, batch_rows: Integers) -> Placement:
        """Put the packing's `rows` at `batch_rows`; `pairs` are the store's indices of what was packed."""
        members, which = packing.pairs_in(rows)
        return Placement(
            pair=pairs[members],
            row=batch_rows[which],
            segment=packing.segment[members],
            source_offset=packing.source_offset[members],
            target_offset=packing.target_offset[members],
        )

    @staticmethod
    def joined(parts: Sequence[Placement]) -> Placement:
        """The placements of several packings in one batch; of none, that of no pairs."""
        if not parts:
            return Placement(*(np.zeros(0, dtype=np.int64) for _ in range(5)))
        return Placement(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])})


def pack(source_lengths: Integers, target_lengths: Integers, width: int) -> Packing:
    """Distribute pairs over few rows so that neither side of a row exceeds `width` tokens. Deterministic."""
    source, target = np.asarray(source_lengths, dtype=np.int64), np.asarray(target_lengths, dtype=np.int64)
    if source.shape != target.shape or source.ndim != 1:
        raise ValueError(f"lengths of both sides must be two equal vectors, not {source.shape} and {target.shape}.")
    if source.size and (min(source.min(), target.min()) < 1 or max(source.max(), target.max()) > width):
        raise ValueError(f"every pair must have 1 to {width} tokens on both sides: drop longer ones before packing.")
    filling = _Filling(source, target, width)
    while filling.waiting.size:
        filling.open_rows()
        filling.place_large()
        filling.top_up()
    return _arranged(source, target, filling.row)


class _Filling:
    """Rows while they are being filled. `waiting` are the pairs without a row, smallest first."""

    def __init__(self, source: Integers, target: Integers, width: int) -> None:
        self.width = width
        self.source, self.target = source, target
        self.size, self.excess = source + target, source - target
        self.row = np.full(source.size, -1, dtype=np.int64)
        self.waiting = np.argsort(self.size, kind="stable")
        self.num_rows = 0
        self.free_source = self.free_target = self.open = np.zeros(0, dtype=np.int64)
        # numpy sorts 16-bit numbers in linear time
        self.key_type = np.int16 if 2 * width < 1 << 15 else np.int64

    def open_rows(self) -> None:
        """Open as many rows as the waiting pairs need at least; those that find no place wait for the next opening."""
        tokens = max(self.source[self.waiting].sum(), self.target[self.waiting].sum())
        added = -int(-tokens // self.width)
        empty = np.full(added, self.width, dtype=np.int64)
        self.free_source = np.concatenate([self.free_source, empty])
        self.free_target = np.concatenate([self.free_target, empty])
        self.open = self.num_rows + np.arange(added)
        self.num_rows += added

    def place_large(self) -> None:
        """Best fit decreasing: from the largest pair down, each goes to the row it leaves least room in."""
        start = np.searchsorted(self.size[self.waiting], 2 * self.width / LARGE_SHARE)
        large = self.waiting[start:]
        step = max(-(-large.size // LARGE_ROUNDS), EXCHANGE)
        for stop in range(large.size, 0, -step):
            pairs = large[max(stop - step, 0) : stop]
            rows, room = self._rows_by_room(self.free_source + self.free_target)
            chosen = _tightest(self.size[pairs], room)
            fitting = chosen < rows.size
            self._place(*self._exchanged(rows[chosen[fitting]], pairs[fitting]))
        self._forget_placed()

    def top_up(self) -> None:
        """Give each row the largest waiting pair that it has room for, again and again while any fits."""
        balancing = 2
        while self.waiting.size:
            before = self.waiting.size
            least_source, least_target = self.source[self.waiting].min(), self.target[self.waiting].min()
            has_room = (self.free_source[self.open] >= least_source) & (self.free_target[self.open] >= least_target)
            self.open = self.open[has_room]
            if balancing:
                self._top_up_balanced()
            else:
                self._top_up_surely()
            self._forget_placed()
            placed = before - self.waiting.size
            if not balancing and not placed:
                return
            if balancing and placed <= self.open.size // 50:
                balancing -= 1

    def _top_up_balanced(self) -> None:
        """Match on the sum of both sides, then exchange; what does not fit on one of them keeps waiting."""
        rows, room = self._rows_by_room(self.free_source + self.free_target)
        chosen = _largest(self.size[self.waiting], room)
        self._place(*self._exchanged(rows[chosen >= 0], self.waiting[chosen[chosen >= 0]]))

    def _top_up_surely(self) -> None:
        """Match on the longer side of the pair and the shorter room of the row: whatever is matched fits."""
        longer = np.maximum(self.source[self.waiting], self.target[self.waiting])
        order = np.argsort(longer.astype(self.key_type), kind="stable")
        rows, room = self._rows_by_room(np.minimum(self.free_source, self.free_target))
        chosen = _largest(longer[order], room)
        self._place(rows[chosen >= 0], self.waiting[order[chosen[chosen >= 0]]])

    def _rows_by_room(self, free: Integers) -> tuple[Integers, Integers]:
        """The open rows from the fullest to the emptiest, and how much is free in each."""
        room = free[self.open]
        order = np.argsort(room.astype(self.key_type), kind="stable")
        return self.open[order], room[order]

    def _exchanged(self, rows: Integers, pairs: Integers) -> tuple[Integers, Integers]:
        """Among neighbours, give pairs with more source than target to rows with more room on the source side."""
        group = np.arange(rows.size) // EXCHANGE * (4 * self.width)
        spare = self.free_source[rows] - self.free_target[rows]
        return rows[np.argsort(group + spare, kind="stable")], pairs[
            np.argsort(group + self.excess[pairs], kind="stable")
        ]

    def _place(self, rows: Integers, pairs: Integers) -> None:
        """Put each pair into its row (all rows differ) unless a side is too long for it."""
        fits = (self.source[pairs] <= self.free_source[rows]) & (self.target[pairs] <= self.free_target[rows])
        rows, pairs = rows[fits], pairs[fits]
        self.row[pairs] = rows
        self.free_source[rows] -= self.source[pairs]
        self.free_target[rows] -= self.target[pairs]

    def _forget_placed(self) -> None:
        self.waiting = self.waiting[self.row[self.waiting] < 0]


def _largest(sizes: Integers, room: Integers) -> Integers:
    """For each row (room ascending) the index of the largest size (ascending) that fits, all different; < 0: none.

    A row takes what the next roomier one left: chosen[i] = min over j >= i of (fit[j] - j) + i, strictly increasing.
    """
    index = np.arange(room.size)
    fit = np.searchsorted(sizes, room, side="right") - 1
    return np.asarray(index + np.minimum.accumulate((fit - index)[::-1])[::-1])


def _tightest(sizes: Integers, room: Integers) -> Integers:
    """For each size (ascending) the index of the fullest row (room ascending) that takes it, all different.

    chosen[i] = max over j <= i of (fit[j] - j) + i; an index past the last row means that none is left.
    """
    index = np.arange(sizes.size)
    fit = np.searchsorted(room, sizes, side="left")
    return np.asarray(index + np.maximum.accumulate(fit - index))


def _arranged(source: Integers, target: Integers, row: Integers) -> Packing:
    """Number the rows without gaps, and the pairs of each row from 1, with their offsets."""
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
    """start, start + 1, … (count numbers) for each start, one after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def assemble(store: PairStore, placement: Placement, *, num_rows: int, width: int, bos_id: int, pad_id: int) -> Batch:
    """Copy the placed pairs into `(num_rows, width)` tensors; reads from the store the tokens of these pairs only."""
    place = placement.row * width
    source = _Tokens(store.source, placement.pair, place + placement.source_offset)
    target = _Tokens(store.target, placement.pair, place + placement.target_offset)
    shifted = np.empty_like(target.ids)
    shifted[1:] = target.ids[:-1]
    shifted[target.first] = bos_id

    def laid_out(tokens: _Tokens, values: NDArray[np.int64], padding: int) -> torch.Tensor:
        rows = np.full(num_rows * width, padding, dtype=np.int64)
        rows[tokens.place] = values
        return torch.from_numpy(rows.reshape(num_rows, width))

    return Batch(
        source=laid_out(source, source.ids, pad_id),
        source_segments=laid_out(source, np.repeat(placement.segment, source.lengths), 0),
        source_positions=laid_out(source, source.positions, 0),
        target_input=laid_out(target, shifted, pad_id),
        target_output=laid_out(target, target.ids, pad_id),
        target_segments=laid_out(target, np.repeat(placement.segment, target.lengths), 0),
        target_positions=laid_out(target, target.positions, 0),
    )


class _Tokens:
    """The tokens of some sentences one after the other: ids, positions in the sentence, places in the flat batch."""

    def __init__(self, side: Side, pairs: Integers, starts: Integers) -> None:
        begin = side.offsets[pairs]
        self.lengths: Integers = side.offsets[pairs + 1] - begin
        self.first: Integers = np.cumsum(self.lengths) - self.lengths
        index = np.arange(int(self.lengths.sum()))
        self.positions: Integers = index - np.repeat(self.first, self.lengths)
        self.place: Integers = np.repeat(starts, self.lengths) + self.positions
        self.ids: Integers = side.ids[np.repeat(begin, self.lengths) + self.positions].astype(np.int64)
