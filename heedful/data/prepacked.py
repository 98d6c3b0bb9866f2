"""Rows made once and kept beside a store, so that training packs nothing: what the order `blocks` shuffles.

Neighbours of one corpus make a block; the pairs of a block are packed into rows. Beside the store's files stand
`rows.blocks` (pairs and rows before each block), `rows.offsets` and `rows.members` (the pairs of row r are
`members[offsets[r]:offsets[r + 1]]`, counted from the first of its block), `rows.tokens` (target tokens of each row),
and `rows.json`, written last. They take 5 bytes a pair.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.mmap_io import (
    REMEDY,
    PartialFile,
    check_checksums,
    map_numbers,
    sync_directory,
    with_checksums,
)
from heedful.data.packing import Placement, ranges
from heedful.data.pair_shuffle import PackedBlock
from heedful.data.permutation import Integers, combined_key, permuted, run_starts
from heedful.data.store import PairStore
from heedful.errors import CorpusError

FORMAT_VERSION = 1
MANIFEST = "rows.json"
PAIRS_PER_BLOCK = 8192
"""About a megabyte of the store; rows made of so few are as full as those of more."""
TYPES = {"blocks": "<i8", "offsets": "<i8", "members": "<u2", "tokens": "<u4"}


@dataclass(frozen=True)
class ArrangedRows:
    """The rows beside a store, memory-mapped."""

    store: PairStore
    pair_starts: Integers
    """The first pair of each block, and behind the last one the number of pairs."""
    row_starts: Integers
    """The first row of each block, and behind the last one the number of rows."""
    offsets: NDArray[np.int64]
    members: NDArray[np.uint16]
    tokens: NDArray[np.uint32]
    """Target tokens of each row."""

    def placement(self, rows: Integers, batch_rows: Integers) -> Placement:
        """Which pairs stand where, if the given rows stand at `batch_rows`."""
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
    def open(directory: str | Path, store: PairStore, width: int) -> ArrangedRows:
        """Map the rows beside a store; `CorpusError` unless they were made of this very store for this width."""
        folder = Path(directory)
        manifest = _read_manifest(folder / MANIFEST)
        if manifest.get("mark") != _mark(store, width):
            raise CorpusError(f"{folder / MANIFEST}: these rows are of another store, width or version; {REMEDY}.")
        check_checksums(folder / MANIFEST, manifest)
        num_blocks, num_rows = manifest["num_blocks"], manifest["num_rows"]
        counts = {"blocks": 2 * num_blocks + 2, "offsets": num_rows + 1, "members": len(store), "tokens": num_rows}
        maps = {name: map_numbers(_file(folder, name), np.dtype(TYPES[name]), counts[name]) for name in TYPES}
        blocks = maps.pop("blocks").reshape(-1, 2).T
        return ArrangedRows(store, *map(np.ascontiguousarray, blocks), **maps)


def _offsets_in_row(lengths: Integers, first: Integers, counts: Integers) -> Integers:
    """Tokens before each pair in its row; `first` is each row's first pair."""
    before = np.cumsum(lengths) - lengths
    return np.asarray(before - np.repeat(before[first], counts))


def arrange(
    directory: str | Path,
    store: PairStore,
    width: int,
    *,
    tell: Callable[[int], None] = lambda done: None,
    pairs_per_block: int = PAIRS_PER_BLOCK,
) -> ArrangedRows:
    """Write the rows of a store beside it, unless they stand there; `tell` is told how many pairs more are done."""
    folder = Path(directory)
    try:
        return ArrangedRows.open(folder, store, width)
    except CorpusError:
        (folder / MANIFEST).unlink(missing_ok=True)
    with ExitStack() as stack:
        files: dict[str, PartialFile] = {}
        for name in TYPES:
            files[name] = PartialFile(_file(folder, name))
            stack.callback(files[name].discard)  # which leaves what is finished
        num_blocks, num_rows = _write_blocks(files, store, width, pairs_per_block, tell)
        for file in files.values():
            file.finish()
    manifest = {"num_blocks": num_blocks, "num_rows": num_rows, "mark": _mark(store, width)}
    manifest = with_checksums(folder, manifest, [_file(folder, name).name for name in TYPES])
    last = PartialFile(folder / MANIFEST)
    last.write((json.dumps(manifest, indent=2) + "\n").encode())
    last.finish()
    sync_directory(folder)
    return ArrangedRows.open(folder, store, width)


def _write_blocks(
    files: dict[str, PartialFile], store: PairStore, width: int, pairs_per_block: int, tell: Callable[[int], None]
) -> tuple[int, int]:
    """Pack block after block; returns how many blocks and rows there are."""
    num_blocks = num_rows = 0
    files["offsets"].write(np.zeros(1, dtype=TYPES["offsets"]))
    for start, stop in _blocks(store, pairs_per_block):
        packing = PackedBlock.of(store, np.arange(start, stop), width).packing
        # Packing puts like beside like; shuffled once, any part of a block's rows is a fair sample of it.
        rows = permuted(np.arange(packing.num_rows), packing.num_rows, combined_key(num_blocks, 4))
        members, which = packing.pairs_in(rows)
        ends = start + np.cumsum(np.bincount(which))
        tokens = np.bincount(which, weights=store.target.lengths(start + members))
        for name, values in (("offsets", ends), ("members", members), ("tokens", tokens)):
            files[name].write(values.astype(TYPES[name]))
        files["blocks"].write(np.array([start, num_rows], dtype=TYPES["blocks"]))
        num_blocks, num_rows = num_blocks + 1, num_rows + packing.num_rows
        tell(stop - start)
    files["blocks"].write(np.array([len(store), num_rows], dtype=TYPES["blocks"]))
    return num_blocks, num_rows


def _blocks(store: PairStore, pairs_per_block: int) -> Iterator[tuple[int, int]]:
    """First and last pair of each block; none holds pairs of two corpora."""
    for start, stop in pairwise([*run_starts(store).tolist(), len(store)]):
        for first in range(start, stop, pairs_per_block):
            yield first, min(first + pairs_per_block, stop)


def _mark(store: PairStore, width: int) -> str:
    """Changes with whatever could change the rows."""
    return f"{FORMAT_VERSION} {width} {store.lengths_mark}"


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
