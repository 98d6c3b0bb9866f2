"""Tests that need a GPU: kernels, the compiled step, CUDA graphs, running out of memory."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from heedful import training_pipeline
from heedful.build_model import build_model
from heedful.config import DecodingConfig, ModelConfig, TrainingConfig
from heedful.data.batch_stream import worst_batch
from heedful.data.packing import Batch
from heedful.decoding.constraints import SpecialTokens
from heedful.decoding.search import beam_search, greedy_search
from heedful.errors import TrainingError
from heedful.fused.train_attention import project_memory, row_attention
from heedful.fused.train_ops import (
    DropoutSeed,
    Gradients,
    Segments,
    add_norm,
    column_sums,
    embed,
    feed_forward,
    linear_branch,
    scaled_loss,
)
from heedful.model.attention import Scoring, attend_explicit, attend_fused
from heedful.model.transformer import Transformer
from heedful.training import precompile
from heedful.training.checkpoint import copy_weights, random_states, restore_random
from heedful.training.compile_cache import FOLDERS
from heedful.training.cuda_graph import GraphedStep
from heedful.training.distributed import set_weights
from heedful.training.optimizer import optimizer_tensors, orthogonalise
from heedful.training.step import TrainingStep, uses_bf16

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*TensorFloat32")]
CUDA = torch.device("cuda")
SMALL = ModelConfig(
    source_vocab_size=64,
    target_vocab_size=64,
    d_model=64,
    d_ff=128,
    num_heads=4,
    num_encoder_layers=2,
    num_decoder_layers=2,
    dropout=0.0,
)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_attention_implementations_agree_on_fully_masked_rows(dtype: torch.dtype, tolerance: float) -> None:
    query, key, value = (torch.randn(3, 4, 32, 16, device=CUDA, dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.rand(3, 1, 32, 32, device=CUDA) < 0.3
    mask[:, :, 5:9] = False
    scoring = Scoring("scaled_dot", 4, 16)
    results = []
    for attend in (attend_fused, attend_explicit):
        values = attend(query, key, value, mask, scoring=scoring, dropout=0.0).values
        gradients = torch.autograd.grad(values.float().square().sum(), (query, key, value))
        assert (values[:, :, 5:9] == 0).all()
        results.append((values, *gradients))
    for fused, explicit in zip(*results, strict=True):
        assert torch.isfinite(fused).all()
        torch.testing.assert_close(fused.float(), explicit.float(), atol=tolerance * 4, rtol=tolerance * 4)


def random_batch(rows: int, width: int) -> Batch:
    full = worst_batch(rows, width, 64, 64)
    segments = torch.ones(rows, width, dtype=torch.int64)
    segments[:, width // 3 :], segments[:, -3:] = 2, 0
    tokens = torch.randint(4, 64, (rows, width))
    return Batch(tokens, segments, full.source_positions, tokens, tokens, segments, full.target_positions)


def learn(*, compile_step: bool) -> list[float]:
    torch.manual_seed(3)
    model = Transformer(SMALL).to(CUDA)
    step = TrainingStep(model, TrainingConfig(compile=compile_step, precision="fp32"), CUDA)
    losses = []
    for number in range(6):
        torch.manual_seed(number)
        batch = random_batch(8, 32)
        losses.append(float(step(batch, batch.num_tokens, 1e-3).loss_sum) / batch.num_tokens)
    return losses


@pytest.mark.compile
def test_compiled_step_matches_eager_step() -> None:
    assert learn(compile_step=True) == pytest.approx(learn(compile_step=False), rel=1e-3)


def test_bf16_is_default_on_gpu() -> None:
    assert uses_bf16(TrainingConfig(), CUDA)


@pytest.mark.parametrize("search", [greedy_search, beam_search])
def test_gpu_translations_equal_cpu(search: object) -> None:
    torch.manual_seed(5)
    model = Transformer(SMALL).eval()
    source = torch.randint(4, 64, (6, 9))
    mask = torch.ones(6, 9, dtype=torch.bool)
    special = SpecialTokens(bos_id=2, eos_id=3, pad_id=0)
    found = []
    for device in ("cpu", "cuda"):
        with torch.inference_mode():
            results = search(  # type: ignore[operator]
                model.to(device), source.to(device), mask.to(device), DecodingConfig(), special, max_lengths=[12] * 6
            )
        found.append([[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in results])
    assert found[0] == found[1]


@pytest.fixture
def little_memory() -> Iterator[None]:
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(CUDA).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 2**30) / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.usefixtures("little_memory")
def test_out_of_memory_step_is_split_or_explained() -> None:
    model = Transformer(SMALL).to(CUDA)
    batch = worst_batch(4096, 128, 64, 64)
    step = TrainingStep(model, TrainingConfig(compile=False), CUDA)
    remark = step.try_largest_batch(batch)
    assert remark is not None and "microbatches" in remark
    assert step.rows_per_microbatch is not None and 1 <= step.rows_per_microbatch < 4096
    stubborn = TrainingStep(model, TrainingConfig(compile=False, tokens_per_microbatch=4096 * 128), CUDA)
    with pytest.raises(TrainingError, match="tokens_per_microbatch"):
        stubborn.try_largest_batch(batch)


@pytest.mark.compile
def test_stopped_run_can_be_resumed(tmp_path: Path) -> None:
    dropout_seed = random.Random(1)
    lines = [" ".join(dropout_seed.choice("0123456789") for _ in range(dropout_seed.randint(3, 8))) for _ in range(600)]
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in lines))
    (tmp_path / "b.txt").write_text("".join(line[::-1] + "\n" for line in lines))
    request = {
        "output": str(tmp_path / "model"),
        "preset": "tiny",
        "data": {"train": [{"source": str(tmp_path / "a.txt"), "target": str(tmp_path / "b.txt")}]},
        "training": {"steps": 10, "num_bleu_sentences": 10, "tensorboard": False},
    }
    assert training_pipeline.train(request, quiet=True).steps == 10
    request["training"] = {"steps": 20, "num_bleu_sentences": 10, "tensorboard": False}
    assert training_pipeline.train(request, resume=True, quiet=True).steps == 20


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("scoring", ["additive", "dot", "scaled_dot"])
def test_recurrent_model_in_bf16_matches_cpu(cell: str, scoring: str) -> None:
    """cuDNN's layers and the explicit steps agree in mixed types, forward and backward."""
    config = replace(SMALL, architecture="recurrent", num_heads=1, cell=cell, attention_scoring=scoring)
    model, batch = build_model(config), random_batch(4, 24)
    inputs = (batch.source, batch.target_input, batch.source_segments, batch.target_segments)
    positions = (batch.source_positions, batch.target_positions)
    expected = model(*inputs, *positions).detach()
    model.to(CUDA)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = model(*(part.to(CUDA) for part in (*inputs, *positions)))
    torch.testing.assert_close(found.float().cpu(), expected, atol=0.1, rtol=0.1)
    found.float().square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name


BOTH_TYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-2), (torch.bfloat16, 5e-2)])
"""Products in fp32 run in TF32 inside the kernels, hence the first tolerance."""


def assert_kernel_equals_plain(operation: Any, inputs: list[Any], tolerance: float) -> None:
    """An operation on the GPU in its dtype and on the CPU in double precision has the same values and gradients."""
    results = []
    for device, dtype in ((CUDA, None), (torch.device("cpu"), torch.float64)):
        moved = [
            one.to(device, dtype if one.is_floating_point() else None).detach().requires_grad_(one.requires_grad)
            if isinstance(one, torch.Tensor)
            else one
            for one in inputs
        ]
        outputs = operation(*moved)
        torch.manual_seed(5)
        loss = sum((one.float() * torch.randn(one.shape).to(device)).sum() for one in outputs)
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        GRADIENTS.flush()
        leaves = [one for one in moved if isinstance(one, torch.Tensor) and one.requires_grad]
        results.append([*outputs, *(one.grad for one in leaves)])
    for ours, plain in zip(*results, strict=True):
        scale = max(1.0, float(plain.detach().abs().mean()))  # sums over many rows are rounded relative to their size
        torch.testing.assert_close(
            ours.detach().cpu().double(), plain.detach().double(), atol=tolerance * scale, rtol=tolerance
        )


GRADIENTS = Gradients()


def leaf(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@BOTH_TYPES
@pytest.mark.parametrize(("queries", "keys"), [(128, 128), (96, 40), (17, 128)])
def test_attention_kernel_matches_reference(dtype: torch.dtype, tolerance: float, queries: int, keys: int) -> None:
    torch.manual_seed(1)
    own, other = (torch.randint(0, 4, (3, length)).sort(dim=1).values for length in (queries, keys))
    weights = [(leaf(128, 16, dtype=dtype) / 4).detach().requires_grad_() for _ in range(4)]
    flowing = [leaf(3, queries, 1, 4, 32, dtype=dtype), leaf(3, keys, 16, dtype=dtype)]

    def cross(query: Any, memory: Any, segments: Any, key_segments: Any, *weights: Any) -> list[torch.Tensor]:
        rows = Segments(segments, key_segments, False)
        of_layers = project_memory(memory, weights, [], 4, GRADIENTS)
        return [row_attention(query, of_layer, rows, 32**-0.5, GRADIENTS) for of_layer in of_layers]

    assert_kernel_equals_plain(cross, [*flowing, own, other, *weights], 2 * tolerance)
    inside: list[Any] = [leaf(3, queries, 3, 4, 32, dtype=dtype), own]
    for causal in (True, False):
        assert_kernel_equals_plain(
            lambda x, s, c=causal: [row_attention(x, None, Segments(s, s, c), 0.2, GRADIENTS)], inside, 2 * tolerance
        )


@pytest.mark.parametrize("causal", [True, False])
def test_attention_kernel_with_more_heads_than_programs(causal: bool) -> None:
    """As in training: rows of 128, heads of 64, bf16, and far more heads than concurrent programs."""
    torch.manual_seed(1)
    segments = torch.randint(0, 5, (60, 128)).sort(dim=1, descending=True).values
    inputs: list[Any] = [leaf(60, 128, 3, 8, 64, dtype=torch.bfloat16), segments]
    assert_kernel_equals_plain(
        lambda x, s: [row_attention(x, None, Segments(s, s, causal), 0.125, GRADIENTS)], inputs, 0.1
    )


@BOTH_TYPES
@pytest.mark.parametrize(("rows", "columns"), [(25_600, 512), (300, 96), (1, 1024)])
def test_row_sums_of_partial_columns(dtype: torch.dtype, tolerance: float, rows: int, columns: int) -> None:
    torch.manual_seed(1)
    x = torch.randn(rows, 3 * columns, device=CUDA, dtype=dtype)[:, columns : 2 * columns]
    expected = x.double().sum(dim=0)
    owners = [torch.zeros(columns, device=CUDA, dtype=dtype, requires_grad=True) for _ in range(3)]
    for _ in range(2):  # the second time concurrently
        for owner in owners:
            owner.grad = None
            column_sums(x, owner, GRADIENTS)
        GRADIENTS.flush()
        for owner in owners:
            torch.testing.assert_close(owner.grad.double(), expected, rtol=tolerance, atol=tolerance * rows**0.5)


@BOTH_TYPES
@pytest.mark.parametrize(("width", "dropout"), [(512, 0.1), (384, 0.0), (96, 0.3), (1024, 0.1)])
def test_add_norm_kernel_matches_reference(dtype: torch.dtype, tolerance: float, width: int, dropout: float) -> None:
    torch.manual_seed(1)
    inputs: list[Any] = [leaf(7, 9, width, dtype=dtype) for _ in range(2)]
    inputs += [*(leaf(width, dtype=dtype) for _ in range(3)), torch.tensor([3, 99])]
    for part in (slice(0, 2), slice(1, 2)):
        assert_kernel_equals_plain(
            lambda *given, p=part: add_norm(*given[:5], DropoutSeed(given[5], 1, dropout), 1e-5, GRADIENTS)[p],
            inputs,
            tolerance,
        )


@BOTH_TYPES
def test_embedding_and_branch_kernels_match_reference(dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(1)
    tokens, positions = torch.randint(0, 500, (90, 40)), torch.arange(40).expand(90, 40)
    for places in (None, torch.randn(40, 96, dtype=dtype)):
        drawn = [leaf(500, 96, dtype=dtype), places, tokens, positions, torch.tensor([3, 99])]
        assert_kernel_equals_plain(
            lambda *given: [embed(*given[:4], DropoutSeed(given[4], 1, 0.2), 9.8, GRADIENTS)], drawn, tolerance
        )
    x, inner, bias, outer = (
        leaf(9, 40, 96, dtype=dtype),
        *(leaf(*s, dtype=dtype) for s in ((200, 96), (200,), (96, 200))),
    )
    assert_kernel_equals_plain(lambda *given: linear_branch(given[0], given[1:], GRADIENTS)[1:], [x, inner], tolerance)
    bias = (bias + 40).detach().requires_grad_()  # far from zero, where rounding would decide what ReLU lets through
    with torch.no_grad():
        bias[::2] -= 80
    assert_kernel_equals_plain(
        lambda *given: feed_forward(*given, GRADIENTS)[1:], [x, inner, bias, outer], 2 * tolerance
    )


@BOTH_TYPES
@pytest.mark.parametrize("vocabulary", [32_000, 8_001, 100])
def test_loss_kernel_matches_reference(dtype: torch.dtype, tolerance: float, vocabulary: int) -> None:
    torch.manual_seed(1)
    results = []
    for device, kind in ((CUDA, dtype), (torch.device("cpu"), torch.float64)):
        torch.manual_seed(1)
        logits = (3 * torch.randn(50, vocabulary)).to(dtype).to(device, kind).requires_grad_()
        labels, counted = torch.randint(0, vocabulary, (50,)).to(device), (torch.rand(50) < 0.7).to(device)
        scaled, loss_sum = scaled_loss(logits, labels, counted, torch.tensor(0.1, device=device), 0.1)
        results.append([scaled, loss_sum, *torch.autograd.grad(scaled, logits)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one.cpu().double(), other.double(), rtol=tolerance, atol=tolerance * 1e-2)


@pytest.mark.parametrize(("rows", "depth", "width"), [(9, 24, 24), (300, 96, 304), (25_600, 512, 2048)])
def test_feed_forward_kernel_matches_reference(rows: int, depth: int, width: int) -> None:
    from heedful.fused.kernels import train_layers

    torch.manual_seed(1)
    inner, d_output = (
        torch.randn(rows, width).relu().to(CUDA, torch.bfloat16),
        torch.randn(rows, depth).to(CUDA, torch.bfloat16),
    )
    weight = torch.randn(depth, width).to(CUDA, torch.bfloat16) / depth**0.5
    partial = torch.full((train_layers.num_row_blocks(inner), width), float("nan"), device=CUDA)
    found = train_layers.feed_forward_backward(d_output, weight, inner, partial)
    expected = (d_output.float() @ weight.float()) * (inner > 0)
    torch.testing.assert_close(found.float(), expected, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(partial.sum(dim=0), expected.sum(dim=0), rtol=1e-3, atol=0.05 * rows**0.5)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_cuda_graph_step_matches_eager_step(optimizer: Any) -> None:
    """With the same seeds and batches in bf16, the losses stay close, before and after the capture."""
    losses: list[list[float]] = []
    for fast in (False, True):
        torch.manual_seed(1)
        model = Transformer(SMALL).to(CUDA)
        step = TrainingStep(model, TrainingConfig(fused_step=fast, optimizer=optimizer, clip_norm=1.0), CUDA)
        torch.manual_seed(2)
        batches = [random_batch(8, 64) for _ in range(4)]
        course = []
        for number in range(24):
            batch = batches[number % 4]
            result = step(batch, batch.num_tokens, 1e-3)
            course.append(float(result.loss_sum) / batch.num_tokens)
        losses.append(course)
        assert step.is_fused is fast
    assert losses[0][-1] < losses[0][0] - 0.3
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), atol=0.05, rtol=0)


@pytest.mark.compile
def test_first_step_uses_kernels_precompiled_during_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in FOLDERS:
        monkeypatch.setenv(name, "")  # so that it is restored afterwards
        monkeypatch.delenv(name)
    monkeypatch.setattr(precompile, "MIN_CORPUS_BYTES", 0)
    monkeypatch.setattr(precompile, "MIN_ELAPSED_SECONDS", 0.0)
    words = [f"{one}{other}" for one in "abcdefgh" for other in "stuvwxyz"]
    lines = [" ".join(random.Random(number).choices(words, k=6)) for number in range(200)]
    (tmp_path / "one").write_text("\n".join(lines))
    (tmp_path / "other").write_text("\n".join(line.upper() for line in lines))
    request: dict[str, Any] = {
        "output": str(tmp_path / "model"),
        "preset": "tiny",
        "data": {"train": [{"source": str(tmp_path / "one"), "target": str(tmp_path / "other")}]},
        "tokenizer": {"vocab_size": 400},
        "training": {"steps": 3, "num_bleu_sentences": 0, "tensorboard": False, "device": "cuda", "fused_step": False},
    }
    counted = counters["inductor"]
    before = {name: counted[name] for name in ("fxgraph_cache_hit", "fxgraph_cache_miss")}
    result = training_pipeline.train(request, quiet=True)
    assert result.first_step is not None
    assert "waiting_for_the_compiler" in result.first_step.parts
    assert counted["fxgraph_cache_hit"] > before["fxgraph_cache_hit"]
    assert counted["fxgraph_cache_miss"] == before["fxgraph_cache_miss"]


@pytest.mark.parametrize("shape", [(4, 512, 512), (3, 2048, 512)])
def test_bf16_orthogonalization_matches_float32(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, device=CUDA)
    exact, rounded = orthogonalise(matrices), orthogonalise(matrices.bfloat16()).float()
    similarity = torch.cosine_similarity(exact.flatten(1), rounded.flatten(1), dim=1)
    assert float(similarity.min()) > 0.99
    assert torch.linalg.svdvals(rounded).max() < 1.3


def test_muon_update_in_cuda_graph_is_skipped_on_the_device() -> None:
    """A step with non-finite gradients changes neither weights nor momentum, without synchronization."""
    torch.manual_seed(1)
    model = Transformer(SMALL).to(CUDA)
    step = TrainingStep(model, TrainingConfig(fused_step=True, optimizer="muon"), CUDA)
    batch = random_batch(8, 64)
    for _ in range(6):  # eagerly, then captured
        assert not step(batch, batch.num_tokens, 1e-3).skipped
    before = [parameter.detach().clone() for parameter in model.parameters()]
    momenta = {name: tensor.clone() for name, tensor in optimizer_tensors(step.optimizer, model).items()}
    assert any(name.startswith("momentum.") for name in momenta)
    result = step(batch, 0, 1e-3)  # the mean over no token
    assert result.skipped
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old)
    for name, tensor in optimizer_tensors(step.optimizer, model).items():
        assert torch.equal(tensor, momenta[name]), name
    assert not step(batch, batch.num_tokens, 1e-3).skipped


DROPPING = replace(SMALL, dropout=0.2)


def fused_step(shape: ModelConfig = SMALL, **training: Any) -> TrainingStep:
    torch.manual_seed(1)
    step = TrainingStep(Transformer(shape).to(CUDA), TrainingConfig(fused_step=True, **training), CUDA)
    assert step.is_fused
    return step


def courses_agree(one: TrainingStep, other: TrainingStep, batches: list[Batch], *, tolerance: float) -> None:
    for number in range(12):  # eagerly, captured, and replayed
        batch = batches[number % len(batches)]
        losses = [float(step(batch, batch.num_tokens, 1e-3).loss_sum) / batch.num_tokens for step in (one, other)]
        assert losses[0] == pytest.approx(losses[1], abs=tolerance), number


def test_cuda_graph_step_in_microbatches_matches_whole_step() -> None:
    """Seven rows in parts of three, the last of them empty, as at the end of an epoch."""
    whole, parts = fused_step(clip_norm=1.0), fused_step(clip_norm=1.0)
    parts.rows_per_microbatch = 3
    batch = random_batch(7, 64)
    for tensor in vars(batch).values():
        tensor[-1] = 0
    courses_agree(whole, parts, [batch], tolerance=0.02)


def test_batch_of_another_shape_between_cuda_graph_steps() -> None:
    usual = TrainingStep(copy_of(SMALL), TrainingConfig(compile=False), CUDA)
    courses_agree(usual, fused_step(), [random_batch(8, 64), random_batch(8, 64), random_batch(5, 32)], tolerance=0.05)


def copy_of(shape: ModelConfig) -> Transformer:
    torch.manual_seed(1)
    return Transformer(shape).to(CUDA)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary", "activation": "swiglu", "norm_placement": "pre"},
        {"positions": "learned", "tying": "none", "final_norm": True},
        {"d_model": 40, "d_ff": 72, "head_dim": 16, "num_heads": 3, "tying": "target"},
        {"activation_dropout": 0.0, "activation": "gelu", "head_dim": 32},
    ],
    ids=str,
)
def test_cuda_graph_step_matches_eager_step_in_other_shapes(changes: dict[str, Any]) -> None:
    shape = replace(SMALL, **changes)
    usual = TrainingStep(copy_of(shape), TrainingConfig(compile=False), CUDA)
    courses_agree(usual, fused_step(shape), [random_batch(8, 64)], tolerance=0.05)


def test_dropout_differs_between_replays_and_repeats_after_restore() -> None:
    step, batch = fused_step(DROPPING), random_batch(8, 64)
    losses = [float(step(batch, batch.num_tokens, 0.0).loss_sum) for _ in range(8)]  # the weights do not change
    assert len(set(losses)) == 8
    state = random_states(CUDA)
    expected = [float(step(batch, batch.num_tokens, 0.0).loss_sum) for _ in range(3)]
    torch.rand(11, device=CUDA)  # as validation may do
    restore_random(state, CUDA)
    assert [float(step(batch, batch.num_tokens, 0.0).loss_sum) for _ in range(3)] == expected
    other = fused_step(DROPPING)  # as a resumed run: its first steps are not replayed
    other.model.load_state_dict(step.model.state_dict())
    restore_random(state, CUDA)
    assert [float(other(batch, batch.num_tokens, 0.0).loss_sum) for _ in range(3)] == pytest.approx(expected, rel=1e-5)


def test_weight_changes_between_replays_take_effect() -> None:
    """As by a moving average during validation, and by a restored checkpoint."""
    step, batch = fused_step(), random_batch(8, 64)
    for _ in range(6):
        before = float(step(batch, batch.num_tokens, 0.0).loss_sum)
    own = copy_weights(step.model)
    set_weights(step.model, {name: torch.zeros_like(tensor) for name, tensor in own.items()})
    nothing = float(step(batch, batch.num_tokens, 0.0).loss_sum) / batch.num_tokens
    assert nothing == pytest.approx(math.log(64), abs=0.01)
    set_weights(step.model, own)
    assert float(step(batch, batch.num_tokens, 0.0).loss_sum) == pytest.approx(before, rel=1e-5)


def test_training_continues_if_graph_capture_is_out_of_memory() -> None:
    """The incomplete capture has no effect."""
    done = torch.zeros((), device=CUDA)

    def work(batch: Batch) -> tuple[torch.Tensor, ...]:
        done.add_(1)
        if torch.cuda.is_current_stream_capturing():
            raise torch.OutOfMemoryError("out of memory")
        return ((batch.source * 2).sum(),)

    recorded = GraphedStep(work, CUDA)
    for number in range(6):
        batch = random_batch(3, 8)
        assert int(recorded(batch)[0]) == 2 * int(batch.source.sum())
        assert int(done) == number + 1
    assert recorded.graph is None


def test_cuda_graph_step_releases_memory_and_continues() -> None:
    usual, step = fused_step(), fused_step()
    batch = random_batch(256, 64)
    for _ in range(6):
        for each in (usual, step):
            each(batch, batch.num_tokens, 1e-3)
    held = torch.cuda.memory_reserved()
    tries: list[int] = []

    def work() -> int:
        tries.append(torch.cuda.memory_reserved())
        if len(tries) == 1:
            raise torch.OutOfMemoryError("out of memory")
        return 7

    assert step.with_free_memory(work) == 7
    assert tries[1] < tries[0] <= held
    courses_agree(usual, step, [batch], tolerance=0.01)


def test_float32_does_not_use_bf16_kernels() -> None:
    """Nor for rows that are too wide: there the usual compiled step is the default."""
    model = Transformer(SMALL).to(CUDA)
    assert TrainingStep(model, TrainingConfig(), CUDA).is_fused
    assert not TrainingStep(model, TrainingConfig(precision="fp32"), CUDA).is_fused
    assert not TrainingStep(model, TrainingConfig(compile=False), CUDA).is_fused
    wide = TrainingStep(model, TrainingConfig(), CUDA)
    wide.try_largest_batch(worst_batch(2, 256, 64, 64))
    assert not wide.is_fused


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_fused_step_on_second_gpu() -> None:
    torch.manual_seed(1)
    device = torch.device("cuda:1")
    step = TrainingStep(Transformer(SMALL).to(device), TrainingConfig(fused_step=True), device)
    batch = random_batch(8, 64)
    assert step.try_largest_batch(worst_batch(8, 64, 64, 64)) is None
    losses = [float(step(batch, batch.num_tokens, 1e-3).loss_sum) for _ in range(6)]
    torch.cuda.set_device(0)
    assert losses[-1] < losses[0]
