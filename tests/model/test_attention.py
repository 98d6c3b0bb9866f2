"""Fused and explicit attention agree for all shapes and masks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from heedful.model.attention import MultiHeadAttention, Scoring, attend_explicit, attend_fused
from heedful.model.transformer import Transformer
from tests.small_models import SMALL, VARIANTS, build, random_tokens, real_tokens

SCORINGS = ["scaled_dot", "dot", "additive"]


@st.composite
def attention_inputs(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random queries, keys and values, and a random mask; some queries may attend to nothing, some to all."""
    B, H, Q, K = (draw(st.integers(1, limit)) for limit in (3, 3, 6, 6))
    head_dim = draw(st.sampled_from([1, 2, 3, 8]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    query, key = (torch.randn(B, H, length, head_dim, generator=generator) for length in (Q, K))
    value = torch.randn(B, H, K, draw(st.sampled_from([head_dim, 5])), generator=generator)
    mask_shape = (B, draw(st.sampled_from([1, H])), draw(st.sampled_from([1, Q])), K)
    density = draw(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]))
    mask = torch.rand(mask_shape, generator=generator) < density
    return query, key, value, mask


def scoring_of(kind: str, query: Tensor) -> Scoring:
    scoring = Scoring(kind, query.shape[1], query.shape[3])
    if scoring.vector is not None:
        torch.nn.init.normal_(scoring.vector)
    return scoring


@pytest.mark.parametrize("kind", SCORINGS)
@given(inputs=attention_inputs())
def test_fused_equals_explicit(kind: str, inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    *tensors, mask = inputs
    scoring = scoring_of(kind, tensors[0])
    direction = torch.randn(*tensors[0].shape[:3], tensors[2].shape[3])
    outputs, gradients = [], []
    for attend in (attend_fused, attend_explicit):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        attended = attend(*leaves, mask, scoring=scoring, dropout=0.0)
        outputs.append(attended.values)
        gradients.append(torch.autograd.grad((attended.values * direction).sum(), leaves))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-5, atol=1e-5)
    for fused, explicit in zip(*gradients, strict=True):
        assert torch.isfinite(fused).all()
        torch.testing.assert_close(fused, explicit, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", SCORINGS)
@given(inputs=attention_inputs())
def test_fused_equals_explicit_in_bf16(kind: str, inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    query, key, value, mask = inputs
    scoring = scoring_of(kind, query)
    tensors = [tensor.bfloat16() for tensor in (query, key, value)]
    fused = attend_fused(*tensors, mask, scoring=scoring, dropout=0.0).values
    explicit = attend_explicit(*tensors, mask, scoring=scoring, dropout=0.0).values
    assert fused.dtype == explicit.dtype == torch.bfloat16
    torch.testing.assert_close(fused, explicit, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", SCORINGS)
@given(inputs=attention_inputs())
def test_weights_are_distribution_over_visible_keys(kind: str, inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    query, key, value, mask = inputs
    attended = attend_explicit(query, key, value, mask, scoring=scoring_of(kind, query), dropout=0.0)
    assert attended.weights is not None
    visible = mask.expand_as(attended.weights)
    has_any = visible.any(dim=-1)
    assert (attended.weights[~visible] == 0).all()
    assert (attended.weights >= 0).all()
    torch.testing.assert_close(attended.weights.sum(dim=-1), has_any.float())
    torch.testing.assert_close(attended.values, attended.weights @ value)
    assert (attended.values[~has_any] == 0).all()


@pytest.mark.parametrize("attend", [attend_fused, attend_explicit])
@pytest.mark.parametrize("kind", SCORINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fully_masked_query_gets_zeros_and_no_gradient(attend: object, kind: str, dtype: torch.dtype) -> None:
    leaves = [torch.randn(2, 2, 3, 4, dtype=dtype).requires_grad_() for _ in range(3)]
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    mask[0, :, 1] = False
    mask[1] = False
    values = attend(*leaves, mask, scoring=scoring_of(kind, leaves[0]), dropout=0.0).values  # type: ignore[operator]
    assert (values[0, :, 1] == 0).all()
    assert (values[1] == 0).all()
    assert (values[0, :, 0] != 0).all()
    values.sum().backward()
    for leaf in leaves:
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()
        assert (leaf.grad[1] == 0).all()
    assert leaves[0].grad is not None
    assert (leaves[0].grad[0, :, 1] == 0).all()


def test_scores_follow_their_formulas() -> None:
    query, key = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    dots = torch.einsum("bhqd,bhkd->bhqk", query, key)
    torch.testing.assert_close(Scoring("dot", 2, 4)(query, key), dots)
    torch.testing.assert_close(Scoring("scaled_dot", 2, 4)(query, key), dots / 2.0)
    additive = scoring_of("additive", query)
    assert additive.vector is not None
    for head, q, k in ((0, 2, 4), (1, 0, 3)):
        expected = additive.vector[head] @ torch.tanh(query[0, head, q] + key[0, head, k])
        torch.testing.assert_close(additive(query, key)[0, head, q, k], expected)


def test_heads_equal_separate_single_heads() -> None:
    attention = MultiHeadAttention(SMALL)
    x, mask = torch.randn(2, 5, 16), torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    together, _ = attention(x, mask=mask)
    heads = []
    for head in range(2):
        rows = slice(8 * head, 8 * head + 8)
        query, key, value = (
            x @ part.weight[rows].T + part.bias[rows] for part in (attention.query, attention.key, attention.value)
        )
        scores = (query @ key.transpose(1, 2) / 8**0.5).masked_fill(~mask[:, 0], float("-inf"))
        heads.append(torch.softmax(scores, dim=-1) @ value)
    torch.testing.assert_close(together, attention.output(torch.cat(heads, dim=-1)), rtol=1e-5, atol=1e-5)


def test_need_weights_does_not_change_output() -> None:
    attention = MultiHeadAttention(SMALL)
    x, mask = torch.randn(2, 5, 16), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    silent, none = attention(x, mask=mask)
    shown, weights = attention(x, mask=mask, need_weights=True)
    assert none is None
    assert weights.shape == (2, 2, 5, 5)
    torch.testing.assert_close(silent, shown, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_whole_model_fused_equals_explicit(name: str) -> None:
    model = build(VARIANTS[name])
    source, target_input = random_tokens(3, 6), random_tokens(3, 5)
    segments = (real_tokens([6, 2, 0], 6).long(), real_tokens([5, 5, 0], 5).long())  # the last row is empty
    fused, fused_gradients = logits_and_gradients(model, source, target_input, *segments)
    model.use_attention("explicit")
    explicit, explicit_gradients = logits_and_gradients(model, source, target_input, *segments)
    assert torch.isfinite(fused).all()
    torch.testing.assert_close(fused, explicit, rtol=1e-4, atol=1e-5)
    largest = max(float(gradient.abs().max()) for gradient in explicit_gradients)
    for one, other in zip(fused_gradients, explicit_gradients, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * max(1.0, largest))


def logits_and_gradients(model: Transformer, *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    logits = model(*inputs)
    loss = torch.log_softmax(logits, dim=-1)[..., 3].sum()
    return logits, list(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))


def test_unknown_attention_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="fused, explicit"):
        build(SMALL).use_attention("flash")
