"""Row counts that were remembered make going on quick; those of anything else are never believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_stores import BOS, PAD, equal, random_store

from heedful.data import pair_shuffle
from heedful.data.batch_stream import BatchStream, Position
from heedful.data.store import PairStore

FAR = Position(epoch=1, step=50)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return random_store(tmp_path_factory.mktemp("store"), 400)


def stream(store: PairStore, **changes: Any) -> BatchStream:
    usual = {"width": 24, "rows_per_step": 2, "seed": 1, "bos_id": BOS, "pad_id": PAD, "pairs_per_block": 32}
    return BatchStream(store, **{**usual, **changes})


@pytest.fixture(scope="module")
def remembered(store: PairStore) -> Any:
    batches = stream(store)
    batches.batch(*FAR)
    batches.batch(FAR.epoch, FAR.step + 10)  # what is known beyond the position does not matter
    return json.loads(json.dumps(batches.remembered(FAR)))


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pairs each packing since had."""
    sizes: list[int] = []
    pack = pair_shuffle.pack
    monkeypatch.setattr(pair_shuffle, "pack", lambda *lengths: sizes.append(len(lengths[0])) or pack(*lengths))
    return sizes


def test_going_on_packs_only_the_blocks_at_the_position(store: PairStore, remembered: Any, packings: list[int]) -> None:
    slow = stream(store)
    expected = slow.batch(*FAR)
    assert len(packings) > 6
    assert len(remembered["row_counts"]) >= len(packings) - 1
    packings.clear()
    quick = stream(store)
    assert quick.recall(remembered)
    assert equal(quick.batch(*FAR), expected)
    assert len(packings) <= 2
    assert quick.steps_in_epoch(1) == slow.steps_in_epoch(1)
    assert quick.steps_in_epoch(0) == slow.steps_in_epoch(0)


def test_what_is_remembered_depends_on_the_position_alone(store: PairStore, remembered: Any) -> None:
    fresh = stream(store, rank=1, world_size=2)
    fresh.batch(*FAR)
    assert fresh.remembered(FAR) == remembered
    assert stream(store).remembered(Position(0, 0))["row_counts"] == []


@pytest.mark.parametrize("changes", [{"seed": 2}, {"width": 25}, {"pairs_per_block": 64}])
def test_other_settings_are_not_believed(store: PairStore, remembered: Any, changes: dict[str, int]) -> None:
    assert not stream(store, **changes).recall(remembered)


def test_another_corpus_is_not_believed(tmp_path: Path, remembered: Any) -> None:
    assert stream(random_store(tmp_path / "same", 400)).recall(remembered)
    assert not stream(random_store(tmp_path / "lengths", 400, seed=1)).recall(remembered)
    assert not stream(random_store(tmp_path / "weights", 400, corpus_weights=[1.5])).recall(remembered)
    half, other = [0] * 200 + [1] * 200, [0] * 201 + [1] * 199
    stores = [random_store(tmp_path / str(sum(c)), 400, corpora=c, corpus_weights=[1, 2]) for c in (half, other)]
    kept = stream(stores[0])
    kept.batch(*FAR)
    assert stream(stores[0]).recall(kept.remembered(FAR))
    assert not stream(stores[1]).recall(kept.remembered(FAR))


def test_a_store_that_does_not_tell_its_digest_is_known_by_its_offsets(tmp_path: Path, remembered: Any) -> None:
    """Stores written before there were digests."""
    random_store(tmp_path, 400)
    manifest = json.loads((tmp_path / "store.json").read_text())
    for side in ("source", "target"):
        assert len(manifest[side].pop("offsets_sha256")) == 64
    (tmp_path / "store.json").write_text(json.dumps(manifest))
    assert stream(PairStore.open(tmp_path)).recall(remembered)


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
def test_what_is_missing_or_damaged_is_worked_out_again(store: PairStore, remembered: Any, damage: Any) -> None:
    batches = stream(store)
    assert not batches.recall({**remembered, **damage} if damage else damage)
    assert equal(batches.batch(*FAR), stream(store).batch(*FAR))


@pytest.mark.parametrize("change", [1, -1])
def test_a_last_count_that_is_wrong_is_found_out(store: PairStore, remembered: Any, change: int) -> None:
    counts = remembered["row_counts"]
    for wrong in ([*counts[:-1], counts[-1] + change], [*counts, *[5] * 20], [0, *counts[1:]]):
        assert not stream(store).recall({**remembered, "row_counts": wrong})
