"""The fused forward pass, its operations and their gradients equal those of the reference model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.data.packing import Batch
from heedful.fused.train_attention import Biases, project_memory, row_attention
from heedful.fused.train_gpu import fused_hidden, fused_losses, supports_batch
from heedful.fused.train_ops import (
    DropoutSeed,
    Gradients,
    Segments,
    add_norm,
    dropout_mask,
    embed,
    feed_forward,
    linear,
    linear_branch,
    scaled_loss,
)
from heedful.model.transformer import Transformer

GRADIENTS = Gradients()
SHAPE = ModelConfig(
    source_vocab_size=50,
    target_vocab_size=50,
    d_model=32,
    d_ff=48,
    num_heads=2,
    num_encoder_layers=2,
    num_decoder_layers=3,
    dropout=0.0,
)


def packed(rows: int = 3, width: int = 14) -> Batch:
    torch.manual_seed(7)
    segments = torch.zeros(rows, width, dtype=torch.int64)
    segments[:, :5], segments[:, 5:11] = 1, 2
    positions = torch.cat((torch.arange(5), torch.arange(6), torch.zeros(3, dtype=torch.int64))).repeat(rows, 1)
    tokens = [torch.randint(4, 50, (rows, width)).masked_fill(segments == 0, 0) for _ in range(3)]
    return Batch(
        source=tokens[0],
        source_segments=segments,
        source_positions=positions,
        target_input=tokens[1],
        target_output=tokens[2],
        target_segments=segments,
        target_positions=positions,
    )


def build(**changes: Any) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(replace(SHAPE, **changes)).double()
    with torch.no_grad():
        for parameter in model.parameters():  # biases too: at zero, a missing bias would not be noticed
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def readable_loss(model: Transformer, batch: Batch, smoothing: float) -> Tensor:
    logits = model(**batch.inputs)
    labels = batch.target_output.masked_fill(batch.target_segments == 0, -100).flatten()
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels, ignore_index=-100, label_smoothing=smoothing, reduction="sum"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "pre"},
        {"norm_placement": "pre", "final_norm": False},
        {"final_norm": True},
        {"positions": "learned", "tying": "target"},
        {"positions": "rotary", "activation": "swiglu", "norm_placement": "pre"},
        {"activation": "gelu", "tying": "none", "head_dim": 32},
    ],
    ids=str,
)
def test_loss_and_gradients_equal_reference_model(changes: dict[str, Any]) -> None:
    model, batch, scale = build(**changes), packed(), torch.tensor(0.37, dtype=torch.float64)
    assert supports_batch(replace(SHAPE, **changes), 14)
    expected = readable_loss(model, batch, 0.1)
    wanted = torch.autograd.grad(expected * scale, list(model.parameters()))
    found = fused_losses(model, batch, scale, GRADIENTS, smoothing=0.1)
    torch.testing.assert_close(found.loss_sum, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.scaled, expected * scale, rtol=1e-12, atol=0)
    found.scaled.backward()
    GRADIENTS.flush()
    for (name, parameter), theirs in zip(model.named_parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, theirs, rtol=1e-9, atol=1e-12, msg=name)


def test_dropout_only_in_training_and_varies() -> None:
    model, batch = build(dropout=0.3), packed()
    one, other = fused_hidden(model, batch, GRADIENTS), fused_hidden(model, batch, GRADIENTS)
    assert not torch.allclose(one, other)
    model.eval()
    assert torch.equal(fused_hidden(model, batch, GRADIENTS), fused_hidden(model, batch, GRADIENTS))


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "rms"},
        {"attention_dropout": 0.1},
        {"attention_scoring": "dot"},
        {"key_dim": 8},
        {"bias": False},
        {"num_heads": 4, "head_dim": 24},
        {"target_vocab_size": 70_000, "source_vocab_size": 70_000},
    ],
    ids=str,
)
def test_supports_batch_refuses_unsupported_models(changes: dict[str, Any]) -> None:
    assert not supports_batch(replace(SHAPE, **changes), 14)


def test_wide_rows_use_reference_model() -> None:
    assert supports_batch(SHAPE, 128) and not supports_batch(SHAPE, 129)
    wide = replace(SHAPE, d_ff=1 << 14)  # rows · 128 · 2¹⁴ positions require 32-bit offsets
    assert supports_batch(wide, 128, 1023) and not supports_batch(wide, 128, 1024)


def doubles(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def assert_gradients(operation: Callable[..., Any], flowing: list[Tensor], weights: list[Tensor]) -> None:
    """Gradients of activations (by autograd) and of weights (computed outside it) equal finite differences."""
    torch.manual_seed(4)

    def loss(*given: Tensor) -> Tensor:
        torch.manual_seed(5)
        return sum((torch.randn_like(one) * one).sum() for one in operation(*given, *weights))

    def of_weights(*given: Tensor) -> Tensor:
        torch.manual_seed(5)
        return sum((torch.randn_like(one) * one).sum() for one in operation(*flowing, *given))

    assert not flowing or torch.autograd.gradcheck(loss, flowing, check_undefined_grad=False)
    GRADIENTS.flush()
    for weight in weights:
        weight.grad = None
    of_weights(*weights).backward()
    GRADIENTS.flush()
    for number, weight in enumerate(weights):
        slope = torch.zeros_like(weight)
        for place in range(weight.numel()):
            ends = []
            for change in (1e-6, -1e-6):
                moved = [one.detach().clone() for one in weights]
                moved[number].view(-1)[place] += change
                ends.append(of_weights(*moved).detach())
            slope.view(-1)[place] = (ends[0] - ends[1]) / 2e-6
        torch.testing.assert_close(weight.grad, slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_gradient_of_add_norm(dropout: float) -> None:
    torch.manual_seed(3)
    dropout_seed = DropoutSeed(torch.tensor([5, 77]), 1, dropout)
    for part in (slice(0, 2), slice(1, 2)):  # the sum is not used in post-norm
        flowing, weights = [doubles(2, 3, 8), doubles(2, 3, 8)], [doubles(8), doubles(8), doubles(8)]
        assert_gradients(lambda *given, p=part: add_norm(*given, dropout_seed, 1e-5, GRADIENTS)[p], flowing, weights)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_gradient_of_embedding(dropout: float) -> None:
    torch.manual_seed(3)
    dropout_seed, places = DropoutSeed(torch.tensor([5, 77]), 1, dropout), torch.randn(4, 6, dtype=torch.float64)
    tokens, positions = torch.tensor([[1, 4, 1], [0, 2, 4]]), torch.tensor([[0, 1, 2], [0, 1, 0]])
    for given in (places, None):
        assert_gradients(
            lambda table, at=given: [embed(table, at, tokens, positions, dropout_seed, 3.0, GRADIENTS)],
            [],
            [doubles(5, 6)],
        )


def test_gradient_of_linear_branch() -> None:
    torch.manual_seed(3)
    x, weights = doubles(2, 3, 4), [doubles(5, 4), doubles(2, 4)]
    assert_gradients(lambda x, *given: linear_branch(x, given, GRADIENTS), [x], weights)
    assert torch.equal(linear(x, weights, GRADIENTS), linear_branch(x, weights, GRADIENTS)[1])
    assert_gradients(lambda *given: feed_forward(*given, GRADIENTS), [x], [doubles(5, 4), doubles(5), doubles(4, 5)])


@pytest.mark.parametrize("length", [4, 6])
def test_gradient_of_attention_with_masked_rows(length: int) -> None:
    torch.manual_seed(3)
    segments = torch.tensor([[1, 1, 3, 2, 0], [1, 2, 0, 0, 0]])
    keys = torch.tensor([[1, 1, 2, 2, 2, 0], [1, 1, 1, 2, 2, 2]])[:, :length]

    def across(query: Tensor, memory: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        (of_layer,) = project_memory(memory, [key, value], [], 2, GRADIENTS)
        return [row_attention(query, of_layer, Segments(segments, keys, False), 0.5, GRADIENTS)]

    def inside(packed: Tensor) -> list[Tensor]:
        return [row_attention(packed, None, Segments(segments, segments, True), 0.5, GRADIENTS)]

    flowing, weights = [doubles(2, 5, 1, 2, 4), doubles(2, length, 3)], [doubles(8, 3), doubles(8, 3)]
    assert_gradients(across, flowing, weights)
    (seen,) = across(*flowing, *weights)
    assert (seen[0, 4] == 0).all() and (seen[:, 0] != 0).all()
    assert_gradients(inside, [doubles(2, 5, 3, 2, 4)], [])


@pytest.mark.parametrize("crossing", [True, False])
def test_gradients_of_attention_biases(crossing: bool) -> None:
    """All keys are visible here: in a model, an invisible key has no gradient, which the kernel relies on."""
    torch.manual_seed(3)
    rows = Segments(torch.tensor([[1, 1, 2, 2, 2], [1, 2, 2, 2, 2]]), torch.tensor([[1, 1, 2, 2], [1, 1, 2, 2]]), False)

    def around(x: Tensor, memory: Tensor, *given: Tensor) -> list[Tensor]:
        query, key, value, output, *vectors = given
        biases = Biases(*vectors, output)
        if crossing:
            _, packed = linear_branch(x, [query], GRADIENTS, vectors[:1])
            (of_layer,) = project_memory(memory, [key, value], vectors[1:3], 2, GRADIENTS)
            values = row_attention(packed.unflatten(2, (1, 2, 4)), of_layer, rows, 0.5, GRADIENTS, biases)
        else:
            _, packed = linear_branch(x, [query, key, value], GRADIENTS, vectors[:3])
            inside = Segments(rows.query_segments, rows.query_segments, True)
            values = row_attention(packed.unflatten(2, (3, 2, 4)), None, inside, 0.5, GRADIENTS, biases)
        y, norm = linear(values.flatten(2), [output], GRADIENTS), torch.arange(1.0, 4.0).double()
        return [add_norm(x, y, vectors[3], norm, norm, DropoutSeed(torch.tensor([1]), 0, 0.0), 1e-5, GRADIENTS)[1]]

    weights = [*(doubles(8, 3) for _ in range(3)), doubles(3, 8), *(doubles(size) for size in (8, 8, 8, 3))]
    flowing = [doubles(2, 5, 3), doubles(2, 4, 3)]
    if crossing:
        assert_gradients(around, flowing, weights)
    else:
        assert_gradients(lambda x, *given: around(x, x, *given), flowing[:1], weights)


def test_gradient_of_scaled_loss() -> None:
    torch.manual_seed(3)
    logits = torch.randn(6, 11, dtype=torch.float64, requires_grad=True)
    labels, counted = torch.randint(0, 11, (6,)), torch.tensor([True, True, False, True, False, True])
    scale = torch.tensor(0.3, dtype=torch.float64)
    plain = scale * torch.nn.functional.cross_entropy(
        logits, labels.masked_fill(~counted, -100), label_smoothing=0.1, reduction="sum"
    )
    scaled, loss_sum = scaled_loss(logits, labels, counted, scale, 0.1)
    torch.testing.assert_close(scaled, plain)
    torch.testing.assert_close(loss_sum * scale, plain)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (scaled, plain)))


def test_dropout_mask_rate_without_pattern() -> None:
    seeds = torch.tensor([1, 2])
    one, other = (dropout_mask(torch.Size((400, 512)), DropoutSeed(seeds, call, 0.1)) for call in (0, 1))
    share = one.double().mean()
    assert abs(share - 0.9) < 0.003
    assert abs((one & other).double().mean() - 0.81) < 0.004  # two calls are independent
    neighbours = (one[:, 1:] & one[:, :-1]).double().mean()
    assert abs(neighbours - 0.81) < 0.004
    assert one.double().mean(dim=0).std() < 2 * (0.09 / 400) ** 0.5  # all columns are equally likely
    assert one.double().mean(dim=1).std() < 2 * (0.09 / 512) ** 0.5  # and all rows
