"""Saving and loading checkpoints, damaged ones, and averages of weights."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heedful import atomic_files
from heedful.config import Config
from heedful.errors import TrainingError
from heedful.training import checkpoint as checkpoint_module
from heedful.training.checkpoint import (
    MovingAverage,
    StoredTensors,
    TrainingState,
    average_weights,
    copy_weights,
    gather_random_states,
    load_state,
    random_states,
    record_run,
    remove_run,
    restore_random,
    restore_rank_random,
    save_state,
    saved_steps,
)
from heedful.training.distributed import World
from tests.training.small_runs import CPU, build, same


class Killed(BaseException):
    """Simulates the end of the process."""


def some_state(number: int) -> TrainingState:
    tensors = {
        "weights": torch.arange(12.0).reshape(3, 4).T + number,  # not contiguous
        "count": torch.tensor(float(number)),
        "bytes": torch.arange(7, dtype=torch.uint8),
    }
    return TrainingState(tensors, {"number": number, "nested": {"share": 0.1 + number, "none": None}})


def load(directory: Path, notes: list[str] | None = None) -> TrainingState:
    state = load_state(directory, (notes if notes is not None else []).append)
    assert state is not None
    return state


def test_checkpoint_roundtrip(tmp_path: Path) -> None:
    state = some_state(3)
    save_state(tmp_path / "states", 3, state)
    loaded = load(tmp_path / "states")
    assert same(loaded.tensors, state.tensors)
    assert loaded.values == state.values


def test_load_state_without_checkpoint_returns_none(tmp_path: Path) -> None:
    assert load_state(tmp_path / "nowhere", pytest.fail) is None


def test_two_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 9, 10, 11):
        save_state(tmp_path, step, some_state(step))
    assert [path.name for path in saved_steps(tmp_path)] == ["step-000000010", "step-000000011"]
    assert load(tmp_path).values["number"] == 11
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000010", "step-000000011"]


def test_same_step_can_be_saved_again(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save_state(tmp_path, 5, some_state(number))
        assert load(tmp_path).values["number"] == number
    assert len(saved_steps(tmp_path)) == 2
    save_state(tmp_path, 6, some_state(6))
    assert [path.name for path in saved_steps(tmp_path)] == ["step-000000005", "step-000000006"]


OPERATIONS: list[tuple[Any, str]] = [
    (Path, "mkdir"),
    (os, "replace"),
    (os, "fsync"),
    (shutil, "rmtree"),
    (atomic_files, "fsync_path"),
    (checkpoint_module, "write_durably"),
]


@pytest.mark.parametrize(("owner", "name"), OPERATIONS, ids=[name for _, name in OPERATIONS])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("again", [True, False], ids=["same_step", "next_step"])
def test_kill_at_any_file_operation_keeps_a_complete_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: bool, again: bool
) -> None:
    """After a kill at any file operation, the old or the new checkpoint is complete."""
    original = getattr(owner, name)
    for survived in range(12):
        directory = tmp_path / str(survived)
        save_state(directory, 4, some_state(4))
        left = survived

        def dying(*arguments: Any, **settings: Any) -> Any:
            nonlocal left
            if left == 0 and before:
                raise Killed
            result = original(*arguments, **settings)
            left -= 1
            if left < 0:
                raise Killed
            return result

        monkeypatch.setattr(owner, name, dying)
        killed = False
        try:
            save_state(directory, 4 if again else 5, some_state(5))
        except Killed:
            killed = True
        finally:
            monkeypatch.setattr(owner, name, original)
        notes: list[str] = []
        number = load(directory, notes).values["number"]
        assert not notes
        assert number in ((4, 5) if killed else (5,))
        save_state(directory, 6, some_state(6))  # the next save removes leftovers
        assert load(directory).values["number"] == 6
        assert not list(directory.glob("incomplete-*"))
        if not killed:
            assert survived > 0, "the operation was never used"
            return
    pytest.fail("more operations than expected")


def damage_flip(path: Path) -> None:
    data = bytearray((path / "tensors.safetensors").read_bytes())
    data[-3] ^= 1
    (path / "tensors.safetensors").write_bytes(bytes(data))


def damage_cut(path: Path) -> None:
    with (path / "tensors.safetensors").open("r+b") as file:
        file.truncate(40)


def damage_json(path: Path) -> None:
    with (path / "state.json").open("r+b") as file:
        file.truncate(25)


def damage_missing(path: Path) -> None:
    (path / "tensors.safetensors").unlink()


def damage_empty(path: Path) -> None:
    (path / "state.json").write_text("[]")


def damage_version(path: Path) -> None:
    text = (path / "state.json").read_text()
    (path / "state.json").write_text(text.replace('"format_version": 4', '"format_version": 99'))


def damage_value(path: Path) -> None:
    text = (path / "state.json").read_text()
    assert '"number": 5' in text
    (path / "state.json").write_text(text.replace('"number": 5', '"number": 1'))


def damage_key(path: Path) -> None:
    text = (path / "state.json").read_text()
    (path / "state.json").write_text(text.replace('"number"', '"lumber"'))


DAMAGES = [damage_value, damage_key, damage_flip, damage_cut, damage_json, damage_missing, damage_empty, damage_version]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_falls_back_to_previous(tmp_path: Path, damage: Any) -> None:
    for step in (4, 5):
        save_state(tmp_path, step, some_state(step))
    damage(tmp_path / "step-000000005")
    notes: list[str] = []
    assert load(tmp_path, notes).values["number"] == 4
    assert len(notes) == 1
    assert "step-000000005" in notes[0]

    save_state(tmp_path, 4, some_state(4))  # the resumed run replaces the damaged checkpoint
    assert [path.name for path in saved_steps(tmp_path)] == ["step-000000004.replaced", "step-000000004"]


def test_all_checkpoints_damaged_raises(tmp_path: Path) -> None:
    for step in (4, 5):
        save_state(tmp_path, step, some_state(step))
        damage_flip(tmp_path / f"step-{step:09d}")
    notes: list[str] = []
    with pytest.raises(TrainingError, match="no checkpoint is readable; remove this directory"):
        load_state(tmp_path, notes.append)
    assert len(notes) == 2


def test_random_states_are_restored() -> None:
    kept = random_states(CPU)
    first = torch.rand(5)
    restore_random(kept, CPU)
    assert torch.equal(torch.rand(5), first)


def test_checkpoint_is_flushed_before_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files, its folder's names, then the name of the folder itself."""
    events: list[str] = []
    for owner, name in ((atomic_files, "fsync_path"), (checkpoint_module, "write_durably"), (os, "replace")):
        original = getattr(owner, name)

        def watched(path: Path, *rest: Any, original: Any = original, name: str = name) -> Any:
            events.append(f"{name} {path.name}")
            return original(path, *rest)

        monkeypatch.setattr(owner, name, watched)
    save_state(tmp_path, 5, some_state(5))
    assert events == [
        "write_durably tensors.safetensors",
        "write_durably state.json",
        "fsync_path incomplete-000000005",
        "replace incomplete-000000005",
        f"fsync_path {tmp_path.name}",
    ]


@pytest.mark.parametrize("name", ["seed", "tokens_per_step", "ema_decay", "optimizer", "label_smoothing", "r_drop"])
def test_resume_refuses_changed_settings(tmp_path: Path, name: str) -> None:
    others = {"optimizer": "muon", "seed": 7, "tokens_per_step": 77, "ema_decay": 0.5}
    begun = Config()
    changed = replace(begun, training=replace(begun.training, **{name: others.get(name, 0.25)}))
    record_run(tmp_path / "run.json", begun, {"corpora": []}, resumed=False)
    record_run(tmp_path / "run.json", begun, {"corpora": []}, resumed=True)
    with pytest.raises(TrainingError, match=rf"training\.{name} was"):
        record_run(tmp_path / "run.json", changed, {"corpora": []}, resumed=True)


@dataclass(frozen=True)
class ThreadRank(World):
    """A rank as a thread of this process."""

    slots: list[Any] = field(default_factory=list)
    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))

    def exchange(self, value: Any) -> list[Any]:
        self.slots[self.rank] = value
        self.meeting.wait()
        values = list(self.slots)
        self.meeting.wait()
        return values

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        tensors = self.exchange(tensor)
        assert {(one.shape, one.dtype) for one in tensors} == {(tensor.shape, tensor.dtype)}
        return tensors

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        return [max(column) for column in zip(*self.exchange(values), strict=True)]

    def broadcast(self, value: Any) -> Any:
        return self.exchange(value)[0]


def on_ranks(size: int, work: Callable[[World], Any]) -> list[Any]:
    """What `work` returns on each of several ranks."""
    slots, meeting = [None] * size, threading.Barrier(size, timeout=30)
    with ThreadPoolExecutor(size) as pool:
        calls = [pool.submit(work, ThreadRank(CPU, rank, size, None, slots, meeting)) for rank in range(size)]
        return [call.result() for call in calls]


WHOLE = torch.arange(21.0).reshape(7, 3)


def save_sharded(directory: Path, step: int, world: World) -> None:
    """Save `WHOLE + step`, whose rows are divided among the ranks, and a replicated tensor."""
    begin, end = world.row_range(7)
    tensors = {"model.weights": WHOLE[begin:end] + step, "model.count": torch.tensor(float(step))}
    save_state(directory, step, TrainingState(tensors, {"step": step}, {"model.weights": 7}), world)


@pytest.mark.parametrize("num_readers", [1, 2, 3, 4])
def test_sharded_checkpoint_is_read_by_any_number_of_ranks(tmp_path: Path, num_readers: int) -> None:
    on_ranks(3, lambda world: save_sharded(tmp_path, 5, world))
    names = sorted(path.name for path in (tmp_path / "step-000000005").iterdir())
    assert names == ["state.json", *(f"tensors-{number:05d}-of-00003.safetensors" for number in (1, 2, 3))]
    alone = load(tmp_path)
    assert len(alone.tensors) == 2 and torch.equal(alone.tensors["model.weights"], WHOLE + 5)

    def read(world: World) -> None:
        state = load_state(tmp_path, pytest.fail, world)
        assert state is not None and state.values == {"step": 5}
        part, (begin, end) = state.part("model.", world, {"model.weights": 7}), world.row_range(7)
        assert part.keys() == {"weights", "count"} and part["count"] == 5
        assert torch.equal(part["weights"], WHOLE[begin:end] + 5)

    on_ranks(num_readers, read)


def test_checkpoint_without_sharded_tensors_is_one_file(tmp_path: Path) -> None:
    on_ranks(2, lambda world: save_state(tmp_path, 5, some_state(5), world))
    names = sorted(path.name for path in (tmp_path / "step-000000005").iterdir())
    assert names == ["state.json", "tensors.safetensors"]
    assert load(tmp_path).values["number"] == 5


def test_any_range_of_rows_is_read_from_sharded_checkpoint(tmp_path: Path) -> None:
    on_ranks(3, lambda world: save_sharded(tmp_path, 5, world))
    tensors = load(tmp_path).tensors
    assert isinstance(tensors, StoredTensors)
    for begin in range(8):
        for end in range(begin, 8):
            assert torch.equal(tensors.rows("model.weights", begin, end), WHOLE[begin:end] + 5), (begin, end)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_damaged_shard_makes_all_ranks_use_the_previous_checkpoint(tmp_path: Path, number: int) -> None:
    for step in (4, 5):
        on_ranks(3, lambda world, step=step: save_sharded(tmp_path, step, world))  # type: ignore[misc]
    path = tmp_path / f"step-000000005/tensors-{number:05d}-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    notes: list[str] = []
    states = on_ranks(2, lambda world: load_state(tmp_path, notes.append, world))
    assert [state.values for state in states] == [{"step": 4}] * 2
    assert len(notes) == 2 and all("step-000000005 is damaged" in note for note in notes)


def test_random_states_of_all_ranks_are_restored() -> None:
    states = [torch.get_rng_state() for _ in range(2) if torch.rand(1) >= 0]

    class Gathering(World):
        def all_gather(self, tensor: Tensor) -> list[Tensor]:
            return states

    tensors = gather_random_states(Gathering(CPU, 0, 2))
    assert tensors.keys() == {"random.cpu", "random.1.cpu"}
    drawn = []
    for rank in range(2):
        restore_rank_random(tensors, World(CPU, rank, 2), seed=9)
        drawn.append(torch.rand(3))
        torch.set_rng_state(states[rank])
        assert torch.equal(drawn[-1], torch.rand(3))
    assert not torch.equal(*drawn)


def test_rank_without_random_state_starts_from_the_seed() -> None:
    torch.manual_seed(9)
    expected = torch.rand(3)
    restore_rank_random({"random.cpu": torch.get_rng_state()}, World(CPU, 2, 3), seed=9)
    assert torch.equal(torch.rand(3), expected)


def test_resume_refuses_another_initial_model_and_changed_corpora(tmp_path: Path) -> None:
    path, config = tmp_path / "run.json", Config()
    config = replace(config, training=replace(config.training, init_from="base"))
    report = {"corpora": [{"files": [{"path": "a.txt", "sha256": "12"}]}]}
    changed_report = {"corpora": [{"files": [{"path": "a.txt", "sha256": "13"}]}]}
    record_run(path, config, report, resumed=False, initial_model="one")
    record_run(path, config, report, resumed=True, initial_model="one")
    with pytest.raises(TrainingError, match=r"base has changed since this run started"):
        record_run(path, config, report, resumed=True, initial_model="two")
    with pytest.raises(TrainingError, match=r"a\.txt has changed since this run started"):
        record_run(path, config, changed_report, resumed=True, initial_model="one")
    path.write_text("{")
    with pytest.raises(TrainingError, match="cannot read the settings of the run"):
        record_run(path, config, report, resumed=True, initial_model="one")


def test_resume_names_init_from_before_the_model_that_follows_from_it(tmp_path: Path) -> None:
    path, config = tmp_path / "run.json", Config()
    record_run(path, config, {"corpora": []}, resumed=False)
    larger = replace(config, model=replace(config.model, d_ff=64))
    with pytest.raises(TrainingError, match=r"model\.d_ff was 2048 .* is 64 now"):
        record_run(path, larger, {"corpora": []}, resumed=True)
    continued = replace(larger, training=replace(config.training, init_from="base"))
    with pytest.raises(TrainingError, match=r"training\.init_from was None"):
        record_run(path, continued, {"corpora": []}, resumed=True)


def test_remove_run_keeps_prepared_corpora(tmp_path: Path) -> None:
    for name in ("states", "snapshots", "tensorboard", "prepared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    remove_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["prepared"]


def test_average_weights_averages_every_tensor() -> None:
    sets = [
        {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(5.0)},
        {"a": torch.tensor([3.0, 8.0]), "b": torch.tensor(0.0)},
    ]
    mean = average_weights(sets)
    assert mean["a"].tolist() == [2.0, 5.0]
    assert float(mean["b"]) == 2.5


def test_average_weights_sums_in_double_precision() -> None:
    values = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8])]
    assert float(average_weights({"a": value} for value in values)["a"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_average_of_equal_weights_is_bitwise_equal(count: int) -> None:
    weights = copy_weights(build())
    assert same(average_weights([weights] * count), weights)


def test_average_weights_reads_one_state_dict_at_a_time() -> None:
    alive = []

    def sets() -> Iterator[dict[str, Tensor]]:
        for number in range(3):
            alive.append(number)
            yield {"a": torch.tensor(float(number))}

    assert float(average_weights(sets())["a"]) == 1.0
    assert alive == [0, 1, 2]


def test_average_of_nothing_raises() -> None:
    with pytest.raises(ValueError, match="no weights"):
        average_weights([])


def test_moving_average_follows_formula() -> None:
    model = nn.Linear(3, 2)
    average = MovingAverage(model, 0.6)
    mine = copy_weights(model)
    for number in range(1, 30):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update()
        decay = min(0.6, (1 + number) / (10 + number))
        mine = {name: decay * mine[name] + (1 - decay) * weight for name, weight in model.state_dict().items()}
        for name, tensor in average.weights.items():
            torch.testing.assert_close(tensor, mine[name])
    assert average.num_updates == 29


def test_moving_average_of_constant_model_equals_model() -> None:
    model = build()
    average = MovingAverage(model, 0.99)
    for _ in range(20):
        average.update()
    assert same(average.weights, model.state_dict())


def test_copy_weights_does_not_share_memory() -> None:
    model = nn.Linear(2, 2)
    copied, average = copy_weights(model), MovingAverage(model, 0.5)
    before = {name: tensor.clone() for name, tensor in copied.items()}
    with torch.no_grad():
        model.weight.add_(1)
    assert same(copied, before)
    assert same(average.weights, before)
