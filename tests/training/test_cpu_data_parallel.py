"""Data parallelism over the cores of a CPU gives the loss and gradients of the reference model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.config import TrainingConfig
from heedful.data.packing import Batch
from heedful.fused.train_cpu import Dropout, Grid, group_by_length
from heedful.model.transformer import Transformer
from heedful.training.distributed import CpuDataParallel
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.step import TrainingStep
from tests.training.small_runs import CPU, MODEL, build, random_batch, same

PLAIN = replace(MODEL, dropout=0.0, num_encoder_layers=2, num_decoder_layers=2)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def gradients(model: Transformer) -> dict[str, Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def readable(model: Transformer, batch: Batch, scale: float) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    logits = model(**batch.inputs)
    loss = smoothed_cross_entropy(logits, batch.target_output, batch.target_segments, smoothing=0.1).loss_sum
    (loss * scale).backward()
    found = gradients(model)
    model.zero_grad()
    return loss.detach(), found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "post", "final_norm": True},
        {"positions": "rotary", "activation": "swiglu", "key_dim": 4},
        {"positions": "learned", "norm": "rms", "tying": "none", "bias": False},
        {"activation": "gelu", "tying": "target", "attention_scoring": "dot", "final_norm": False},
    ],
    ids=lambda changes: "-".join(changes) or "plain",
)
def test_loss_and_gradients_equal_reference_model(changes: dict[str, Any], threads: int) -> None:
    model = build(replace(PLAIN, **changes)).double()
    with torch.no_grad():
        for parameter in model.parameters():  # biases too: at zero, a missing bias would not be noticed
            parameter.add_(0.1 * torch.randn_like(parameter))
    batch = random_batch(9)
    batch.target_segments[4] = 0  # sources without targets
    batch.source_segments[7] = 0  # and targets without sources
    loss, wanted = readable(model, batch, 0.01)
    cores = CpuDataParallel(model, smoothing=0.1)
    assert cores.num_workers == threads
    torch.testing.assert_close(cores(batch, 0.01), loss, rtol=1e-12, atol=0)
    found = gradients(model)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-12, msg=name)
    assert torch.get_num_threads() == threads  # unchanged


def test_float32_gradients_are_close_to_float64(threads: int) -> None:
    model, batch = build(PLAIN), random_batch(9)
    loss, wanted = readable(model, batch, 0.01)
    torch.testing.assert_close(CpuDataParallel(model, smoothing=0.1)(batch, 0.01), loss, rtol=1e-5, atol=0)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=1e-6, msg=name)


def test_microbatches_accumulate_and_steps_reset_gradients(threads: int) -> None:
    model, batch = build(PLAIN).double(), random_batch(9)
    _, wanted = readable(model, batch, 1.0)
    cores = CpuDataParallel(model, smoothing=0.1)
    for _ in range(2):
        model.zero_grad()
        for part in (batch.rows(0, 4), batch.rows(4, 9)):
            cores(part, 1.0)
        for name, gradient in gradients(model).items():
            torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=1e-11, msg=name)


def test_same_seed_gives_same_bits(threads: int) -> None:
    def run(seed: int) -> dict[str, Tensor]:
        noisy = replace(MODEL, dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
        step = TrainingStep(build(noisy), TrainingConfig(device="cpu"), CPU)
        assert step.cpu_parallel is not None
        torch.manual_seed(seed)
        for number in range(3):
            batch = random_batch(9, seed=number)
            step(batch, batch.num_tokens, 1e-2)
        return {name: tensor.clone() for name, tensor in step.model.state_dict().items()}

    assert same(run(1), run(1))
    assert not same(run(1), run(2))


def test_hooks_force_reference_path() -> None:
    step, batch = TrainingStep(build(), TrainingConfig(device="cpu"), CPU), random_batch()
    calls: list[int] = []
    handle = step.model.register_forward_hook(lambda *_: calls.append(1))
    step(batch, batch.num_tokens, 1e-3)
    handle.remove()
    step(batch, batch.num_tokens, 1e-3)
    assert calls == [1]


@pytest.mark.parametrize(
    ("changes", "training"),
    [
        ({"norm": "batch"}, {}),
        ({"attention_scoring": "additive"}, {}),
        ({}, {"r_drop": 1.0}),
        ({}, {"precision": "bf16"}),
    ],
)
def test_unsupported_models_use_reference_path(changes: dict[str, Any], training: dict[str, Any]) -> None:
    step = TrainingStep(build(replace(MODEL, **changes)), TrainingConfig(device="cpu", **training), CPU)
    assert step.cpu_parallel is None


def test_groups_contain_every_pair_once_sorted_by_length() -> None:
    batch = random_batch(20)
    groups = group_by_length(batch, 4)
    assert sum(group.target_output.numel() for group in groups) == batch.num_tokens
    pairs = [
        (
            batch.source[row][batch.source_segments[row] == segment].tolist(),
            batch.target_output[row][batch.target_segments[row] == segment].tolist(),
        )
        for row in range(20)
        for segment in (1, 2)
    ]
    found = []
    for group in groups:
        sources = group.source.split(group.source_lengths.tolist())
        targets = group.target_output.split(group.target_lengths.tolist())
        found += [(source.tolist(), target.tolist()) for source, target in zip(sources, targets, strict=True)]
    assert sorted(found) == sorted(pairs)
    longest = [torch.maximum(group.source_lengths, group.target_lengths) for group in groups]
    assert all(short.max() <= long.min() for short, long in pairwise(longest))


def test_grid_pad_and_unpad_are_inverse() -> None:
    grid = Grid.of(torch.tensor([2, 3]), num_heads=2)
    x = torch.arange(10.0)[:, None].repeat(1, 2).view(5, 4)  # five tokens, two heads of two features
    lines = grid.pad(x)
    assert lines[..., 0].tolist() == [[0, 2, 0], [1, 3, 0], [4, 6, 8], [5, 7, 9]]
    assert torch.equal(grid.unpad(lines), x)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_dropout_rate_and_scale(dropout: float) -> None:
    factors = Dropout(3).factors(torch.empty(300, 333), dropout)
    kept = factors > 0
    assert float(kept.float().mean()) == pytest.approx(1 - dropout, abs=0.005)
    assert torch.equal(factors[kept], torch.full_like(factors[kept], 1 / (1 - dropout)))
    assert float(kept.float().mean(dim=0).std()) < 0.04  # all columns are equally likely
