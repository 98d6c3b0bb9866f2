"""Fine-tuning: the initial model's weights, tokenizer and shape, and errors for settings that contradict them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful import training_pipeline
from heedful.cli.train import print_preflight
from heedful.config import Config
from heedful.config_loading import build_config, from_mapping
from heedful.data.prepare import prepare
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, HeedfulError, TrainingError
from heedful.fine_tuning import InitialModel, find_initial_model, with_initial_model
from heedful.interop.export import repack
from heedful.model_dir import describe, load_model, load_weights
from heedful.model_dir.files import sha256
from heedful.model_dir.save_load import read_directions
from heedful.model_dir.weights import quantize_rows
from heedful.native import available
from heedful.paper.compare import compare
from heedful.text.corpus import Direction
from heedful.training.checkpoint import load_state
from heedful.training.distributed import World
from heedful.training.logging import ConsoleReporter, Reporters
from heedful.training.validation import BestTracker

OLD_WORDS = "red blue green cat dog bird runs sits eats one two three".split()
NEW_WORDS = "seven valve torque bolt gauge motor".split()
SHAPE = {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0}


def write_corpus(folder: Path, name: str, words: list[str], num_pairs: int) -> dict[str, str]:
    chance = random.Random(name)
    lines = list(dict.fromkeys(" ".join(chance.choices(words, k=chance.randint(2, 5))) for _ in range(num_pairs)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.low").write_text("".join(f"{line}\n" for line in lines))
    (folder / f"{name}.up").write_text("".join(f"{line.upper()}\n" for line in lines))
    return {"source": str(folder / f"{name}.low"), "target": str(folder / f"{name}.up")}


def request_for(corpus: dict[str, str], output: Path, **training: Any) -> dict[str, Any]:
    usual = {"steps": 6, "tokens_per_step": 256, "validate_every": 3, "log_every": 1, "num_bleu_sentences": 0}
    usual |= {"learning_rate": 0.003, "schedule": "constant", "warmup_steps": 2, "device": "cpu", "tensorboard": False}
    return {
        "output": str(output),
        "data": {"train": [corpus], "row_width": 64, "num_valid_pairs": 8},
        "training": {**usual, **training},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("starting")


@pytest.fixture(scope="module")
def new(folder: Path) -> dict[str, str]:
    """The new corpus."""
    return write_corpus(folder, "new", NEW_WORDS, 90)


@pytest.fixture(scope="module")
def old(folder: Path) -> Path:
    """A finished model."""
    request = request_for(write_corpus(folder, "old", OLD_WORDS, 200), folder / "old", steps=60, learning_rate=0.01)
    request |= {"preset": "tiny", "model": dict(SHAPE), "tokenizer": {"vocab_size": 300}}
    training_pipeline.train(request, quiet=True)
    return folder / "old"


@pytest.fixture(scope="module")
def tagged(folder: Path) -> Path:
    """A finished model of two directions, with target tags and a source tag."""
    corpus = write_corpus(folder, "tagged", OLD_WORDS, 60)
    codes = {"source_language": "xx", "target_language": "yy"}
    request = request_for(corpus, folder / "tagged-model", steps=1)
    request["data"]["train"] = [{**corpus, **codes, "both_directions": True}]
    request["data"]["train"].append({**corpus, **codes, "source_tag": "noisy"})
    request |= {"preset": "tiny", "model": dict(SHAPE), "tokenizer": {"vocab_size": 300}}
    request["data"]["deduplicate"] = False
    training_pipeline.train(request, quiet=True)
    return folder / "tagged-model"


def build_unstarted_loop(request: dict[str, Any]) -> tuple[Config, Any]:
    """The configuration and the loop of a run before its first step."""
    requested = build_config(request, "base")
    start = find_initial_model(request, requested)
    assert start is not None
    plain = start.apply_to(request)
    requested = build_config(plain, "base")
    console = ConsoleReporter(quiet=True)
    prepared = training_pipeline.load_data(requested, Path(requested.output) / "training" / "data", console)
    config = training_pipeline.resolve_config(plain, requested, prepared)
    return config, training_pipeline.build_loop(
        config, prepared, None, Reporters(), World(torch.device("cpu")), initial_model=start
    )


# ---------------------------------------------------------------------- inherited settings


def as_it_is(old: Path, folder: Path) -> Path:
    return old


def in_shards(old: Path, folder: Path) -> Path:
    repack(old, folder / "shards", compact=False, shard_mb=0.02)
    assert len(list((folder / "shards").glob("model-*.safetensors"))) > 1
    return folder / "shards"


def in_int8(old: Path, folder: Path) -> Path:
    repack(old, folder / "compact", compact=True)
    return folder / "compact"


@pytest.mark.parametrize("kind", [as_it_is, in_shards, in_int8])
def test_initial_weights_equal_the_model(
    old: Path, new: dict[str, str], tmp_path: Path, kind: Callable[[Path, Path], Path]
) -> None:
    model = kind(old, tmp_path)
    config, loop = build_unstarted_loop(request_for(new, tmp_path / "out", init_from=str(model), ema_decay=0.9))
    expected = load_model(model)
    weights = loop.model.state_dict()
    for name, tensor in expected.model.state_dict().items():
        assert torch.equal(weights[name], tensor), name
        assert torch.equal(loop.average.weights[name], tensor), name
    assert config.model == expected.config.model
    assert config.preset == "tiny"
    written = Path(config.output) / "training" / "data" / "tokenizer.model"
    assert written.read_bytes() == (model / "tokenizer.model").read_bytes()


def test_dropout_and_training_settings_can_change(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    request = request_for(new, tmp_path / "out", init_from=str(old))
    request |= {"preset": "small", "model": {"dropout": 0.25, "d_model": "32"}, "tokenizer": {"vocab_size": None}}
    config, loop = build_unstarted_loop(request)
    assert (config.model.dropout, config.model.d_model, config.preset) == (0.25, 32, "small")
    assert torch.equal(
        loop.model.state_dict()["source_embedding.weight"],
        load_model(old).model.state_dict()["source_embedding.weight"],
    )


def test_full_configuration_conflicts_only_where_it_differs_from_defaults(
    old: Path, new: dict[str, str], tmp_path: Path
) -> None:
    plain = request_for(new, tmp_path / "out", init_from=str(old), steps=1)
    assert training_pipeline.train(from_mapping(Config, plain), quiet=True).steps == 1
    assert load_model(tmp_path / "out").config.model == load_model(old).config.model
    other = from_mapping(Config, {**plain, "output": str(tmp_path / "other"), "model": {"d_model": 64}})
    with pytest.raises(ConfigError, match=r"model\.d_model is 64, but the model in .* has 32"):
        training_pipeline.train(other, quiet=True)


def test_extra_vocabulary_rows_are_kept(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    from dataclasses import replace

    from heedful.build_model import build_model
    from heedful.model_dir import save_model

    loaded = load_model(old)
    model = replace(loaded.config.model, source_vocab_size=320, target_vocab_size=320)
    save_model(
        tmp_path / "padded",
        weights=build_model(model),
        config=replace(loaded.config, model=model),
        tokenizer=loaded.tokenizer,
    )
    config, loop = build_unstarted_loop(request_for(new, tmp_path / "out", init_from=str(tmp_path / "padded")))
    assert config.model.source_vocab_size == 320
    assert len(loop.model.state_dict()["source_embedding.weight"]) == 320


def test_installed_model_is_found_by_name(
    old: Path, new: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEEDFUL_MODELS", str(old.parent))
    monkeypatch.chdir(tmp_path)
    start = find_initial_model(*both(request_for(new, tmp_path / "out", init_from="old")))
    assert start is not None
    assert (start.directory, start.name) == (str(old), "old")
    assert start.identity == sha256(old / "model.safetensors")


def both(request: dict[str, Any]) -> tuple[dict[str, Any], Config]:
    return request, build_config(request, "base")


# ---------------------------------------------------------------------- complete runs


@pytest.fixture(scope="module")
def tuned(old: Path, new: dict[str, str], folder: Path) -> tuple[Path, training_pipeline.TrainingResult]:
    """A run that started from the old model."""
    request = request_for(new, folder / "tuned", init_from=str(old), steps=40)
    return folder / "tuned", training_pipeline.train(request, quiet=True)


def test_fine_tuning_improves_on_initial_and_new_model(
    old: Path, new: dict[str, str], tuned: tuple[Path, training_pipeline.TrainingResult], tmp_path: Path
) -> None:
    _, loop = build_unstarted_loop(request_for(new, tmp_path / "before", init_from=str(old)))
    before, _ = loop.validate_weights("last")
    request = request_for(new, tmp_path / "scratch", steps=40)
    request |= {"preset": "tiny", "model": dict(SHAPE), "tokenizer": {"path": str(old)}}
    scratch = training_pipeline.train(request, quiet=True)
    reached = tuned[1].valid_loss
    assert reached is not None
    assert scratch.valid_loss is not None
    assert reached < before.loss - 0.5
    assert reached < scratch.valid_loss - 0.2


@pytest.mark.parametrize("kind", [as_it_is, in_int8])
def test_run_without_improvement_publishes_the_initial_weights(
    old: Path,
    new: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: Callable[[Path, Path], Path],
) -> None:
    model = kind(old, tmp_path)
    result = training_pipeline.train(
        request_for(new, tmp_path / "out", init_from=str(model), learning_rate=1.0, ema_decay=0.5)
    )
    assert result.is_initial_model
    assert result.steps == 6
    ours, theirs = load_weights(tmp_path / "out"), load_weights(model)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    log = [json.loads(line) for line in (tmp_path / "out" / "training" / "log.jsonl").read_text("utf-8").splitlines()]
    validations = [line for line in log if line["event"] == "valid"]
    assert [(line["step"], line["weights"]) for line in validations] == [
        (0, "initial"),
        (3, "ema"),
        (6, "ema"),
        (6, "last"),
    ]
    assert min(line["loss"] for line in validations) == validations[0]["loss"] == result.valid_loss
    stderr = capsys.readouterr().err
    assert "step 0  valid loss" in stderr and stderr.count("(before training)") == 1
    assert result.first_step is not None
    assert list(result.first_step.parts)[-2:] == ["validating_the_initial_model", "first_update"]
    said = f"Nothing was better on valid than {model.name} itself (loss {result.valid_loss:.3f}): the model in"
    assert said in stderr and log[-1]["message"].startswith(said)
    training = describe(tmp_path / "out")["details"]["training"]
    assert (training["weights"], training["steps"], training["started_from"]) == ("initial", 0, model.name)


def test_worse_last_weights_are_published_with_a_warning(
    old: Path, new: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {"init_from": str(old), "steps": 3, "final_weights": "last"}
    result = training_pipeline.train(request_for(new, tmp_path / "worse", learning_rate=1.0, **settings))
    assert not result.is_initial_model
    assert f"worse is no better on valid than old: loss {result.valid_loss:.3f}, before" in capsys.readouterr().err
    state = load_state(tmp_path / "worse" / "training" / "states", pytest.fail)
    assert state is not None
    assert (state.values["best"]["published_step"], state.values["best"]["published_loss"]) == (3, result.valid_loss)
    training_pipeline.train(request_for(new, tmp_path / "better", **settings))
    assert "better on valid than" not in capsys.readouterr().err


# ---------------------------------------------------------------------- int8 and small changes


def write_spellings(folder: Path, name: str, num_pairs: int, *, fixed: bool) -> tuple[list[str], list[str]]:
    """Words that become CAPITALS or Titles: at random, or each word always in the same form."""
    chance = random.Random(name)
    words = [*OLD_WORDS, *NEW_WORDS]
    ways = [str.upper, str.title]
    lines, targets = [], []
    for line in dict.fromkeys(" ".join(chance.choices(words, k=chance.randint(2, 5))) for _ in range(num_pairs)):
        chosen = [words.index(word) % 2 if fixed else chance.randrange(2) for word in line.split()]
        lines.append(line)
        targets.append(" ".join(ways[way](word) for way, word in zip(chosen, line.split(), strict=True)))
    for side, texts in (("low", lines), ("up", targets)):
        (folder / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts))
    return lines, targets


@pytest.mark.skipif(not available(), reason=available().reason)
def test_int8_keeps_small_changes_of_short_fine_tuning(tmp_path: Path) -> None:
    """Each weight moves by less than its rounding step, so that rounding alone would undo it."""

    def request(name: str, output: str, **training: Any) -> dict[str, Any]:
        paths = {"source": str(tmp_path / f"{name}.low"), "target": str(tmp_path / f"{name}.up")}
        return request_for(paths, tmp_path / output, tokens_per_step=512, final_weights="last", **training)

    write_spellings(tmp_path, "undecided", 600, fixed=False)
    write_spellings(tmp_path, "decided", 300, fixed=True)
    tests, expected = write_spellings(tmp_path, "test", 60, fixed=True)
    first = request("undecided", "first", steps=200, validate_every=200)
    first |= {"preset": "tiny", "model": {**SHAPE, "d_model": 64, "d_ff": 128}, "tokenizer": {"vocab_size": 300}}
    training_pipeline.train(first, quiet=True)
    repack(tmp_path / "first", tmp_path / "compact", compact=True)
    start = str(tmp_path / "compact")
    settings: dict[str, Any] = {"learning_rate": 1e-4, "steps": 12, "validate_every": 12}
    training_pipeline.train(request("decided", "tuned", init_from=start, **settings), quiet=True)

    def translated(model: str, quantization: str) -> list[str]:
        engine = Translator.load(tmp_path / model, device="cpu", engine="native", quantization=quantization)
        return [one.text for one in engine.translate(tests, method="greedy")]

    def same(one: list[str], other: list[str]) -> int:
        return sum(a == b for a, b in zip(one, other, strict=True))

    before, float32, int8 = translated("compact", "int8"), translated("tuned", "float32"), translated("tuned", "int8")
    assert same(float32, expected) > same(before, expected) + 5  # something was learned
    assert same(float32, int8) >= 0.9 * len(tests)


@pytest.mark.parametrize("kind", [as_it_is, in_int8])
def test_only_int8_weights_are_dithered_within_one_step(
    old: Path, new: dict[str, str], tmp_path: Path, kind: Callable[[Path, Path], Path]
) -> None:
    model = kind(old, tmp_path)
    request = request_for(
        new, tmp_path / "out", init_from=str(model), steps=1, learning_rate=1e-12, final_weights="last"
    )
    request["training"]["ema_decay"] = 0.5
    config, loop = build_unstarted_loop(request)
    loop.run()
    weights, start = loop.model.state_dict(), load_model(model).model.state_dict()
    changed = []
    for name, tensor in weights.items():
        assert torch.allclose(loop.average.weights[name], tensor, atol=1e-7), name
        if tensor.ndim == 2:
            ours, theirs = quantize_rows(tensor.numpy()), quantize_rows(start[name].numpy())
            assert (ours.values == theirs.values).all(), name
            changed.append(not torch.allclose(tensor, start[name], atol=1e-7))
        else:
            assert torch.allclose(tensor, start[name], atol=1e-7), name
    assert all(changed) if kind is in_int8 else not any(changed)
    assert config.training.init_from == str(model)


def test_messages_comparing_with_the_initial_model(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    request = request_for(new, tmp_path, init_from=str(old), best_metric="bleu", num_bleu_sentences=5)
    start = find_initial_model(*both(request))
    assert start is not None
    config = build_config(request, "base")
    kept = BestTracker(value=-30.0, initial_value=-30.0, published_value=-30.0, published_step=0)
    remark = start.compare(kept, config, is_over=False)
    assert remark is not None and remark.startswith("So far nothing was better on valid than old itself (score 30.0):")
    assert (
        start.compare(BestTracker(initial_value=-30.0, published_value=-30.1, published_step=3), config, is_over=True)
        is None
    )
    assert start.compare(BestTracker(published_value=2.0, published_step=3), config, is_over=True) is None


def test_card_and_details_name_the_initial_model(
    old: Path, tuned: tuple[Path, training_pipeline.TrainingResult]
) -> None:
    training = describe(tuned[0])["details"]["training"]
    identity = sha256(old / "model.safetensors")
    assert (training["started_from"], training["started_from_identity"]) == ("old", identity)
    card = (tuned[0] / "README.md").read_text("utf-8")
    assert "| started from | old |" in card
    assert identity in card
    assert str(old) not in card  # no user folders


def test_resumed_fine_tuning_equals_uninterrupted(
    old: Path, new: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"init_from": str(old), "ema_decay": 0.9}
    training_pipeline.train(request_for(new, tmp_path / "whole", **settings), quiet=True)
    training_pipeline.train(request_for(new, tmp_path / "parts", **settings, steps=3), quiet=True)
    monkeypatch.setattr(InitialModel, "weights", lambda self: pytest.fail("a resumed run has weights of its own"))
    assert training_pipeline.train(request_for(new, tmp_path / "parts", **settings), resume=True, quiet=True).steps == 6
    ours, theirs = load_weights(tmp_path / "whole"), load_weights(tmp_path / "parts")
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_resume_requires_the_same_initial_model(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    start = shutil.copytree(old, tmp_path / "start", ignore=shutil.ignore_patterns("training"))
    request = request_for(new, tmp_path / "out", init_from=str(start), steps=3)
    training_pipeline.train(request, quiet=True)
    with pytest.raises(TrainingError, match=r"training\.init_from was .* and is None now"):
        training_pipeline.train({**request_for(new, tmp_path / "out"), "preset": "tiny"}, resume=True, quiet=True)
    with pytest.raises(TrainingError, match=r"training\.init_from was .*start' .* and is '.*old' now"):
        training_pipeline.train(request_for(new, tmp_path / "out", init_from=str(old)), resume=True, quiet=True)
    training_pipeline.train(request_for(new, tmp_path / "second", init_from=str(old), steps=1), quiet=True)
    for name in ("model.safetensors", "checksums.json", "config.json", "README.md"):
        shutil.copy2(tmp_path / "second" / name, start / name)
    with pytest.raises(TrainingError, match="start has changed since this run started"):
        training_pipeline.train({**request, "training": {**request["training"], "steps": 6}}, resume=True, quiet=True)


def test_length_percentiles_of_the_initial_model_are_kept(old: Path, folder: Path, tmp_path: Path) -> None:
    corpus = write_corpus(folder, "longer", [f"{word} {word} {word}" for word in NEW_WORDS], 60)
    lengths = []
    for start, output in ((old, "longer"), (tmp_path / "longer", "shorter")):
        training_pipeline.train(request_for(corpus, tmp_path / output, init_from=str(start), steps=1), quiet=True)
        lengths.append(describe(tmp_path / output)["details"]["lengths"])
        corpus = write_corpus(folder, "shorter", NEW_WORDS, 60)
    longer, shorter = lengths
    assert longer["source_p99"] > describe(old)["details"]["lengths"]["source_p99"]
    assert (shorter["source_p99"], shorter["target_p99"]) == (longer["source_p99"], longer["target_p99"])
    assert shorter["source_mean"] < longer["source_mean"]  # that of the new sentences


def test_fine_tuning_from_prepared_data(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    for name, tokenizer in (("same", {"path": str(old)}), ("other", {"vocab_size": 290})):
        requested = build_config({"data": request_for(new, tmp_path)["data"], "tokenizer": tokenizer})
        prepare(requested.data, requested.tokenizer, tmp_path / name, seed=1)
    request = request_for(new, tmp_path / "out", init_from=str(old), steps=1)
    with pytest.raises(ConfigError, match=r"other was prepared with another tokenizer than that of old .*--init-from"):
        training_pipeline.train({**request, "data": {"prepared": str(tmp_path / "other")}}, quiet=True)
    assert training_pipeline.train({**request, "data": {"prepared": str(tmp_path / "same")}}, quiet=True).steps == 1


def test_target_tags_and_source_tags_are_kept(tagged: Path, folder: Path, tmp_path: Path) -> None:
    """Also if the new corpora have only one target language and no source tag."""
    corpus = {**write_corpus(folder, "one-way", NEW_WORDS, 60), "source_language": "xx", "target_language": "yy"}
    assert (
        training_pipeline.train(request_for(corpus, tmp_path / "out", init_from=str(tagged), steps=1), quiet=True).steps
        == 1
    )
    tokenizer = load_model(tmp_path / "out").tokenizer
    assert (tokenizer.tags, tokenizer.source_tags) == (("xx", "yy"), ("noisy",))
    assert json.loads((tmp_path / "out" / "training" / "run.json").read_text())["data"]["target_tags"] is True
    assert "| Direction | xx → yy (before: yy → xx) |" in (tmp_path / "out" / "README.md").read_text("utf-8")
    again = request_for(corpus, tmp_path / "again", init_from=str(tmp_path / "out"), steps=1)
    training_pipeline.train(again, quiet=True)
    directions = read_directions(tmp_path / "again")
    assert directions.trained == (Direction("xx", "yy"),)
    assert directions.initial == (Direction("xx", "yy"), Direction("yy", "xx"))  # also through two generations


@pytest.fixture(scope="module")
def one_way(folder: Path) -> dict[str, str]:
    """A corpus of one of the two directions of the tagged model."""
    return {**write_corpus(folder, "forward", NEW_WORDS, 60), "source_language": "xx", "target_language": "yy"}


def turned(corpus: dict[str, str], **codes: str) -> dict[str, str]:
    """The corpus in the opposite direction."""
    return {"source": corpus["target"], "target": corpus["source"], **codes}


def test_initial_directions_can_be_validated(
    tagged: Path, one_way: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    kept = write_corpus(folder, "kept", OLD_WORDS, 12)
    back = turned(kept, source_language="yy", target_language="xx")
    request = request_for(one_way, tmp_path / "out", init_from=str(tagged), steps=1, num_bleu_sentences=4)
    request["data"] |= {"valid": [{**one_way, **kept}, back], "test": [back]}
    result = training_pipeline.train(request, quiet=True)
    lines = (tmp_path / "out" / "training" / "data" / "valid.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(line)["target_language"] for line in lines} == {"xx", "yy"}
    assert len(result.scores) == 5  # of the only test corpus
    assert read_directions(tmp_path / "out").trained == (Direction("xx", "yy"),)
    both_ways = {**one_way, **kept, "both_directions": True}
    again = request_for(one_way, tmp_path / "again", init_from=str(tmp_path / "out"), steps=1)
    again["data"]["valid"] = [both_ways]  # known through two generations, too
    assert training_pipeline.train(again, quiet=True).steps == 1


@pytest.mark.parametrize("role", ["valid", "test"])
def test_unknown_validation_direction_is_refused(
    tagged: Path, one_way: dict[str, str], tmp_path: Path, role: str
) -> None:
    message = r"no training corpus has the target language 'xx', and the model of .* does not know ww → xx"
    request = request_for(one_way, tmp_path / "out", init_from=str(tagged))
    request["data"][role] = [turned(one_way, source_language="ww", target_language="xx")]
    with pytest.raises(ConfigError, match=message + "; it knows xx → yy, yy → xx"):
        training_pipeline.train(request, quiet=True)
    request = request_for(one_way, tmp_path / "new")
    request["data"] |= {"target_tags": True, role: [turned(one_way, source_language="yy", target_language="xx")]}
    with pytest.raises(ConfigError, match=r"no training corpus has the target language 'xx'\.$"):
        training_pipeline.train({**request, "preset": "tiny"}, quiet=True)


def test_sharded_ranks_load_the_initial_weights(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    settings = {"init_from": str(old), "steps": 1, "learning_rate": 1e-9, "sharding": "full"}
    (tmp_path / "run.yaml").write_text(json.dumps(request_for(new, tmp_path / "out", **settings)))
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "heedful", "train"]
    done = subprocess.run(
        [sys.executable, *command, str(tmp_path / "run.yaml")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Continuing from old, training on" in done.stderr
    assert done.stderr.count("step 0  valid loss") == done.stderr.count("(before training)") == 1
    weights, expected = load_weights(tmp_path / "out"), load_weights(old)
    for name in expected:
        torch.testing.assert_close(weights[name], expected[name], atol=1e-6, rtol=0)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"model": {"d_model": 64}},
            r"model\.d_model is 64, but the model in .*old .* has 32; leave out model\.d_model",
        ),
        ({"model": {"norm": "rms"}}, r"model\.norm is 'rms', but .* has 'layer'"),
        ({"model": {"head_dim": 8}}, r"model\.head_dim is 8, but .* has 16"),
        ({"tokenizer": {"vocab_size": 1000}}, r"tokenizer\.vocab_size is 1000, but .* has \d+"),
        ({"tokenizer": {"kind": "unigram"}}, r"tokenizer\.kind is 'unigram', but .* has 'bpe'"),
        (
            {"tokenizer": {"user_defined_symbols": ["<x>"]}},
            r"tokenizer\.user_defined_symbols is \['<x>'\], but .* has \[\]",
        ),
    ],
)
def test_conflict_names_the_key_and_both_values(
    old: Path, new: dict[str, str], tmp_path: Path, section: dict[str, Any], message: str
) -> None:
    request = {**request_for(new, tmp_path / "out", init_from=str(old)), **section}
    with pytest.raises(ConfigError, match=message):
        training_pipeline.train(request, quiet=True)
    assert not (tmp_path / "out").exists()


def test_equal_settings_are_no_conflict(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    request = request_for(new, tmp_path / "out", init_from=str(old))
    request |= {"model": {**SHAPE, "head_dim": 16}, "tokenizer": {"path": str(old), "kind": "bpe", "joint": True}}
    assert find_initial_model(*both(request)) is not None


def test_other_tokenizer_is_refused(old: Path, tagged: Path, new: dict[str, str], tmp_path: Path) -> None:
    request = request_for(new, tmp_path / "out", init_from=str(old))
    with pytest.raises(ConfigError, match=r"tokenizer\.path is .*tagged-model', but"):
        find_initial_model(*both({**request, "tokenizer": {"path": str(tagged)}}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_language": "zz"}, r"training\.init_from.* has no tag for zz \(it has xx, yy\)"),
        ({"target_language": "yy", "source_tag": "loud"}, r"has no source tag loud \(it has noisy\)"),
        ({}, "the model has target tags; set its target_language"),
    ],
)
def test_missing_target_or_source_tag_is_refused(
    tagged: Path, new: dict[str, str], tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    request = request_for({**new, **changes}, tmp_path / "out", init_from=str(tagged))
    with pytest.raises(ConfigError, match=message):
        training_pipeline.train(request, quiet=True)


def test_tags_cannot_be_removed_or_added(old: Path, tagged: Path, new: dict[str, str], tmp_path: Path) -> None:
    request = request_for(new, tmp_path / "out", init_from=str(tagged))
    request["data"]["target_tags"] = False
    with pytest.raises(ConfigError, match=r"data\.target_tags is false, but the model in .* has tags"):
        training_pipeline.train(request, quiet=True)
    corpus = {**new, "source_language": "xx", "target_language": "yy", "both_directions": True}
    with pytest.raises(ConfigError, match=r"has no tag for xx, yy \(it has none\)"):
        training_pipeline.train(request_for(corpus, tmp_path / "out", init_from=str(old)), quiet=True)


def test_rows_longer_than_learned_positions_are_refused(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    request = request_for(new, tmp_path / "learned", steps=1)
    request |= {"preset": "tiny", "model": {**SHAPE, "positions": "learned", "max_length": 64}}
    training_pipeline.train({**request, "tokenizer": {"path": str(old)}}, quiet=True)
    longer = request_for(new, tmp_path / "out", init_from=str(tmp_path / "learned"))
    longer["data"]["row_width"] = 128
    with pytest.raises(ConfigError, match=r"data\.row_width is 128, but .* learned positions up to 64"):
        training_pipeline.train(longer, quiet=True)


def test_invalid_initial_model_is_refused(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    exported = tmp_path / "exported"
    exported.mkdir()
    (exported / "heedful.json").write_text("{}")
    for name, message in (
        ("nothing", r"training\.init_from: nothing: there is no such model directory, and no model of this name"),
        (str(tmp_path / "no" / "where"), r"training\.init_from: .*where: there is no such model directory"),
        (str(tmp_path / "empty"), "empty is empty"),
        (str(exported), "was exported for CTranslate2; name the model directory"),
    ):
        with pytest.raises(HeedfulError, match=message):
            training_pipeline.train(request_for(new, tmp_path / "out", init_from=name), quiet=True)
    with pytest.raises(ConfigError, match="is also the output; choose another"):
        training_pipeline.train(request_for(new, old, init_from=str(old)), overwrite=True, quiet=True)


@pytest.mark.parametrize("empty", ["", "  "])
@pytest.mark.parametrize("key", ["training.init_from", "tokenizer.path", "data.prepared"])
def test_empty_init_from_is_refused(new: dict[str, str], tmp_path: Path, key: str, empty: str) -> None:
    request = request_for(new, tmp_path / "out")
    section, name = key.split(".")
    request.setdefault(section, {})[name] = empty
    with pytest.raises(ConfigError, match=rf"^{key} is empty; give a name or a path, or leave it out"):
        training_pipeline.train(request, quiet=True)
    assert not (tmp_path / "out").exists()
    request[section][name] = "none"
    assert getattr(getattr(build_config(request, "base"), section), name) is None


def test_damaged_initial_weights_are_refused_first(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    """The error comes before an earlier run, which would be replaced, is deleted."""
    damaged = shutil.copytree(old, tmp_path / "damaged", ignore=shutil.ignore_patterns("training"))
    weights = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    training_pipeline.train(request_for(new, tmp_path / "out", init_from=str(old), steps=1), quiet=True)
    states = list((tmp_path / "out" / "training" / "states").iterdir())
    request = request_for(new, tmp_path / "out", init_from=str(damaged))
    with pytest.raises(HeedfulError, match=r"damaged.model\.safetensors: the contents are not what was saved"):
        training_pipeline.train(request, overwrite=True, quiet=True)
    assert states and list((tmp_path / "out" / "training" / "states").iterdir()) == states


def test_experiments_refuse_init_from(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training\.init_from: the models of an experiment are trained from scratch"):
        compare(request_for(new, tmp_path / "out", init_from=str(old)), plots=False, quiet=True)
    assert not (tmp_path / "out").exists()


def test_prepare_and_dry_run_use_the_initial_model(old: Path, new: dict[str, str], tmp_path: Path) -> None:
    config = build_config(with_initial_model(request_for(new, old, init_from=str(old))), "base")
    assert (config.tokenizer.path, config.preset) == (str(old), "tiny")
    assert config.model.d_model == 32
    assert with_initial_model({"output": "x"}) == {"output": "x"}


def test_preflight_knows_initial_directions(
    tagged: Path, one_way: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = request_for(one_way, tmp_path / "out", init_from=str(tagged))
    request["data"]["test"] = [turned(one_way, source_language="yy", target_language="xx")]
    print_preflight(build_config(with_initial_model(request), "base"), ConsoleReporter(quiet=True))
    assert "forward.up + forward.low" in capsys.readouterr().out
