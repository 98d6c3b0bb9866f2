"""Muon: orthogonal updates for the matrices inside the layers, Adam for the rest, one learning rate."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from heedful.build_model import build_model
from heedful.config import ModelConfig, TrainingConfig
from heedful.config_loading import from_mapping
from heedful.errors import ConfigError
from heedful.training.checkpoint import load_state
from heedful.training.optimizer import (
    Muon,
    build_optimizer,
    layer_matrices,
    optimizer_tensors,
    orthogonalise,
    set_learning_rate,
)
from heedful.training.step import TrainingStep
from tests.training.small_runs import CPU, MODEL, Recorder, build, copying_store, make_loop, random_batch, same

PLAIN = replace(MODEL, dropout=0.0)


def random_matrices(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def fill_gradients(model: nn.Module, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=chance)


def muon_step(model: nn.Module, **training: object) -> TrainingStep:
    return TrainingStep(model, TrainingConfig(device="cpu", optimizer="muon", **training), CPU)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(4, 16, 16), (3, 12, 48), (3, 48, 12), (1, 5, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_orthogonalise_sets_singular_values_near_one(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Without oneDNN, which dies on processors that announce bf16 matrix units which their system has not enabled."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    matrices = random_matrices(*shape, dtype=dtype) * 1e-3
    found = orthogonalise(matrices)
    assert found.shape == matrices.shape
    assert found.dtype == dtype
    values = torch.linalg.svdvals(found.float())
    assert values.min() > 0.3  # the least of a square random matrix are tiny before: 0.01 of the largest
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices.float(), full_matrices=False)
    mixed = u.mT @ found.float() @ v.mT  # diagonal, if the singular vectors are the same
    off = mixed - torch.diag_embed(torch.diagonal(mixed, dim1=1, dim2=2))
    assert off.abs().max() < (1e-4 if dtype == torch.float32 else 0.1)


def test_orthogonalise_treats_matrices_independently() -> None:
    for shape in ((5, 8, 24), (5, 24, 8)):
        matrices = random_matrices(*shape)
        together = orthogonalise(matrices)
        for index in range(len(matrices)):
            alone = orthogonalise(matrices[index : index + 1])[0]
            torch.testing.assert_close(together[index], alone, rtol=1e-5, atol=1e-6)


def test_orthogonalise_zero_is_zero() -> None:
    assert torch.equal(orthogonalise(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_muon_equals_torch_muon(monkeypatch: pytest.MonkeyPatch, decay: float) -> None:
    """In single precision both: what bf16 does to numbers is for a GPU to show."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    ours, theirs = build(PLAIN), build(PLAIN)
    mine = build_optimizer(ours, TrainingConfig(optimizer="muon", weight_decay=decay))
    reference = torch.optim.Muon(
        layer_matrices(theirs), lr=0.01, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    set_learning_rate(mine, 0.01)
    for seed in range(4):
        for model, optimizer in ((ours, mine), (theirs, reference)):
            fill_gradients(model, seed)
            optimizer.step()
    untouched = build(PLAIN)
    for one, other, before in zip(*map(layer_matrices, (ours, theirs, untouched)), strict=True):
        assert float((one - before).detach().abs().max()) > 0.01
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tying", ["three_way", "none"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_muon_updates_layer_matrices_only(tying: str, decay: float) -> None:
    model = build(replace(MODEL, tying=tying, positions="learned", activation="swiglu"))  # type: ignore[arg-type]
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon", weight_decay=decay))
    assert isinstance(optimizer, Muon)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    by_muon = [names[id(matrix)] for stack in optimizer.stacks.values() for matrix in stack]
    by_adam = [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted([*by_muon, *by_adam]) == sorted(names.values())  # each once
    expected = {
        name for name in names.values() if ".layers." in name and name.endswith("weight") and "norm" not in name
    }
    assert set(by_muon) == expected
    assert len(by_muon) == 4 + 3 + 4 + 4 + 3
    assert sorted(len(stack) for stack in optimizer.stacks.values()) == [2, 4, 12]  # equal shapes go together


def test_muon_update_has_size_of_adam() -> None:
    """The root of the mean square of a step is near 0.2 times the rate, whatever the shape and the gradient's scale."""
    model = build(replace(PLAIN, d_model=32, d_ff=128))
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon"))
    before = copy.deepcopy(model.state_dict())
    fill_gradients(model, 0)
    set_learning_rate(optimizer, 0.01)
    optimizer.step()
    for name in ("encoder.layers.0.feed_forward.inner.weight", "decoder.layers.0.cross_attention.query.weight"):
        size = (model.state_dict()[name] - before[name]).square().mean().sqrt()
        assert 0.7 * 0.002 < float(size) < 1.2 * 0.002


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("num_before", [0, 2])
def test_non_finite_update_is_skipped(poison: float, num_before: int) -> None:
    step = muon_step(build(PLAIN), weight_decay=0.1)
    spared = muon_step(build(PLAIN), weight_decay=0.1)
    for seed in range(num_before):
        for each in (step, spared):
            each(random_batch(seed=seed), 40, 1e-3)
    weight = dict(step.model.named_parameters())["decoder.layers.0.feed_forward.output.weight"]
    handle = weight.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor(3), poison))
    assert step(random_batch(seed=5), 40, 1e-3).skipped
    handle.remove()
    assert same(step.model.state_dict(), spared.model.state_dict())
    for each in (step, spared):
        assert not each(random_batch(seed=6), 40, 1e-3).skipped
    assert same(step.model.state_dict(), spared.model.state_dict())
    assert same(optimizer_tensors(step.optimizer, step.model), optimizer_tensors(spared.optimizer, spared.model))


def test_resumed_muon_run_equals_uninterrupted(tmp_path: Path) -> None:
    store = copying_store(tmp_path / "store", 30)
    settings = {"steps": 9, "optimizer": "muon", "weight_decay": 0.01, "validate_every": 50, "clip_norm": 1.0}
    whole = make_loop(tmp_path / "whole", store, **settings)
    whole.run()
    first = make_loop(tmp_path / "parts", store, **{**settings, "steps": 4})
    first.run()
    saved = optimizer_tensors(first.step.optimizer, first.model)
    assert "momentum.encoder.layers.0.self_attention.query.weight" in saved
    assert "exp_avg.encoder.layers.0.self_attention.query.weight" not in saved
    assert "exp_avg_sq.source_embedding.weight" in saved
    second = make_loop(tmp_path / "parts", store, **settings)
    state = load_state(tmp_path / "parts" / "states", lambda note: None)
    assert state is not None
    second.restore(state)
    second.run()
    assert same(second.model.state_dict(), whole.model.state_dict())
    assert same(
        optimizer_tensors(second.step.optimizer, second.model), optimizer_tensors(whole.step.optimizer, whole.model)
    )


def test_muon_learns_to_copy(tmp_path: Path) -> None:
    recorder = Recorder()
    model = replace(MODEL, d_model=32, d_ff=64, dropout=0.0)
    loop = make_loop(
        tmp_path / "run",
        copying_store(tmp_path / "store", 48),
        model=model,
        reporter=recorder,
        steps=150,
        optimizer="muon",
        learning_rate=1e-2,
        label_smoothing=0.0,
        schedule="cosine",
        validate_every=150,
    )
    loop.run()
    assert recorder.train[0].loss > 3
    assert recorder.valid[-1].loss < 0.5


def test_muon_refuses_unsupported_settings() -> None:
    with pytest.raises(ConfigError, match=r"training\.optimizer=muon .*training\.sharding=full \(FSDP2\)"):
        TrainingConfig(optimizer="muon", sharding="full")
    with pytest.raises(ConfigError, match=r"training\.optimizer: 'moun' is not one of adam, muon"):
        from_mapping(TrainingConfig, {"optimizer": "moun"}, "training")
    rival = build_model(ModelConfig(architecture="convolutional", d_model=8, d_ff=8, num_heads=2))
    with pytest.raises(ConfigError, match=r"training\.optimizer=muon supports Transformers only; use adam"):
        build_optimizer(rival, TrainingConfig(optimizer="muon"))
