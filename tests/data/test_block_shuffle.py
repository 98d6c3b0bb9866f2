"""The order `blocks`: every pair as often as its weight on any number of ranks, reading one window at a time."""

from __future__ import annotations

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
from small_stores import BOS, PAD, equal, number_of, pairs_of, random_store, unpacked

from heedful.data import pair_shuffle
from heedful.data.batch_stream import BatchStream, Position
from heedful.data.block_shuffle import BlockRows
from heedful.data.prepacked import MANIFEST, ArrangedRows, arrange
from heedful.data.store import PairStore, StoreWriter
from heedful.errors import ConfigError, CorpusError

WIDTH = 24


@pytest.fixture(scope="module")
def arranged(tmp_path_factory: pytest.TempPathFactory) -> ArrangedRows:
    """400 pairs in 20 blocks."""
    folder = tmp_path_factory.mktemp("store")
    return arrange(folder, random_store(folder, 400), WIDTH, pairs_per_block=20)


def stream(arranged: ArrangedRows, *, window: int = 4, seed: int = 1, **changes: Any) -> BatchStream:
    usual = {"width": WIDTH, "rows_per_step": 6, "bos_id": BOS, "pad_id": PAD}
    batches = BatchStream(arranged.store, seed=seed, arranged=arranged, **{**usual, **changes})
    batches.rows = BlockRows(arranged, seed=seed, blocks_per_window=window)
    return batches


def epoch_pairs(batches: BatchStream, epoch: int) -> list[Any]:
    return [pair for step in range(batches.steps_in_epoch(epoch)) for pair in unpacked(batches.batch(epoch, step))]


@st.composite
def mixed_corpora(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """The corpus of each pair, in runs of any length, and a weight for each corpus."""
    runs = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), min_size=1, max_size=6))
    weights = draw(st.lists(st.sampled_from([1.0, 0.5, 2.0, 0.25, 1.5]), min_size=3, max_size=3))
    return [corpus for corpus, length in runs for _ in range(length)], weights


@settings(max_examples=30, deadline=None)
@given(
    mixed=mixed_corpora(),
    world_size=st.integers(1, 9),
    rows=st.integers(1, 40),
    block=st.integers(1, 80),
    window=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_each_pair_exactly_as_often_as_its_weight_over_any_number_of_ranks(
    mixed: tuple[list[int], list[float]], world_size: int, rows: int, block: int, window: int, seed: int
) -> None:
    corpora, weights = mixed
    with TemporaryDirectory() as folder:
        store = random_store(Path(folder), len(corpora), corpora=corpora, corpus_weights=weights)
        arranged = arrange(folder, store, WIDTH, pairs_per_block=block)
        changes: dict[str, Any] = {"rows_per_step": rows, "window": window, "seed": seed, "world_size": world_size}
        ranks = [stream(arranged, rank=rank, **changes) for rank in range(world_size)]
        seen: Counter[int] = Counter()
        for epoch in range(4):  # after four epochs every quarter has had its turn
            counts = Counter(number_of(pair) for rank in ranks for pair in epoch_pairs(rank, epoch))
            for number, corpus in enumerate(corpora):
                assert int(weights[corpus]) <= counts[number] <= -int(-weights[corpus] // 1)
            seen += counts
        assert seen == Counter({number: int(4 * weights[corpus]) for number, corpus in enumerate(corpora)})


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_ranks_share_the_rows_of_each_step(arranged: ArrangedRows, world_size: int) -> None:
    alone = stream(arranged)
    ranks = [stream(arranged, rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in range(alone.steps_in_epoch(1)):
        parts, whole = [rank.batch(1, step) for rank in ranks], alone.batch(1, step)
        for name, tensor in vars(whole).items():
            rows = torch.stack([vars(part)[name] for part in parts], dim=1).flatten(0, 1)
            assert rows[: len(tensor)].equal(tensor)
            assert "segments" not in name or not rows[len(tensor) :].any()
        assert {rank.num_tokens(1, step) for rank in ranks} == {whole.num_tokens}


def test_nothing_is_packed_while_training(arranged: ArrangedRows, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a rank's work is its own rows, and going on anywhere costs no more than beginning."""
    monkeypatch.setattr(pair_shuffle, "pack", lambda *lengths: pytest.fail("packed"))
    whole = dict(islice(stream(arranged).batches(), 60))
    for start in (Position(0, 9), Position(1, 0), Position(1, 4)):
        for position, batch in islice(stream(arranged).batches(*start), 5):
            assert equal(batch, whole[position])


def test_a_rank_looks_up_its_own_pairs_only(arranged: ArrangedRows, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []
    lengths = type(arranged.store.target).lengths
    monkeypatch.setattr(
        type(arranged.store.target), "lengths", lambda side, pairs: looked_up.extend(pairs) or lengths(side, pairs)
    )
    for rank in range(3):
        looked_up.clear()
        batches = stream(arranged, rank=rank, world_size=3)
        batch = batches.batch(0, 2)
        batches.num_tokens(0, 2)
        assert set(pairs_of(arranged.store, sorted(set(looked_up)))) == set(unpacked(batch))


def test_the_order_is_that_of_earlier_versions(tmp_path: Path) -> None:
    """Saved positions must mean the same batches for ever: these pairs were recorded once."""
    with StoreWriter(tmp_path, 1000, 1000) as writer:
        sources = [[number] * (1 + number * 7 % 12) for number in range(400)]
        targets = [[number] * (1 + number * 5 % 11) for number in range(400)]
        writer.add(sources, targets, [0] * 400)
    arranged = arrange(tmp_path, PairStore.open(tmp_path), WIDTH, pairs_per_block=64)
    pairs = unpacked(stream(arranged, rows_per_step=4, window=3).batch(3, 4))
    assert [source[0] for source, _ in pairs] == [352, 356, 369, 383, 387, 390, 391, 385, 394, 398, 362, 374, 382]


def test_epochs_and_seeds_differ(arranged: ArrangedRows) -> None:
    batches = stream(arranged)
    assert not equal(batches.batch(0, 3), batches.batch(1, 3))
    assert not equal(batches.batch(0, 3), batches.batch(0, 4))
    assert not equal(batches.batch(0, 3), stream(arranged, seed=2).batch(0, 3))


def test_a_window_is_read_before_the_next_and_well_mixed(arranged: ArrangedRows) -> None:
    order = BlockRows(arranged, seed=1, blocks_per_window=4)
    rows = order.rows(0, np.arange(order.count(0, None)))
    assert sorted(rows) == list(range(arranged.row_starts[-1]))
    blocks = np.searchsorted(arranged.row_starts, rows, side="right") - 1
    first_seen = list(dict.fromkeys(blocks.tolist()))
    windows = [set(first_seen[start : start + 4]) for start in range(0, 20, 4)]
    ends = np.flatnonzero([block in windows[0] for block in blocks])
    assert ends.tolist() == list(range(len(ends)))  # the first four blocks come first, and none of the others
    assert windows[0] != {0, 1, 2, 3}
    for start in range(0, len(rows) - 40, 40):  # all along, rows of several blocks stand side by side
        assert len(set(blocks[start : start + 40].tolist())) >= 3


def test_the_number_of_steps_is_known_at_once(arranged: ArrangedRows) -> None:
    batches = stream(arranged)
    assert batches.estimated_steps_in_epoch() == batches.steps_in_epoch(0)
    assert batches.remembered(Position(0, 5)) == {}
    assert batches.recall(None)


# ---------------------------------------------------------------------- rows beside the store


def test_rows_are_made_once_and_made_again_for_another_width(tmp_path: Path) -> None:
    store, told = random_store(tmp_path, 90), []
    first = arrange(tmp_path, store, WIDTH, tell=told.append)
    assert sum(told) == 90
    before = (tmp_path / MANIFEST).stat().st_mtime_ns
    arrange(tmp_path, store, WIDTH, tell=told.append)
    assert sum(told) == 90
    assert (tmp_path / MANIFEST).stat().st_mtime_ns == before
    with pytest.raises(CorpusError, match="another store, width"):
        ArrangedRows.open(tmp_path, store, 40)
    wide = arrange(tmp_path, store, 40, tell=told.append)
    assert sum(told) == 180
    assert wide.row_starts[-1] < first.row_starts[-1]
    assert not list(tmp_path.glob("*.partial"))


def test_rows_of_another_store_are_refused(tmp_path: Path) -> None:
    arrange(tmp_path, random_store(tmp_path, 90), WIDTH)
    other = random_store(tmp_path, 90, seed=1)
    with pytest.raises(CorpusError, match=r"another store.*heedful prepare"):
        ArrangedRows.open(tmp_path, other, WIDTH)
    assert arrange(tmp_path, other, WIDTH).tokens.sum() == other.target.num_tokens


@pytest.mark.parametrize("name", ["rows.json", "rows.blocks", "rows.offsets", "rows.members", "rows.tokens"])
def test_rows_that_are_missing_or_cut_short_are_named(tmp_path: Path, name: str) -> None:
    store = random_store(tmp_path, 90)
    arrange(tmp_path, store, WIDTH)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorpusError, match=name):
        ArrangedRows.open(tmp_path, store, WIDTH)
    path.unlink()
    with pytest.raises(CorpusError, match=name):
        ArrangedRows.open(tmp_path, store, WIDTH)
    arrange(tmp_path, store, WIDTH)
    ArrangedRows.open(tmp_path, store, WIDTH)


def test_nothing_to_learn_from(tmp_path: Path) -> None:
    for number, (size, weight, error) in enumerate([(0, 1, CorpusError), (9, 0, CorpusError), (9, -1, ConfigError)]):
        folder = tmp_path / str(number)
        store = random_store(folder, size, corpus_weights=[weight])
        with pytest.raises(error):
            BlockRows(arrange(folder, store, WIDTH), seed=1)
