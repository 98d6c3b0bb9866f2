"""Batches in training order, with an exact position to resume from.

An order (`PairShuffle` or `BlockShuffle`) defines the sequence of rows of an epoch; step n takes rows n * rows_per_step
to (n + 1) * rows_per_step. Only the last batch of an epoch is padded with empty rows, so every batch has the same
shape. The order does not depend on how many ranks share the rows of a step; where the number of ranks does not divide
the number of rows, some ranks get an empty row.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from heedful.data.masking import VALIDATION, Masking
from heedful.data.packing import Batch, PackedBlock, Placement, PrepackedRows, assemble
from heedful.data.permutation import Integers
from heedful.data.shuffle import PAIRS_PER_BLOCK, BlockShuffle, PairShuffle
from heedful.data.store import PairStore
from heedful.errors import ConfigError, CorpusError

P = TypeVar("P")


class Position(NamedTuple):
    """A position in the stream: all that is needed to resume."""

    epoch: int
    step: int


class EpochRows(Protocol):
    """The rows of all epochs in sequence: the interface of an order."""

    def count_rows(self, epoch: int, at_least: int | None) -> int:
        """The number of rows in the epoch, or any number from `at_least` on if it has more."""
        ...

    def estimate_num_rows(self) -> int | float:
        """About how many rows an epoch has; an int if exact. Fast for corpora of any size."""
        ...

    def placement(self, epoch: int, rows: Integers, batch_rows: Integers) -> Placement:
        """The placement of each pair if the given rows of the epoch become `batch_rows`."""
        ...

    def num_tokens(self, epoch: int, rows: Integers) -> int:
        """Target tokens of the given rows, padding excluded."""
        ...

    def resume_cache(self, epoch: int, num_rows: int) -> dict[str, Any]:
        """Results about the first `num_rows` rows of an epoch that are slow to recompute, as plain data."""
        ...

    def load_resume_cache(self, cache: Any) -> bool:
        """Use what `resume_cache` returned; False if it belongs to other data or settings."""
        ...


class BatchStream:
    """Endless batches of packed rows from a store. Rank r gets rows r, r + world_size, … of each step.

    With `prepacked` rows, the order is `BlockShuffle`; without, `PairShuffle`. `masking` hides tokens of each batch for
    a masked language model.
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
        prepacked: PrepackedRows | None = None,
        masking: Masking | None = None,
        pairs_per_block: int = PAIRS_PER_BLOCK,
    ) -> None:
        if rows_per_step < 1 or not 0 <= rank < world_size:
            raise ValueError(f"rows_per_step={rows_per_step} with rank {rank} of {world_size} is not possible.")
        require_width(store, width)
        self.store = store
        self.width = width
        self.rows_per_step = rows_per_step
        self.bos_id = bos_id
        self.pad_id = pad_id
        self.rank = rank
        self.world_size = world_size
        self.masking = masking
        self.rows: EpochRows
        if prepacked is None:
            self.rows = PairShuffle(store, width=width, seed=seed, pairs_per_block=pairs_per_block)
        else:
            self.rows = BlockShuffle(prepacked, seed=seed)
        self._estimate: float | None = None

    def batches(self, start_epoch: int = 0, start_step: int = 0) -> Iterator[tuple[Position, Batch]]:
        """Batches from a position on, without end, each with its position."""
        if start_step and not self._has_step(start_epoch, start_step - 1):
            raise CorpusError(
                f"epoch {start_epoch} ends after {self.steps_in_epoch(start_epoch)} steps, before step {start_step}: "
                f"the corpora or the batch size differ from those of the run to resume; use the same ones."
            )
        epoch, step = start_epoch, start_step
        while True:
            while self._has_step(epoch, step):
                yield Position(epoch, step), self.batch(epoch, step)
                step += 1
            epoch, step = epoch + 1, 0

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of one step: the rows of this rank."""
        if step < 0 or not self._has_step(epoch, step):
            raise IndexError(f"epoch {epoch} has no step {step}.")
        return self._batch(epoch, step, self.rank, self.world_size)

    def _batch(self, epoch: int, step: int, rank: int, world_size: int) -> Batch:
        rows = self._rows_of(epoch, step)[rank::world_size]
        placement = self.rows.placement(epoch, rows, np.arange(rows.size))
        num_rows = -(-self.rows_per_step // world_size)
        batch = assemble(
            self.store, placement, num_rows=num_rows, width=self.width, bos_id=self.bos_id, pad_id=self.pad_id
        )
        return (
            batch if self.masking is None else self.masking.apply(batch, epoch, step, first_row=rank, stride=world_size)
        )

    @property
    def num_rows(self) -> int:
        """Rows in a batch: the same on every rank."""
        return -(-self.rows_per_step // self.world_size)

    def num_tokens(self, epoch: int, step: int) -> int:
        """Target tokens of a step on all ranks, padding excluded; without masking computed from the lengths alone."""
        if not self._has_step(epoch, step):
            raise IndexError(f"epoch {epoch} has no step {step}.")
        if self.masking is not None:
            return self._batch(epoch, step, 0, 1).num_tokens
        return self.rows.num_tokens(epoch, self._rows_of(epoch, step))

    def steps_in_epoch(self, epoch: int) -> int:
        """Steps in an epoch; with `PairShuffle` the first call packs the lengths of all its pairs."""
        return -(-self.rows.count_rows(epoch, None) // self.rows_per_step)

    def estimated_steps_in_epoch(self) -> float:
        """About how many steps an epoch has; fast for corpora of any size."""
        if self._estimate is None:  # cached, because it may be called at every step
            rows = self.rows.estimate_num_rows()
            is_exact = isinstance(rows, int)
            self._estimate = float(max(-(-rows // self.rows_per_step), 1)) if is_exact else rows / self.rows_per_step
        return self._estimate

    def resume_cache(self, position: Position) -> dict[str, Any]:
        """Plain data that makes resuming from a position fast."""
        return self.rows.resume_cache(position.epoch, position.step * self.rows_per_step)

    def load_resume_cache(self, cache: Any) -> bool:
        """Use what `resume_cache` returned; False if it belongs to other data or settings and is recomputed."""
        return self.rows.load_resume_cache(cache)

    def _has_step(self, epoch: int, step: int) -> bool:
        first = step * self.rows_per_step
        return self.rows.count_rows(epoch, first + self.rows_per_step) > first

    def _rows_of(self, epoch: int, step: int) -> Integers:
        """Row numbers in the epoch of a step, for all ranks."""
        first = step * self.rows_per_step
        stop = first + self.rows_per_step
        return np.arange(first, min(stop, self.rows.count_rows(epoch, stop)))


def require_width(store: PairStore, width: int) -> None:
    """Raise `ConfigError` if a sentence of the store is longer than a row."""
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
    masking: Masking | None = None,
    pairs_per_block: int = PAIRS_PER_BLOCK,
) -> Iterator[Batch]:
    """Every pair of a store once, always in the same batches, for validation; the last may have empty rows.

    Each rank gets every `world_size`-th row of every batch; a batch has at least one row for each rank.
    """
    require_width(store, width)
    rows_per_batch = -(-rows_per_batch // world_size) * world_size
    pending: list[tuple[PackedBlock, Integers]] = []
    number = 0
    for start in range(0, len(store), pairs_per_block):
        pairs = np.arange(start, min(start + pairs_per_block, len(store)))
        block = PackedBlock.pack(store, pairs, width)
        is_last = start + pairs_per_block >= len(store)
        pending.append((block, np.arange(block.packing.num_rows)))
        while pending and (is_last or sum(rows.size for _, rows in pending) >= rows_per_batch):
            placement, pending = _take_rows(pending, rows_per_batch)
            batch = assemble(store, placement, num_rows=rows_per_batch, width=width, bos_id=bos_id, pad_id=pad_id)
            if masking is not None:
                batch = masking.apply(batch, VALIDATION, number)
            number += 1
            yield batch if world_size == 1 else batch.rows(rank, rows_per_batch, world_size)


def _take_rows(
    pending: list[tuple[PackedBlock, Integers]], count: int
) -> tuple[Placement, list[tuple[PackedBlock, Integers]]]:
    """The placement of the first `count` pending rows, and the rows that remain."""
    parts, remaining, filled = [], [], 0
    for block, rows in pending:
        taken = rows[: count - filled]
        if taken.size:
            parts.append(Placement.from_rows(block.pairs, block.packing, taken, filled + np.arange(taken.size)))
        filled += taken.size
        if taken.size < rows.size:
            remaining.append((block, rows[taken.size :]))
    return Placement.concatenate(parts), remaining


def worst_batch(rows: int, width: int, source_vocab_size: int, target_vocab_size: int) -> Batch:
    """The batch that takes the most memory: every row is one sentence pair of full width, without padding."""
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


# ---- prefetching -----------------------------------------------------------------------------------------------------


def prefetch(
    batches: Iterable[tuple[P, Batch]], *, depth: int = 2, pin_memory: bool = False
) -> Generator[tuple[P, Batch], None, None]:
    """The same batches with their positions, built by a thread up to `depth` batches ahead.

    An error in building them is raised here. `close()`, or deleting the generator, stops the thread.
    """
    worker = _Worker(batches, depth=depth, pin_memory=pin_memory)
    worker.thread.start()
    try:
        while not isinstance(item := worker.queue.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        worker.finish()


@dataclass(frozen=True)
class _End:
    """Follows the last batch: with the error that ended the stream, if any."""

    error: BaseException | None


class _Worker(Generic[P]):
    """The thread that fills a queue."""

    def __init__(self, batches: Iterable[tuple[P, Batch]], *, depth: int, pin_memory: bool) -> None:
        self.batches = batches
        self.pin_memory = pin_memory
        self.queue: Queue[tuple[P, Batch] | _End] = Queue(maxsize=depth)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.work, name="prefetch", daemon=True)

    def work(self) -> None:
        """Build batches until there are no more, or until `finish`."""
        try:
            for position, batch in self.batches:
                self.put((position, batch.pin_memory() if self.pin_memory else batch))
                if self.stop.is_set():
                    return
        except BaseException as error:  # raised again in the consuming thread
            self.put(_End(error))
        else:
            self.put(_End(None))

    def put(self, item: tuple[P, Batch] | _End) -> None:
        """Put an item in the queue when a slot is free, unless stopped."""
        while not self.stop.is_set():
            try:
                self.queue.put(item, timeout=0.1)
            except Full:
                continue
            return

    def finish(self) -> None:
        """Stop the thread: empty the queue so that a blocked `put` returns, then join."""
        self.stop.set()
        try:
            while True:
                self.queue.get_nowait()
        except Empty:
            self.thread.join()
