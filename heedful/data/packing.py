"""Packing: several sentence pairs share one row of fixed width, so `(rows, width)` arrays have almost no padding.

A pair is never split; a row holds up to `width` source and `width` target tokens. Filling both sides of a row
is two-dimensional bin packing; `pack` solves it greedily in about fifty vectorised rounds, each of which adds at most
one pair to each row, without a Python loop over sentences. `assemble` copies the ids into a `Batch`.

For `data.shuffle=blocks`, rows are packed once and stored next to the pairs. A block is a run of consecutive pairs of
one corpus; its pairs are packed into rows. The files are `rows.blocks` (pairs and rows before each block),
`rows.offsets` and `rows.members` (the pairs of row r are `members[offsets[r]:offsets[r + 1]]`, counted from the first
pair of its block), `rows.tokens` (target tokens of each row), and `rows.json`, written last. They take 5 bytes per
pair.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.permutation import Integers, combined_key, permuted
from heedful.data.store import (
    REMEDY,
    PairStore,
    PartialFile,
    Side,
    add_checksums,
    map_array,
    verify_checksums,
    write_manifest,
)
from heedful.errors import CorpusError
from heedful.tensor_types import Int

LARGE_PAIR_DIVISOR = 6
"""Pairs above width / 6 are placed by `place_large`, the rest by `top_up`."""
NUM_LARGE_ROUNDS = 32
"""Rounds of `place_large`."""
BALANCE_GROUP_SIZE = 64
"""Pairs of similar size that may be swapped between rows to balance source and target."""
FORMAT_VERSION = 1
MANIFEST = "rows.json"
PAIRS_PER_BLOCK = 8192
"""About a megabyte of the store; larger blocks do not give fuller rows."""
TYPES = {"blocks": "<i8", "offsets": "<i8", "members": "<u2", "tokens": "<u4"}


@dataclass(frozen=True)
class Batch:
    """Rows of packed sentence pairs. Segment numbers distinguish the pairs of a row; 0 is padding."""

    source: Int[Tensor, "B S"]
    source_segments: Int[Tensor, "B S"]
    source_positions: Int[Tensor, "B S"]
    target_input: Int[Tensor, "B T"]
    target_output: Int[Tensor, "B T"]
    target_segments: Int[Tensor, "B T"]
    target_positions: Int[Tensor, "B T"]

    @property
    def num_rows(self) -> int:
        """Rows in the batch, empty ones included."""
        return self.source.shape[0]

    @property
    def num_tokens(self) -> int:
        """Target tokens, padding excluded: the tokens the loss is computed over."""
        return int((self.target_segments > 0).sum())

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The arguments of a model: `model(**batch.inputs)`."""
        return {  # spelled out, because torch.compile cannot trace vars()
            "source": self.source,
            "source_segments": self.source_segments,
            "source_positions": self.source_positions,
            "target_input": self.target_input,
            "target_segments": self.target_segments,
            "target_positions": self.target_positions,
        }

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch on another device."""
        return Batch(**{name: tensor.to(device, non_blocking=non_blocking) for name, tensor in vars(self).items()})

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory, for asynchronous copies to a GPU."""
        return Batch(**{name: tensor.pin_memory() for name, tensor in vars(self).items()})

    def rows(self, start: int, stop: int, stride: int = 1) -> Batch:
        """A microbatch: rows start to stop, or every `stride`-th of them."""
        return Batch(**{name: tensor[start:stop:stride] for name, tensor in vars(self).items()})

    def repeat_rows(self) -> Batch:
        """All rows twice: the batch followed by a copy of itself."""
        return Batch(**{name: torch.cat((tensor, tensor)) for name, tensor in vars(self).items()})


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


@dataclass(frozen=True)
class PrepackedRows:
    """The prepacked rows of a store, memory-mapped."""

    store: PairStore
    pair_starts: Integers
    """The first pair of each block, then the number of pairs."""
    row_starts: Integers
    """The first row of each block, then the number of rows."""
    offsets: NDArray[np.int64]
    members: NDArray[np.uint16]
    tokens: NDArray[np.uint32]
    """Target tokens of each row."""

    def placement(self, rows: Integers, batch_rows: Integers) -> Placement:
        """The placement of each pair if the given rows become `batch_rows`."""
        starts = self.offsets[rows]
        counts = self.offsets[rows + 1] - starts
        block = np.searchsorted(self.row_starts, rows, side="right") - 1
        pair = np.repeat(self.pair_starts[block], counts) + self.members[ranges(starts, counts)]
        first = np.cumsum(counts) - counts
        return Placement(
            pair=pair,
            row=np.repeat(batch_rows, counts),
            segment=ranges(np.ones_like(counts), counts),
            source_offset=_offsets_in_row(self.store.source.lengths(pair), first, counts),
            target_offset=_offsets_in_row(self.store.target.lengths(pair), first, counts),
        )

    @staticmethod
    def open(directory: str | Path, store: PairStore, width: int) -> PrepackedRows:
        """Map the prepacked rows; `CorpusError` unless they were made from this store for this width."""
        folder = Path(directory)
        manifest = _read_manifest(folder / MANIFEST)
        if manifest.get("mark") != _fingerprint(store, width):
            raise CorpusError(f"{folder / MANIFEST}: these rows are from another store, width or version; {REMEDY}.")
        verify_checksums(folder / MANIFEST, manifest)
        num_blocks, num_rows = manifest["num_blocks"], manifest["num_rows"]
        counts = {"blocks": 2 * num_blocks + 2, "offsets": num_rows + 1, "members": len(store), "tokens": num_rows}
        maps = {name: map_array(_file(folder, name), np.dtype(TYPES[name]), counts[name]) for name in TYPES}
        blocks = maps.pop("blocks").reshape(-1, 2).T
        return PrepackedRows(store, *map(np.ascontiguousarray, blocks), **maps)


def _offsets_in_row(lengths: Integers, first: Integers, counts: Integers) -> Integers:
    """Tokens before each pair in its row; `first` is the first pair of each row."""
    before = np.cumsum(lengths) - lengths
    return np.asarray(before - np.repeat(before[first], counts))


def prepack(
    directory: str | Path,
    store: PairStore,
    width: int,
    *,
    progress: Callable[[int], None] = lambda num_pairs: None,
    pairs_per_block: int = PAIRS_PER_BLOCK,
) -> PrepackedRows:
    """Pack a store into rows and write them, unless they exist; `progress` gets the pairs done since its last call."""
    folder = Path(directory)
    try:
        return PrepackedRows.open(folder, store, width)
    except CorpusError:
        (folder / MANIFEST).unlink(missing_ok=True)
    with ExitStack() as stack:
        files: dict[str, PartialFile] = {}
        for name in TYPES:
            files[name] = PartialFile(_file(folder, name))
            stack.callback(files[name].discard)  # no effect on finished files
        num_blocks, num_rows = _write_blocks(files, store, width, pairs_per_block, progress)
        for file in files.values():
            file.commit()
    manifest = {"num_blocks": num_blocks, "num_rows": num_rows, "mark": _fingerprint(store, width)}
    manifest = add_checksums(folder, manifest, [_file(folder, name).name for name in TYPES])
    write_manifest(folder / MANIFEST, manifest)
    return PrepackedRows.open(folder, store, width)


def _write_blocks(
    files: dict[str, PartialFile], store: PairStore, width: int, pairs_per_block: int, progress: Callable[[int], None]
) -> tuple[int, int]:
    """Pack block by block; returns the number of blocks and rows."""
    num_blocks = num_rows = 0
    files["offsets"].write(np.zeros(1, dtype=TYPES["offsets"]))
    for start, stop in _blocks(store, pairs_per_block):
        packing = PackedBlock.pack(store, np.arange(start, stop), width).packing
        # Packing groups pairs of similar length; after one shuffle, any part of a block's rows is an even sample.
        rows = permuted(np.arange(packing.num_rows), packing.num_rows, combined_key(num_blocks, 4))
        members, member_rows = packing.pairs_in(rows)
        ends = start + np.cumsum(np.bincount(member_rows))
        tokens = np.bincount(member_rows, weights=store.target.lengths(start + members))
        for name, values in (("offsets", ends), ("members", members), ("tokens", tokens)):
            files[name].write(values.astype(TYPES[name]))
        files["blocks"].write(np.array([start, num_rows], dtype=TYPES["blocks"]))
        num_blocks, num_rows = num_blocks + 1, num_rows + packing.num_rows
        progress(stop - start)
    files["blocks"].write(np.array([len(store), num_rows], dtype=TYPES["blocks"]))
    return num_blocks, num_rows


def _blocks(store: PairStore, pairs_per_block: int) -> Iterator[tuple[int, int]]:
    """Start and stop of each block; no block has pairs of two corpora."""
    for start, stop in pairwise([*store.corpus_run_starts().tolist(), len(store)]):
        for first in range(start, stop, pairs_per_block):
            yield first, min(first + pairs_per_block, stop)


def _fingerprint(store: PairStore, width: int) -> str:
    """Identifies everything the rows depend on."""
    return f"{FORMAT_VERSION} {width} {store.lengths_fingerprint}"


def _file(folder: Path, name: str) -> Path:
    return folder / f"rows.{name}"


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); {REMEDY}, or set data.shuffle=pairs.") from None
    counts = [manifest.get(name) for name in ("num_blocks", "num_rows")] if isinstance(manifest, dict) else [None]
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise CorpusError(f"{path}: damaged; {REMEDY}, or set data.shuffle=pairs.")
    return manifest
