"""Norms against their formulas, and the masked BatchNorm against torch's on the real tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.norms import BatchNorm, LayerNorm, RMSNorm, build_norm

D = 5


def disturb(norm: nn.Module) -> None:
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def test_layer_norm_follows_formula() -> None:
    norm = LayerNorm(D, eps=1e-3)
    disturb(norm)
    x = torch.randn(2, 3, D)
    deviation = x - x.mean(-1, keepdim=True)
    expected = deviation / (deviation.square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(norm(x), expected)


def test_rms_norm_follows_formula() -> None:
    norm = RMSNorm(D, eps=1e-3)
    disturb(norm)
    x = torch.randn(2, 3, D)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("name", "kind"), [("layer", LayerNorm), ("rms", RMSNorm), ("batch", BatchNorm)])
def test_build_norm_by_config(name: str, kind: type[nn.Module], bias: bool) -> None:
    norm = build_norm(ModelConfig(d_model=8, norm=name, norm_epsilon=0.25, bias=bias))  # type: ignore[arg-type]
    assert type(norm) is kind
    assert norm.eps == 0.25
    expected = {"weight", "bias"} if bias and name != "rms" else {"weight"}
    assert {key for key, _ in norm.named_parameters()} == expected


@st.composite
def tokens_and_masks(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Random features, and a mask with at least two real tokens (torch's own BatchNorm needs as many)."""
    B, T = draw(st.integers(1, 4)), draw(st.integers(2, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    mask = torch.rand(B, T, generator=generator) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    mask[0, :2] = True
    return torch.randn(B, T, D, generator=generator) * 2 + 3, mask


@given(inputs=tokens_and_masks())
def test_masked_batch_norm_equals_torch_on_real_tokens(inputs: tuple[Tensor, Tensor]) -> None:
    x, mask = inputs
    ours, theirs = BatchNorm(D, eps=1e-4, bias=True), nn.BatchNorm1d(D, eps=1e-4)
    disturb(ours)
    theirs.weight.data.copy_(ours.weight.data)
    assert ours.bias is not None
    theirs.bias.data.copy_(ours.bias.data)
    for _ in range(2):  # twice, so that the running statistics are a mixture
        our_x, their_x = x.clone().requires_grad_(), x[mask].clone().requires_grad_()
        our_output, their_output = ours(our_x, mask), theirs(their_x)
        torch.testing.assert_close(our_output[mask], their_output, rtol=1e-4, atol=1e-4)
        direction = torch.randn_like(their_output)
        for norm in (ours, theirs):
            norm.zero_grad()
        (our_output[mask] * direction).sum().backward()
        (their_output * direction).sum().backward()
        assert our_x.grad is not None
        torch.testing.assert_close(our_x.grad[mask], their_x.grad, rtol=1e-3, atol=1e-3)
        assert (our_x.grad[~mask] == 0).all()
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours.bias.grad, theirs.bias.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours.running_mean, theirs.running_mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.running_variance, theirs.running_var, rtol=1e-4, atol=1e-5)
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(ours(x, mask)[mask], theirs(x[mask]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("filler", [0.0, -1.0, 1e6])
def test_batch_norm_ignores_padding(filler: float) -> None:
    x, mask = torch.randn(2, 4, D), torch.tensor([[True, True, False, False], [True, True, True, False]])
    plain, filled = BatchNorm(D, eps=1e-5, bias=True), BatchNorm(D, eps=1e-5, bias=True)
    expected = plain(x, mask)
    other = x.masked_fill(~mask[..., None], filler).requires_grad_()
    output = filled(other, mask)
    assert torch.equal(output[mask], expected[mask])
    assert torch.equal(filled.running_mean, plain.running_mean)
    assert torch.equal(filled.running_variance, plain.running_variance)
    output[mask].square().sum().backward()
    assert other.grad is not None
    assert torch.isfinite(other.grad[mask]).all()


def test_batch_norm_uses_running_statistics_in_eval() -> None:
    norm = BatchNorm(D, eps=1e-5, bias=True).eval()
    norm.running_mean.normal_()
    norm.running_variance.uniform_(0.5, 2.0)
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    x, mask = torch.randn(2, 3, D), torch.ones(2, 3, dtype=torch.bool)
    expected = (x - norm.running_mean) / (norm.running_variance + 1e-5).sqrt()
    torch.testing.assert_close(norm(x, mask), expected)
    torch.testing.assert_close(norm(x[:1, :1], mask[:1, :1]), expected[:1, :1])  # whatever else is in the batch
    assert all(torch.equal(before[key], value) for key, value in norm.state_dict().items())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_numbers_do_not_enter_running_statistics(bad: float) -> None:
    norm = BatchNorm(D, eps=1e-5, bias=True)
    mask = torch.ones(2, 3, dtype=torch.bool)
    norm(torch.randn(2, 3, D), mask)
    mean, variance = norm.running_mean.clone(), norm.running_variance.clone()
    x = torch.randn(2, 3, D)
    x[0, 1, 2] = bad
    norm(x, mask)
    assert torch.equal(norm.running_mean, mean)
    assert torch.equal(norm.running_variance, variance)


def test_batch_norm_of_zero_and_one_token() -> None:
    norm = BatchNorm(D, eps=1e-5, bias=True)
    x = torch.randn(2, 3, D, requires_grad=True)
    norm(x, torch.zeros(2, 3, dtype=torch.bool)).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert (norm.running_mean == 0).all()
    assert (norm.running_variance == 1).all()
    one = torch.zeros(2, 3, dtype=torch.bool)
    one[1, 1] = True
    output = norm(x.detach(), one)
    torch.testing.assert_close(output[1, 1], torch.zeros(D))
    torch.testing.assert_close(norm.running_mean, 0.1 * x[1, 1].detach())
    assert torch.isfinite(norm.running_variance).all()
