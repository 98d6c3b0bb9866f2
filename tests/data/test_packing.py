"""Batches and packing: every token once, full rows, and the same rows when they are stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch_stream import worst_batch
from heedful.data.packing import MANIFEST, Batch, Packing, Placement, PrepackedRows, assemble, pack, prepack
from heedful.data.store import PairStore
from heedful.errors import CorpusError
from tests.data.random_stores import BOS, PAD, equal, pairs_of, random_store, unpacked

WIDTH = 24


def test_microbatches_make_up_the_batch() -> None:
    batch = worst_batch(5, 6, 20, 20)
    parts = [batch.rows(0, 2), batch.rows(2, 4), batch.rows(4, 6)]
    assert [part.num_rows for part in parts] == [2, 2, 1]
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    joined = Batch(**{name: torch.cat([vars(part)[name] for part in parts]) for name in vars(batch)})
    assert equal(joined, batch)


def test_moving_keeps_every_tensor() -> None:
    batch = worst_batch(2, 3, 20, 20).to("meta")
    assert all(tensor.device.type == "meta" for tensor in vars(batch).values())


@st.composite
def length_pairs(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray]:
    width = draw(st.sampled_from([1, 2, 7, 16, 128, 20_000]))
    lengths = draw(st.lists(st.tuples(st.integers(1, width), st.integers(1, width)), max_size=300))
    source, target = np.array(lengths, dtype=np.int64).reshape(-1, 2).T
    return width, source, target


def check(packing: Packing, source: np.ndarray, target: np.ndarray, width: int) -> None:
    """Every pair has its own part of a row on both sides, and every row is used."""
    assert packing.row.shape == source.shape
    assert set(packing.row.tolist()) == set(range(packing.num_rows))
    for lengths, offsets in ((source, packing.source_offset), (target, packing.target_offset)):
        assert (offsets >= 0).all()
        assert (offsets + lengths <= width).all()
        in_order = np.lexsort((packing.segment, packing.row))
        same_row = np.diff(packing.row[in_order]) == 0
        ends = (offsets + lengths)[in_order]
        assert (ends[:-1][same_row] == offsets[in_order][1:][same_row]).all()
    for row in range(min(packing.num_rows, 50)):
        segments = np.sort(packing.segment[packing.row == row])
        assert segments.tolist() == list(range(1, segments.size + 1))
        members, which = packing.pairs_in(np.array([row]))
        assert sorted(members.tolist()) == np.flatnonzero(packing.row == row).tolist()
        assert (which == 0).all()


@given(length_pairs())
def test_pairs_stand_whole_and_apart(given_lengths: tuple[int, np.ndarray, np.ndarray]) -> None:
    width, source, target = given_lengths
    packing = pack(source, target, width)
    check(packing, source, target, width)
    again = pack(source, target, width)
    assert (packing.row == again.row).all()
    assert (packing.segment == again.segment).all()


@pytest.mark.parametrize(
    ("mean", "spread", "width", "least"),
    [(28, 0.18, 128, 0.96), (9, 0.18, 128, 0.97), (60, 0.18, 128, 0.93), (6, 0.4, 32, 0.98), (6, 0.6, 32, 0.98)],
)
def test_rows_are_full(mean: int, spread: float, width: int, least: float) -> None:
    """On realistic lengths (log-normal, the sides correlated), measured on the side with more tokens."""
    generator = np.random.default_rng(3)
    lengths = np.exp(generator.normal(np.log(mean) - 0.15, 0.55, size=30_000))
    source = np.rint(lengths).astype(int).clip(1, width)
    target = np.rint(lengths * np.exp(generator.normal(0, spread, size=lengths.size))).astype(int).clip(1, width)
    packing = pack(source, target, width)
    check(packing, source, target, width)
    assert max(source.sum(), target.sum()) / (packing.num_rows * width) > least


def test_one_sided_lengths_balance_within_rows() -> None:
    """Pairs long on one side only must share rows with pairs long on the other: half the rows suffice."""
    source, target = np.array([30, 2] * 400), np.array([2, 30] * 400)
    assert pack(source, target, 64).num_rows <= 220


@pytest.mark.parametrize(("source", "target"), [([9], [3]), ([3], [9]), ([0], [3]), ([3], [0]), ([3, 3], [3])])
def test_lengths_that_cannot_be_packed(source: list[int], target: list[int]) -> None:
    with pytest.raises(ValueError, match=r"tokens on both sides|equal vectors"):
        pack(np.array(source), np.array(target), 8)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return random_store(tmp_path_factory.mktemp("store"), 300)


@given(chosen=st.lists(st.integers(0, 299), min_size=1, max_size=80), width=st.integers(12, 40), data=st.data())
def test_assembled_rows_hold_exactly_the_ids(
    store: PairStore, chosen: list[int], width: int, data: st.DataObject
) -> None:
    pairs = np.array(chosen)
    packing = pack(store.source.lengths(pairs), store.target.lengths(pairs), width)
    rows = np.array(data.draw(st.permutations(range(packing.num_rows))))
    placement = Placement.from_rows(pairs, packing, rows, np.arange(rows.size))
    batch = assemble(store, placement, num_rows=rows.size + 1, width=width, bos_id=BOS, pad_id=PAD)
    assert sorted(unpacked(batch)) == sorted(pairs_of(store, chosen))
    for tensor in vars(batch).values():
        assert tensor.shape == (packing.num_rows + 1, width)
        assert tensor.dtype == torch.int64
        assert (tensor[-1] == 0).all()  # the row without a pair
    assert batch.num_tokens == store.target.lengths(pairs).sum()
    assert (batch.source[batch.source_segments == 0] == PAD).all()
    assert (batch.target_output[batch.target_segments == 0] == PAD).all()


def test_padding_takes_the_pad_id_on_both_sides(store: PairStore) -> None:
    nought, one = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    placement = Placement(pair=nought, row=nought, segment=one, source_offset=nought, target_offset=nought)
    batch = assemble(store, placement, num_rows=2, width=20, bos_id=BOS, pad_id=3)
    for ids, segments in (
        (batch.source, batch.source_segments),
        (batch.target_input, batch.target_segments),
        (batch.target_output, batch.target_segments),
    ):
        assert (ids[segments == 0] == 3).all()
        assert (segments[0] > 0).sum() < 20


def test_inputs_are_shifted_and_positions_restart_in_each_segment(store: PairStore) -> None:
    pairs = np.arange(60)
    packing = pack(store.source.lengths(pairs), store.target.lengths(pairs), 30)
    every = np.arange(packing.num_rows)
    placement = Placement.from_rows(pairs, packing, every, every)
    batch = assemble(store, placement, num_rows=every.size, width=30, bos_id=BOS, pad_id=PAD)
    assert int(batch.target_segments.max()) > 2
    for row in every:
        for segment in range(1, int(batch.target_segments[row].max()) + 1):
            here = batch.target_segments[row] == segment
            output = batch.target_output[row][here].tolist()
            assert batch.target_input[row][here].tolist() == [BOS, *output[:-1]]
            assert batch.target_positions[row][here].tolist() == list(range(len(output)))
            there = batch.source_segments[row] == segment
            assert batch.source_positions[row][there].tolist() == list(range(int(there.sum())))


def test_nothing_to_concatenate_is_an_empty_placement() -> None:
    empty = Placement.concatenate([])
    assert all(len(array) == 0 for array in vars(empty).values())
    one = Placement(*(np.arange(3) + number for number in range(5)))
    assert Placement.concatenate([one]).pair.tolist() == [0, 1, 2]
    whole = Placement.concatenate([one, empty, one])
    assert all(array.tolist() == 2 * vars(one)[name].tolist() for name, array in vars(whole).items())


def test_prepack_reuses_rows_and_repacks_for_another_width(tmp_path: Path) -> None:
    store, reported = random_store(tmp_path, 90), []
    first = prepack(tmp_path, store, WIDTH, progress=reported.append)
    assert sum(reported) == 90
    before = (tmp_path / MANIFEST).stat().st_mtime_ns
    prepack(tmp_path, store, WIDTH, progress=reported.append)
    assert sum(reported) == 90
    assert (tmp_path / MANIFEST).stat().st_mtime_ns == before
    with pytest.raises(CorpusError, match="another store, width"):
        PrepackedRows.open(tmp_path, store, 40)
    wide = prepack(tmp_path, store, 40, progress=reported.append)
    assert sum(reported) == 180
    assert wide.row_starts[-1] < first.row_starts[-1]
    assert not list(tmp_path.glob("*.partial"))


def test_rows_of_another_store_are_refused(tmp_path: Path) -> None:
    prepack(tmp_path, random_store(tmp_path, 90), WIDTH)
    other = random_store(tmp_path, 90, seed=1)
    with pytest.raises(CorpusError, match=r"another store.*heedful prepare"):
        PrepackedRows.open(tmp_path, other, WIDTH)
    assert prepack(tmp_path, other, WIDTH).tokens.sum() == other.target.num_tokens


@pytest.mark.parametrize("name", ["rows.json", "rows.blocks", "rows.offsets", "rows.members", "rows.tokens"])
def test_missing_or_truncated_files_are_named(tmp_path: Path, name: str) -> None:
    store = random_store(tmp_path, 90)
    prepack(tmp_path, store, WIDTH)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorpusError, match=name):
        PrepackedRows.open(tmp_path, store, WIDTH)
    path.unlink()
    with pytest.raises(CorpusError, match=name):
        PrepackedRows.open(tmp_path, store, WIDTH)
    prepack(tmp_path, store, WIDTH)
    PrepackedRows.open(tmp_path, store, WIDTH)
