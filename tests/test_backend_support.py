"""Every value of every model option is supported by a fast backend, with equal results, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch

from heedful.backend_support import SUPPORTED, Backend, require_support, supports, unsupported_options
from heedful.build_model import ARCHITECTURES, build_model
from heedful.config import Config, DecodingConfig, ModelConfig
from heedful.data.packing import Batch
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.errors import ConfigError
from heedful.fused.train_cpu import add_gradient, group_by_length
from heedful.fused.train_gpu import fused_losses, supports_batch
from heedful.fused.train_ops import Gradients
from heedful.interop.torch_nn import from_torch, to_torch
from heedful.model.transformer import Transformer
from heedful.model_dir.ctranslate2_format import ctranslate2_files
from heedful.model_dir.save_load import ModelArrays
from heedful.search_types import DecodeRequest, SpecialTokens
from heedful.training.loss import smoothed_cross_entropy
from tests.native.native_models import engine_of
from tests.small_models import VARIANTS, build

BASE = ModelConfig(
    source_vocab_size=20, target_vocab_size=20, d_model=32, d_ff=48, num_heads=2, num_encoder_layers=1,
    num_decoder_layers=1, max_length=32, dropout=0.0,
)  # fmt: skip
BACKENDS: tuple[Backend, ...] = get_args(Backend)
UNREAD = ("cell", "hard_attention_gradient")
"""Choices that a Transformer with global attention does not read."""


def choices() -> Iterator[tuple[str, Any]]:
    """Every value of every `Literal` field of `ModelConfig`."""
    for name, hint in get_type_hints(ModelConfig).items():
        if get_origin(hint) is Literal and name not in UNREAD:
            yield from ((name, value) for value in get_args(hint))


def config_with(name: str, value: Any) -> ModelConfig:
    changes: dict[str, Any] = {name: value}
    if name == "tying" and value != "three_way":
        changes["source_vocab_size"] = 18
    return replace(BASE, **changes)


def batch() -> Batch:
    segments = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 1, 1, 1, 0, 0, 0]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0], [0, 1, 2, 3, 4, 0, 0, 0]])
    source, target_input, target_output = torch.randint(4, 18, (3, 2, 8))
    return Batch(
        source=source,
        source_segments=segments,
        source_positions=positions,
        target_input=target_input,
        target_output=target_output,
        target_segments=segments,
        target_positions=positions,
    )


def readable_loss(model: Transformer, rows: Batch) -> torch.Tensor:
    logits = model(**rows.inputs)
    return smoothed_cross_entropy(logits, rows.target_output, rows.target_segments, smoothing=0.1).loss_sum.detach()


def check_gpu_training(model: Transformer, folder: Path) -> None:
    model, rows = model.double(), batch()
    assert supports_batch(model.config, 8)
    losses = fused_losses(model, rows, torch.tensor(1.0, dtype=torch.float64), Gradients(), smoothing=0.1)
    torch.testing.assert_close(losses.loss_sum, readable_loss(model, rows), rtol=1e-12, atol=0)


def check_cpu_training(model: Transformer, folder: Path) -> None:
    model, rows = model.double(), batch()
    losses = [add_gradient(model, group, 1.0, smoothing=0.1, seed=1) for group in group_by_length(rows, 2)]
    torch.testing.assert_close(torch.stack(losses).sum(), readable_loss(model, rows), rtol=1e-12, atol=0)


def check_cuda_graph_search(model: Transformer, folder: Path) -> None:
    special = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,))
    requests, config = (
        [DecodeRequest((5, 8, 3), (), "", 8), DecodeRequest((7, 9, 12, 4, 3), (), "", 8)],
        DecodingConfig(method="greedy"),
    )
    found, expected = (
        TorchEngine(model, special, use_cuda_graph=use_cuda_graph).decode(
            requests, config, align=False, constraint_factory=None
        )
        for use_cuda_graph in (True, False)
    )
    for request in requests:
        [[one], [other]] = found[request].hypotheses, expected[request].hypotheses
        assert one.tokens == other.tokens
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)


def check_native_engine(model: Transformer, folder: Path) -> None:
    source, target = [5, 8, 9, 3], [2, 7, 4, 11]
    found = engine_of(model, folder, precision="float32").logits(source, target)
    with torch.inference_mode():
        expected = model(torch.tensor([source]), torch.tensor([target]))[0].numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


class Pieces:
    """The part of a tokenizer that the export reads."""

    def __init__(self, config: ModelConfig) -> None:
        self.source_vocab_size, self.target_vocab_size = config.source_vocab_size, config.target_vocab_size

    def pieces(self, ids: range) -> list[str]:
        return [f"p{number}" for number in ids]

    source_pieces = pieces


def export(config: ModelConfig) -> dict[str, bytes]:
    weights = {name: tensor.numpy() for name, tensor in build(config).state_dict().items()}
    return ctranslate2_files(ModelArrays(weights, Config(model=config), Pieces(config), {}))  # type: ignore[arg-type]


def check_ctranslate2_export(model: Transformer, folder: Path) -> None:
    assert export(model.config)["model.bin"]
    config = model.config  # tests/decoding/test_ctranslate2_engine.py compares translations of these variants
    for name, value in choices():
        if getattr(config, name) == value and name != "architecture":
            assert any(getattr(variant, name) == value for variant in VARIANTS.values())


def check_torch_nn_export(model: Transformer, folder: Path) -> None:
    config, weights = from_torch(to_torch(model), source_vocab_size=20, target_vocab_size=20)
    assert (config.activation, config.norm_placement) == (model.config.activation, model.config.norm_placement)
    own = model.state_dict()
    assert all(torch.equal(tensor, own[name]) for name, tensor in weights.items())


CHECKS = {
    "gpu_training": check_gpu_training,
    "cpu_training": check_cpu_training,
    "cuda_graph_search": check_cuda_graph_search,
    "native_engine": check_native_engine,
    "ctranslate2_export": check_ctranslate2_export,
    "torch_nn_export": check_torch_nn_export,
}


@pytest.mark.parametrize(("name", "value"), list(choices()), ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_option_is_computed_or_refused(backend: Backend, name: str, value: Any, tmp_path: Path) -> None:
    config = config_with(name, value)
    if supports(backend, config):
        assert value in SUPPORTED[backend][name]  # type: ignore[operator]
        CHECKS[backend](build(config), tmp_path)
        return
    assert unsupported_options(backend, config) == [f"model.{name}={value}"]
    with pytest.raises(ConfigError, match=f"model.{name}={value}"):
        require_support(backend, config)


@pytest.mark.parametrize("backend", BACKENDS)
def test_supported_lists_existing_fields_and_values(backend: Backend) -> None:
    known = {field.name for field in fields(ModelConfig)}
    assert SUPPORTED[backend].keys() <= known
    listed = {(name, value) for name, rule in SUPPORTED[backend].items() if not callable(rule) for value in rule}
    literals = set(choices())
    assert {pair for pair in listed if pair[0] in {name for name, _ in literals}} <= literals


@pytest.mark.parametrize("backend", BACKENDS)
def test_unlisted_option_must_have_default(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {name: rule for name, rule in SUPPORTED[backend].items() if name != "positions"}
    monkeypatch.setitem(SUPPORTED, backend, table)
    assert supports(backend, BASE)
    assert unsupported_options(backend, replace(BASE, positions="learned")) == ["model.positions=learned"]


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != "transformer"])
def test_entry_points_refuse_other_architectures(architecture: str) -> None:
    config = replace(BASE, architecture=architecture)  # type: ignore[arg-type]
    assert not supports_batch(config, 8)
    with pytest.raises(ConfigError, match="architecture"):
        export(config)
    special = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,))
    with pytest.raises(ConfigError, match="Transformer"):
        TorchEngine(build_model(config), special, use_cuda_graph=True).decode(
            [], DecodingConfig(), align=False, constraint_factory=None
        )
