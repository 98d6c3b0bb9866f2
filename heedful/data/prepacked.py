"""Prepacked rows: packed once and stored next to the pairs, for `data.shuffle=blocks`.

A block is a run of consecutive pairs of one corpus; its pairs are packed into rows. The files are `rows.blocks` (pairs
and rows before each block), `rows.offsets` and `rows.members` (the pairs of row r are
`members[offsets[r]:offsets[r + 1]]`, counted from the first pair of its block), `rows.tokens` (target tokens of each
row), and `rows.json`, written last. They take 5 bytes a pair.
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

from heedful.data.packing import PackedBlock, Placement, ranges
from heedful.data.permutation import Integers, combined_key, permuted
from heedful.data.store import (
    REMEDY,
    PairStore,
    PartialFile,
    add_checksums,
    map_array,
    verify_checksums,
    write_manifest,
)
from heedful.errors import CorpusError

FORMAT_VERSION = 1
MANIFEST = "rows.json"
PAIRS_PER_BLOCK = 8192
"""About a megabyte of the store; larger blocks do not give fuller rows."""
TYPES = {"blocks": "<i8", "offsets": "<i8", "members": "<u2", "tokens": "<u4"}


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
