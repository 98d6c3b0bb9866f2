"""Local and hard attention: windows against a loop, local-p for one query at a time, gradients of hard attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.attention import MultiHeadAttention, segment_mask
from heedful.model.transformer import Transformer
from heedful.model.weighting import Weighting, masked_softmax, monotonic_mask, window_mask
from tests.small_models import SMALL, build, random_tokens

Row = list[tuple[int, int]]
"""(length of the source, length of the target) of each pair of a packed row."""
pair_rows = st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7)), max_size=3), min_size=1, max_size=3)


def segments_of(rows: list[Row], side: int) -> tuple[Tensor, Tensor]:
    """Segment numbers and positions of packed rows, with two tokens of padding in the longest."""
    width = max(sum(pair[side] for pair in row) for row in rows) + 2
    segments, positions = torch.zeros(2, len(rows), width, dtype=torch.long).unbind()
    for number, row in enumerate(rows):
        start = 0
        for segment, pair in enumerate(row, 1):
            segments[number, start : start + pair[side]] = segment
            positions[number, start : start + pair[side]] = torch.arange(pair[side])
            start += pair[side]
    return segments, positions


@given(rows=pair_rows, window=st.integers(1, 6))
def test_self_attention_window_equals_loop(rows: list[Row], window: int) -> None:
    segments, positions = segments_of(rows, 1)
    found = segment_mask(segments, segments) & window_mask(positions, positions, window)
    width = segments.shape[1]
    for row in range(len(rows)):
        for query in range(width):
            for key in range(width):
                is_same = segments[row, query] == segments[row, key] > 0
                assert found[row, 0, query, key] == (is_same and abs(query - key) <= window)


@given(rows=pair_rows, window=st.integers(1, 6))
def test_monotonic_window_equals_loop(rows: list[Row], window: int) -> None:
    (source, source_positions), (target, target_positions) = segments_of(rows, 0), segments_of(rows, 1)
    found = monotonic_mask(segment_mask(target, source), target_positions, window)
    for row, pairs in enumerate(rows):
        for query in range(target.shape[1]):
            segment = int(target[row, query])
            length = pairs[segment - 1][0] if segment else 0
            centre = min(int(target_positions[row, query]), length - 1)
            for key in range(source.shape[1]):
                expected = (
                    segment > 0
                    and int(source[row, key]) == segment
                    and abs(int(source_positions[row, key]) - centre) <= window
                )
                assert found[row, 0, query, key] == expected
            assert found[row, 0, query].any() == (length > 0)  # never empty, however long the target


def config_of(**changes: Any) -> ModelConfig:
    return replace(SMALL, **changes)


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("changes", [{"self_attention": "local"}, {"cross_attention": "local_monotonic"}], ids=str)
def test_window_as_wide_as_the_sentences_is_global_attention(changes: dict[str, Any], attention: str) -> None:
    wide, whole = build(config_of(**changes, attention_window=8)), build(SMALL)
    wide.use_attention(attention)
    whole.use_attention(attention)
    inputs = random_tokens(3, 8), random_tokens(3, 6)
    assert torch.equal(wide(*inputs), whole(*inputs))
    narrow = build(config_of(**changes, attention_window=1))
    assert (narrow(*inputs) - whole(*inputs)).abs().max() > 1e-2


def test_local_self_attention_reaches_the_window_and_no_further() -> None:
    """Two encoder layers with a window of 2 reach 4 positions."""
    model = build(config_of(self_attention="local", attention_window=2))
    source, mask = random_tokens(1, 12), torch.ones(1, 12, dtype=torch.bool)
    changed = source.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 11
    difference = (model.encode(changed, mask).values - model.encode(source, mask).values).abs().amax(dim=(0, 2))
    assert (difference > 0).nonzero().flatten().tolist() == list(range(2, 11))


def weighting_of(kind: str, *, num_heads: int = 2, **changes: Any) -> Weighting:
    torch.manual_seed(0)
    config = config_of(**{"cross_attention": kind, **changes})
    return Weighting(kind, config, num_heads=num_heads, width=5)


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    window=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
@torch.no_grad()
def test_predictive_weights_equal_one_query_at_a_time(lengths: list[int], window: int, seed: int) -> None:
    weighting = weighting_of("local_predictive", attention_window=window)
    predictor = weighting.predictor
    assert predictor is not None
    generator = torch.Generator().manual_seed(seed)
    num_queries, num_keys = 3, max(lengths) + 1
    scores = torch.randn(len(lengths), 2, num_queries, num_keys, generator=generator)
    x = 3 * torch.randn(len(lengths), num_queries, 16, generator=generator)
    mask = (torch.arange(num_keys) < torch.tensor(lengths)[:, None])[:, None, None]
    found = weighting(scores, mask, x=x)
    assert found.shape == scores.shape and torch.isfinite(found).all()
    for row, length in enumerate(lengths):
        for head in range(2):
            matrix = predictor.hidden.weight[5 * head : 5 * head + 5]
            for query in range(num_queries):
                exponent = float(predictor.vector[head] @ torch.tanh(matrix @ x[row, query]))
                centre = length / (1 + math.exp(-exponent))
                inside = [key for key in range(length) if abs(key - centre) <= window]
                total = sum(math.exp(scores[row, head, query, key]) for key in inside)
                for key in range(num_keys):
                    expected = 0.0
                    if key in inside:
                        gaussian = math.exp(-((key - centre) ** 2) / (2 * (window / 2) ** 2))
                        expected = math.exp(scores[row, head, query, key]) / total * gaussian
                    assert float(found[row, head, query, key]) == pytest.approx(expected, abs=1e-5)


def test_predicted_position_learns_through_the_gaussian() -> None:
    weighting = weighting_of("local_predictive", attention_window=2)
    scores, mask = torch.randn(1, 2, 3, 6), torch.ones(1, 1, 1, 6, dtype=torch.bool)
    weighting(scores, mask, x=torch.randn(1, 3, 16))[..., 5].sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in weighting.parameters())


GRADIENTS = ("straight_through", "gumbel", "reinforce")


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("is_training", [True, False])
def test_hard_weights_are_one_hot_rows(gradient: str, is_training: bool) -> None:
    weighting = weighting_of("hard", hard_attention_gradient=gradient).train(is_training)
    scores, mask = torch.randn(3, 2, 5, 7), torch.rand(3, 1, 5, 7) < 0.6
    mask[0, 0, 0] = False
    found = weighting(scores, mask, x=torch.zeros(3, 5, 16))
    sees_any = mask.any(dim=-1).expand(3, 2, 5)
    assert torch.equal(found.sum(dim=-1), sees_any.float())
    assert set(found.unique().tolist()) == {0.0, 1.0}
    assert not found.masked_select(~mask.expand_as(found)).any()
    best = scores.masked_fill(~mask, float("-inf")).argmax(dim=-1)
    agrees = found.argmax(dim=-1)[sees_any] == best[sees_any]
    assert agrees.all() == (not is_training or gradient == "straight_through")


@pytest.mark.parametrize("gradient", ["straight_through", "gumbel"])
def test_gradient_of_hard_weights_is_that_of_softmax(gradient: str) -> None:
    weighting = weighting_of("hard", hard_attention_gradient=gradient).train()
    scores, mask = torch.randn(2, 2, 3, 4, requires_grad=True), torch.ones(2, 1, 3, 4, dtype=torch.bool)
    direction = torch.randn(2, 2, 3, 4)
    torch.manual_seed(5)
    found = weighting(scores, mask, x=torch.zeros(2, 3, 16))
    [gradients] = torch.autograd.grad((found * direction).sum(), scores)
    torch.manual_seed(5)
    noise = -torch.empty(2, 2, 3, 4).exponential_().log() if gradient == "gumbel" else torch.zeros(2, 2, 3, 4)
    [expected] = torch.autograd.grad((masked_softmax(scores + noise, mask) * direction).sum(), scores)
    torch.testing.assert_close(gradients, expected)
    assert torch.equal(found.argmax(dim=-1), (scores + noise).argmax(dim=-1))


@pytest.mark.parametrize("gradient", ["gumbel", "reinforce"])
def test_training_samples_from_the_softmax(gradient: str) -> None:
    weighting = weighting_of("hard", hard_attention_gradient=gradient, num_heads=1).train()
    scores = torch.tensor([0.0, 1.0, -1.0, 2.0]).expand(1, 1, 20_000, 4)
    mask = torch.tensor([True, True, True, False])[None, None, None]
    shares = weighting(scores, mask, x=torch.zeros(1, 20_000, 16)).mean(dim=(0, 1, 2))
    expected = masked_softmax(scores[:, :, :1], mask)[0, 0, 0]
    torch.testing.assert_close(shares, expected, atol=0.02, rtol=0)


def test_sampled_log_prob_is_that_of_the_chosen_keys() -> None:
    weighting = weighting_of("hard", hard_attention_gradient="reinforce").train()
    scores, mask = torch.randn(2, 2, 3, 4), torch.ones(2, 1, 3, 4, dtype=torch.bool)
    mask[1, 0, 2] = False
    found = weighting(scores, mask, x=torch.zeros(2, 3, 16))
    assert weighting.log_prob is not None
    chosen = (found * torch.log_softmax(scores, dim=-1)).sum(dim=(1, 3))
    torch.testing.assert_close(weighting.log_prob, chosen)


@pytest.mark.parametrize("place", ["self_attention", "cross_attention"])
@pytest.mark.parametrize("gradient", ["straight_through", "gumbel"])
def test_queries_and_keys_of_hard_attention_learn(place: str, gradient: str) -> None:
    model = build(config_of(**{place: "hard", "hard_attention_gradient": gradient})).train()
    model(random_tokens(3, 6), random_tokens(3, 5)).square().sum().backward()
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            for part in (module.query, module.key):
                assert part.weight.grad is not None and part.weight.grad.abs().sum() > 0, name


def test_weights_of_hard_model_are_one_hot() -> None:
    model = build(config_of(self_attention="hard", cross_attention="hard", hard_attention_gradient="gumbel"))
    source = random_tokens(2, 6)
    state = model.start(model.encode(source, torch.ones_like(source, dtype=torch.bool)), num_beams=2, max_length=4)
    weights = model.step(torch.tensor([4, 5, 6, 7]), state, need_weights=True).attention
    assert weights is not None
    assert torch.equal(weights.amax(dim=-1), torch.ones(4, 2, 2)) and torch.equal(
        weights.sum(dim=-1), torch.ones(4, 2, 2)
    )


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_evaluation_is_deterministic(gradient: str) -> None:
    model = build(config_of(cross_attention="hard", hard_attention_gradient=gradient))
    inputs = random_tokens(3, 6), random_tokens(3, 5)
    assert torch.equal(model(*inputs), model(*inputs))
    model.train()
    is_equal = torch.equal(model(*inputs), model(*inputs))
    assert is_equal == (gradient == "straight_through")


@pytest.mark.compile
@pytest.mark.parametrize(
    "changes",
    [
        {"self_attention": "local", "cross_attention": "local_monotonic", "attention_window": 2},
        {"cross_attention": "local_predictive", "attention_window": 2},
        {"self_attention": "hard", "cross_attention": "hard"},
    ],
    ids=str,
)
def test_kinds_compile_without_graph_breaks(changes: dict[str, Any]) -> None:
    config = config_of(**changes, num_encoder_layers=1, num_decoder_layers=1)
    eager, compiled = build(config).train(), build(config).train()
    segments = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]])
    inputs = (random_tokens(2, 6), random_tokens(2, 6), segments, segments, positions, positions)
    logits = torch.compile(compiled, fullgraph=True, backend="aot_eager")(*inputs)
    torch.testing.assert_close(logits, eager(*inputs), rtol=1e-4, atol=1e-5)


def test_sampled_log_prob_sums_over_layers_and_heads() -> None:
    model = build(config_of(cross_attention="hard", hard_attention_gradient="reinforce")).train()
    assert isinstance(model, Transformer)
    model(random_tokens(3, 6), random_tokens(3, 5))
    log_prob = model.sampled_log_prob()
    assert log_prob.shape == (3, 5) and (log_prob < 0).all()
    log_prob.sum().backward()
    for layer in model.decoder.layers:
        assert layer.cross_attention.query.weight.grad.abs().sum() > 0  # type: ignore[union-attr]
