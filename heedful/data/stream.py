"""The stream of training batches, whose order is a pure function of seed, epoch and step.

An epoch's pairs, in the order of `EpochOrder`, are taken in blocks; the pairs of a block are packed into rows, the rows
shuffled, and the rows of all blocks laid end to end; step n is rows n * rows_per_step to (n + 1) * rows_per_step.
Only the last batch of an epoch is filled up with empty rows, so every batch has one shape. Neither depends on how many
ranks share the rows of a step; where their number does not divide, some ranks get an empty row.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from heedful.data.batch import Batch
from heedful.data.order import EpochOrder, Integers, combined_key, permuted
from heedful.data.packing import Packing, Placement, assemble, pack
from heedful.data.store import PairStore
from heedful.errors import ConfigError, CorpusError

PAIRS_PER_BLOCK = 65_536
BLOCKS_KEPT = 3


class Position(NamedTuple):
    """A place in the stream: all that has to be kept to go on from there."""

    epoch: int
    step: int


@dataclass(frozen=True)
class _Block:
    pairs: Integers
    packing: Packing


class BatchStream:
    """Endless batches of packed rows from a store. Of several ranks, rank r gets rows r, r + world_size, … of a step.

    `weights` (one for each corpus) replace those of the store. How many rows each block has is remembered once known; a
    position far inside an epoch costs packing the lengths of all pairs before it, but never reads their ids.
    """

    def __init__(
        self,
        store: PairStore,
        *,
        width: int,
        rows_per_step: int,
        seed: int,
        bos_id: int,
        pad_id: int,
        weights: Sequence[float] | None = None,
        rank: int = 0,
        world_size: int = 1,
        pairs_per_block: int = PAIRS_PER_BLOCK,
    ) -> None:
        if rows_per_step < 1 or not 0 <= rank < world_size:
            raise ValueError(f"there is no share of {rows_per_step} rows for rank {rank} of {world_size}.")
        require_width(store, width)
        self.store, self.width, self.rows_per_step, self.seed = store, width, rows_per_step, seed
        self.bos_id, self.pad_id, self.rank, self.world_size = bos_id, pad_id, rank, world_size
        self.pairs_per_block = pairs_per_block
        self.order = EpochOrder(store, weights=weights, seed=seed)
        self._row_ends: dict[int, list[int]] = {}
        self._blocks: OrderedDict[tuple[int, int], _Block] = OrderedDict()
        self._estimate: float | None = None
        self._lock = threading.RLock()

    def batches(self, start_epoch: int = 0, start_step: int = 0) -> Iterator[tuple[Position, Batch]]:
        """All batches from a position on, without end, each with its position."""
        if start_step and not self._has_step(start_epoch, start_step - 1):
            raise CorpusError(
                f"epoch {start_epoch} ends after {self.steps_in_epoch(start_epoch)} steps, before step {start_step}: "
                f"the corpora or the batch size differ from those of the run to go on with; use the same ones."
            )
        epoch, step = start_epoch, start_step
        while True:
            while self._has_step(epoch, step):
                yield Position(epoch, step), self.batch(epoch, step)
                step += 1
            epoch, step = epoch + 1, 0

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of one step: this rank's share of its rows."""
        if step < 0 or not self._has_step(epoch, step):
            raise IndexError(f"epoch {epoch} has no step {step}.")
        first = step * self.rows_per_step
        with self._lock:
            placement = self._placement(epoch, first, self.rank, self.world_size)
        return assemble(
            self.store, placement, num_rows=self.num_rows, width=self.width, bos_id=self.bos_id, pad_id=self.pad_id
        )

    @property
    def num_rows(self) -> int:
        """Rows of one batch: a rank's share of a step, the same for all."""
        return -(-self.rows_per_step // self.world_size)

    def num_tokens(self, epoch: int, step: int) -> int:
        """Real target tokens of a step on all ranks together, told by the lengths alone."""
        first = step * self.rows_per_step
        with self._lock:
            if not self._has_step(epoch, step):
                raise IndexError(f"epoch {epoch} has no step {step}.")
            placement = self._placement(epoch, first, 0, 1)
        return int(self.store.target.lengths(placement.pair).sum())

    def steps_in_epoch(self, epoch: int) -> int:
        """Steps of an epoch; the first call packs the lengths of all its pairs (over ten million tokens a second)."""
        return -(-self._planned_rows(epoch, None) // self.rows_per_step)

    def estimated_steps_in_epoch(self) -> float:
        """About how many steps an epoch has, from its first block: at once, however large the corpora are."""
        if self._estimate is None:  # kept, because it may be asked for at every step
            size = self.order.size(0)
            if size <= self.pairs_per_block:
                self._estimate = float(max(self.steps_in_epoch(0), 1))
            else:
                blocks = size / self.pairs_per_block
                self._estimate = self._block(0, 0).packing.num_rows * blocks / self.rows_per_step
        return self._estimate

    def _has_step(self, epoch: int, step: int) -> bool:
        first = step * self.rows_per_step
        return self._planned_rows(epoch, first + self.rows_per_step) > first

    def _num_blocks(self, epoch: int) -> int:
        return -(-self.order.size(epoch) // self.pairs_per_block)

    def _planned_rows(self, epoch: int, wanted: int | None) -> int:
        """Pack blocks until `wanted` rows are known, or the epoch ends; how many rows are known then."""
        with self._lock:
            ends = self._row_ends.setdefault(epoch, [0])
            while (wanted is None or ends[-1] < wanted) and len(ends) <= self._num_blocks(epoch):
                ends.append(ends[-1] + self._block(epoch, len(ends) - 1).packing.num_rows)
            return ends[-1]

    def _block(self, epoch: int, number: int) -> _Block:
        """Pairs and packing of one block; the last few are kept."""
        with self._lock:
            block = self._blocks.pop((epoch, number), None)
            if block is None:
                start = number * self.pairs_per_block
                stop = min(start + self.pairs_per_block, self.order.size(epoch))
                block = _packed_block(self.store, self.order.pairs(epoch, start, stop), self.width)
            self._blocks[epoch, number] = block
            if len(self._blocks) > BLOCKS_KEPT:
                self._blocks.popitem(last=False)
            return block

    def _placement(self, epoch: int, first: int, rank: int, world_size: int) -> Placement:
        """Which pairs stand where in a rank's rows of the step that begins at row `first` of the epoch."""
        ends = self._row_ends[epoch]
        stop = min(first + self.rows_per_step, ends[-1])
        mine = np.arange(first + rank, stop, world_size)
        parts = []
        for number in range(bisect_right(ends, first) - 1, len(ends) - 1):
            if ends[number] >= stop:
                break
            rows = mine[(mine >= ends[number]) & (mine < ends[number + 1])]
            block = self._block(epoch, number)
            key = combined_key(self.seed, epoch, 3, number)
            shuffled = permuted(rows - ends[number], block.packing.num_rows, key)
            parts.append(Placement.of_rows(block.pairs, block.packing, shuffled, (rows - first) // world_size))
        return Placement.joined(parts)


def _packed_block(store: PairStore, pairs: Integers, width: int) -> _Block:
    return _Block(pairs, pack(store.source.lengths(pairs), store.target.lengths(pairs), width))


def require_width(store: PairStore, width: int) -> None:
    """Raise `ConfigError` when a sentence of the store is longer than a row."""
    longest = max(store.source.longest, store.target.longest)
    if longest > width:
        raise ConfigError(
            f"data.row_width is {width}, but the prepared corpora have a sentence of {longest} tokens: "
            f"set data.row_width={longest}, or run `heedful prepare` again with data.row_width={width}."
        )


def fixed_batches(
    store: PairStore,
    width: int,
    rows_per_batch: int,
    bos_id: int,
    pad_id: int,
    *,
    rank: int = 0,
    world_size: int = 1,
    pairs_per_block: int = PAIRS_PER_BLOCK,
) -> Iterator[Batch]:
    """Every pair of a store once, always in the same batches, for validation; the last may have empty rows.

    Of several ranks each gets every `world_size`-th row of every batch; batches have at least one row for each.
    """
    require_width(store, width)
    rows_per_batch = -(-rows_per_batch // world_size) * world_size
    waiting: list[tuple[_Block, Integers]] = []
    for start in range(0, len(store), pairs_per_block):
        pairs = np.arange(start, min(start + pairs_per_block, len(store)))
        block = _packed_block(store, pairs, width)
        last = start + pairs_per_block >= len(store)
        waiting.append((block, np.arange(block.packing.num_rows)))
        while waiting and (last or sum(rows.size for _, rows in waiting) >= rows_per_batch):
            placement, waiting = _next_rows(waiting, rows_per_batch)
            batch = assemble(store, placement, num_rows=rows_per_batch, width=width, bos_id=bos_id, pad_id=pad_id)
            yield batch if world_size == 1 else batch.rows(rank, rows_per_batch, world_size)


def _next_rows(waiting: list[tuple[_Block, Integers]], count: int) -> tuple[Placement, list[tuple[_Block, Integers]]]:
    """Take up to `count` rows off the front of the waiting ones."""
    parts, left, filled = [], [], 0
    for block, rows in waiting:
        taken = rows[: count - filled]
        if taken.size:
            parts.append(Placement.of_rows(block.pairs, block.packing, taken, filled + np.arange(taken.size)))
        filled += taken.size
        if taken.size < rows.size:
            left.append((block, rows[taken.size :]))
    return Placement.joined(parts), left


def worst_batch(rows: int, width: int, source_vocab_size: int, target_vocab_size: int) -> Batch:
    """The largest batch there can be: every row is one sentence pair of full width, without padding."""
    index = torch.arange(rows * width).reshape(rows, width)
    positions = torch.arange(width).repeat(rows, 1)
    ones = torch.ones(rows, width, dtype=torch.int64)
    target = target_vocab_size - 1 - index % target_vocab_size
    return Batch(
        source=source_vocab_size - 1 - index % source_vocab_size,
        source_segments=ones,
        source_positions=positions,
        target_input=target,
        target_output=target.clone(),
        target_segments=ones.clone(),
        target_positions=positions.clone(),
    )
