"""One update: microbatches equal the batch, non-finite updates are skipped, the largest batch is tried first."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heedful.config import ModelConfig, TrainingConfig
from heedful.data.batch_stream import worst_batch
from heedful.data.packing import Batch
from heedful.errors import TrainingError
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.mixed_precision import LowPrecisionCopy, has_no_buffers
from heedful.training.optimizer import optimizer_tensors
from heedful.training.step import TrainingStep, uses_bf16
from tests.training.small_runs import CPU, MODEL, VOCAB, build, random_batch, same

PLAIN = replace(MODEL, dropout=0.0)


def make_step(model: nn.Module, **training: Any) -> TrainingStep:
    return TrainingStep(model, TrainingConfig(device="cpu", **training), CPU)


def gradients(step: TrainingStep) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in step.model.named_parameters() if p.grad is not None}


def everything(step: TrainingStep) -> dict[str, Tensor]:
    """Weights, statistics, moments and step counts."""
    named = {name: tensor.clone() for name, tensor in step.model.state_dict().items()}
    return named | {name: tensor.clone() for name, tensor in optimizer_tensors(step.optimizer, step.model).items()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_microbatches_equal_one_batch(dtype: torch.dtype, tolerance: float, rows: int) -> None:
    """Adam's ε is large here: the paper's would amplify the rounding of zero gradients (of key biases)."""
    settings = {"label_smoothing": 0.1, "clip_norm": 0.5, "epsilon": 1e-4}
    whole, parts = (make_step(build(PLAIN).to(dtype), **settings) for _ in range(2))
    parts.rows_per_microbatch = rows
    for seed in range(3):
        batch = random_batch(6, seed=seed)
        results = [step(batch, batch.num_tokens, 1e-3) for step in (whole, parts)]
        torch.testing.assert_close(results[0].loss_sum, results[1].loss_sum, rtol=1e-5, atol=0)
        ours, theirs = gradients(whole), gradients(parts)
        for name, gradient in ours.items():
            torch.testing.assert_close(gradient, theirs[name], rtol=0, atol=tolerance, msg=name)
    for name, weight in whole.model.state_dict().items():
        torch.testing.assert_close(weight, parts.model.state_dict()[name], rtol=0, atol=tolerance, msg=name)


def test_gradient_is_of_mean_over_real_tokens() -> None:
    batch, model = random_batch(5), build(PLAIN).double()
    step = make_step(copy.deepcopy(model), label_smoothing=0.0)
    result = step(batch, batch.num_tokens, 0.0)
    logits = model(
        batch.source,
        batch.target_input,
        batch.source_segments,
        batch.target_segments,
        batch.source_positions,
        batch.target_positions,
    )
    real = batch.target_segments > 0
    mean = nn.functional.cross_entropy(logits[real], batch.target_output[real])
    mean.backward()
    assert float(result.loss_sum) / batch.num_tokens == pytest.approx(mean.item(), rel=1e-6)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients(step)[name], parameter.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("clip", [0.01, 1e6])
def test_clip_norm_only_scales_down(clip: float) -> None:
    batch = random_batch()
    free, clipped = make_step(build(PLAIN)), make_step(build(PLAIN), clip_norm=clip)
    results = [step(batch, batch.num_tokens, 0.0) for step in (free, clipped)]
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients(free).values()))
    for result in results:
        assert float(result.gradient_norm) == pytest.approx(norm, rel=1e-5)  # the norm before clipping is reported
    scale = min(1.0, clip / norm)
    for name, gradient in gradients(free).items():
        torch.testing.assert_close(gradients(clipped)[name], gradient * scale, rtol=1e-3, atol=1e-8)


def poison_gradient(value: float) -> Callable[[TrainingStep], Callable[[], None]]:
    def poison(step: TrainingStep) -> Callable[[], None]:
        parameter = next(iter(step.model.parameters()))
        handle = parameter.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor(3), value))
        return handle.remove

    return poison


def poison_weight(value: float) -> Callable[[TrainingStep], Callable[[], None]]:
    def poison(step: TrainingStep) -> Callable[[], None]:
        weight = dict(step.model.named_parameters())["decoder.layers.0.feed_forward.output.weight"]
        kept = weight.detach().clone()
        with torch.no_grad():
            weight[0, 0] = value

        def cure() -> None:
            with torch.no_grad():
                weight.copy_(kept)

        return cure

    return poison


POISONS = {
    "nan_gradient": poison_gradient(math.nan),
    "inf_gradient": poison_gradient(math.inf),
    "nan_loss": poison_weight(math.nan),
    "inf_loss": poison_weight(math.inf),
}


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_non_finite_update_is_skipped(poison: str, norm: str, fused: bool, clip: float | None) -> None:
    step = make_step(build(replace(PLAIN, norm=norm)), clip_norm=clip)  # type: ignore[arg-type]
    step.optimizer.defaults["fused"] = fused
    for group in step.optimizer.param_groups:
        group["fused"] = fused
    for seed in range(2):
        batch = random_batch(seed=seed)
        assert not step(batch, batch.num_tokens, 1e-3).skipped
    before = everything(step)
    cure = POISONS[poison](step)
    poisoned_weights = {name: tensor.clone() for name, tensor in step.model.state_dict().items()}

    batch = random_batch(seed=2)
    result = step(batch, batch.num_tokens, 1e-3)
    assert result.skipped
    for name, tensor in step.model.state_dict().items():
        torch.testing.assert_close(tensor, poisoned_weights[name], rtol=0, atol=0, equal_nan=True, msg=name)
    cure()
    assert same(everything(step), before)
    assert all(int(tensor) == 2 for name, tensor in before.items() if name.startswith("step."))

    assert not step(batch, batch.num_tokens, 1e-3).skipped  # and training continues
    assert not same(everything(step), before)
    assert all(bool(tensor.isfinite().all()) for tensor in everything(step).values())


def test_first_step_can_be_skipped() -> None:
    step, batch = make_step(build(PLAIN)), random_batch()
    weights = {name: tensor.clone() for name, tensor in step.model.state_dict().items()}
    cure = poison_gradient(math.nan)(step)
    assert step(batch, batch.num_tokens, 1e-3).skipped
    cure()
    assert same(step.model.state_dict(), weights)
    untouched = make_step(build(PLAIN))
    for each in (step, untouched):
        each(batch, batch.num_tokens, 1e-3)
    assert same(step.model.state_dict(), untouched.model.state_dict())


def limited(step: TrainingStep, most_rows: int, error: type[Exception] = torch.OutOfMemoryError) -> list[int]:
    """Make the loss run out of memory above a number of rows; returns the numbers that were tried."""
    tried: list[int] = []
    honest = step.loss

    def loss(batch: Batch) -> Tensor:
        tried.append(batch.num_rows)
        if batch.num_rows > most_rows:
            raise error("out of memory")
        return honest(batch)

    step.loss, step.cpu_parallel = loss, None
    return tried


@pytest.mark.parametrize("config", [MODEL, replace(MODEL, norm="batch")], ids=["layer", "batch"])
def test_try_largest_batch_changes_nothing(config: ModelConfig) -> None:
    step = make_step(build(config))
    before, random = everything(step), torch.get_rng_state()
    assert step.try_largest_batch(worst_batch(8, 16, VOCAB, VOCAB)) is None
    assert step.rows_per_microbatch == 8
    assert same(everything(step), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in step.parameters)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, RuntimeError])
def test_microbatch_is_halved_until_it_fits(error: type[Exception]) -> None:
    step = make_step(build(replace(MODEL, norm="batch")))
    before, random = everything(step), torch.get_rng_state()
    tried = limited(step, 3, error)
    remark = step.try_largest_batch(worst_batch(10, 16, VOCAB, VOCAB))
    assert step.rows_per_microbatch == 3
    assert tried[:2] == [10, 5]
    assert max(tried[2:]) == 3
    assert remark is not None
    assert "48 tokens" in remark  # 3 rows of 16
    assert same(everything(step), before)
    assert torch.equal(torch.get_rng_state(), random)
    batch = random_batch(10)
    assert not step(batch, batch.num_tokens, 1e-3).skipped


def test_other_errors_are_not_out_of_memory() -> None:
    step = make_step(build())

    def loss(batch: Batch) -> Tensor:
        raise RuntimeError("shapes do not match")

    step.loss, step.cpu_parallel = loss, None
    with pytest.raises(RuntimeError, match="shapes do not match"):
        step.try_largest_batch(worst_batch(4, 16, VOCAB, VOCAB))


def test_configured_microbatch_is_kept_or_refused() -> None:
    step = make_step(build(), tokens_per_microbatch=64)
    assert step.try_largest_batch(worst_batch(10, 16, VOCAB, VOCAB)) is None
    assert step.rows_per_microbatch == 4
    limited(step, 3)
    with pytest.raises(TrainingError, match=r"64 tokens does not fit .*tokens_per_microbatch=32 or lower"):
        step.try_largest_batch(worst_batch(10, 16, VOCAB, VOCAB))


def test_single_row_out_of_memory_raises() -> None:
    step = make_step(build())
    limited(step, 0)
    with pytest.raises(TrainingError, match="smaller --preset"):
        step.try_largest_batch(worst_batch(10, 16, VOCAB, VOCAB))


@pytest.fixture
def quick_compilation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trace as for a GPU, but run the traced graph uncompiled; a function may be traced twice (usually eight times)."""
    from torch._dynamo import config

    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    with config.patch(recompile_limit=2):
        yield


@pytest.mark.compile
@pytest.mark.usefixtures("quick_compilation")
def test_process_can_compile_many_models() -> None:
    batch = random_batch()
    for number in range(4):
        step = make_step(build(replace(PLAIN, d_ff=16 + number)), compile=True)
        assert not step(batch, batch.num_tokens, 1e-3).skipped


@pytest.mark.compile
@pytest.mark.usefixtures("quick_compilation")
def test_compiled_step_can_be_halved_many_times() -> None:
    step = make_step(build(PLAIN), compile=True)
    honest = step.loss

    def loss(batch: Batch) -> Tensor:
        loss_sum: Tensor = honest(batch)
        if batch.num_rows > 1:
            raise torch.OutOfMemoryError("out of memory")
        return loss_sum

    step.loss = loss
    assert step.try_largest_batch(worst_batch(16, 16, VOCAB, VOCAB)) is not None
    assert step.rows_per_microbatch == 1


def test_bf16_on_cpu_keeps_float32_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without oneDNN, which crashes on processors with bf16 matrix units that the system has not enabled."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    step = make_step(build(PLAIN), precision="bf16", label_smoothing=0.0)
    exact = make_step(build(PLAIN), precision="fp32", label_smoothing=0.0)
    batch = random_batch()
    losses = []
    for _ in range(30):
        result = step(batch, batch.num_tokens, 1e-2)
        reference = exact(batch, batch.num_tokens, 1e-2)
        losses.append(float(result.loss_sum))
        if len(losses) == 1:
            assert losses[0] == pytest.approx(float(reference.loss_sum), rel=0.02)
            assert losses[0] != float(reference.loss_sum)  # the arithmetic does differ
    assert losses[-1] < 0.5 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in step.parameters)


def test_auto_precision_by_device() -> None:
    assert not uses_bf16(TrainingConfig(precision="auto"), CPU)
    assert uses_bf16(TrainingConfig(precision="bf16"), CPU)
    assert not uses_bf16(TrainingConfig(precision="fp32"), CPU)


@pytest.mark.parametrize("rows", [None, 2, 4])
def test_r_drop_without_dropout_equals_plain_loss(rows: int | None) -> None:
    """Two equal passes agree: value, gradient and microbatches are those of one pass."""
    batch = random_batch(6)
    plain, doubled = make_step(build(PLAIN).double()), make_step(build(PLAIN).double(), r_drop=5.0)
    doubled.rows_per_microbatch = rows
    results = [step(batch, batch.num_tokens, 0.0) for step in (plain, doubled)]
    torch.testing.assert_close(results[0].loss_sum, results[1].loss_sum, rtol=1e-5, atol=0)
    for name, gradient in gradients(plain).items():
        torch.testing.assert_close(gradients(doubled)[name], gradient, rtol=1e-6, atol=1e-7)


def test_r_drop_adds_divergence_of_two_passes() -> None:
    batch = random_batch(6)
    losses = []
    for weight in (1e-9, 5.0):
        step = make_step(build(replace(MODEL, dropout=0.3)), r_drop=weight)
        torch.manual_seed(3)
        losses.append(float(step(batch, batch.num_tokens, 0.0).loss_sum))
    assert losses[1] > losses[0] * 1.01


@pytest.mark.parametrize("rows", [6, 2])
def test_low_precision_copy_in_float32_changes_nothing(rows: int) -> None:
    """In the model's dtype; tests/test_gpu.py covers bf16."""
    plain, paired = (make_step(build(PLAIN), clip_norm=0.5) for _ in range(2))
    paired.low_precision = LowPrecisionCopy(paired.model, torch.float32)
    paired.compute_model = paired.low_precision.model
    plain.rows_per_microbatch = paired.rows_per_microbatch = rows
    for seed in range(3):
        batch = random_batch(6, seed=seed)
        one, other = (step(batch, batch.num_tokens, 1e-3) for step in (plain, paired))
        assert torch.equal(one.loss_sum, other.loss_sum) and torch.equal(one.gradient_norm, other.gradient_norm)
    assert same(everything(plain), everything(paired))
    assert all(parameter.grad is None for parameter in paired.low_precision.parameters)


def test_batch_norm_model_has_no_low_precision_copy() -> None:
    assert has_no_buffers(build(PLAIN)) and not has_no_buffers(build(replace(PLAIN, norm="batch")))


@pytest.mark.parametrize("architecture", ["transformer", "recurrent"])
@pytest.mark.parametrize("scoring", ["scaled_dot", "additive"])
def test_sampled_attention_learns_from_rewards(architecture: str, scoring: str) -> None:
    """The loss is the cross-entropy of the sampled pass; queries get their gradient from REINFORCE alone."""
    changes = {"architecture": architecture, "attention_scoring": scoring, "cross_attention": "hard"}
    model = build(replace(PLAIN, **changes, hard_attention_gradient="reinforce"))  # type: ignore[arg-type]
    step, batch = make_step(model, label_smoothing=0.1), random_batch(4, seed=1)
    torch.manual_seed(2)
    result = step(batch, batch.num_tokens, 1e-3)
    queries = [tensor for name, tensor in gradients(step).items() if "query.weight" in name and "self" not in name]
    assert queries and all(tensor.abs().sum() > 0 for tensor in queries)
    again = build(replace(PLAIN, **changes, hard_attention_gradient="reinforce")).train()  # type: ignore[arg-type]
    torch.manual_seed(2)
    loss = smoothed_cross_entropy(
        again(**batch.inputs), batch.target_output, batch.target_segments, smoothing=0.1
    ).loss_sum
    torch.testing.assert_close(result.loss_sum, loss.detach())
    loss.backward()
    names = [name for name, _ in again.named_parameters() if "query.weight" in name and "self" not in name]
    assert all(again.get_parameter(name).grad is None for name in names)


@pytest.mark.compile
def test_sampled_attention_compiles_without_graph_breaks() -> None:
    changes = {"cross_attention": "hard", "hard_attention_gradient": "reinforce"}
    model = build(replace(PLAIN, **changes, num_encoder_layers=1, num_decoder_layers=1)).train()  # type: ignore[arg-type]
    step, batch = make_step(model), random_batch(4, seed=1)
    found = []
    for loss in (torch.compile(step._loss_sum, fullgraph=True, dynamic=False, backend="aot_eager"), step._loss_sum):
        model.zero_grad()
        torch.manual_seed(0)
        value = loss(batch)
        value.backward()
        found.append([value.detach(), *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
