"""The order `pairs`: every epoch draws all pairs in a new order and packs them into new rows, block by block.

An epoch's pairs, in the order of `EpochOrder`, are taken in blocks; the pairs of a block are packed into rows, the rows
shuffled, and the rows of all blocks laid end to end.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from heedful.data.packing import Packing, Placement, pack
from heedful.data.permutation import EpochOrder, Integers, combined_key, permuted
from heedful.data.store import PairStore

PAIRS_PER_BLOCK = 65_536
BLOCKS_KEPT = 3


@dataclass(frozen=True)
class PackedBlock:
    """Some pairs of a store, and the rows they make."""

    pairs: Integers
    packing: Packing

    @staticmethod
    def of(store: PairStore, pairs: Integers, width: int) -> PackedBlock:
        """Pack pairs into rows."""
        return PackedBlock(pairs, pack(store.source.lengths(pairs), store.target.lengths(pairs), width))


class PackedRows:
    """The rows of every epoch, end to end. How many rows each block has is remembered once known.

    A row far inside an epoch costs packing the lengths of all pairs before it, but never reads their ids; not even that
    where `recall` is given what `remembered` gave before.
    """

    def __init__(self, store: PairStore, *, width: int, seed: int, pairs_per_block: int = PAIRS_PER_BLOCK) -> None:
        self.store, self.width, self.seed, self.pairs_per_block = store, width, seed, pairs_per_block
        self.order = EpochOrder(store, weights=None, seed=seed)
        self._row_ends: dict[int, list[int]] = {}
        self._blocks: OrderedDict[tuple[int, int], PackedBlock] = OrderedDict()
        self._lock = threading.RLock()

    def count(self, epoch: int, wanted: int | None) -> int:
        """Pack blocks until `wanted` rows are known, or the epoch ends; how many rows are known then."""
        with self._lock:
            ends = self._row_ends.setdefault(epoch, [0])
            while (wanted is None or ends[-1] < wanted) and len(ends) <= self._num_blocks(epoch):
                ends.append(ends[-1] + self._block(epoch, len(ends) - 1).packing.num_rows)
            return ends[-1]

    def estimate(self) -> int | float:
        """About how many rows an epoch has, from its first block: at once, however large the corpora are."""
        size = self.order.size(0)
        if size <= self.pairs_per_block:
            return self.count(0, None)
        return self._block(0, 0).packing.num_rows * size / self.pairs_per_block

    def placement(self, epoch: int, rows: Integers, batch_rows: Integers) -> Placement:
        """Which pairs stand where, if the given rows of the epoch (all counted) stand at `batch_rows`."""
        parts = []
        with self._lock:
            ends = np.array(self._row_ends[epoch])
            which = np.searchsorted(ends, rows, side="right") - 1
            for number in np.unique(which).tolist():
                block, inside = self._block(epoch, number), which == number
                key = combined_key(self.seed, epoch, 3, number)
                shuffled = permuted(rows[inside] - ends[number], block.packing.num_rows, key)
                parts.append(Placement.of_rows(block.pairs, block.packing, shuffled, batch_rows[inside]))
        return Placement.joined(parts)

    def num_tokens(self, epoch: int, rows: Integers) -> int:
        """Real target tokens of the rows, told by the lengths alone."""
        return int(self.store.target.lengths(self.placement(epoch, rows, rows).pair).sum())

    def remembered(self, epoch: int, num_rows: int) -> dict[str, Any]:
        """The row counts of the blocks that hold so many rows, as plain data, with a mark of all they depend on."""
        with self._lock:
            ends = self._row_ends.get(epoch, [0])
            counts = [end - start for start, end in pairwise(ends) if start < num_rows]
        return {"mark": self._mark(epoch), "epoch": epoch, "row_counts": counts}

    def recall(self, remembered: Any) -> bool:
        """Take back what was `remembered`; False, and nothing is changed, unless it was of these very epochs.

        The last block, which is about where a run goes on, is packed again and must have as many rows as is said.
        """
        try:
            epoch, counts = int(remembered["epoch"]), [int(count) for count in remembered["row_counts"]]
            known = remembered["mark"] == self._mark(epoch) and 0 < len(counts) <= self._num_blocks(epoch)
        except (KeyError, TypeError, ValueError):
            return False
        if not known or min(counts) < 1 or self._block(epoch, len(counts) - 1).packing.num_rows != counts[-1]:
            return False
        with self._lock:
            self._row_ends[epoch] = [0, *accumulate(counts)]
        return True

    def _mark(self, epoch: int) -> str:
        """Changes with whatever could change the row counts of an epoch."""
        settings = [self.seed, epoch, self.width, self.pairs_per_block, self.store.lengths_mark, self.order.mark()]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()

    def _num_blocks(self, epoch: int) -> int:
        return -(-self.order.size(epoch) // self.pairs_per_block)

    def _block(self, epoch: int, number: int) -> PackedBlock:
        """Pairs and packing of one block; the last few are kept."""
        with self._lock:
            block = self._blocks.pop((epoch, number), None)
            if block is None:
                start = number * self.pairs_per_block
                stop = min(start + self.pairs_per_block, self.order.size(epoch))
                block = PackedBlock.of(self.store, self.order.pairs(epoch, start, stop), self.width)
            self._blocks[epoch, number] = block
            if len(self._blocks) > BLOCKS_KEPT:
                self._blocks.popitem(last=False)
            return block
