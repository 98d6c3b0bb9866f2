"""Checkpoints as files for the page: the weights are those of each checkpoint, the losses those of the log."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from heedful import Translator, training_pipeline
from heedful.inspection.static_site import SITE, site_files, site_models, write_site
from heedful.interop.web_checkpoints import MANIFEST, MAX_POINTS, checkpoint_files, read_losses, thin_curve
from heedful.model_dir.checkpoints import list_checkpoints
from heedful.native import available
from heedful.native.engine import NativeEngine
from heedful.search_types import special_tokens
from tests.test_training_pipeline import WORDS, request_for

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    request = request_for(folder, folder / "model", training__keep_checkpoints=5, training__ema_decay=0.0)
    request["training"] |= {"validate_every": 5, "log_every": 3, "final_weights": "last", "average_last": 0}
    training_pipeline.train(request, quiet=True)
    return folder / "model"


def manifest_of(model: Path) -> dict[str, Any]:
    content = checkpoint_files(model)[MANIFEST].content
    assert isinstance(content, bytes)
    return dict(json.loads(content))


def log_of(model: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (model / "training" / "log.jsonl").read_text("utf-8").splitlines()]


def test_weights_give_the_translations_of_each_checkpoint(model: Path, tmp_path: Path) -> None:
    files = checkpoint_files(model)
    described = manifest_of(model)["checkpoints"]
    assert [entry["step"] for entry in described] == [one.step for one in list_checkpoints(model)]
    assert {f"checkpoints/{entry['weights']}" for entry in described} == files.keys() - {MANIFEST}
    texts = [*WORDS[:6], "red cat runs", "one two"]
    distinct = set()
    for entry, checkpoint in zip(described, list_checkpoints(model), strict=True):
        file = files[f"checkpoints/{entry['weights']}"]
        assert (entry["bytes"], entry["sha256"]) == (file.size, file.sha256)
        file.write(tmp_path / entry["weights"])
        translator = Translator.load(checkpoint.directory, engine="native")
        tokenizer, config = translator.tokenizer, translator.config
        sources = [tokenizer.encode_source(text) for text in texts]
        engine = NativeEngine(tmp_path / entry["weights"])
        found = engine.translate_ids(
            sources,
            config,
            special_tokens(tokenizer),
            max_lengths=[config.max_extra_length + len(s) - 1 for s in sources],
        )
        expected = translator.translate(texts, checks=False, protect=False, split="never")
        for hypotheses, translation in zip(found, expected, strict=True):
            assert tokenizer.decode(hypotheses[0].tokens).strip() == translation.text.strip()
            assert hypotheses[0].log_prob == translation.log_prob
        distinct.add(tuple(translation.log_prob for translation in expected))
    assert len(distinct) == len(described)


def test_losses_are_those_of_the_log(model: Path) -> None:
    manifest = manifest_of(model)
    trained = {event["step"]: event["loss"] for event in log_of(model) if event["event"] == "train"}
    valid = {event["step"]: event["loss"] for event in log_of(model) if event["event"] == "valid"}
    assert sorted(trained) == [3, 6, 9, 10]
    assert sorted(valid) == [5, 10]
    for entry in manifest["checkpoints"]:
        window = next((step for step in sorted(trained) if step >= entry["step"] > 0), None)
        assert entry["train_loss"] == (None if window is None else pytest.approx(trained[window], abs=1e-5))
        assert entry["valid_loss"] == (
            pytest.approx(valid[entry["step"]], abs=1e-5) if entry["step"] in valid else None
        )
    curve = manifest["curve"]
    for name, losses in (("train_loss", trained), ("valid_loss", valid)):
        found = {point["step"]: point[name] for point in curve if name in point}
        assert found == pytest.approx(losses, abs=1e-5)
    assert [point["step"] for point in curve] == sorted(point["step"] for point in curve)


def test_run_without_checkpoints_or_without_its_log(model: Path, tmp_path: Path) -> None:
    assert checkpoint_files(list_checkpoints(model)[0].directory) == {}
    moved = tmp_path / "moved"
    shutil.copytree(model, moved, ignore=shutil.ignore_patterns("training"))
    manifest = manifest_of(moved)
    assert manifest["curve"] == []
    assert {entry["train_loss"] for entry in manifest["checkpoints"]} == {None}
    assert [entry["sha256"] for entry in manifest["checkpoints"]] == [
        entry["sha256"] for entry in manifest_of(model)["checkpoints"]
    ]


def test_log_that_was_cut_off_or_has_losses_that_are_not_finite(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    events = [{"event": "train", "step": step, "loss": loss} for step, loss in ((1, 2.0), (2, None), (3, 1.0))]
    log.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"event": "train", "st')
    assert read_losses(log) == {"train_loss": {1: 2.0, 3: 1.0}, "valid_loss": {}}


@pytest.mark.parametrize("count", [0, 1, MAX_POINTS, MAX_POINTS + 1, 12_345])
def test_long_curves_are_thinned_evenly(count: int) -> None:
    losses = {step: math.exp(-step) for step in range(1, count + 1)}
    thinned = thin_curve(losses)
    assert len(thinned) <= MAX_POINTS
    assert thinned.items() <= losses.items()
    assert list(thinned)[-1:] == list(losses)[-1:]
    assert len({after - before for before, after in zip(thinned, list(thinned)[1:], strict=False)}) <= 1


def test_site_has_the_checkpoints_of_its_models(model: Path, tmp_path: Path) -> None:
    models = site_models([model, list_checkpoints(model)[0].directory])
    content = site_files(models)[SITE].content
    assert isinstance(content, bytes)
    entries = json.loads(content)["models"]
    assert [entry["has_checkpoints"] for entry in entries] == [True, False]
    write_site(models, tmp_path / "site")
    folder = tmp_path / "site" / "models" / "model"
    listed = json.loads((folder / MANIFEST).read_text("utf-8"))["checkpoints"]
    assert entries[0]["bytes"] == sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    for entry in listed:
        assert (folder / "checkpoints" / entry["weights"]).stat().st_size == entry["bytes"]
