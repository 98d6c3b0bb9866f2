"""The weight shapes computed from a configuration equal those of the model that torch builds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heedful.build_model import build_model
from heedful.config import ModelConfig
from heedful.model_dir.weights import stored_names, weight_shapes
from tests.small_models import SMALL, VARIANTS

BASELINES = {
    "recurrent": replace(SMALL, architecture="recurrent"),
    "lstm": replace(SMALL, architecture="recurrent", cell="lstm", attention_scoring="additive"),
    "predictive": replace(SMALL, architecture="recurrent", cross_attention="local_predictive"),
    "convolutional": replace(SMALL, architecture="convolutional"),
}


@pytest.mark.parametrize("config", (VARIANTS | BASELINES).values(), ids=(VARIANTS | BASELINES).keys())
def test_computed_shapes_equal_built_model(config: ModelConfig) -> None:
    model = build_model(config)
    stored = set(stored_names(model).values())
    built = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name in stored}
    assert weight_shapes(config) == built
    assert all(tensor.is_floating_point() for tensor in model.state_dict().values())
