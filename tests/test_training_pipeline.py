"""Small runs from start to end: kinds of requests, refusals, resuming, the model card, averaging."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import heedful
from heedful import training_pipeline
from heedful.cli.models import info_rows, print_rows
from heedful.config import Config
from heedful.config_loading import build_config
from heedful.data.prepare import Prepared
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, CorpusError, ModelDirectoryError, TrainingError
from heedful.interop.export import repack
from heedful.model_dir import describe, load_model, load_weights, verify
from heedful.native import available
from heedful.native.bindings import Availability
from heedful.training.checkpoint import average_models
from heedful.training.logging import ConsoleReporter, FileReporter, TrainRecord
from heedful.validation_bleu import evaluate, score_published_model

native_only = pytest.mark.skipif(not available(), reason=available().reason)
WORDS = "red blue green cat dog bird runs sits eats one two three".split()


def write_pairs(folder: Path, name: str, num_pairs: int, seed: int) -> dict[str, str]:
    chance = random.Random(seed)
    lines = {" ".join(chance.choices(WORDS, k=chance.randint(2, 6))): None for _ in range(num_pairs)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.low").write_text("".join(f"{line}\n" for line in lines))
    (folder / f"{name}.up").write_text("".join(f"{line.upper()}\n" for line in lines))
    return {"source": str(folder / f"{name}.low"), "target": str(folder / f"{name}.up")}


def request_for(folder: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """A run of a few seconds; `changes` are written training__steps=3."""
    request: dict[str, Any] = {
        "output": str(output),
        "preset": "tiny",
        "data": {"train": [write_or_keep(folder)], "row_width": 64, "num_valid_pairs": 8},
        "tokenizer": {"vocab_size": 300},
        "model": {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {
            "steps": 10,
            "tokens_per_step": 256,
            "tokens_per_microbatch": 128,
            "validate_every": 4,
            "log_every": 3,
            "num_bleu_sentences": 2,
            "average_last": 2,
            "ema_decay": 0.9,
            "device": "cpu",
            "tensorboard": False,
        },
        "decoding": {"max_extra_length": 4},
    }
    for key, value in changes.items():
        section, name = key.split("__")
        request[section] = {**request.get(section, {}), name: value}
    return request


def write_or_keep(folder: Path) -> dict[str, str]:
    if not (folder / "train.low").exists():
        write_pairs(folder, "train", 80, seed=0)
    return {"source": str(folder / "train.low"), "target": str(folder / "train.up")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpora")


@pytest.fixture(scope="module")
def finished(folder: Path) -> tuple[Path, training_pipeline.TrainingResult]:
    """A finished run with everything that a card can contain."""
    output = folder / "finished"
    test = {**write_pairs(folder, "test", 12, seed=7)}
    request = request_for(folder, output, data__test=[test], training__tensorboard=True)
    request |= {"name": "Shouting", "licence": "CC-BY-4.0"}
    request["data"] |= {"source_language": "en", "target_language": "de"}
    return output, training_pipeline.train(request, quiet=True)


def same_weights(one: Path, other: Path) -> bool:
    ours, theirs = load_weights(one), load_weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def log_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "training" / "log.jsonl").read_text("utf-8").splitlines()]


def without_clock(lines: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    kept = [line for line in lines if line["event"] not in ("note", "first_step")]
    return [{key: line[key] for key in line if key not in ("seconds", "tokens_per_second")} for line in kept]


# ---------------------------------------------------------------------- a run and its output


def test_train_writes_model_that_translates(finished: tuple[Path, training_pipeline.TrainingResult]) -> None:
    output, result = finished
    assert result.output == output
    assert result.steps == 10
    assert result.stopped_by is None
    assert result.valid_loss is not None
    assert 0 < result.valid_loss < 10
    assert result.valid_bleu is not None
    verify(output)
    [translation] = heedful.Translator.load(output, device="cpu").translate(["red cat runs"])
    assert isinstance(translation.text, str)
    assert isinstance(translation.log_prob, float)


def test_alignment_head_is_stored(
    finished: tuple[Path, training_pipeline.TrainingResult],
) -> None:
    from heedful.model_dir.save_load import KEY, recorded_source

    output, _ = finished
    found = describe(output)
    model = found["config"]["model"]
    sizes = {"num_layers": model["num_decoder_layers"], "num_heads": model["num_heads"]}
    chosen = recorded_source(found["details"], **sizes)
    assert chosen is not None and KEY in found["details"]
    assert heedful.Translator.load(output, device="cpu", engine="torch").engine.alignment == chosen


def test_scores_have_signatures(finished: tuple[Path, training_pipeline.TrainingResult]) -> None:
    _, result = finished
    assert [score.name for score in result.scores] == ["BLEU", "chrF2", "TER", "ExactMatch", "CER"]
    assert all("version:" in score.signature for score in result.scores)


@native_only
def test_final_scores_are_of_translating_engine(
    folder: Path, finished: tuple[Path, training_pipeline.TrainingResult], capsys: pytest.CaptureFixture[str]
) -> None:
    output, result = finished
    sources, references = ((folder / f"test.{side}").read_text().splitlines() for side in ("low", "up"))
    found = evaluate(output, sources, references, device="cpu")
    assert (found.engine, found.weights) == ("native", "int8")
    assert [score.value for score in found.scores] == [score.value for score in result.scores]
    details = load_model(output).details
    assert [score["engine"] for score in details["scores"]] == ["native int8"] * 5
    training, key = details["training"], f"valid_{result.valid_score_name.lower()}"
    assert training[key] == result.valid_bleu and training[f"{key}_engine"] == "native int8"
    assert training[f"{key}_float32"] == min(
        line["bleu"] for line in log_of(output) if line["event"] == "valid" and line["loss"] == result.valid_loss
    )
    card = (output / "README.md").read_text("utf-8")
    assert (
        "| Metric | Value | 95 % | On | Engine |" in card
        and f"| {key.replace('_', ' ')} engine | native int8 |" in card
    )
    repack(output, folder / "small", compact=True)
    assert "before the weights were rounded" not in (folder / "small" / "README.md").read_text("utf-8")
    print_rows(info_rows(describe(output)))
    shown = capsys.readouterr().out
    assert f"{key.replace('_', ' ')} engine native int8" in shown and shown.count("(native int8)") == 5


@native_only
def test_int8_loss_warning(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = request_for(folder, tmp_path / "out", training__steps=4)
    training_pipeline.train(request)
    stderr = capsys.readouterr().err
    assert "with native int8, which `heedful translate` uses here:" in stderr and "Warning" not in stderr
    config, prepared = build_config(request), Prepared.open(tmp_path / "out" / "training" / "data")
    examined = score_published_model(
        config, prepared, torch.device("cpu"), ConsoleReporter(), valid_score=90.0, score_name="chrF2"
    )
    stderr = capsys.readouterr().err
    assert examined.valid_score is not None
    assert f"native int8 {examined.valid_score:.1f}, float32 90.0." in stderr
    assert stderr.count("Warning: int8 loses") == 1 and "--quantization float32" in stderr
    assert describe(tmp_path / "out")["details"]["training"]["valid_chrf2_float32"] == 90.0


def test_final_scores_without_native_engine(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = Availability("the native engine was not compiled", usable=False)
    monkeypatch.setattr("heedful.native.available", lambda: missing)
    monkeypatch.setattr("heedful.decoding.engines.available", lambda: missing)
    test = write_pairs(folder, "test", 12, seed=7)
    result = training_pipeline.train(request_for(folder, tmp_path / "out", data__test=[test], training__steps=4))
    stderr = capsys.readouterr().err
    assert "Translating the 12 sentences of" in stderr and "with torch float32" in stderr
    assert "Native int8 was not scored: the native engine was not compiled." in stderr
    details = describe(tmp_path / "out")["details"]
    assert {score["engine"] for score in details["scores"]} == {"torch float32"}
    training = details["training"]
    key = f"valid_{result.valid_score_name.lower()}"
    assert (training[key], training[f"{key}_engine"]) == (result.valid_bleu, "torch float32")


def test_model_card_contents(folder: Path, finished: tuple[Path, training_pipeline.TrainingResult]) -> None:
    import hashlib

    output, result = finished
    card = (output / "README.md").read_text("utf-8")
    for name in ("train.low", "train.up", "test.low", "test.up"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() in card
        assert name in card
    for score in result.scores:
        assert score.signature in card.replace("\\|", "|")  # cells of a table must escape bars
        assert f"{score.value:.2f}" in card
    assert "license: CC-BY-4.0" in card
    assert "# Shouting" in card
    assert str(folder) not in card  # no user folders
    details = load_model(output).details
    assert details["training"]["valid_loss"] == pytest.approx(result.valid_loss)
    assert details["training"]["steps"] == 10
    assert details["scores"][0]["data"].endswith("test.low + test.up")


def test_log_and_tensorboard_files(finished: tuple[Path, training_pipeline.TrainingResult]) -> None:
    output, result = finished
    lines = log_of(output)
    assert [line["step"] for line in lines if line["event"] == "train"] == [3, 6, 9, 10]
    valid = [line for line in lines if line["event"] == "valid"]
    assert [(line["step"], line["weights"]) for line in valid] == [
        *((4, "ema"), (8, "ema"), (10, "ema")),  # during the run
        *((10, "last"), (10, "average")),  # the candidates at the end; ema is validated already
    ]
    assert result.valid_loss == min(line["loss"] for line in valid)
    assert len(valid[0]["samples"]) == 2
    assert set(valid[0]["samples"][0]) == {"source", "reference", "translation"}
    assert valid[0]["samples"][0]["source"].upper() == valid[0]["samples"][0]["reference"]
    assert "BLEU" in valid[0]["signature"] or "version:" in valid[0]["signature"]
    assert list((output / "training" / "tensorboard").glob("events*"))


def test_mapping_yaml_and_config_give_same_run(folder: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / name for name in ("mapping", "yaml", "config")]
    mapping, for_yaml, for_config = (request_for(folder, output, training__steps=4) for output in outputs)
    training_pipeline.train(mapping, quiet=True)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(for_yaml))
    training_pipeline.train(tmp_path / "run.yaml", quiet=True)
    config = build_config(for_config)
    assert isinstance(config, Config)
    training_pipeline.train(config, quiet=True)
    assert same_weights(outputs[0], outputs[1])
    assert same_weights(outputs[0], outputs[2])


def test_interrupt_while_scoring_keeps_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from heedful import validation_bleu

    def interrupted(*arguments: Any, **settings: Any) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(validation_bleu, "translate_with", interrupted)
    test = write_pairs(folder, "interrupted", 12, seed=7)
    request = request_for(folder, tmp_path / "model", data__test=[test], training__num_bleu_sentences=0)
    with pytest.raises(KeyboardInterrupt):
        training_pipeline.train(request)
    verify(tmp_path / "model")
    said = capsys.readouterr().err
    assert "is complete and saved; only its scores are missing" in said and "heedful evaluate -m" in said


def test_chrf_replaces_undefined_bleu(folder: Path, tmp_path: Path) -> None:
    lines = [f"{one} {two}" for one in ("red", "blue", "old", "new") for two in ("cat", "dog", "sun", "hat", "tree")]
    for name, text in (("amounts.low", lines), ("amounts.up", [line.upper() for line in lines])):
        (folder / name).write_text("".join(f"{line}\n" for line in text))
    pairs = {"source": str(folder / "amounts.low"), "target": str(folder / "amounts.up")}
    request = request_for(folder, tmp_path / "model", data__test=[pairs])
    request["data"]["valid"] = [pairs]
    request["training"] |= {"best_metric": "bleu", "steps": 6, "validate_every": 2}
    result = training_pipeline.train(request, quiet=True)
    looks = [line for line in log_of(tmp_path / "model") if line["event"] == "valid"]
    assert {line["score_name"] for line in looks} == {"chrF2"} and result.valid_score_name == "chrF2"
    assert all(isinstance(line["bleu"], float) for line in looks)
    bleu, _, _, exact, _ = result.scores
    assert not bleu.is_defined and exact.is_defined
    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "valid chrf2" in card and "valid bleu" not in card
    assert "| BLEU | undefined (no reference has 3 tokens" in card and "| ExactMatch |" in card and "| CER |" in card
    assert "exact_match" in card.split("---")[1] and "bleu" not in card.split("---")[1]


def test_defaults_are_resolved(folder: Path, tmp_path: Path) -> None:
    request = request_for(folder, tmp_path / "out")
    plain = {"output": request["output"], "data": {"train": request["data"]["train"]}, "training": {"device": "cpu"}}
    asked = build_config(plain, "base")
    prepared = training_pipeline.load_data(asked, tmp_path / "data", ConsoleReporter(quiet=True))
    config = training_pipeline.resolve_config(plain, asked, prepared)
    assert config.preset == "tiny"
    assert config.model.d_model == 128
    assert config.training.epochs == 100
    assert config.training.minutes == 60
    assert config.training.early_stopping == 8
    assert config.training.steps is None
    assert config.model.source_vocab_size == prepared.tokenizer.source_vocab_size
    assert config.data.row_width == prepared.row_width == 128
    assert "100 epochs or 60 minutes" in training_pipeline.describe_run(config, 100)

    named = {**plain, "preset": "small", "training": {"device": "cpu", "tokens": 500}}
    config = training_pipeline.resolve_config(named, build_config(named, "base"), prepared)
    assert config.preset == "small"
    assert (config.training.tokens, config.training.epochs, config.training.minutes) == (500, None, None)
    assert config.training.early_stopping is None


def test_train_from_prepared_directory(folder: Path, tmp_path: Path) -> None:
    request = request_for(folder, tmp_path / "direct", training__steps=3)
    training_pipeline.train(request, quiet=True)
    prepared = tmp_path / "direct" / "training" / "data"
    assert Prepared.open(prepared).row_width == 64
    again = request_for(folder, tmp_path / "again", training__steps=3)
    again["data"] = {"prepared": str(prepared)}
    training_pipeline.train(again, quiet=True)
    assert same_weights(tmp_path / "direct", tmp_path / "again")


def test_train_both_directions(folder: Path, tmp_path: Path) -> None:
    request = request_for(folder, tmp_path / "out", training__steps=4)
    languages = {"source_language": "xx", "target_language": "yy", "both_directions": True}
    request["data"]["train"] = [{**request["data"]["train"][0], **languages}]
    training_pipeline.train(request, quiet=True)
    translator = Translator.load(tmp_path / "out", device="cpu")
    assert translator.tokenizer.tags == ("xx", "yy")
    for language in ("xx", "yy"):
        assert len(translator.translate(["red cat"], target_language=language)) == 1
    assert len(Prepared.open(tmp_path / "out" / "training" / "data").train) > 100


def test_train_separate_vocabularies(folder: Path, tmp_path: Path) -> None:
    request = request_for(folder, tmp_path / "out", training__steps=3, tokenizer__joint=False)
    training_pipeline.train(request, quiet=True)
    config = load_model(tmp_path / "out").config
    assert config.model.tying == "target"
    assert (tmp_path / "out" / "source.model").exists()


def test_train_without_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no corpus to train on"):
        training_pipeline.train({"output": str(tmp_path / "out")}, quiet=True)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------- existing models are not overwritten


def test_existing_model_is_not_overwritten(
    folder: Path, tmp_path: Path, finished: tuple[Path, training_pipeline.TrainingResult]
) -> None:
    output = tmp_path / "copy"
    shutil.copytree(finished[0], output)
    request = request_for(folder, output, training__steps=2, training__seed=5)
    before = (output / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match=r"already holds a model or a run; add --resume .* --overwrite"):
        training_pipeline.train(request, quiet=True)
    assert (output / "model.safetensors").read_bytes() == before
    result = training_pipeline.train(request, overwrite=True, quiet=True)
    assert result.steps == 2
    assert (output / "model.safetensors").read_bytes() != before
    assert {line["step"] for line in log_of(output) if line["event"] == "valid"} == {2}  # the old run is gone


def test_refused_run_keeps_old_run(
    folder: Path, tmp_path: Path, finished: tuple[Path, training_pipeline.TrainingResult]
) -> None:
    output = tmp_path / "copy"
    shutil.copytree(finished[0], output)
    before = {path.relative_to(output) for path in output.rglob("*")}
    request = request_for(folder, output)
    request["data"]["train"] = [{"source": str(folder / "missing.low"), "target": str(folder / "missing.up")}]
    with pytest.raises(CorpusError, match=r"missing\.low"):
        training_pipeline.train(request, overwrite=True, quiet=True)
    assert {path.relative_to(output) for path in output.rglob("*")} == before
    assert any("states" in path.parts for path in before)


def test_resume_without_run_is_refused(
    folder: Path, tmp_path: Path, finished: tuple[Path, training_pipeline.TrainingResult]
) -> None:
    shutil.copytree(finished[0], tmp_path / "copy", ignore=shutil.ignore_patterns("training"))
    with pytest.raises(ConfigError, match="no run to resume"):
        training_pipeline.train(request_for(folder, tmp_path / "copy"), resume=True, quiet=True)


def test_output_file_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="must be a directory"):
        training_pipeline.train(request_for(folder, tmp_path / "file"), quiet=True)


# ---------------------------------------------------------------------- stopping and resuming


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Send this process SIGTERM when the log reaches a step."""
    trained = FileReporter.trained

    def trained_and_interrupted(self: FileReporter, record: TrainRecord) -> None:
        trained(self, record)
        if record.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(FileReporter, "trained", trained_and_interrupted)


def test_interrupted_and_resumed_run_equals_uninterrupted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"training__steps": 14, "training__log_every": 1}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    training_pipeline.train(request_for(folder, whole, **settings), quiet=True)
    for number, step in enumerate((3, 9)):
        with monkeypatch.context() as patch:
            interrupt_at(patch, step)
            result = training_pipeline.train(request_for(folder, parts, **settings), resume=bool(number), quiet=True)
        assert result.stopped_by == "SIGTERM"
        assert result.steps == step
        verify(parts)  # there is always a complete model
    result = training_pipeline.train(request_for(folder, parts, **settings), resume=True, quiet=True)
    assert result.stopped_by is None
    assert result.steps == 14
    assert same_weights(whole, parts)
    assert without_clock(log_of(whole)) == without_clock(log_of(parts))
    for name in ("tensors.safetensors",):
        states = [sorted((output / "training" / "states").glob("step-*"))[-1] / name for output in (whole, parts)]
        assert states[0].read_bytes() == states[1].read_bytes()


def test_resume_without_earlier_run_starts_one(folder: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "one", tmp_path / "two"
    for output, resume in zip(outputs, (False, True), strict=True):
        assert (
            training_pipeline.train(request_for(folder, output, training__steps=3), resume=resume, quiet=True).steps
            == 3
        )
    assert same_weights(*outputs)


@pytest.fixture(scope="module")
def stopped(folder: Path) -> Path:
    """The output of a run that was stopped after its first steps."""
    training_pipeline.train(request_for(folder, folder / "stopped", training__steps=2), quiet=True)
    return folder / "stopped"


@pytest.fixture
def begun(folder: Path, tmp_path: Path) -> Path:
    """Separate corpora for a run in tmp_path / "run" that was stopped after its first steps."""
    own = tmp_path / "own"
    own.mkdir()
    for name in ("train.low", "train.up"):
        shutil.copy2(folder / name, own / name)
    training_pipeline.train(request_for(own, tmp_path / "run", training__steps=2), quiet=True)
    return own


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model__d_ff", 64),
        ("model__dropout", 0.3),
        ("tokenizer__vocab_size", 298),
        ("training__seed", 2),
        ("training__tokens_per_step", 512),
        ("training__ema_decay", 0.5),
        ("training__optimizer", "muon"),
        ("data__num_valid_pairs", 9),
        ("data__shuffle", "blocks"),
    ],
)
def test_resume_names_changed_key(folder: Path, stopped: Path, key: str, value: Any) -> None:
    request = request_for(folder, stopped, training__steps=5)
    section, name = key.split("__")
    request[section][name] = value
    with pytest.raises(TrainingError, match=rf"--resume: {section}\.{name} was .* Restore it"):
        training_pipeline.train(request, resume=True, quiet=True)


def test_resume_after_restoring_changed_setting(folder: Path, stopped: Path, tmp_path: Path) -> None:
    """With a wrong seed the data is prepared again before the run is refused; the right one restores it."""
    shutil.copytree(stopped, tmp_path / "run")
    with pytest.raises(TrainingError, match="seed"):
        training_pipeline.train(request_for(folder, tmp_path / "run", training__seed=2), resume=True, quiet=True)
    request = request_for(folder, tmp_path / "run", training__steps=5)
    assert training_pipeline.train(request, resume=True, quiet=True).steps == 5


def test_shuffle_blocks(
    folder: Path,
    finished: tuple[Path, training_pipeline.TrainingResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows are prepacked if they do not exist; a resumed run equals an uninterrupted one."""
    prepared = shutil.copytree(finished[0] / "training" / "data", tmp_path / "prepared")
    assert not (prepared / "train" / "rows.json").exists()
    outputs = tmp_path / "whole", tmp_path / "parts"
    requests = [request_for(folder, output, training__steps=6, training__log_every=1) for output in outputs]
    for request in requests:
        request["data"] = {"prepared": str(prepared), "shuffle": "blocks"}
    training_pipeline.train(requests[0], quiet=True)
    prepacked = Prepared.open(prepared).open_prepacked()
    assert prepacked.members.size == len(prepacked.store)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        assert training_pipeline.train(requests[1], quiet=True).steps == 3
    training_pipeline.train(requests[1], resume=True, quiet=True)
    assert same_weights(*outputs)
    assert not same_weights(outputs[0], finished[0])


def test_resume_names_changed_corpus(begun: Path, tmp_path: Path) -> None:
    with (begun / "train.low").open("a") as low, (begun / "train.up").open("a") as up:
        low.write("one more cat\n")
        up.write("ONE MORE CAT\n")
    request = request_for(begun, tmp_path / "run", training__steps=5)
    with pytest.raises(TrainingError, match=r"train\.(low|up) has changed since this run started"):
        training_pipeline.train(request, resume=True, quiet=True)


def test_resume_ignores_modification_time_of_corpus(begun: Path, tmp_path: Path) -> None:
    os.utime(begun / "train.low", (1, 1))
    request = request_for(begun, tmp_path / "run", training__steps=5)
    assert training_pipeline.train(request, resume=True, quiet=True).steps == 5


def test_resuming_finished_run_says_so(begun: Path, tmp_path: Path) -> None:
    before = load_weights(tmp_path / "run")
    request = request_for(begun, tmp_path / "run", training__steps=2)
    result = training_pipeline.train(request, resume=True, quiet=True)
    assert result.steps == 2
    after = load_weights(tmp_path / "run")
    assert all(torch.equal(before[name], after[name]) for name in before)
    notes = [line["message"] for line in log_of(tmp_path / "run") if line["event"] == "note"]
    assert any("increase its budget to continue" in note for note in notes)


# ---------------------------------------------------------------------- averaging and evaluating


@pytest.fixture(scope="module")
def siblings(folder: Path) -> list[Path]:
    """Two models of one shape and one tokenizer."""
    outputs = [folder / "first", folder / "second"]
    training_pipeline.train(request_for(folder, outputs[0], training__steps=2), quiet=True)
    borrowed = request_for(folder, outputs[1], training__steps=3)
    borrowed["tokenizer"] = {"path": str(outputs[0])}
    training_pipeline.train(borrowed, quiet=True)
    return outputs


def test_average_models(siblings: list[Path], tmp_path: Path) -> None:
    average_models(siblings, tmp_path / "mean")
    ours, theirs = (load_weights(path) for path in siblings)
    for name, weight in load_weights(tmp_path / "mean").items():
        torch.testing.assert_close(weight, (ours[name].double() + theirs[name].double()).div(2).float(), rtol=0, atol=0)
    details = load_model(tmp_path / "mean").details
    assert details["training"]["weights"] == "average of 2 models"
    assert len(Translator.load(tmp_path / "mean", device="cpu").translate(["red cat"])) == 1
    average_models([siblings[0], siblings[0]], tmp_path / "same")
    assert same_weights(siblings[0], tmp_path / "same")


def test_average_models_refuses_incompatible_models(
    folder: Path, siblings: list[Path], tmp_path: Path, finished: tuple[Path, training_pipeline.TrainingResult]
) -> None:
    with pytest.raises(ConfigError, match="at least two"):
        average_models(siblings[:1], tmp_path / "mean")
    wider = request_for(folder, tmp_path / "wider", training__steps=1, model__d_ff=48)
    training_pipeline.train(wider, quiet=True)
    with pytest.raises(ConfigError, match=r"model\.d_ff is 32 .* and 48 .*one shape"):
        average_models([siblings[0], tmp_path / "wider"], tmp_path / "mean")
    other = request_for(folder, tmp_path / "other", training__steps=1, tokenizer__kind="unigram")
    other["tokenizer"]["vocab_size"] = load_model(siblings[0]).tokenizer.source_vocab_size
    training_pipeline.train(other, quiet=True)
    with pytest.raises(ConfigError, match="has another tokenizer"):
        average_models([siblings[0], tmp_path / "other"], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_evaluate_model(finished: tuple[Path, training_pipeline.TrainingResult]) -> None:
    texts, scores, *_ = evaluate(finished[0], ["red cat", "two dog"], ["RED CAT", "TWO DOG"], device="cpu")
    assert len(texts) == 2
    assert {score.name for score in scores} >= {"BLEU", "chrF2"}
    with pytest.raises(heedful.HeedfulError, match="2 sources but 1 references"):
        evaluate(finished[0], ["a", "b"], ["A"], device="cpu")


def test_foreign_output_files_are_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("My notes.\n", encoding="utf-8")
    with pytest.raises(ModelDirectoryError, match=r"README\.md"):
        training_pipeline.train({"output": str(tmp_path), "data": {"train": [{"source": "no.en", "target": "no.de"}]}})
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "My notes.\n"


def test_prepared_data_and_corpora_exclude_each_other(tmp_path: Path) -> None:
    request = {
        "output": str(tmp_path / "out"),
        "data": {"prepared": "prepared", "train": [{"source": "a.en", "target": "a.de"}]},
    }
    with pytest.raises(ConfigError, match=r"data\.prepared"):
        training_pipeline.train(request)
