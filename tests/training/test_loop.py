"""The training loop: validations, publishing, stopping by budget, patience or signal, and the log."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heedful.data.store import PairStore
from heedful.errors import TrainingError
from heedful.training import loop as loop_module
from heedful.training import step as step_module
from heedful.training.checkpoint import average_weights, copy_weights, load_state, saved_steps
from heedful.training.logging import Evaluation, FileReporter, Reporters, Sample, TrainRecord, ValidRecord
from heedful.training.loop import EARLY_STOPPING
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.validation import ValidationWork, validate
from tests.training.small_runs import CPU, MODEL, Publisher, Recorder, copying_store, make_loop, same


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    return copying_store(tmp_path_factory.mktemp("store"))


def pretend_losses(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Let validations give these losses in turn."""
    coming = iter(losses)
    monkeypatch.setattr(loop_module, "validate", lambda *arguments, **settings: next(coming))


def test_loss_decreases_and_best_is_published(tmp_path: Path, store: PairStore) -> None:
    publisher, recorder = Publisher(), Recorder()
    loop = make_loop(
        tmp_path, store, publisher=publisher, reporter=recorder, steps=20, validate_every=5, final_weights="best"
    )
    loop.run()
    losses = [record.loss for record in recorder.valid]
    assert [record.step for record in recorder.valid] == [5, 10, 15, 20]
    assert losses == sorted(losses, reverse=True)
    assert all(record.is_best for record in recorder.valid)
    assert publisher.kinds == ["best"] * 4
    assert same(publisher.weights, loop.model.state_dict())
    assert publisher.numbers["valid_loss"] == losses[-1]
    assert publisher.numbers["steps"] == 20
    assert [record.step for record in recorder.train] == list(range(1, 21))
    assert recorder.train[-1].progress == 1.0
    assert recorder.train[-1].tokens == loop.progress.tokens


def test_only_better_validation_replaces_best(
    tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_losses(monkeypatch, [3.0, 2.0, 2.5, 2.0, math.nan, 1.5])
    publisher, recorder = Publisher(), Recorder()
    loop = make_loop(tmp_path, store, publisher=publisher, reporter=recorder, steps=6, validate_every=1)
    loop.run()
    assert [record.is_best for record in recorder.valid] == [True, True, False, False, False, True]
    assert len(publisher.kinds) == 3
    assert (loop.best.value, loop.best.step) == (1.5, 6)


def test_best_metric_bleu(tmp_path: Path, store: PairStore) -> None:
    values = iter([10.0, 30.0, 20.0])
    publisher, recorder = Publisher(), Recorder()

    def evaluate(model: nn.Module) -> Evaluation:
        assert not model.training
        return Evaluation(next(values), "signature", (Sample("a", "b", "c"),))

    loop = make_loop(
        tmp_path,
        store,
        publisher=publisher,
        reporter=recorder,
        evaluate=evaluate,
        steps=3,
        validate_every=1,
        best_metric="bleu",
    )
    loop.run()
    assert [record.is_best for record in recorder.valid] == [True, True, False]
    assert publisher.numbers["valid_bleu"] == 30.0
    assert recorder.valid[0].signature == "signature"
    assert recorder.samples[0] == (Sample("a", "b", "c"),)


def test_early_stopping(tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_losses(monkeypatch, [3.0, 2.0, 2.1, 2.2, 2.3, 1.0])
    loop = make_loop(tmp_path, store, steps=100, validate_every=2, early_stopping=3)
    loop.run()
    assert loop.stopped_by == EARLY_STOPPING
    assert loop.progress.steps == 10
    assert loop.summary()["valid_loss"] == 2.0  # of the published model, not of the last validation
    resumed = make_loop(tmp_path, store, steps=100, validate_every=2, early_stopping=3)
    resumed.restore(load(tmp_path))
    resumed.run()
    assert resumed.progress.steps == 10  # still counts against the patience
    patient = make_loop(tmp_path, store, steps=100, validate_every=2, early_stopping=5)
    patient.restore(load(tmp_path))
    assert patient.stopped_by is None


def load(directory: Path) -> Any:
    state = load_state(directory / "states", pytest.fail)
    assert state is not None
    return state


@pytest.mark.parametrize(
    ("budget", "about"),
    [({"steps": 50}, 6), ({"epochs": 7}, 20), ({"tokens": 3000}, 20), ({"steps": 3}, 3), ({"epochs": 4}, 20)],
    ids=str,
)
def test_number_of_validations_by_budget(
    tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any], about: int
) -> None:
    pretend_losses(monkeypatch, [float(number) for number in range(200)])
    recorder = Recorder()
    loop = make_loop(tmp_path, store, reporter=recorder, **budget)
    loop.run()
    steps = [record.step for record in recorder.valid]
    assert len(steps) == len(set(steps))
    assert about - 1 <= len(steps) <= about + 1
    gaps = [later - earlier for earlier, later in zip([0, *steps], steps, strict=False)]
    assert max(gaps) <= min(gaps) + 2
    assert steps[-1] == loop.progress.steps


@pytest.mark.parametrize("epochs", [1, 3, 0.5])
def test_epoch_budget_stops_after_whole_epochs(tmp_path: Path, store: PairStore, epochs: float) -> None:
    loop = make_loop(tmp_path, store, epochs=epochs, validate_every=1000)
    loop.run()
    assert loop.progress.steps == math.ceil(epochs * loop.stream.steps_in_epoch(0))
    if epochs >= 1:
        assert loop.progress.epochs == epochs
        tokens = sum(loop.stream.batch(0, step).num_tokens for step in range(loop.stream.steps_in_epoch(0)))
        assert loop.progress.tokens == epochs * tokens


def test_token_budget_stops_at_first_step_beyond_it(tmp_path: Path, store: PairStore) -> None:
    recorder = Recorder()
    loop = make_loop(tmp_path, store, reporter=recorder, tokens=500, validate_every=1000)
    loop.run()
    assert recorder.train[-2].tokens < 500 <= recorder.train[-1].tokens


def test_minute_budget_stops_by_clock(tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by a tenth of a second at each call."""
    now = 100.0

    def clock() -> float:
        nonlocal now
        now += 0.1
        return now

    monkeypatch.setattr(loop_module.time, "perf_counter", clock)
    recorder = Recorder()
    loop = make_loop(
        tmp_path, store, reporter=recorder, minutes=0.5, steps=10_000, schedule="cosine", warmup_steps=None
    )
    loop.run()
    assert 10 < loop.progress.steps < 300
    assert 30 <= loop.progress.seconds < 32
    assert 5 <= len(recorder.valid) <= 7  # a few minutes must not be spent on validations
    assert recorder.train[-1].learning_rate < 0.1 * max(record.learning_rate for record in recorder.train)


def test_first_limit_reached_stops(tmp_path: Path, store: PairStore) -> None:
    loop = make_loop(tmp_path, store, steps=3, epochs=100, minutes=100, validate_every=1000)
    loop.run()
    assert loop.progress.steps == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_after_current_step_and_saves(tmp_path: Path, store: PairStore, number: signal.Signals) -> None:
    def interrupt(record: TrainRecord) -> None:
        if record.step == 4:
            os.kill(os.getpid(), number)

    earlier = signal.getsignal(number)
    recorder = Recorder(then=interrupt)
    loop = make_loop(tmp_path, store, reporter=recorder, steps=20, validate_every=15)
    loop.run()
    assert loop.stopped_by == number.name
    assert [record.step for record in recorder.train] == [1, 2, 3, 4]
    assert not recorder.valid
    assert signal.getsignal(number) is earlier
    state = load(tmp_path)
    assert state.values["progress"]["steps"] == 4
    assert all(torch.equal(state.tensors[f"model.{name}"], weight) for name, weight in loop.model.state_dict().items())


def test_save_every(tmp_path: Path, store: PairStore) -> None:
    loop = make_loop(tmp_path, store, steps=8, validate_every=1000, save_every=3)
    seen = []
    original = loop.save

    def save() -> None:
        original()
        seen.append(loop.progress.steps)

    loop.save = save  # type: ignore[method-assign]
    loop.run()
    assert seen == [3, 6, 8]
    assert len(saved_steps(tmp_path / "states")) == 2


# ---------------------------------------------------------------------- published weights


def chosen_of(tmp_path: Path, store: PairStore, **training: Any) -> tuple[Any, Publisher, Recorder]:
    publisher, recorder = Publisher(), Recorder()
    loop = make_loop(tmp_path, store, publisher=publisher, reporter=recorder, steps=12, validate_every=3, **training)
    loop.run()
    recorder.valid.clear()
    loop.publish_final_weights()
    return loop, publisher, recorder


def test_final_weights_best(tmp_path: Path, store: PairStore) -> None:
    _, publisher, recorder = chosen_of(tmp_path, store, final_weights="best")
    assert set(publisher.kinds) == {"best"}
    assert not recorder.valid


def test_final_weights_last(tmp_path: Path, store: PairStore) -> None:
    loop, publisher, recorder = chosen_of(tmp_path, store, final_weights="last", ema_decay=0.9)
    assert publisher.kinds[-1] == "last"
    assert same(publisher.weights, loop.model.state_dict())
    assert publisher.numbers["valid_loss"] == recorder.valid[0].loss  # the card has the results of these weights


def test_final_weights_ema(tmp_path: Path, store: PairStore) -> None:
    loop, publisher, _ = chosen_of(tmp_path, store, final_weights="ema", ema_decay=0.9)
    assert publisher.kinds[-1] == "ema"
    assert same(publisher.weights, loop.average.weights)
    assert not same(publisher.weights, loop.model.state_dict())


def test_final_weights_average_of_last_snapshots(tmp_path: Path, store: PairStore) -> None:
    kept = []
    publisher = Publisher()
    loop = make_loop(
        tmp_path, store, publisher=publisher, steps=12, validate_every=3, final_weights="average", average_last=3
    )
    original = loop._snapshot
    loop._snapshot = lambda: (kept.append(copy_weights(loop.model)), original())  # type: ignore[method-assign]
    loop.run()
    loop.publish_final_weights()
    assert len(kept) == 4
    assert publisher.kinds[-1] == "average"
    assert same(publisher.weights, average_weights(kept[-3:]))
    assert len(list((tmp_path / "snapshots").iterdir())) == 3


def test_final_weights_average_of_one_snapshot(tmp_path: Path, store: PairStore) -> None:
    publisher = Publisher()
    loop = make_loop(
        tmp_path, store, publisher=publisher, steps=3, validate_every=3, final_weights="average", average_last=5
    )
    loop.run()
    loop.publish_final_weights()
    assert publisher.kinds[-1] == "average"
    assert same(publisher.weights, loop.model.state_dict())


@pytest.mark.parametrize(
    ("losses", "published"),
    [([2.0, 1.0, 1.2], "best"), ([2.0, 0.5, 1.2], "last"), ([2.0, 0.7, 0.6], "average")],
)
def test_final_weights_auto_compares_all_candidates(
    tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch, losses: list[float], published: str
) -> None:
    """The best so far is 0.9, of the moving average; then the losses of last and average."""
    pretend_losses(monkeypatch, [losses[0], 0.9, *losses[1:]])
    publisher, recorder = Publisher(), Recorder()
    loop = make_loop(
        tmp_path,
        store,
        publisher=publisher,
        reporter=recorder,
        steps=2,
        validate_every=1,
        ema_decay=0.5,
        average_last=2,
    )
    loop.run()
    loop.publish_final_weights()
    assert [record.weights for record in recorder.valid] == ["ema", "ema", "last", "average"]
    assert publisher.kinds[-1] == published
    expected = 0.9 if published == "best" else min(losses[1:])
    assert publisher.numbers["valid_loss"] == expected


def test_moving_average_is_validated(tmp_path: Path, store: PairStore) -> None:
    validated, publisher = [], Publisher()

    def evaluate(model: nn.Module) -> Evaluation:
        validated.append(copy_weights(model))
        return Evaluation(1.0, "signature", ())

    settings = {"steps": 6, "validate_every": 3, "ema_decay": 0.8}
    with_average = make_loop(tmp_path / "a", store, publisher=publisher, evaluate=evaluate, **settings)
    with_average.run()
    without = make_loop(tmp_path / "b", store, steps=6, validate_every=100)
    without.run()
    assert same(validated[-1], with_average.average.weights)  # type: ignore[union-attr]
    assert same(publisher.weights, validated[-1])
    assert same(with_average.model.state_dict(), without.model.state_dict())


def test_validation_does_not_change_random_states(tmp_path: Path, store: PairStore) -> None:
    """Validations that draw random numbers, with dropout and BatchNorm, do not change the final weights."""

    def evaluate(model: nn.Module) -> Evaluation:
        torch.rand(17)
        return Evaluation(0.0, "", ())

    config = replace(MODEL, norm="batch")
    often = make_loop(tmp_path / "a", store, model=config, evaluate=evaluate, steps=6, validate_every=1)
    often.run()
    never = make_loop(tmp_path / "b", store, model=config, steps=6, validate_every=100)
    never.run()
    assert same(often.model.state_dict(), never.model.state_dict())


def test_validation_loss_is_mean_over_tokens(tmp_path: Path, store: PairStore) -> None:
    loop = make_loop(tmp_path, store, steps=1, label_smoothing=0.1)
    found = validate(loop.model, loop.valid_batches(), CPU, bf16=False)
    total, count = 0.0, 0
    loop.model.eval()
    for index in range(len(store)):
        source, target = (torch.tensor([list(side.sentence(index))]) for side in (store.source, store.target))
        target_input = torch.cat([torch.tensor([[2]]), target[:, :-1]], dim=1)
        log_probs = loop.model(source, target_input).log_softmax(-1)
        total -= log_probs.gather(-1, target[..., None]).sum().item()
        count += target.numel()
    assert found == pytest.approx(total / count, rel=1e-5)


def test_validation_uses_microbatch_rows(tmp_path: Path, store: PairStore) -> None:
    loop = make_loop(tmp_path, store, steps=1)
    whole, _ = loop.validate_weights("last")
    seen: list[int] = []
    loop.model.register_forward_pre_hook(
        lambda module, _, inputs: seen.append(inputs["source"].shape[0]), with_kwargs=True
    )
    loop.validate_weights("last")
    assert max(seen) > 1
    loop.step.rows_per_microbatch = 1
    seen.clear()
    parts, _ = loop.validate_weights("last")
    assert set(seen) == {1}
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)


def test_validation_out_of_memory_releases_graph(
    tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recording:
        """Replaces a CUDA graph, which holds memory until it is released."""

        has_memory = True

        def release(self) -> bool:
            had, self.has_memory = self.has_memory, False
            return had

    def full(*arguments: Any, **settings: Any) -> float:
        if recording.has_memory:
            raise torch.OutOfMemoryError("out of memory")
        return 2.5

    loop, recording = make_loop(tmp_path, store, steps=1), Recording()
    monkeypatch.setattr(loop_module, "validate", full)
    with pytest.raises(torch.OutOfMemoryError):  # there is no graph on a CPU
        loop.validate_weights("last")
    monkeypatch.setattr(step_module, "GraphedStep", Recording)
    monkeypatch.setattr(loop.step, "update", recording)
    assert loop.validate_weights("last")[0].loss == 2.5


# ---------------------------------------------------------------------- non-finite numbers


def poison(loop: Any, when: Callable[[int], bool]) -> None:
    """Let the gradient be NaN at some steps."""
    parameter = next(iter(loop.model.parameters()))
    parameter.register_hook(lambda gradient: gradient * math.nan if when(loop.progress.steps + 1) else gradient)


def test_skipped_updates_are_reported(tmp_path: Path, store: PairStore) -> None:
    recorder = Recorder()
    loop = make_loop(tmp_path, store, reporter=recorder, steps=12, log_every=4, validate_every=12)
    poison(loop, lambda step: step in (2, 3, 9))
    loop.run()
    assert [record.skipped_steps for record in recorder.train] == [2, 0, 1]
    assert sum("skipped 2 updates" in note for note in recorder.notes) == 1
    assert all(2.0 < record.loss < 5.0 for record in recorder.train)  # the mean over the counted tokens
    assert all(bool(weight.isfinite().all()) for weight in loop.model.state_dict().values())


def test_max_skipped_steps_in_a_row_raises(tmp_path: Path, store: PairStore) -> None:
    loop = make_loop(tmp_path, store, steps=30, validate_every=5, max_skipped_steps=4)
    poison(loop, lambda step: step > 5)
    with pytest.raises(TrainingError, match=r"not finite.*training\.learning_rate"):
        loop.run()
    assert loop.progress.steps == 9
    state = load(tmp_path)  # of the last validation; later steps changed nothing
    assert state.values["progress"]["steps"] == 5
    assert all(torch.equal(state.tensors[f"model.{name}"], weight) for name, weight in loop.model.state_dict().items())


def test_skipped_steps_not_in_a_row_do_not_raise(tmp_path: Path, store: PairStore) -> None:
    loop = make_loop(tmp_path, store, steps=30, validate_every=30, max_skipped_steps=4)
    poison(loop, lambda step: step % 4 != 0)
    loop.run()
    assert loop.progress.steps == 30


# ---------------------------------------------------------------------- fine-tuning


def fine_tuned(
    directory: Path, store: PairStore, evaluate: Any = None, **training: Any
) -> tuple[Any, dict[str, Any], Publisher, Recorder]:
    """A complete fine-tuning run: the loop, its initial weights, its publisher and reporter."""
    publisher, recorder = Publisher(), Recorder()
    usual: dict[str, Any] = {"steps": 2, "validate_every": 1, "init_from": "a-model", **training}
    loop = make_loop(directory, store, publisher=publisher, reporter=recorder, evaluate=evaluate, **usual)
    began = copy_weights(loop.model)
    loop.run()
    loop.publish_final_weights()
    return loop, began, publisher, recorder


@pytest.mark.parametrize("averages", [{}, {"ema_decay": 0.5}, {"ema_decay": 0.5, "average_last": 2}], ids=str)
@pytest.mark.parametrize("publish", ["auto", "best"])
def test_initial_model_stays_published_if_nothing_is_better(
    tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch, averages: dict[str, Any], publish: str
) -> None:
    pretend_losses(monkeypatch, [2.0, 3.0, 2.0, 2.5, 2.5])
    loop, began, publisher, recorder = fine_tuned(tmp_path, store, final_weights=publish, **averages)
    first = recorder.valid[0]
    assert (first.step, first.weights, first.loss, first.is_best) == (0, "initial", 2.0, True)
    assert not any(record.is_best for record in recorder.valid[1:])
    assert publisher.kinds == ["initial"]
    assert same(publisher.weights, began)
    assert not same(loop.model.state_dict(), began)
    assert (publisher.numbers["steps"], publisher.numbers["valid_loss"]) == (0, 2.0)
    assert loop.best.is_initial
    assert not list(tmp_path.glob("snapshots/step-000000000*"))  # an average is of the run's own weights


def test_better_model_replaces_initial_model(tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_losses(monkeypatch, [2.0, 2.5, 1.5])
    loop, _, publisher, _ = fine_tuned(tmp_path, store)
    assert publisher.kinds == ["initial", "best"]
    assert same(publisher.weights, loop.model.state_dict())
    assert (loop.best.initial_value, loop.best.published_value, loop.best.published_step, loop.best.is_initial) == (
        2.0,
        1.5,
        2,
        False,
    )


def test_final_weights_last_even_if_worse_than_initial(
    tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_losses(monkeypatch, [2.0, 3.0, 3.5, 3.5])
    loop, _, publisher, _ = fine_tuned(tmp_path, store, final_weights="last")
    assert publisher.kinds == ["initial", "last"]
    assert (loop.best.initial_value, loop.best.published_value, loop.best.is_initial) == (2.0, 3.5, False)


def test_initial_model_is_kept_by_bleu(tmp_path: Path, store: PairStore) -> None:
    scores = iter([30.0, 20.0, 30.0])
    loop, began, publisher, recorder = fine_tuned(
        tmp_path, store, lambda model: Evaluation(next(scores), "signature", ()), best_metric="bleu"
    )
    assert recorder.valid[-1].loss < recorder.valid[0].loss
    assert publisher.kinds == ["initial"]
    assert same(publisher.weights, began)
    assert (loop.best.initial_value, publisher.numbers["valid_bleu"]) == (-30.0, 30.0)


def test_initial_model_with_non_finite_loss_is_replaced(
    tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_losses(monkeypatch, [math.nan, 2.0, 3.0])
    loop, _, publisher, _ = fine_tuned(tmp_path, store)
    assert publisher.kinds == ["best"]
    assert (loop.best.step, loop.best.is_initial) == (1, False)


def test_initial_validation_uses_no_budget(tmp_path: Path, store: PairStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights are bitwise those of a run without an initial validation; the time budget starts after it."""
    hours, real = [0.0], loop_module.time.perf_counter
    monkeypatch.setattr(loop_module, "time", type("Clock", (), {"perf_counter": lambda: real() + 3600 * hours[0]}))

    def evaluate(model: nn.Module) -> Evaluation:
        hours[0] += loop.progress.steps == 0
        return Evaluation(float(torch.rand(())), "signature", ())

    ended = []
    for name, init_from in (("with", "a-model"), ("without", None)):
        model = replace(MODEL, dropout=0.3)
        loop = make_loop(tmp_path / name, store, model=model, evaluate=evaluate, steps=4, init_from=init_from)
        loop.run()
        ended.append(copy_weights(loop.model))
        assert loop.progress.seconds < 1800
    assert hours == [1.0]
    assert same(*ended)


# ---------------------------------------------------------------------- the log


def test_log_fields_and_tensorboard_files(tmp_path: Path, store: PairStore) -> None:
    sample = Sample("ein\u2028Satz", "a sentence", "a")
    files = FileReporter(tmp_path, resumed_step=None, tensorboard=True)
    loop = make_loop(
        tmp_path,
        store,
        reporter=Reporters(Recorder(), files),
        evaluate=lambda model: Evaluation(12.5, "BLEU|sig", (sample,)),
        steps=8,
        log_every=2,
        validate_every=4,
    )
    loop.reporter.note("hello")
    loop.run()
    files.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").split("\n") if line]
    events = [line["event"] for line in lines]
    assert events == ["note", "train", "train", "valid", "train", "train", "valid"]
    assert set(lines[1]) == {
        *("event", "step", "epoch", "progress", "loss", "learning_rate", "gradient_norm", "tokens"),
        *("tokens_per_second", "seconds", "skipped_steps"),
    }
    valid = lines[3]
    assert (valid["step"], valid["weights"], valid["bleu"], valid["signature"]) == (4, "last", 12.5, "BLEU|sig")
    assert valid["samples"] == [{"source": "ein\u2028Satz", "reference": "a sentence", "translation": "a"}]
    assert valid["perplexity"] == pytest.approx(math.exp(valid["loss"]))
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_log_is_truncated_to_resumed_step(tmp_path: Path) -> None:
    lines = [
        {"event": "note", "message": "hello"},
        {"event": "train", "step": 5},
        {"event": "valid", "step": 5, "samples": [{"source": "a\u2028b\x85c"}]},
        {"event": "train", "step": 10},
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines) + '{"event": "tra'
    (tmp_path / "log.jsonl").write_text(text, encoding="utf-8")
    FileReporter(tmp_path, resumed_step=5, tensorboard=False).close()
    kept = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text("utf-8").split("\n") if line]
    assert kept == lines[:3]
    FileReporter(tmp_path, resumed_step=None, tensorboard=False).close()
    assert (tmp_path / "log.jsonl").read_text() == ""


def test_tensorboard_false_writes_no_files(tmp_path: Path) -> None:
    FileReporter(tmp_path, resumed_step=None, tensorboard=False).close()
    assert not (tmp_path / "tensorboard").exists()


def test_non_finite_numbers_are_null_in_log(tmp_path: Path) -> None:
    files = FileReporter(tmp_path, resumed_step=None, tensorboard=False)
    files.trained(TrainRecord(1, 0.1, 0.1, 2.0, 1e-3, math.nan, 10, math.inf, 1.0, 1))
    files.close()
    line = json.loads((tmp_path / "log.jsonl").read_text(), parse_constant=pytest.fail)
    assert line["gradient_norm"] is None
    assert line["loss"] == 2.0


def test_resumed_log_has_no_duplicates_and_damage_is_reported(tmp_path: Path) -> None:
    record = ValidRecord(5, "last", 2.0, 7.4, None, None, is_best=True, seconds=1.0)
    files = FileReporter(tmp_path, resumed_step=None, tensorboard=False)
    files.validated(record, ())
    files.close()
    log = tmp_path / "log.jsonl"
    before, notes = log.read_bytes(), []
    files = FileReporter(tmp_path, resumed_step=5, tensorboard=False, note=notes.append)
    files.validated(record, ())
    files.close()
    assert log.read_bytes() == before and notes == []
    log.write_bytes(before.replace(b"2.0", b"2.1"))
    FileReporter(tmp_path, resumed_step=5, tensorboard=False, note=notes.append).close()
    assert len(notes) == 1 and str(log) in notes[0]


# ---- number of validations -------------------------------------------------------------------------------------------


def validations_of(directory: Path, store: PairStore, work: ValidationWork, **settings: Any) -> list[int]:
    recorder = Recorder()
    loop = make_loop(directory, store, reporter=recorder, **settings)
    loop.validation_work = work
    loop.run()
    return [record.step for record in recorder.valid]


def test_validations_take_at_most_a_tenth_of_work(tmp_path: Path, store: PairStore) -> None:
    trained = 3 * 4 * 16 * 40  # forward and backward, rows, width, updates
    every = validations_of(tmp_path / "cheap", store, ValidationWork(1, 0), steps=40)
    assert len(every) == 6 and every[-1] == 40
    for tokens, expected in ((trained // 20, [20, 40]), (trained // 40, [10, 20, 30, 40]), (10 * trained, [40])):
        assert validations_of(tmp_path / str(tokens), store, ValidationWork(tokens, 0), steps=40) == expected
    assert validations_of(tmp_path / "translated", store, ValidationWork(0, trained // 160), steps=40) == [20, 40]
    assert len(validations_of(tmp_path / "tokens", store, ValidationWork(trained // 20, 0), tokens=40 * 4 * 16)) == 2


def test_validate_every_is_exact(tmp_path: Path, store: PairStore) -> None:
    work = ValidationWork(10**9, 10**9)
    assert validations_of(tmp_path, store, work, steps=6, validate_every=2) == [2, 4, 6]


def test_short_runs_validate_rarely(tmp_path: Path, store: PairStore) -> None:
    work = ValidationWork(200, 200)
    steps = validations_of(tmp_path / "a", store, work, epochs=3.0)
    assert len(steps) <= 2 and steps == validations_of(tmp_path / "b", store, work, epochs=3.0)


def test_resumed_run_validates_at_same_steps(tmp_path: Path, store: PairStore) -> None:
    work, seen = ValidationWork(3 * 4 * 16 * 40 // 40, 0), []
    whole = make_loop(tmp_path / "whole", store, steps=40)
    whole.validation_work = work
    whole.run()
    state = None
    for stop in (7, 23, None):
        recorder = Recorder()
        loop = make_loop(tmp_path / "parts", store, reporter=recorder, steps=40)
        loop.validation_work = work
        if state is not None:
            loop.restore(state)
        recorder.then = lambda record, loop=loop, stop=stop: (  # type: ignore[misc]
            setattr(loop, "stopped_by", "SIGTERM") if record.step == stop else None
        )
        loop.run()
        seen += [record.step for record in recorder.valid]
        state = load_state(tmp_path / "parts" / "states", print)
    assert seen == [10, 20, 30, 40]
    assert same(loop.model.state_dict(), whole.model.state_dict())


def test_empty_rows_are_not_validated(tmp_path: Path) -> None:
    few = copying_store(tmp_path / "few", num_pairs=3)
    shapes: list[int] = []

    class Watching(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, **inputs: Tensor) -> Tensor:
            shapes.append(len(inputs["source"]))
            return self.model(**inputs)  # type: ignore[no-any-return]

    loop = make_loop(tmp_path / "run", few, steps=1, num_rows=32)
    watched = validate(Watching(loop.model), loop.valid_batches(), CPU, bf16=False)
    assert shapes[0] < 8
    [batch] = loop.valid_batches()
    loss = smoothed_cross_entropy(
        loop.model.eval()(**batch.inputs), batch.target_output, batch.target_segments, smoothing=0.0
    )
    assert watched == pytest.approx(loss.loss_sum.item() / batch.num_tokens)
