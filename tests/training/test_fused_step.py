"""The fused training step equals the usual one, which replaces it where it cannot run; on a CPU, in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.config import TrainingConfig
from heedful.data.batch_stream import worst_batch
from heedful.data.packing import Batch
from heedful.errors import TrainingError
from heedful.fused.train_ops import Gradients
from heedful.training import step as steps
from heedful.training.mixed_precision import FlatAdam, LowPrecisionCopy, supports_flat_adam
from heedful.training.optimizer import build_optimizer, load_optimizer_tensors, optimizer_tensors
from heedful.training.step import TrainingStep, wants_fused_step
from tests.training.small_runs import CPU, MODEL, VOCAB, build, random_batch

SHAPE = replace(MODEL, dropout=0.0, d_model=32, num_decoder_layers=2, max_length=256)


class EagerStep:
    """Replaces the CUDA graph."""

    def __init__(self, work: Callable[[Batch], tuple[Tensor, ...]], device: torch.device) -> None:
        self.work = work

    def __call__(self, batch: Batch) -> tuple[Tensor, ...]:
        return self.work(batch)


def fused_step(monkeypatch: pytest.MonkeyPatch, shape: Any = SHAPE, **training: Any) -> TrainingStep:
    """The fused step of a GPU, on a CPU."""
    monkeypatch.setattr(steps, "GraphedStep", EagerStep)
    step = TrainingStep(build(shape), TrainingConfig(device="cpu", **training), CPU)
    step._configure(fused=True)
    step.cpu_parallel = None  # which would be used on a CPU
    return step


def with_an_empty_row(batch: Batch) -> Batch:
    return Batch(**{name: torch.cat((tensor, torch.zeros_like(tensor[:1]))) for name, tensor in vars(batch).items()})


@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize(("with_copy", "flat"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "post", "tying": "none"},
        {"positions": "rotary", "activation": "swiglu"},  # biases get their gradients partly through autograd
        {"d_model": 20, "num_heads": 1, "head_dim": 16, "d_ff": 37},  # weights are not adjacent in memory
    ],
    ids=str,
)
def test_fused_step_equals_usual_step(
    monkeypatch: pytest.MonkeyPatch, rows: int | None, with_copy: bool, flat: bool, changes: dict[str, Any]
) -> None:
    shape = replace(SHAPE, **changes)
    settings: dict[str, Any] = {"label_smoothing": 0.1, "clip_norm": 0.5, "epsilon": 1e-4}
    usual, fused = (TrainingStep(build(shape), TrainingConfig(device="cpu", **settings), CPU) for _ in range(2))
    monkeypatch.setattr(steps, "GraphedStep", EagerStep)
    fused._configure(fused=True)
    usual.cpu_parallel = fused.cpu_parallel = None  # which would be used on a CPU
    if with_copy:
        fused.low_precision = LowPrecisionCopy(fused.model, torch.float32)
        fused.compute_model = fused.low_precision.model
    if flat:
        fused.adam = FlatAdam(fused.optimizer, fused.low_precision)
        fused.gradients.set_buffers(fused.low_precision.parameters, fused.adam.gradient_views)
    usual.rows_per_microbatch = fused.rows_per_microbatch = rows
    for seed, width in enumerate((12, 12, 10)):
        batch = with_an_empty_row(random_batch(4, width=width, seed=seed))
        one, other = (step(batch, batch.num_tokens, 1e-3) for step in (usual, fused))
        torch.testing.assert_close(one.loss_sum, other.loss_sum, rtol=1e-5, atol=0)
        torch.testing.assert_close(one.gradient_norm, other.gradient_norm, rtol=1e-4, atol=0)
    for (name, ours), theirs in zip(fused.model.named_parameters(), usual.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5, msg=name)


def flat_step(monkeypatch: pytest.MonkeyPatch, **training: Any) -> TrainingStep:
    step = fused_step(monkeypatch, epsilon=1e-4, **training)
    step.low_precision = LowPrecisionCopy(step.model, torch.float32)
    step.compute_model, step.adam = step.low_precision.model, FlatAdam(step.optimizer, step.low_precision)
    step.gradients.set_buffers(step.low_precision.parameters, step.adam.gradient_views)
    return step


def test_flat_adam_moments_are_saved_and_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other, plain = (flat_step(monkeypatch), flat_step(monkeypatch), fused_step(monkeypatch, epsilon=1e-4))
    batches = [random_batch(4, width=12, seed=seed) for seed in range(4)]
    for batch in batches[:2]:
        one(batch, batch.num_tokens, 1e-3)
    moments = {name: tensor.clone() for name, tensor in optimizer_tensors(one.optimizer, one.model).items()}
    assert moments["step.encoder.layers.0.self_attention.query.weight"] == 2
    for step in (other, plain):
        step.model.load_state_dict(one.model.state_dict())  # the low-precision copy must follow
        load_optimizer_tensors(step.optimizer, step.model, moments)
    for batch in batches[2:]:
        for step in (one, other, plain):
            step(batch, batch.num_tokens, 1e-3)
    for parameter, same, usual in zip(*(step.model.parameters() for step in (one, other, plain)), strict=True):
        assert torch.equal(parameter, same)
        torch.testing.assert_close(parameter, usual, rtol=0, atol=1e-6)
    assert one.low_precision is not None and torch.equal(one.low_precision.flat, one.adam.weights)


def test_flat_adam_skips_non_finite_update(monkeypatch: pytest.MonkeyPatch) -> None:
    step, batch = flat_step(monkeypatch), random_batch(4, width=12)
    step(batch, batch.num_tokens, 1e-3)
    assert step.adam is not None
    tensors = (step.adam.weights, step.adam.low_precision.flat, *step.adam.moments, step.adam.step_counts)
    before = [tensor.clone() for tensor in tensors]
    assert step(batch, 0, 1e-3).skipped  # a mean over no tokens
    assert all(torch.equal(now, then) for now, then in zip(tensors, before, strict=True))
    assert not step(batch, batch.num_tokens, 1e-3).skipped


@pytest.mark.parametrize("flat", [False, True])
def test_fused_step_recovers_after_non_finite_update(monkeypatch: pytest.MonkeyPatch, flat: bool) -> None:
    step, batch = (flat_step if flat else fused_step)(monkeypatch, clip_norm=1.0), random_batch(4, width=12)
    weight = step.model.encoder.layers[0].feed_forward.inner.weight
    before = weight.detach().clone()
    for values, skipped in ((torch.full_like(before, torch.nan), True), (before, False)):
        with torch.no_grad():
            weight.copy_(values)
        assert step(batch, batch.num_tokens, 1e-3).skipped == skipped


@pytest.mark.parametrize(
    ("flat", "rows", "broken_at"),
    [
        *(
            (flat, rows, broken_at)
            for flat in (False, True)
            for rows in (None, 2)
            for broken_at in ("add_rows", "flush")
        ),
        (True, 2, "add_gradients"),  # used for several microbatches of a low-precision copy
    ],
)
def test_failed_step_leaves_no_gradients(
    monkeypatch: pytest.MonkeyPatch, flat: bool, rows: int | None, broken_at: str
) -> None:
    one, other = ((flat_step if flat else fused_step)(monkeypatch) for _ in range(2))
    one.rows_per_microbatch = other.rows_per_microbatch = rows
    batch = random_batch(4, width=12)

    def failing(*_: object) -> None:
        raise RuntimeError("in the middle")

    with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="in the middle"):
        broken.setattr(LowPrecisionCopy if broken_at == "add_gradients" else Gradients, broken_at, failing)
        one(batch, batch.num_tokens, 1e-3)
    norms = [step(batch, batch.num_tokens, 1e-3).gradient_norm for step in (one, other)]
    assert torch.equal(*norms)


def test_flat_adam_follows_weights_moved_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    one, moved, batch = flat_step(monkeypatch), flat_step(monkeypatch), random_batch(4, width=12)
    for _ in range(3):
        moved.model.double().float()
        for step in (one, moved):
            step(batch, batch.num_tokens, 1e-3)
    assert all(torch.equal(*both) for both in zip(one.model.parameters(), moved.model.parameters(), strict=True))


def test_disabling_fused_step_releases_gradient_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    step = flat_step(monkeypatch)
    step._configure(fused=False)
    assert not step.gradients.buffers


def test_flat_adam_supports_plain_adam_only() -> None:
    for settings, expected in (({}, True), ({"weight_decay": 0.1}, False), ({"optimizer": "muon"}, False)):
        assert supports_flat_adam(build_optimizer(build(SHAPE), TrainingConfig(device="cpu", **settings))) is expected


def test_fused_step_is_default_in_bf16_if_supported() -> None:
    model = build(replace(SHAPE, d_model=32, num_heads=2))
    assert wants_fused_step(model, TrainingConfig(), bf16=True)
    assert not wants_fused_step(model, TrainingConfig(), bf16=False)  # its kernels would multiply in TF32
    assert not wants_fused_step(model, TrainingConfig(r_drop=1.0), bf16=True)
    assert not wants_fused_step(build(replace(SHAPE, norm="rms")), TrainingConfig(), bf16=True)
    assert wants_fused_step(model, TrainingConfig(fused_step=True), bf16=False)
    assert not wants_fused_step(model, TrainingConfig(fused_step=False), bf16=True)


def test_fused_step_is_not_default_for_wide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, width, expected in ((None, 128, True), (None, 130, False), (True, 130, True)):
        step = fused_step(monkeypatch, fused_step=setting)
        assert step.try_largest_batch(worst_batch(2, width, VOCAB, VOCAB)) is None
        assert step.is_fused is expected


class OutOfResourcesError(Exception):
    """Triton's error if a kernel needs more shared memory than this GPU has."""


@pytest.mark.parametrize(
    "error", [OutOfResourcesError("out of resource: shared memory"), ImportError("No module: triton")]
)
def test_fused_step_falls_back_when_kernels_fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    step = fused_step(monkeypatch)
    step.low_precision = LowPrecisionCopy(step.model, torch.float32)
    step.compute_model = step.low_precision.model
    insisting = fused_step(monkeypatch, fused_step=True)
    monkeypatch.setattr(steps, "fused_losses", broken)
    remark = step.try_largest_batch(worst_batch(4, 12, VOCAB, VOCAB))
    assert remark is not None and str(error) in remark and "usual" in remark
    assert not step.is_fused and step.low_precision is None and step.compute_model is step.model
    assert step.rows_per_microbatch == 4
    batch = random_batch()
    assert not step(batch, batch.num_tokens, 1e-3).skipped
    with pytest.raises(TrainingError, match=r"training\.fused_step=true: .* does not work on cpu .*Leave it out"):
        insisting.try_largest_batch(worst_batch(4, 12, VOCAB, VOCAB))


def test_errors_of_usual_step_are_raised_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    step = fused_step(monkeypatch)
    step._configure(fused=False)
    for message in ("a bug", "CUDA error: an illegal memory access was encountered"):  # not out of memory
        error = RuntimeError(message)

        def broken(batch: Batch, error: Exception = error) -> Tensor:
            raise error

        step.loss = broken
        with pytest.raises(RuntimeError, match=message):
            step.try_largest_batch(worst_batch(4, 12, VOCAB, VOCAB))


def test_out_of_memory_in_backward_clears_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    step, flush = fused_step(monkeypatch), steps.Gradients.flush
    held: list[int] = []

    def short_of_memory(gradients: steps.Gradients) -> None:
        held.append(len(gradients.collected))
        if len(held) == 1:
            raise torch.OutOfMemoryError("out of memory")
        flush(gradients)

    monkeypatch.setattr(steps.Gradients, "flush", short_of_memory)
    seen: list[int] = []
    reset = step._accumulate

    def accumulate(batch: Batch, *, local_only: bool = False) -> Tensor:
        seen.append(len(step.gradients.collected) + len(step.gradients.lookups))
        return reset(batch, local_only=local_only)

    monkeypatch.setattr(step, "_accumulate", accumulate)
    remark = step.try_largest_batch(worst_batch(4, 12, VOCAB, VOCAB))
    assert remark is not None and "microbatches of 24 tokens" in remark
    assert held[0] > 0
    assert seen == [0, 0]


def test_fused_step_false_disables_cpu_data_parallel() -> None:
    for setting, expected in ((None, True), (True, True), (False, False)):
        step = TrainingStep(build(SHAPE), TrainingConfig(device="cpu", fused_step=setting), CPU)
        assert (step.cpu_parallel is not None) is expected
