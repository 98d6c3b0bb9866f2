"""The loss follows the formula of section 5.4 and is summed over real tokens only."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from heedful.training.loss import reinforce, smoothed_cross_entropy, symmetric_kl


def naive(logits: Tensor, target: Tensor, segments: Tensor, smoothing: float) -> Tensor:
    """-Σ q log p, token by token, with q written out."""
    total = logits.new_zeros(())
    num_classes = logits.shape[-1]
    for row in range(logits.shape[0]):
        for place in range(logits.shape[1]):
            if segments[row, place] > 0:
                q = torch.full((num_classes,), smoothing / num_classes, dtype=logits.dtype)
                q[target[row, place]] += 1 - smoothing
                p = logits[row, place].exp() / logits[row, place].exp().sum()
                total = total - (q * p.log()).sum()
    return total


shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(2, 7), st.integers(0, 1000))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@given(shape=shapes)
def test_loss_and_gradient_follow_formula(smoothing: float, shape: tuple[int, int, int, int]) -> None:
    rows, length, classes, seed = shape
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, length, classes, generator=chance, dtype=torch.float64, requires_grad=True)
    target = torch.randint(classes, (rows, length), generator=chance)
    segments = torch.randint(3, (rows, length), generator=chance)

    ours = smoothed_cross_entropy(logits, target, segments, smoothing=smoothing)
    theirs = naive(logits, target, segments, smoothing)

    torch.testing.assert_close(ours.loss_sum, theirs, rtol=1e-12, atol=1e-12)
    assert int(ours.num_tokens) == int((segments > 0).sum())
    [our_gradient] = torch.autograd.grad(ours.loss_sum, logits)
    if (segments > 0).any():
        [their_gradient] = torch.autograd.grad(theirs, logits)
        torch.testing.assert_close(our_gradient, their_gradient, rtol=1e-10, atol=1e-12)
    else:
        assert not our_gradient.any()


def test_padding_is_ignored() -> None:
    logits, target = torch.randn(2, 4, 6), torch.randint(6, (2, 4))
    segments = torch.tensor([[1, 1, 0, 0], [1, 2, 2, 0]])
    before = smoothed_cross_entropy(logits, target, segments, smoothing=0.1)
    logits[segments == 0] += 100 * torch.randn(3, 6)
    target[segments == 0] = 5
    after = smoothed_cross_entropy(logits, target, segments, smoothing=0.1)
    assert torch.equal(before.loss_sum, after.loss_sum)
    assert int(after.num_tokens) == 5


@given(cut=st.integers(0, 6), smoothing=st.sampled_from([0.0, 0.1]))
def test_losses_of_microbatches_add_up(cut: int, smoothing: float) -> None:
    chance = torch.Generator().manual_seed(cut)
    logits = torch.randn(6, 5, 9, generator=chance, dtype=torch.float64)
    target = torch.randint(9, (6, 5), generator=chance)
    segments = torch.randint(2, (6, 5), generator=chance)
    whole = smoothed_cross_entropy(logits, target, segments, smoothing=smoothing)
    parts = [
        smoothed_cross_entropy(logits[part], target[part], segments[part], smoothing=smoothing)
        for part in (slice(0, cut), slice(cut, 6))
    ]
    torch.testing.assert_close(whole.loss_sum, parts[0].loss_sum + parts[1].loss_sum, rtol=1e-12, atol=1e-12)
    assert whole.num_tokens == parts[0].num_tokens + parts[1].num_tokens


def test_bf16_logits_are_summed_in_float32() -> None:
    logits, target = torch.randn(4, 8, 6).bfloat16(), torch.randint(6, (4, 8))
    loss = smoothed_cross_entropy(logits, target, torch.ones(4, 8, dtype=torch.int64), smoothing=0.1).loss_sum
    exact = smoothed_cross_entropy(logits.double(), target, torch.ones(4, 8, dtype=torch.int64), smoothing=0.1).loss_sum
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=0)


def test_symmetric_kl_over_real_tokens() -> None:
    one, other = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    segments = torch.tensor([[1, 1, 0], [1, 0, 0]])
    p, q = torch.distributions.Categorical(logits=one), torch.distributions.Categorical(logits=other)
    each = torch.distributions.kl_divergence(p, q) + torch.distributions.kl_divergence(q, p)
    expected = 0.5 * (each * (segments > 0)).sum()
    torch.testing.assert_close(symmetric_kl(one, other, segments), expected, rtol=1e-5, atol=1e-6)
    assert float(symmetric_kl(one, one, segments)) == 0


def test_reinforce_gradient_is_that_of_expected_loss() -> None:
    """Three choices lead to three predictions; the expected loss is a sum over the choices."""
    torch.manual_seed(3)
    scores, predictions = torch.tensor([0.3, -0.5, 1.0], requires_grad=True), torch.randn(3, 5)
    num_rows, target = 100_000, 2
    losses = -torch.log_softmax(predictions, dim=-1)[:, target]
    [expected] = torch.autograd.grad((torch.softmax(scores, dim=0) * losses).sum(), scores)
    chosen = torch.multinomial(torch.softmax(scores.detach(), dim=0), num_rows, replacement=True)
    segments = torch.ones(num_rows, 2, dtype=torch.long)
    segments[:, 1] = 0  # padding is ignored, whatever was sampled there
    logits = predictions[chosen][:, None].expand(-1, 2, -1)
    log_prob = torch.log_softmax(scores, dim=0)[chosen][:, None].expand(-1, 2)
    term = reinforce(logits, torch.full_like(segments, target), segments, log_prob)
    assert term.item() == 0
    [found] = torch.autograd.grad(term / num_rows, scores)
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0)
    assert float(expected.abs().max()) > 0.1


def test_reinforce_of_padding_only_is_zero() -> None:
    log_prob = torch.zeros(1, 2, requires_grad=True)
    term = reinforce(torch.randn(1, 2, 5), *torch.zeros(2, 1, 2, dtype=torch.long), log_prob)
    assert term.item() == 0
    assert torch.equal(torch.autograd.grad(term, log_prob)[0], torch.zeros(1, 2))
