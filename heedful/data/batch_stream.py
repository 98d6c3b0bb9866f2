"""The stream of training batches, whose order is a pure function of seed, epoch and step.

An order (`PackedRows` or `BlockRows`) lays the rows of an epoch end to end; step n is rows n * rows_per_step to
(n + 1) * rows_per_step. Only the last batch of an epoch is filled up with empty rows, so every batch has one shape.
Neither depends on how many ranks share the rows of a step; where their number does not divide, some ranks get an empty
row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from heedful.data.batch import Batch
from heedful.data.block_shuffle import BlockRows
from heedful.data.packing import Placement, assemble
from heedful.data.pair_shuffle import PAIRS_PER_BLOCK, PackedBlock, PackedRows
from heedful.data.permutation import Integers
from heedful.data.prepacked import ArrangedRows
from heedful.data.store import PairStore
from heedful.errors import ConfigError, CorpusError


class Position(NamedTuple):
    """A place in the stream: all that has to be kept to go on from there."""

    epoch: int
    step: int


class EpochRows(Protocol):
    """The rows of every epoch, end to end: what an order has to tell."""

    def count(self, epoch: int, wanted: int | None) -> int:
        """How many rows the epoch has; if more than `wanted`, it may be any number from there on."""
        ...

    def estimate(self) -> int | float:
        """How many rows an epoch has, told at once: a whole number if it is exact."""
        ...

    def placement(self, epoch: int, rows: Integers, batch_rows: Integers) -> Placement:
        """Which pairs stand where, if the given rows of the epoch stand at `batch_rows`."""
        ...

    def num_tokens(self, epoch: int, rows: Integers) -> int:
        """Real target tokens of the given rows."""
        ...

    def remembered(self, epoch: int, num_rows: int) -> dict[str, Any]:
        """What was worked out about so many rows of an epoch and would cost time again, as plain data."""
        ...

    def recall(self, remembered: Any) -> bool:
        """Take back what was `remembered`, unless it belongs to other data or settings; whether it was taken."""
        ...


class BatchStream:
    """Endless batches of packed rows from a store. Of several ranks, rank r gets rows r, r + world_size, … of a step.

    With `arranged`, the rows that stand beside the store, their order is that of `BlockRows`; else `PackedRows`.
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
        rank: int = 0,
        world_size: int = 1,
        arranged: ArrangedRows | None = None,
        pairs_per_block: int = PAIRS_PER_BLOCK,
    ) -> None:
        if rows_per_step < 1 or not 0 <= rank < world_size:
            raise ValueError(f"there is no share of {rows_per_step} rows for rank {rank} of {world_size}.")
        require_width(store, width)
        self.store, self.width, self.rows_per_step = store, width, rows_per_step
        self.bos_id, self.pad_id, self.rank, self.world_size = bos_id, pad_id, rank, world_size
        self.rows: EpochRows
        if arranged is None:
            self.rows = PackedRows(store, width=width, seed=seed, pairs_per_block=pairs_per_block)
        else:
            self.rows = BlockRows(arranged, seed=seed)
        self._estimate: float | None = None

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
        rows = self._rows_of(epoch, step)[self.rank :: self.world_size]
        placement = self.rows.placement(epoch, rows, np.arange(rows.size))
        return assemble(
            self.store, placement, num_rows=self.num_rows, width=self.width, bos_id=self.bos_id, pad_id=self.pad_id
        )

    @property
    def num_rows(self) -> int:
        """Rows of one batch: a rank's share of a step, the same for all."""
        return -(-self.rows_per_step // self.world_size)

    def num_tokens(self, epoch: int, step: int) -> int:
        """Real target tokens of a step on all ranks together, told by the lengths alone."""
        if not self._has_step(epoch, step):
            raise IndexError(f"epoch {epoch} has no step {step}.")
        return self.rows.num_tokens(epoch, self._rows_of(epoch, step))

    def steps_in_epoch(self, epoch: int) -> int:
        """Steps of an epoch; with `PackedRows` the first call packs the lengths of all its pairs."""
        return -(-self.rows.count(epoch, None) // self.rows_per_step)

    def estimated_steps_in_epoch(self) -> float:
        """About how many steps an epoch has: at once, however large the corpora are."""
        if self._estimate is None:  # kept, because it may be asked for at every step
            rows = self.rows.estimate()
            is_exact = isinstance(rows, int)
            self._estimate = float(max(-(-rows // self.rows_per_step), 1)) if is_exact else rows / self.rows_per_step
        return self._estimate

    def remembered(self, position: Position) -> dict[str, Any]:
        """What makes going on from a position quick, as plain data."""
        return self.rows.remembered(position.epoch, position.step * self.rows_per_step)

    def recall(self, remembered: Any) -> bool:
        """Take back what was `remembered`; False if it belongs to other data or settings, and has to be worked out."""
        return self.rows.recall(remembered)

    def _has_step(self, epoch: int, step: int) -> bool:
        first = step * self.rows_per_step
        return self.rows.count(epoch, first + self.rows_per_step) > first

    def _rows_of(self, epoch: int, step: int) -> Integers:
        """The rows of a step, on all ranks together, by their numbers in the epoch."""
        first = step * self.rows_per_step
        stop = first + self.rows_per_step
        return np.arange(first, min(stop, self.rows.count(epoch, stop)))


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
    waiting: list[tuple[PackedBlock, Integers]] = []
    for start in range(0, len(store), pairs_per_block):
        pairs = np.arange(start, min(start + pairs_per_block, len(store)))
        block = PackedBlock.of(store, pairs, width)
        last = start + pairs_per_block >= len(store)
        waiting.append((block, np.arange(block.packing.num_rows)))
        while waiting and (last or sum(rows.size for _, rows in waiting) >= rows_per_batch):
            placement, waiting = _next_rows(waiting, rows_per_batch)
            batch = assemble(store, placement, num_rows=rows_per_batch, width=width, bos_id=bos_id, pad_id=pad_id)
            yield batch if world_size == 1 else batch.rows(rank, rows_per_batch, world_size)


def _next_rows(
    waiting: list[tuple[PackedBlock, Integers]], count: int
) -> tuple[Placement, list[tuple[PackedBlock, Integers]]]:
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
