"""Resuming: a stopped or killed run that is resumed is bitwise equal to an uninterrupted one."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heedful.data.store import PairStore
from heedful.training.checkpoint import load_state, saved_steps
from heedful.training.logging import Evaluation, FileReporter, Reporters
from heedful.training.loop import TrainingLoop
from tests.training.small_runs import MODEL, Publisher, Recorder, copying_store, make_loop, same

SETTINGS: dict[str, Any] = {
    "steps": 23,
    "schedule": "cosine",
    "warmup_steps": None,
    "log_every": 4,
    "validate_every": 5,
    "average_last": 3,
    "ema_decay": 0.9,
    "tokens_per_microbatch": 32,
    "clip_norm": 1.0,
    "label_smoothing": 0.1,
}
TIMES = ("seconds", "tokens_per_second")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return copying_store(tmp_path_factory.mktemp("store"), 30)


class Died(BaseException):
    """Simulates the end of the process without a message."""


def evaluate(model: nn.Module) -> Evaluation:
    """Not even a validation that draws random numbers changes the run."""
    return Evaluation(float(torch.rand(())), "signature", ())


class Outcome:
    """Everything that a run writes."""

    def __init__(self, loop: TrainingLoop, publisher: Publisher, directory: Path) -> None:
        state = loop.state()
        self.tensors: dict[str, Tensor] = {name: tensor.clone() for name, tensor in state.tensors.items()}
        self.values = json.loads(json.dumps(state.values))
        self.values["progress"].pop("seconds")
        self.published = publisher.weights
        self.snapshots = {path.name: path.read_bytes() for path in (directory / "snapshots").glob("*")}
        self.log = log_of(directory)

    def assert_equals(self, other: Outcome) -> None:
        assert self.values == other.values
        assert {name for name in self.tensors if name.startswith("optimizer.exp_avg_sq.")}
        assert {name for name in self.tensors if name.startswith("average.")}
        for name, tensor in self.tensors.items():
            assert torch.equal(tensor, other.tensors[name]), name
        assert self.tensors.keys() == other.tensors.keys()
        assert same(self.published, other.published)
        assert self.snapshots == other.snapshots
        assert self.log == other.log


def log_of(directory: Path) -> list[dict[str, Any]]:
    """The log without clock readings and notes."""
    lines = [json.loads(line) for line in (directory / "log.jsonl").read_text("utf-8").splitlines()]
    return [
        {key: value for key, value in line.items() if key not in TIMES} for line in lines if line["event"] != "note"
    ]


def run(
    directory: Path,
    store: PairStore,
    *,
    stop_at: int | None = None,
    die_at: int | None = None,
    model: Any = MODEL,
    **changes: Any,
) -> Outcome:
    """Resume from the saved state, to the end or to a stop."""
    state = load_state(directory / "states", lambda note: None)
    step = state.values["progress"]["steps"] if state is not None else None
    publisher, files = Publisher(), FileReporter(directory, resumed_step=step, tensorboard=False)
    reporter = Reporters(Recorder(), files)
    settings = {**SETTINGS, **changes}
    loop = make_loop(
        directory, store, model=model, reporter=reporter, publisher=publisher, evaluate=evaluate, **settings
    )
    if state is not None:
        loop.restore(state)
    count = loop._advance

    def counted(*arguments: Any) -> None:
        count(*arguments)
        if loop.progress.steps == stop_at:
            loop.stopped_by = "SIGTERM"
        if loop.progress.steps == die_at:
            raise Died

    def looked(*arguments: Any) -> None:
        if stop_at == 0:
            loop.stopped_by = "SIGTERM"
        validated(*arguments)

    loop._advance = counted  # type: ignore[method-assign]
    validated, reporter.validated = reporter.validated, looked  # type: ignore[method-assign]
    try:
        loop.run()
        if loop.stopped_by is None:
            loop.publish_final_weights()
    finally:
        files.close()
    return Outcome(loop, publisher, directory)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, store: PairStore) -> Outcome:
    outcome = run(tmp_path_factory.mktemp("whole"), store)
    assert outcome.values["position"][0] >= 2  # several epochs
    return outcome


STOPS = [
    [1],
    [5],
    [7, 15],
    [4, 20, 22],
    [23],
    *[sorted(random.Random(seed).sample(range(1, 23), 2)) for seed in (1, 2)],
]


@pytest.mark.parametrize("stops", STOPS, ids=str)
def test_stopped_and_resumed_equals_uninterrupted(
    tmp_path: Path, store: PairStore, uninterrupted: Outcome, stops: list[int]
) -> None:
    """Stopped in the middle of a line of the log, at a validation, right before the end, several times."""
    for step in stops:
        torch.manual_seed(random.randrange(10**6))  # a new process has other random numbers
        run(tmp_path, store, stop_at=step)
    torch.manual_seed(99)
    run(tmp_path, store).assert_equals(uninterrupted)


@pytest.mark.parametrize("deaths", [[3], [6, 13], [23]], ids=str)
def test_killed_and_resumed_equals_uninterrupted(
    tmp_path: Path, store: PairStore, uninterrupted: Outcome, deaths: list[int]
) -> None:
    """A killed process loses the steps since the last checkpoint and repeats them with the same result."""
    for step in deaths:
        with pytest.raises(Died):
            run(tmp_path, store, die_at=step)
    run(tmp_path, store).assert_equals(uninterrupted)


def test_resume_between_validations_equals_uninterrupted(
    tmp_path: Path, store: PairStore, uninterrupted: Outcome
) -> None:
    with pytest.raises(Died):
        run(tmp_path, store, die_at=9, save_every=3)
    assert [path.name for path in saved_steps(tmp_path / "states")] == ["step-000000003", "step-000000006"]
    run(tmp_path, store, save_every=3).assert_equals(uninterrupted)


def test_resume_after_damaged_checkpoint_equals_uninterrupted(
    tmp_path: Path, store: PairStore, uninterrupted: Outcome
) -> None:
    run(tmp_path, store, stop_at=13)
    newest = saved_steps(tmp_path / "states")[-1]
    assert newest.name == "step-000000013"
    (newest / "state.json").write_text("{}")
    run(tmp_path, store).assert_equals(uninterrupted)


def test_resume_with_batch_norm_statistics(tmp_path: Path, store: PairStore) -> None:
    model = replace(MODEL, norm="batch")
    whole = run(tmp_path / "whole", store, model=model, steps=12)
    run(tmp_path / "parts", store, model=model, steps=12, stop_at=6)
    run(tmp_path / "parts", store, model=model, steps=12).assert_equals(whole)


def test_skipped_updates_are_counted_across_resume(tmp_path: Path, store: PairStore) -> None:
    loops = []
    for start in (True, False):
        loop = make_loop(tmp_path, store, steps=8, log_every=8, validate_every=100)
        if not start:
            state = load_state(tmp_path / "states", pytest.fail)
            assert state is not None
            loop.restore(state)
        parameter = next(iter(loop.model.parameters()))
        parameter.register_hook(lambda gradient: gradient * math.nan)
        loop.stopped_by = None
        if start:
            count = loop._advance

            def counted(*arguments: Any, loop: TrainingLoop = loop, count: Any = count) -> None:
                count(*arguments)
                loop.stopped_by = "SIGTERM" if loop.progress.steps == 3 else None

            loop._advance = counted  # type: ignore[method-assign]
        loop.run()
        loops.append(loop)
    recorder = loops[1].reporter
    assert isinstance(recorder, Recorder)
    assert [record.skipped_steps for record in recorder.train] == [8]


@pytest.mark.parametrize("budget", [{"epochs": 4, "steps": None}, {"tokens": 700, "steps": None}], ids=str)
def test_resume_restores_warmup(tmp_path: Path, store: PairStore, budget: dict[str, Any]) -> None:
    whole = run(tmp_path / "whole", store, **budget)
    for step in (2, 9):
        run(tmp_path / "parts", store, stop_at=step, **budget)
    run(tmp_path / "parts", store, **budget).assert_equals(whole)


def test_resuming_finished_run_changes_nothing(tmp_path: Path, store: PairStore, uninterrupted: Outcome) -> None:
    run(tmp_path, store)
    again = run(tmp_path, store)
    assert again.values == uninterrupted.values
    assert all(torch.equal(tensor, uninterrupted.tensors[name]) for name, tensor in again.tensors.items())


def test_finished_run_continues_with_larger_budget(tmp_path: Path, store: PairStore) -> None:
    first = run(tmp_path, store)
    further = run(tmp_path, store, steps=30)
    assert further.values["progress"]["steps"] == 30
    assert not torch.equal(
        first.tensors["model.source_embedding.weight"], further.tensors["model.source_embedding.weight"]
    )
    steps = [line["step"] for line in further.log if line["event"] == "train"]
    assert steps == [4, 8, 12, 16, 20, 23, 24, 28, 30]  # a run ends with a line


@pytest.mark.parametrize("stops", [[0], [1], [0, 7]], ids=str)
def test_initial_model_is_validated_once(tmp_path: Path, store: PairStore, stops: list[int]) -> None:
    """Also if it is stopped during the initial validation, before its first update."""
    settings: dict[str, Any] = {"init_from": "a-model", "steps": 12}
    whole = run(tmp_path / "whole", store, **settings)
    for step in stops:
        run(tmp_path / "parts", store, stop_at=step, **settings)
    parts = run(tmp_path / "parts", store, **settings)
    parts.assert_equals(whole)
    validations = [(line["step"], line["weights"]) for line in parts.log if line["event"] == "valid"]
    assert validations[:2] == [(0, "initial"), (5, "ema")]
    assert validations.count((0, "initial")) == 1
    assert whole.values["best"]["initial_value"] is not None
