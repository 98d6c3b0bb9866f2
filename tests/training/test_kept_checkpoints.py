"""`training.keep_checkpoints`: which steps are kept, and that keeping them changes nothing else."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from heedful import Translator, training_pipeline
from heedful.cli.models import info_rows
from heedful.data.store import PairStore
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.interop.export import repack
from heedful.model_dir import describe, load_weights, save_load, verify
from heedful.model_dir.checkpoints import list_checkpoints
from heedful.training.checkpoint import load_state
from heedful.training.kept_checkpoints import KeptCheckpoints
from tests.test_training_pipeline import request_for
from tests.training.small_runs import Publisher, copying_store, make_loop, same

ROOT = Path(__file__).parents[2]


# ---- which steps


def kept_steps(directory: Path, count: int, *, length: int, stops: tuple[int, ...] = ()) -> list[int]:
    """The steps that a run of this length keeps; it is resumed at `stops` from what it knew there."""
    kept = KeptCheckpoints(directory, count)
    for step in range(length + 1):
        if kept.is_due(step):
            kept.add(step, None)
        if step in stops:
            resumed = KeptCheckpoints(directory, count)
            resumed.restore(json.loads(json.dumps(kept.steps)), is_writer=False)
            kept = resumed
    if kept.steps[-1] != length:
        kept.add(length, None)
    return kept.steps


@given(count=st.integers(2, 24), length=st.integers(1, 5000), stop=st.integers(0, 5000))
def test_steps_are_spread_for_every_length(count: int, length: int, stop: int) -> None:
    steps = kept_steps(Path("unused"), count, length=length)
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, length)
    assert len(steps) <= count
    if length >= count**3:  # room for an even spread of the cube roots
        assert len(steps) >= count - 1
        gaps = [after ** (1 / 3) - before ** (1 / 3) for before, after in itertools.pairwise(steps)]
        assert max(gaps) <= 2 * length ** (1 / 3) / (count - 1)
    assert kept_steps(Path("unused"), count, length=length, stops=(stop,)) == steps


def test_most_checkpoints_are_of_the_start(tmp_path: Path) -> None:
    assert kept_steps(tmp_path, 10, length=1000) == [0, 1, 8, 38, 79, 161, 328, 468, 667, 1000]
    assert kept_steps(tmp_path, 2, length=1000) == [0, 1000]


@pytest.mark.parametrize("count", [1, -1, 1001])
def test_impossible_counts_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ConfigError, match=r"training\.keep_checkpoints must be at (least 2|most 1,000)"):
        training_pipeline.train(request_for(tmp_path, tmp_path / "model", training__keep_checkpoints=count))


# ---- the loop


class Writer(Publisher):
    """Publishes the model of the run, and writes checkpoints as the tensors alone."""

    def publish(self, weights: Any, kind: str, numbers: dict[str, Any], directory: Path | None = None) -> None:
        if directory is None:
            super().publish(weights, kind, numbers)
            return
        directory.mkdir(parents=True)
        (directory / "config.json").write_text(json.dumps([kind, numbers]))
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, directory / "tensors")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return copying_store(tmp_path_factory.mktemp("store"), 30)


SETTINGS: dict[str, Any] = {"steps": 40, "validate_every": 7, "ema_decay": 0.9, "average_last": 2, "clip_norm": 1.0}


class Died(BaseException):
    """The process ends here."""


def run(directory: Path, store: PairStore, *, die_at: int | None = None, **changes: Any) -> dict[str, Tensor]:
    """Continue from whatever is saved; the final state without the clock."""
    publisher = Writer()
    loop = make_loop(directory / "training", store, publisher=publisher, **{**SETTINGS, **changes})
    state = load_state(directory / "training" / "states", pytest.fail)
    if state is not None:
        loop.restore(state)
    advance = loop._advance

    def die_there(*arguments: Any) -> None:
        advance(*arguments)
        if loop.progress.steps == die_at:
            raise Died

    loop._advance = die_there  # type: ignore[method-assign]
    loop.run()
    tensors = {f"published.{name}": tensor for name, tensor in publisher.weights.items()}
    return {**tensors, **{name: tensor.clone() for name, tensor in loop.state().tensors.items()}}


def files_of(directory: Path) -> dict[str, bytes]:
    """Every file below `checkpoints/`."""
    folder = directory / "checkpoints"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_training_is_the_same_with_and_without_checkpoints(tmp_path: Path, store: PairStore) -> None:
    without = run(tmp_path / "without", store)
    assert not (tmp_path / "without" / "checkpoints").exists()
    assert same(run(tmp_path / "with", store, keep_checkpoints=5), without)
    assert [one.step for one in list_checkpoints(tmp_path / "with")] == kept_steps(tmp_path, 5, length=40)


@pytest.mark.parametrize("deaths", [[3], [6, 13], [30], [40]], ids=str)
def test_killed_and_resumed_run_keeps_the_same(tmp_path: Path, store: PairStore, deaths: list[int]) -> None:
    run(tmp_path / "whole", store, keep_checkpoints=6)
    for step in deaths:
        with pytest.raises(Died):
            run(tmp_path / "parts", store, keep_checkpoints=6, die_at=step)
    run(tmp_path / "parts", store, keep_checkpoints=6)
    whole = files_of(tmp_path / "whole")
    assert len(whole) == 12
    assert files_of(tmp_path / "parts") == whole


def test_checkpoints_are_those_of_the_moving_average_where_there_is_one(tmp_path: Path, store: PairStore) -> None:
    for name, decay in (("ema", 0.9), ("last", 0.0)):
        final = run(tmp_path / name, store, keep_checkpoints=3, ema_decay=decay)
        place = list_checkpoints(tmp_path / name)[-1].directory
        kind, numbers = json.loads((place / "config.json").read_text())
        assert (kind, numbers["steps"]) == (name, 40)
        prefix = "average." if name == "ema" else "model."
        expected = {key.removeprefix(prefix): tensor for key, tensor in final.items() if key.startswith(prefix)}
        assert same(load_file(place / "tensors"), expected)


def test_run_that_stops_early_keeps_its_last_step(
    tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 2.0, *[4.0] * 40])
    monkeypatch.setattr("heedful.training.loop.validate", lambda *arguments, **settings: next(losses))
    run(tmp_path, store, keep_checkpoints=5, steps=1000, validate_every=5, early_stopping=4)
    steps = [one.step for one in list_checkpoints(tmp_path)]
    assert steps == kept_steps(tmp_path, 5, length=30)


def test_count_may_change_when_a_run_is_resumed(tmp_path: Path, store: PairStore) -> None:
    run(tmp_path, store, keep_checkpoints=8, steps=20)
    before = files_of(tmp_path)
    run(tmp_path, store, keep_checkpoints=0, steps=30)
    assert files_of(tmp_path) == before
    run(tmp_path, store, keep_checkpoints=4, steps=60)
    steps = [one.step for one in list_checkpoints(tmp_path)]
    assert len(steps) == 4
    assert (steps[0], steps[-1]) == (0, 60)


# ---- model directories


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    request = request_for(folder, folder / "model", training__keep_checkpoints=4, training__ema_decay=0.0)
    request["training"] |= {"final_weights": "last", "average_last": 0}
    training_pipeline.train(request, quiet=True)
    return folder / "model"


def test_each_checkpoint_is_a_complete_model(finished: Path) -> None:
    kept = list_checkpoints(finished)
    assert [one.step for one in kept] == kept_steps(finished, 4, length=10)
    for one in kept:
        verify(one.directory)
        assert describe(one.directory)["details"]["training"]["steps"] == one.step
        [translation] = Translator.load(one.directory, device="cpu").translate(["red cat"])
        assert isinstance(translation.text, str)
    weights = [load_weights(one.directory) for one in kept]
    assert same(weights[-1], load_weights(finished))
    assert not any(same(one, other) for one, other in itertools.pairwise(weights))


def test_model_directory_is_unchanged_by_its_checkpoints(finished: Path, tmp_path: Path) -> None:
    assert "checkpoints" not in {name.split("/")[0] for name in verify(finished)}
    repack(finished, tmp_path / "compact", compact=True)
    assert not (tmp_path / "compact" / "checkpoints").exists()
    assert ("checkpoints", "4, from step 0 to 10") in info_rows(describe(finished))
    assert describe(finished)["checkpoints"] == kept_steps(finished, 4, length=10)


def test_overwriting_a_model_removes_its_checkpoints_and_nothing_else(tmp_path: Path) -> None:
    request = request_for(tmp_path, tmp_path / "model", training__keep_checkpoints=3, training__steps=4)
    training_pipeline.train(request, quiet=True)
    (tmp_path / "model" / "checkpoints" / "notes.txt").write_text("mine")
    request["training"] |= {"keep_checkpoints": 0}
    training_pipeline.train(request, quiet=True, overwrite=True)
    assert [path.name for path in (tmp_path / "model" / "checkpoints").iterdir()] == ["notes.txt"]


def test_failed_save_leaves_earlier_checkpoints_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = save_load.save_tensors

    def fail_at_first_step(save: Any, tensors: Any, path: Path) -> None:
        write(save, tensors, path)
        if len(list_checkpoints(tmp_path / "model")) == 1:
            raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(save_load, "save_tensors", fail_at_first_step)
    request = request_for(tmp_path, tmp_path / "model", training__keep_checkpoints=5)
    with pytest.raises(ModelDirectoryError, match="No space left on device"):
        training_pipeline.train(request, quiet=True)
    assert [path.name for path in (tmp_path / "model" / "checkpoints").iterdir()] == ["step-000000"]
    verify(list_checkpoints(tmp_path / "model")[0].directory)


KILLED = """
import os, signal, sys
from heedful import training_pipeline
from heedful.training import kept_checkpoints

def die(staging, place):
    if place.name == "step-000004":
        os.kill(os.getpid(), signal.SIGKILL)
    rename(staging, place)

rename, kept_checkpoints.replace_directory = kept_checkpoints.replace_directory, die
training_pipeline.train(sys.argv[1], quiet=True)
"""


def test_process_killed_during_a_save_is_resumed(tmp_path: Path) -> None:
    request = request_for(tmp_path, tmp_path / "model", training__keep_checkpoints=4)
    path = tmp_path / "request.yaml"
    path.write_text(json.dumps(request))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], env=environment, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL
    folder = tmp_path / "model" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["incomplete", "step-000000", "step-000001"]
    training_pipeline.train(request, quiet=True, resume=True)
    torch.manual_seed(5)
    training_pipeline.train({**request, "output": str(tmp_path / "whole")}, quiet=True)
    kept = list_checkpoints(tmp_path / "model")
    assert len(kept) == len(list(folder.iterdir())) == 4
    for one, other in zip(kept, list_checkpoints(tmp_path / "whole"), strict=True):
        verify(one.directory)
        assert one.step == other.step
        assert same(load_weights(one.directory), load_weights(other.directory))
