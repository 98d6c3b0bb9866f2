"""Shuffling: exact weights, equal batches on any number of ranks, and resuming."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data import packing
from heedful.data.batch_stream import BatchStream, Position
from heedful.data.packing import PrepackedRows, prepack
from heedful.data.shuffle import BlockShuffle, EpochOrder
from heedful.data.store import PairStore, StoreWriter
from heedful.errors import ConfigError, CorpusError
from tests.data.random_stores import (
    BOS,
    PAD,
    epoch_pairs,
    equal,
    mixed_corpora,
    number_of,
    pairs_of,
    random_store,
    unpacked,
)

WIDTH = 24


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return random_store(tmp_path_factory.mktemp("store"), 400)


# ---- EpochOrder ------------------------------------------------------------------------------------------------------


CORPORA = [0] * 40 + [1] * 31 + [0] * 10 + [2] * 21 + [1, 2] * 5  # in runs, and mixed


def order_of(order: EpochOrder, epoch: int) -> list[int]:
    size = order.size(epoch)
    parts = [order.pairs(epoch, start, min(start + 17, size)) for start in range(0, size, 17)]
    return [int(pair) for part in parts for pair in part]


def test_epoch_order_shows_pairs_as_often_as_their_weight(tmp_path: Path) -> None:
    store = random_store(tmp_path, len(CORPORA), corpora=CORPORA)
    order = EpochOrder(store, weights=[2, 0.5, 1.5], seed=3)
    over_epochs: Counter[int] = Counter()
    for epoch in range(4):
        counts = Counter(order_of(order, epoch))
        over_epochs.update(counts)
        assert {counts[pair] for pair in range(len(store)) if CORPORA[pair] == 0} == {2}
        assert {counts[pair] for pair in range(len(store)) if CORPORA[pair] == 1} == {0, 1}
        assert {counts[pair] for pair in range(len(store)) if CORPORA[pair] == 2} == {1, 2}
        assert sum(counts[pair] for pair in range(len(store)) if CORPORA[pair] == 1) == 18
    assert all(over_epochs[pair] == {0: 8, 1: 2, 2: 6}[CORPORA[pair]] for pair in range(len(store)))


def test_weight_of_one_half_shows_the_other_half_next_epoch(tmp_path: Path) -> None:
    order = EpochOrder(random_store(tmp_path, 41), weights=[0.5], seed=3)
    first, second = order_of(order, 0), order_of(order, 1)
    assert {len(first), len(second)} == {20, 21}
    assert sorted(first + second) == list(range(41))
    assert sorted(first) != list(range(len(first)))


def test_corpus_of_weight_zero_is_skipped(tmp_path: Path) -> None:
    store = random_store(tmp_path, len(CORPORA), corpora=CORPORA, corpus_weights=[1, 0, 1])
    pairs = order_of(EpochOrder(store, weights=None, seed=3), 0)
    assert sorted(pairs) == [pair for pair in range(len(store)) if CORPORA[pair] != 1]


def test_weights_argument_overrides_those_of_the_store(tmp_path: Path) -> None:
    store = random_store(tmp_path, 10, corpus_weights=[3])
    assert EpochOrder(store, weights=None, seed=1).size(0) == 30
    assert EpochOrder(store, weights=[1], seed=1).size(0) == 10


def test_invalid_weights_are_refused(tmp_path: Path) -> None:
    store = random_store(tmp_path, 10, corpora=[0] * 5 + [1] * 5)
    for weights, error in (
        ([1, -1], ConfigError),
        ([1, float("nan")], ConfigError),
        ([2], ConfigError),
        ([0, 0], CorpusError),
    ):
        with pytest.raises(error):
            EpochOrder(store, weights=weights, seed=1)


def test_epoch_order_of_an_empty_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no pairs"):
        EpochOrder(random_store(tmp_path, 0), weights=None, seed=1)


# ---- PairShuffle -----------------------------------------------------------------------------------------------------


FAR = Position(epoch=1, step=50)


def pair_stream(store: PairStore, **changes: Any) -> BatchStream:
    usual = {"width": 24, "rows_per_step": 2, "seed": 1, "bos_id": BOS, "pad_id": PAD, "pairs_per_block": 32}
    return BatchStream(store, **{**usual, **changes})


@pytest.fixture(scope="module")
def cache(store: PairStore) -> Any:
    batches = pair_stream(store)
    batches.batch(*FAR)
    batches.batch(FAR.epoch, FAR.step + 10)  # rows counted beyond the position do not matter
    return json.loads(json.dumps(batches.resume_cache(FAR)))


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pairs in each call of `pack`."""
    sizes: list[int] = []
    pack = packing.pack
    monkeypatch.setattr(packing, "pack", lambda *lengths: sizes.append(len(lengths[0])) or pack(*lengths))
    return sizes


def test_resume_cache_avoids_packing_earlier_blocks(store: PairStore, cache: Any, packings: list[int]) -> None:
    fresh = pair_stream(store)
    expected = fresh.batch(*FAR)
    assert len(packings) > 6
    assert len(cache["row_counts"]) >= len(packings) - 1
    packings.clear()
    resumed = pair_stream(store)
    assert resumed.load_resume_cache(cache)
    assert equal(resumed.batch(*FAR), expected)
    assert len(packings) <= 2
    assert resumed.steps_in_epoch(1) == fresh.steps_in_epoch(1)
    assert resumed.steps_in_epoch(0) == fresh.steps_in_epoch(0)


def test_resume_cache_depends_only_on_the_position(store: PairStore, cache: Any) -> None:
    fresh = pair_stream(store, rank=1, world_size=2)
    fresh.batch(*FAR)
    assert fresh.resume_cache(FAR) == cache
    assert pair_stream(store).resume_cache(Position(0, 0))["row_counts"] == []


@pytest.mark.parametrize("changes", [{"seed": 2}, {"width": 25}, {"pairs_per_block": 64}])
def test_resume_cache_of_other_settings_is_refused(store: PairStore, cache: Any, changes: dict[str, int]) -> None:
    assert not pair_stream(store, **changes).load_resume_cache(cache)


def test_resume_cache_of_another_corpus_is_refused(tmp_path: Path, cache: Any) -> None:
    assert pair_stream(random_store(tmp_path / "same", 400)).load_resume_cache(cache)
    assert not pair_stream(random_store(tmp_path / "lengths", 400, seed=1)).load_resume_cache(cache)
    assert not pair_stream(random_store(tmp_path / "weights", 400, corpus_weights=[1.5])).load_resume_cache(cache)
    half, other = [0] * 200 + [1] * 200, [0] * 201 + [1] * 199
    stores = [random_store(tmp_path / str(sum(c)), 400, corpora=c, corpus_weights=[1, 2]) for c in (half, other)]
    other_stream = pair_stream(stores[0])
    other_stream.batch(*FAR)
    assert pair_stream(stores[0]).load_resume_cache(other_stream.resume_cache(FAR))
    assert not pair_stream(stores[1]).load_resume_cache(other_stream.resume_cache(FAR))


def test_resume_cache_works_with_stores_without_recorded_digests(tmp_path: Path, cache: Any) -> None:
    """Stores written before digests were recorded."""
    random_store(tmp_path, 400)
    manifest = json.loads((tmp_path / "store.json").read_text())
    for side in ("source", "target"):
        assert len(manifest[side].pop("offsets_sha256")) == 64
    (tmp_path / "store.json").write_text(json.dumps(manifest))
    assert pair_stream(PairStore.open(tmp_path)).load_resume_cache(cache)


DAMAGES: list[Any] = [
    None,
    {},
    [],
    {"row_counts": None},
    {"row_counts": []},
    {"row_counts": ["x"]},
    {"epoch": 2},
    {"mark": "0"},
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_resume_cache_is_refused_and_recomputed(store: PairStore, cache: Any, damage: Any) -> None:
    batches = pair_stream(store)
    assert not batches.load_resume_cache({**cache, **damage} if damage else damage)
    assert equal(batches.batch(*FAR), pair_stream(store).batch(*FAR))


@pytest.mark.parametrize("change", [1, -1])
def test_resume_cache_with_wrong_row_counts_is_refused(store: PairStore, cache: Any, change: int) -> None:
    counts = cache["row_counts"]
    for wrong in ([*counts[:-1], counts[-1] + change], [*counts, *[5] * 20], [0, *counts[1:]]):
        assert not pair_stream(store).load_resume_cache({**cache, "row_counts": wrong})


# ---- BlockShuffle ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepacked(tmp_path_factory: pytest.TempPathFactory) -> PrepackedRows:
    """400 pairs in 20 blocks."""
    folder = tmp_path_factory.mktemp("store")
    return prepack(folder, random_store(folder, 400), WIDTH, pairs_per_block=20)


def block_stream(prepacked: PrepackedRows, *, window: int = 4, seed: int = 1, **changes: Any) -> BatchStream:
    usual = {"width": WIDTH, "rows_per_step": 6, "bos_id": BOS, "pad_id": PAD}
    batches = BatchStream(prepacked.store, seed=seed, prepacked=prepacked, **{**usual, **changes})
    batches.rows = BlockShuffle(prepacked, seed=seed, blocks_per_window=window)
    return batches


@settings(max_examples=30, deadline=None)
@given(
    mixed=mixed_corpora(),
    world_size=st.integers(1, 9),
    rows=st.integers(1, 40),
    block=st.integers(1, 80),
    window=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_block_shuffle_shows_each_pair_as_often_as_its_weight_on_any_number_of_ranks(
    mixed: tuple[list[int], list[float]], world_size: int, rows: int, block: int, window: int, seed: int
) -> None:
    corpora, weights = mixed
    with TemporaryDirectory() as folder:
        store = random_store(Path(folder), len(corpora), corpora=corpora, corpus_weights=weights)
        prepacked = prepack(folder, store, WIDTH, pairs_per_block=block)
        changes: dict[str, Any] = {"rows_per_step": rows, "window": window, "seed": seed, "world_size": world_size}
        ranks = [block_stream(prepacked, rank=rank, **changes) for rank in range(world_size)]
        seen: Counter[int] = Counter()
        for epoch in range(4):  # after four epochs, a corpus of weight 0.25 has been shown once
            counts = Counter(number_of(pair) for rank in ranks for pair in epoch_pairs(rank, epoch))
            for number, corpus in enumerate(corpora):
                assert int(weights[corpus]) <= counts[number] <= -int(-weights[corpus] // 1)
            seen += counts
        assert seen == Counter({number: int(4 * weights[corpus]) for number, corpus in enumerate(corpora)})


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_block_shuffle_divides_the_rows_of_each_step_among_ranks(prepacked: PrepackedRows, world_size: int) -> None:
    single = block_stream(prepacked)
    ranks = [block_stream(prepacked, rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in range(single.steps_in_epoch(1)):
        parts, whole = [rank.batch(1, step) for rank in ranks], single.batch(1, step)
        for name, tensor in vars(whole).items():
            rows = torch.stack([vars(part)[name] for part in parts], dim=1).flatten(0, 1)
            assert rows[: len(tensor)].equal(tensor)
            assert "segments" not in name or not rows[len(tensor) :].any()
        assert {rank.num_tokens(1, step) for rank in ranks} == {whole.num_tokens}


def test_block_shuffle_never_packs(prepacked: PrepackedRows, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank processes only its own rows, and resuming anywhere takes no longer than starting."""
    monkeypatch.setattr(packing, "pack", lambda *lengths: pytest.fail("packed"))
    whole = dict(islice(block_stream(prepacked).batches(), 60))
    for start in (Position(0, 9), Position(1, 0), Position(1, 4)):
        for position, batch in islice(block_stream(prepacked).batches(*start), 5):
            assert equal(batch, whole[position])


def test_block_shuffle_reads_only_pairs_of_its_rank(prepacked: PrepackedRows, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []
    lengths = type(prepacked.store.target).lengths
    monkeypatch.setattr(
        type(prepacked.store.target), "lengths", lambda side, pairs: looked_up.extend(pairs) or lengths(side, pairs)
    )
    for rank in range(3):
        looked_up.clear()
        batches = block_stream(prepacked, rank=rank, world_size=3)
        batch = batches.batch(0, 2)
        batches.num_tokens(0, 2)
        assert set(pairs_of(prepacked.store, sorted(set(looked_up)))) == set(unpacked(batch))


def test_block_shuffle_order_is_stable_across_versions(tmp_path: Path) -> None:
    """Saved positions must always give the same batches: these pairs are recorded."""
    with StoreWriter(tmp_path, 1000, 1000) as writer:
        sources = [[number] * (1 + number * 7 % 12) for number in range(400)]
        targets = [[number] * (1 + number * 5 % 11) for number in range(400)]
        writer.add(sources, targets, [0] * 400)
    prepacked = prepack(tmp_path, PairStore.open(tmp_path), WIDTH, pairs_per_block=64)
    pairs = unpacked(block_stream(prepacked, rows_per_step=4, window=3).batch(3, 4))
    assert [source[0] for source, _ in pairs] == [352, 356, 369, 383, 387, 390, 391, 385, 394, 398, 362, 374, 382]


def test_block_shuffle_depends_on_epoch_and_seed(prepacked: PrepackedRows) -> None:
    batches = block_stream(prepacked)
    assert not equal(batches.batch(0, 3), batches.batch(1, 3))
    assert not equal(batches.batch(0, 3), batches.batch(0, 4))
    assert not equal(batches.batch(0, 3), block_stream(prepacked, seed=2).batch(0, 3))


def test_block_shuffle_reads_window_by_window_and_mixes_each(prepacked: PrepackedRows) -> None:
    order = BlockShuffle(prepacked, seed=1, blocks_per_window=4)
    rows = order.rows(0, np.arange(order.count_rows(0, None)))
    assert sorted(rows) == list(range(prepacked.row_starts[-1]))
    blocks = np.searchsorted(prepacked.row_starts, rows, side="right") - 1
    first_seen = list(dict.fromkeys(blocks.tolist()))
    windows = [set(first_seen[start : start + 4]) for start in range(0, 20, 4)]
    ends = np.flatnonzero([block in windows[0] for block in blocks])
    assert ends.tolist() == list(range(len(ends)))  # only rows of the first four blocks
    assert windows[0] != {0, 1, 2, 3}
    for start in range(0, len(rows) - 40, 40):  # rows of several blocks are always near each other
        assert len(set(blocks[start : start + 40].tolist())) >= 3


def test_block_shuffle_needs_no_resume_cache(prepacked: PrepackedRows) -> None:
    batches = block_stream(prepacked)
    assert batches.estimated_steps_in_epoch() == batches.steps_in_epoch(0)
    assert batches.resume_cache(Position(0, 5)) == {}
    assert batches.load_resume_cache(None)


def test_block_shuffle_of_nothing_is_refused(tmp_path: Path) -> None:
    for number, (size, weight, error) in enumerate([(0, 1, CorpusError), (9, 0, CorpusError), (9, -1, ConfigError)]):
        folder = tmp_path / str(number)
        store = random_store(folder, size, corpus_weights=[weight])
        with pytest.raises(error):
            BlockShuffle(prepack(folder, store, WIDTH), seed=1)
