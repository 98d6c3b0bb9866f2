"""Adam, Muon, learning rate schedules and budgets."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from heedful.build_model import build_model
from heedful.config import ModelConfig, TrainingConfig
from heedful.config_loading import from_mapping
from heedful.errors import ConfigError
from heedful.training.checkpoint import load_state
from heedful.training.optimizer import (
    Budget,
    Muon,
    Schedule,
    TrainingProgress,
    build_optimizer,
    layer_matrices,
    load_optimizer_tensors,
    optimizer_tensors,
    orthogonalise,
    set_learning_rate,
)
from heedful.training.step import TrainingStep
from tests.training.small_runs import CPU, MODEL, VOCAB, Recorder, build, copying_store, make_loop, random_batch, same

PLAIN = replace(MODEL, dropout=0.0)


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(VOCAB, 4), nn.Linear(4, 3), nn.LayerNorm(3)).double()


def fill_gradients(model: nn.Module, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=chance, dtype=parameter.dtype)


def test_adam_without_decay_is_papers() -> None:
    model, config = small_net(), TrainingConfig()
    optimizer = build_optimizer(model, config)
    (beta1, beta2), epsilon = (0.9, 0.98), 1e-9
    mine = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    first = {name: torch.zeros_like(tensor) for name, tensor in mine.items()}
    second = {name: torch.zeros_like(tensor) for name, tensor in mine.items()}
    for step, rate in enumerate((1e-3, 2e-3, 5e-4, 1e-2), start=1):
        fill_gradients(model, step)
        set_learning_rate(optimizer, rate)
        optimizer.step()
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            assert isinstance(gradient, Tensor)
            first[name] = beta1 * first[name] + (1 - beta1) * gradient
            second[name] = beta2 * second[name] + (1 - beta2) * gradient**2
            unbiased = first[name] / (1 - beta1**step), second[name] / (1 - beta2**step)
            mine[name] = mine[name] - rate * unbiased[0] / (unbiased[1].sqrt() + epsilon)
            torch.testing.assert_close(parameter.detach(), mine[name], rtol=1e-10, atol=1e-12)


def test_weight_decay_applies_to_linear_matrices_only() -> None:
    model = build()
    optimizer = build_optimizer(model, TrainingConfig(weight_decay=0.5))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, parameter in model.named_parameters():
        decays = parameter.dim() == 2 and id(parameter) not in embeddings
        expected = before[name] * (1 - 0.1 * 0.5) if decays else before[name]
        torch.testing.assert_close(parameter.detach(), expected, msg=name)
    assert any(parameter.dim() == 2 and id(parameter) not in embeddings for parameter in model.parameters())


@pytest.mark.parametrize(("decay", "num_groups"), [(0.0, 1), (0.1, 2)])
def test_every_parameter_is_in_one_group(decay: float, num_groups: int) -> None:
    model = build(MODEL)
    groups = build_optimizer(model, TrainingConfig(weight_decay=decay)).param_groups
    assert len(groups) == num_groups  # each group is a separate update
    learned = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(learned) == sorted({id(parameter) for parameter in model.parameters()})


def test_optimizer_tensors_roundtrip() -> None:
    """An optimizer with restored moments makes the same updates, bit for bit."""
    models = small_net(), small_net()
    optimizers = [build_optimizer(model, TrainingConfig(weight_decay=0.01)) for model in models]
    set_learning_rate(optimizers[0], 1e-2)
    for seed in range(3):
        fill_gradients(models[0], seed)
        optimizers[0].step()
    tensors = optimizer_tensors(optimizers[0], models[0])
    assert {f"{moment}.0.weight" for moment in ("exp_avg", "exp_avg_sq", "step")} <= tensors.keys()
    models[1].load_state_dict(models[0].state_dict())
    load_optimizer_tensors(optimizers[1], models[1], {name: tensor.clone() for name, tensor in tensors.items()})
    for model, optimizer in zip(models, optimizers, strict=True):
        set_learning_rate(optimizer, 1e-3)
        fill_gradients(model, 7)
        optimizer.step()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)
    assert all(
        int(tensor) == 4 for name, tensor in optimizer_tensors(optimizers[1], models[1]).items() if "step" in name
    )


def random_matrices(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def fill_random_gradients(model: nn.Module, seed: int) -> None:
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
    """Without oneDNN, which crashes on processors with bf16 matrix units that the system has not enabled."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    matrices = random_matrices(*shape, dtype=dtype) * 1e-3
    found = orthogonalise(matrices)
    assert found.shape == matrices.shape
    assert found.dtype == dtype
    values = torch.linalg.svdvals(found.float())
    assert values.min() > 0.3  # the smallest of a square random matrix are 0.01 of the largest
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices.float(), full_matrices=False)
    mixed = u.mT @ found.float() @ v.mT  # diagonal if the singular vectors are equal
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
    """Both in single precision; tests/test_gpu.py covers bf16."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    ours, theirs = build(PLAIN), build(PLAIN)
    mine = build_optimizer(ours, TrainingConfig(optimizer="muon", weight_decay=decay))
    reference = torch.optim.Muon(
        layer_matrices(theirs), lr=0.01, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    set_learning_rate(mine, 0.01)
    for seed in range(4):
        for model, optimizer in ((ours, mine), (theirs, reference)):
            fill_random_gradients(model, seed)
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
    assert sorted(len(stack) for stack in optimizer.stacks.values()) == [2, 4, 12]  # equal shapes are stacked


def test_muon_update_has_size_of_adam() -> None:
    """The root mean square of a step is near 0.2 times the rate, for any shape and scale of the gradient."""
    model = build(replace(PLAIN, d_model=32, d_ff=128))
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon"))
    before = copy.deepcopy(model.state_dict())
    fill_random_gradients(model, 0)
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


def rates(config: TrainingConfig, num_steps: int, d_model: int = 512) -> list[float]:
    """The learning rate at each step of a run."""
    schedule = Schedule(config, d_model)
    return [schedule.rate(step, (step - 1) / num_steps) for step in range(1, num_steps + 1)]


@given(
    step=st.integers(1, 300_000),
    warmup=st.integers(1, 20_000),
    d_model=st.sampled_from([64, 512, 1024]),
    factor=st.sampled_from([None, 0.5, 2.0]),
)
def test_paper_schedule_is_formula_of_section_5_3(step: int, warmup: int, d_model: int, factor: float | None) -> None:
    config = TrainingConfig(steps=300_000, warmup_steps=warmup, learning_rate_factor=factor)
    formula = (factor or 1.0) * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert Schedule(config, d_model).rate(step, step / 300_000) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("schedule", ["paper", "inverse_sqrt"])
def test_learning_rate_scales_paper_schedule(schedule: str) -> None:
    config = TrainingConfig(steps=2000, warmup_steps=100, schedule=schedule, learning_rate=7e-4)
    found = rates(config, 2000)
    assert max(found) == found[99] == pytest.approx(7e-4)
    formula = [min(step**-0.5, step * 100**-1.5) for step in range(1, 2001)]
    assert found == pytest.approx([7e-4 * value / max(formula) for value in formula])


def test_default_schedule_of_long_run_is_papers() -> None:
    schedule = Schedule(TrainingConfig(steps=100_000), 512)
    assert schedule.warmup_steps == 4000
    for step in (1, 100, 4000, 4001, 99_999):
        formula = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert schedule.rate(step, step / 100_000) == pytest.approx(formula)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_cosine_and_linear_end_at_final_ratio(schedule: str, final: float) -> None:
    config = TrainingConfig(
        steps=1000, warmup_steps=50, schedule=schedule, learning_rate=1e-3, final_learning_rate_ratio=final
    )
    found = rates(config, 1000)
    assert found[:50] == pytest.approx([1e-3 * step / 50 for step in range(1, 51)])
    assert all(earlier > later for earlier, later in pairwise(found[50:]))
    assert Schedule(config, 512).rate(1001, 1.0) == pytest.approx(1e-3 * final)
    assert found[50] == pytest.approx(1e-3)  # the decay starts at the end of the warm-up, from the peak
    half = Schedule(config, 512).rate(526, 0.525)
    assert half == pytest.approx(1e-3 * (final + (1 - final) * 0.5))
    quarter = Schedule(config, 512).rate(763, 0.05 + 0.75 * 0.95)
    share = 0.25 if schedule == "linear" else 0.5 * (1 + math.cos(0.75 * math.pi))
    assert quarter == pytest.approx(1e-3 * (final + (1 - final) * share))


def test_cosine_decays_from_end_of_detected_warmup() -> None:
    schedule = Schedule(TrainingConfig(epochs=1, schedule="linear", learning_rate=1e-3), 512)
    found = [schedule.rate(step + 1, step / 200) for step in range(200)]
    assert max(found) == pytest.approx(1e-3)
    assert all(abs(later - earlier) < 1e-4 for earlier, later in pairwise(found))  # no jumps


def test_constant_schedule_stays_at_peak() -> None:
    config = TrainingConfig(steps=100, warmup_steps=10, schedule="constant", learning_rate=2e-3)
    assert rates(config, 100)[9:] == [2e-3] * 91


@pytest.mark.parametrize(("steps", "warmup"), [(5, 1), (300, 30), (39_000, 3900), (1_000_000, 4000)])
def test_warmup_is_a_tenth_of_short_budget(steps: int, warmup: int) -> None:
    assert Schedule(TrainingConfig(steps=steps), 512).warmup_steps == warmup


@pytest.mark.parametrize("schedule", ["paper", "inverse_sqrt", "cosine", "linear", "constant"])
def test_warmup_is_detected_without_step_budget(schedule: str) -> None:
    """Two hundred steps, not known in advance: the rate rises during a tenth of them and never jumps."""
    found = Schedule(TrainingConfig(minutes=1, schedule=schedule, learning_rate=1e-3), 512)
    course = [found.rate(step, (step - 1) / 200) for step in range(1, 201)]
    assert 20 <= (found.warmup_steps or 0) <= 22
    assert max(course) == pytest.approx(1e-3, rel=0.06)
    assert course.index(max(course)) in range(19, 23)
    rising = course[: course.index(max(course)) + 1]
    assert all(0 < earlier < later for earlier, later in pairwise(rising))
    assert max(abs(later - earlier) for earlier, later in pairwise(course)) < 1.2e-4


def test_first_limit_sets_warmup() -> None:
    """One minute ends after 200 of 10,000 steps: otherwise the run would end during the warm-up."""
    schedule = Schedule(TrainingConfig(steps=10_000, minutes=1, schedule="cosine", learning_rate=1e-3), 512)
    course = [schedule.rate(step, (step - 1) / 200) for step in range(1, 201)]
    assert course.index(max(course)) in range(19, 23)
    assert course[-1] < 1e-6 + 0.001 * max(course)


def test_warmup_is_at_most_4000_steps() -> None:
    schedule = Schedule(TrainingConfig(epochs=100, learning_rate=1e-3, schedule="inverse_sqrt"), 512)
    course = [schedule.rate(step, step / 1_000_000) for step in range(1, 5000)]
    assert schedule.warmup_steps == 4000
    assert course.index(max(course)) == 3999


def test_detected_warmup_can_be_restored() -> None:
    config = TrainingConfig(minutes=1, learning_rate=1e-3, schedule="inverse_sqrt")
    whole = Schedule(config, 512)
    course = [whole.rate(step, (step - 1) / 200) for step in range(1, 201)]
    resumed = Schedule(config, 512, warmup_steps=whole.warmup_steps)
    assert [resumed.rate(step, (step - 1) / 200) for step in range(100, 201)] == course[99:]


def test_fraction_used_is_that_of_first_limit() -> None:
    budget = Budget(steps=100, epochs=4, tokens=10_000, minutes=2)
    assert budget.fraction_used(TrainingProgress()) == 0
    assert budget.fraction_used(TrainingProgress(steps=50, epochs=1, tokens=1000, seconds=12)) == 0.5
    assert budget.fraction_used(TrainingProgress(steps=10, epochs=3, tokens=1000, seconds=12)) == 0.75
    assert budget.fraction_used(TrainingProgress(steps=10, epochs=1, tokens=9000, seconds=12)) == 0.9
    assert budget.fraction_used(TrainingProgress(steps=10, epochs=1, tokens=1000, seconds=120)) == 1.0
    assert Budget(minutes=1).fraction_used(TrainingProgress(steps=10**6, seconds=30)) == 0.5


def test_budget_of_config() -> None:
    assert Budget.of(TrainingConfig(steps=3, minutes=2.5)) == Budget(steps=3, minutes=2.5)
