"""The batch stream: every pair once an epoch, order a function of seed, epoch and step, equal on all ranks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.batch_stream import BatchStream, Position, fixed_batches, prefetch, worst_batch
from heedful.data.packing import Batch
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


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return random_store(tmp_path_factory.mktemp("store"), 400)


def stream(store: PairStore, **changes: Any) -> BatchStream:
    usual = {"width": 24, "rows_per_step": 6, "seed": 1, "bos_id": BOS, "pad_id": PAD, "pairs_per_block": 64}
    return BatchStream(store, **{**usual, **changes})


@settings(max_examples=25)
@given(rows=st.integers(1, 40), block=st.integers(1, 500), width=st.integers(12, 50), epoch=st.integers(0, 3))
def test_epoch_has_every_pair_once(store: PairStore, rows: int, block: int, width: int, epoch: int) -> None:
    batches = stream(store, rows_per_step=rows, pairs_per_block=block, width=width)
    pairs = epoch_pairs(batches, epoch)
    assert len(pairs) == len(store)
    assert set(pairs) == set(pairs_of(store, range(len(store))))


def test_only_the_last_batch_has_empty_rows(store: PairStore) -> None:
    batches = stream(store, rows_per_step=7)
    steps = batches.steps_in_epoch(0)
    used = [int((batches.batch(0, step).target_segments > 0).any(dim=1).sum()) for step in range(steps)]
    assert used[:-1] == [7] * (steps - 1)
    assert 1 <= used[-1] <= 7
    assert all(batches.batch(0, step).source.shape == (7, 24) for step in range(steps))


def test_batch_is_a_pure_function_of_seed_epoch_and_step(store: PairStore) -> None:
    used, fresh = stream(store), stream(store)
    for _ in islice(used.batches(), 40):  # earlier requests must not matter
        pass
    assert equal(used.batch(1, 5), fresh.batch(1, 5))
    assert equal(used.batch(0, 3), fresh.batch(0, 3))
    assert not equal(fresh.batch(0, 3), fresh.batch(1, 3))
    assert not equal(fresh.batch(0, 3), fresh.batch(0, 4))
    assert not equal(fresh.batch(0, 3), stream(store, seed=2).batch(0, 3))


def test_pair_shuffle_order_is_stable_across_versions(tmp_path: Path) -> None:
    """Saved positions must give the same batches in all versions; these pairs were recorded."""
    with StoreWriter(tmp_path, 1000, 1000) as writer:
        sources = [[number] * (1 + number * 7 % 12) for number in range(400)]
        targets = [[number] * (1 + number * 5 % 11) for number in range(400)]
        writer.add(sources, targets, [0] * 400)
    pairs = unpacked(stream(PairStore.open(tmp_path), rows_per_step=2).batch(3, 4))
    assert [source[0] for source, _ in pairs] == [252, 197, 9, 276, 273, 13, 160, 319, 40]


def test_batches_mix_the_whole_block(store: PairStore) -> None:
    """Packing puts long pairs into the first rows; the stream must shuffle the rows."""
    batches = stream(store, pairs_per_block=400, rows_per_step=10)
    steps = batches.steps_in_epoch(0)
    mean = [len(unpacked(batches.batch(0, step))) for step in range(steps - 1)]
    first, second = sum(mean[: len(mean) // 2]), sum(mean[len(mean) // 2 : len(mean) // 2 * 2])
    assert 0.75 < first / second < 1.33


@pytest.mark.parametrize("start", [(0, 0), (0, 9), (1, 0), (1, 4)])
def test_resuming_needs_only_the_position(store: PairStore, start: tuple[int, int]) -> None:
    whole = dict(islice(stream(store).batches(), 60))
    resumed = list(islice(stream(store).batches(*start), 12))
    assert resumed[0][0] == Position(*start)
    for position, batch in resumed:
        assert equal(batch, whole[position])


def test_position_after_the_last_step_is_the_next_epoch(store: PairStore) -> None:
    batches = stream(store)
    steps = batches.steps_in_epoch(0)
    position, batch = next(batches.batches(0, steps))
    assert position == Position(1, 0)
    assert equal(batch, batches.batch(1, 0))
    with pytest.raises(CorpusError, match=f"epoch 0 ends after {steps} steps"):
        next(batches.batches(0, steps + 1))
    for step in (-1, steps):
        with pytest.raises(IndexError):
            batches.batch(0, step)


@pytest.mark.parametrize("world_size", [2, 3, 4, 6, 8])
def test_ranks_divide_the_rows_of_each_step(store: PairStore, world_size: int) -> None:
    """Six rows that cannot be divided evenly are padded with empty rows; all ranks know the tokens of the step."""
    single = stream(store)
    ranks = [stream(store, rank=rank, world_size=world_size) for rank in range(world_size)]
    for step in range(single.steps_in_epoch(0)):  # in the last step some ranks have only empty rows
        parts = [rank.batch(0, step) for rank in ranks]
        whole = single.batch(0, step)
        for name, tensor in vars(whole).items():
            rows = torch.stack([vars(part)[name] for part in parts], dim=1).flatten(0, 1)
            assert rows[: len(tensor)].equal(tensor)
            assert len(rows) - len(tensor) < world_size
            assert "segments" not in name or not rows[len(tensor) :].any()
        assert {rank.num_tokens(0, step) for rank in ranks} == {whole.num_tokens}


@settings(max_examples=40, deadline=None)
@given(
    mixed=mixed_corpora(),
    world_size=st.integers(1, 9),
    rows_of_a_rank=st.integers(1, 7),
    block=st.integers(5, 200),
    seed=st.integers(0, 2**32),
)
def test_pair_shuffle_shows_each_pair_as_often_as_its_weight_on_any_number_of_ranks(
    mixed: tuple[list[int], list[float]], world_size: int, rows_of_a_rank: int, block: int, seed: int
) -> None:
    corpora, weights = mixed
    with TemporaryDirectory() as folder:
        store = random_store(Path(folder), len(corpora), corpora=corpora, corpus_weights=weights)
        changes = {"rows_per_step": world_size * rows_of_a_rank, "pairs_per_block": block, "seed": seed}
        ranks = [stream(store, rank=rank, world_size=world_size, **changes) for rank in range(world_size)]
        seen: Counter[int] = Counter()
        for epoch in range(4):  # after four epochs every quarter has been shown
            steps = {rank.steps_in_epoch(epoch) for rank in ranks}
            assert len(steps) == 1
            counts = Counter(number_of(pair) for rank in ranks for pair in epoch_pairs(rank, epoch))
            if all(weight == 1 for weight in weights):
                assert counts == Counter(range(len(store)))
            for number, corpus in enumerate(corpora):
                assert int(weights[corpus]) <= counts[number] <= -int(-weights[corpus] // 1)
            seen += counts
        assert seen == Counter({number: int(4 * weights[corpus]) for number, corpus in enumerate(corpora)})


def test_weights_repeat_and_skip_pairs(tmp_path: Path) -> None:
    store = random_store(tmp_path, 90, corpora=[0] * 30 + [1] * 60, corpus_weights=[2, 0.5])
    batches = stream(store)
    first, second = (Counter(map(number_of, epoch_pairs(batches, epoch))) for epoch in (0, 1))
    for counts in (first, second):
        assert all(counts[number] == 2 for number in range(30))
        assert sum(counts[number] for number in range(30, 90)) == 30
    assert all(first[number] + second[number] == 1 for number in range(30, 90))


def test_epochs_without_pairs_are_skipped(tmp_path: Path) -> None:
    batches = stream(random_store(tmp_path, 2, corpus_weights=[0.25]))
    assert [batches.steps_in_epoch(epoch) for epoch in range(4)] == [0, 1, 0, 1]
    assert [position for position, _ in islice(batches.batches(), 3)] == [(1, 0), (3, 0), (5, 0)]


def test_estimated_steps_are_close(store: PairStore) -> None:
    batches = stream(store)
    assert batches.estimated_steps_in_epoch() == pytest.approx(batches.steps_in_epoch(0), rel=0.15)
    assert stream(store, pairs_per_block=400).estimated_steps_in_epoch() == stream(
        store, pairs_per_block=400
    ).steps_in_epoch(0)


def test_sentences_longer_than_a_row_are_refused(store: PairStore) -> None:
    with pytest.raises(ConfigError, match=r"row_width is 8.*12 tokens.*row_width=12"):
        stream(store, width=8)
    with pytest.raises(ConfigError, match="row_width"):
        next(fixed_batches(store, 8, 4, BOS, PAD))


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_divide_the_fixed_batches(store: PairStore, world_size: int) -> None:
    whole = list(fixed_batches(store, 24, 6, BOS, PAD))
    for name in vars(whole[0]):
        shares = [list(fixed_batches(store, 24, 5, BOS, PAD, rank=r, world_size=world_size)) for r in range(world_size)]
        for batch, *parts in zip(whole, *shares, strict=True):
            rows = torch.stack([vars(part)[name] for part in parts], dim=1).flatten(0, 1)
            assert rows.equal(vars(batch)[name])


@pytest.mark.parametrize("changes", [{"rows_per_step": 0}, {"world_size": 2, "rank": 2}])
def test_invalid_rank_or_rows_per_step_is_refused(store: PairStore, changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is not possible"):
        stream(store, **changes)


@pytest.mark.parametrize(("rows", "block"), [(5, 64), (100, 64), (7, 1000), (1, 3)])
def test_fixed_batches_have_every_pair_once_and_never_change(store: PairStore, rows: int, block: int) -> None:
    batches = list(fixed_batches(store, 24, rows, BOS, PAD, pairs_per_block=block))
    assert all(batch.source.shape == (rows, 24) for batch in batches)
    pairs = [pair for batch in batches for pair in unpacked(batch)]
    assert sorted(pairs) == sorted(pairs_of(store, range(len(store))))
    empty = [int((batch.target_segments == 0).all(dim=1).sum()) for batch in batches]
    assert not any(empty[:-1])
    again = list(fixed_batches(store, 24, rows, BOS, PAD, pairs_per_block=block))
    assert len(again) == len(batches)
    assert all(map(equal, batches, again))


def test_fixed_batches_of_an_empty_store(tmp_path: Path) -> None:
    assert list(fixed_batches(random_store(tmp_path, 0), 24, 4, BOS, PAD)) == []


def test_worst_batch_is_full() -> None:
    batch = worst_batch(3, 50, 11, 90)
    assert batch.num_tokens == 150
    assert (batch.source_segments == 1).all()
    assert batch.source_positions[2].tolist() == list(range(50))
    for ids, size in ((batch.source, 11), (batch.target_input, 90), (batch.target_output, 90)):
        assert ids.shape == (3, 50)
        assert ids.min() >= 0
        assert ids.max() < size


# ---- prefetching -----------------------------------------------------------------------------------------------------


def prefetch_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


def numbered(count: int) -> Iterator[tuple[Position, Batch]]:
    for step in range(count):
        yield Position(0, step), worst_batch(1, step + 1, 9, 9)


def test_prefetch_yields_the_same_batches_in_the_same_order(tmp_path: Path) -> None:
    stream = BatchStream(random_store(tmp_path, 100), width=24, rows_per_step=4, seed=1, bos_id=BOS, pad_id=PAD)
    fetched = prefetch(stream.batches(), depth=3)
    for (position, batch), (other_position, other) in zip(
        islice(fetched, 30), islice(stream.batches(), 30), strict=True
    ):
        assert position == other_position
        assert equal(batch, other)
    fetched.close()
    assert prefetch_threads() == []


def test_prefetch_of_a_finite_iterator_ends() -> None:
    assert [position.step for position, _ in prefetch(numbered(7), depth=2)] == list(range(7))
    assert prefetch_threads() == []


def test_prefetch_builds_at_most_depth_batches_ahead() -> None:
    made: list[int] = []
    enough = threading.Event()

    def watched() -> Iterator[tuple[Position, Batch]]:
        for item in numbered(100):
            made.append(item[0].step)
            if len(made) == 4:
                enough.set()
            yield item

    fetched = prefetch(watched(), depth=2)
    next(fetched)
    assert enough.wait(timeout=30)  # one returned, two in the queue, one being built
    threading.Event().wait(0.25)
    assert made == [0, 1, 2, 3]
    fetched.close()
    assert prefetch_threads() == []


def test_prefetch_raises_errors_after_the_batches_before_them() -> None:
    def broken() -> Iterator[tuple[Position, Batch]]:
        yield from numbered(3)
        raise RuntimeError("the disk is gone")

    fetched = prefetch(broken(), depth=1)
    assert [next(fetched)[0].step for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        next(fetched)
    assert prefetch_threads() == []


def test_closing_prefetch_ends_its_thread() -> None:
    for _ in prefetch(numbered(1000), depth=2):
        assert prefetch_threads() == ["prefetch"]
        break
    assert prefetch_threads() == []


@pytest.mark.gpu
def test_prefetch_pins_memory() -> None:
    for _, batch in prefetch(numbered(3), pin_memory=True):
        assert batch.source.is_pinned()
        assert torch.equal(batch.to("cuda", non_blocking=True).source.cpu(), batch.source)
