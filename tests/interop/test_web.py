"""What model.json says of a model; the files and the page are tested in tests/web and tests/inspection."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heedful.build_model import build_model, num_parameters
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.interop.web import describe_architecture, export_web, manifest_of_served_model, model_files, part_of
from heedful.model_dir.weights import weight_shapes
from tests.baselines.test_baselines import VARIANTS as BASELINES
from tests.inspection.small_sites import save_small
from tests.small_models import VARIANTS


def test_manifest_names_the_languages_and_the_files(tmp_path: Path) -> None:
    files = model_files(save_small(tmp_path / "small"))
    assert list(files) == ["model.json", "weights.bin", "tokenizer.model"]
    content = files["model.json"].content
    assert isinstance(content, bytes)
    manifest = json.loads(content)
    assert manifest["name"] == manifest["title"] == "small"
    assert manifest["languages"]["de"] == {"en": "German", "zh": "德语"}
    assert manifest["tokenizers"] == ["tokenizer.model"]
    assert manifest["model"]["num_heads"] == 2
    described = manifest_of_served_model(tmp_path / "small", "other").content
    assert isinstance(described, bytes)
    assert json.loads(described) == {**manifest, "name": "other", "weights": "", "tokenizers": [], "files": {}}


def test_models_that_the_engine_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the native engine does not support"):
        export_web(save_small(tmp_path / "additive", attention_scoring="additive"), tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("config", [*VARIANTS.values(), *BASELINES.values()], ids=[*VARIANTS, *BASELINES])
def test_parameters_of_the_parts_are_those_of_the_model(config: ModelConfig) -> None:
    described = describe_architecture(config)
    assert described["num_parameters"] == num_parameters(build_model(config))
    assert sum(described["parameters"].values()) == described["num_parameters"]
    assert all(count > 0 for count in described["parameters"].values())
    json.dumps(described)
    if config.architecture == "transformer":
        parts = {name for name in described["parameters"] if ".layers." in name}
        sublayers = {"self_attention", "cross_attention", "feed_forward"}
        assert {part.rsplit(".", 1)[1].removesuffix("_norm") for part in parts} == sublayers
        assert {part_of(name) for name in weight_shapes(config)} == set(described["parameters"])
