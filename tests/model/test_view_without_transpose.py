"""A common mistake: splitting into heads by `view` alone fits all shapes, but positions do not attend to others."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.attention import MultiHeadAttention, attend_explicit

HEADS, LENGTH, WIDTH = 2, 5, 4


def attention() -> MultiHeadAttention:
    torch.manual_seed(1)
    return MultiHeadAttention(ModelConfig(d_model=HEADS * WIDTH, num_heads=HEADS, dropout=0.0)).eval()


def split_by_view(x: Tensor) -> Tensor:
    """The bug: (B, T, D) -> (B, T, H, Dh), where attention expects (B, H, T, Dh)."""
    return x.view(x.shape[0], -1, HEADS, WIDTH)


def attend_without_transpose(module: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Multi-head attention with the bug, and the weights."""
    query, key, value = (split_by_view(project(x)) for project in (module.query, module.key, module.value))
    everything = torch.ones(1, 1, 1, 1, dtype=torch.bool).expand(1, 1, HEADS, HEADS)
    attended = attend_explicit(query, key, value, everything, scoring=module.scoring, dropout=0.0)
    assert attended.weights is not None
    return module.output(attended.values.reshape(x.shape)), attended.weights


def sees(output: Tensor, x: Tensor, position: int) -> list[bool]:
    """The input positions on which each output depends."""
    (gradient,) = torch.autograd.grad(output[0, position].sum(), x, retain_graph=True)
    return [bool(one.abs().sum() > 0) for one in gradient[0]]


def test_view_without_transpose_never_mixes_positions() -> None:
    """What goes wrong: the scores compare the heads of one token, and no token sees another.

    They have the shape (B, T, H, H) instead of (B, H, T, T). The output has the right shape, so that training runs.
    """
    module, x = attention(), torch.randn(1, LENGTH, HEADS * WIDTH, requires_grad=True)
    output, weights = attend_without_transpose(module, x)
    assert weights.shape == (1, LENGTH, HEADS, HEADS)
    assert output.shape == x.shape
    assert sees(output, x, 2) == [False, False, True, False, False]


def test_model_attention_mixes_positions() -> None:
    module, x = attention(), torch.randn(1, LENGTH, HEADS * WIDTH, requires_grad=True)
    mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool)
    output, weights = module(x, mask=mask, need_weights=True)
    assert weights.shape == (1, HEADS, LENGTH, LENGTH)
    assert sees(output, x, 2) == [True] * LENGTH
    assert not torch.allclose(output, attend_without_transpose(module, x)[0], atol=1e-3)


def test_join_without_transpose_scrambles_positions() -> None:
    """What goes wrong: viewing (B, H, T, Dh) as (B, T, D) puts two positions of one head where one token belongs.

    With a mask that lets each token see only itself, token t must depend on token t alone; here it depends on others.
    """
    module, x = attention(), torch.randn(1, LENGTH, HEADS * WIDTH, requires_grad=True)
    query, (key, value) = module.queries(x), module.keys_values(x)
    itself = torch.eye(LENGTH, dtype=torch.bool)[None, None]
    values = attend_explicit(query, key, value, itself, scoring=module.scoring, dropout=0.0).values
    joined = values.transpose(1, 2).flatten(2)
    scrambled = values.reshape(1, LENGTH, HEADS * WIDTH)
    assert sees(joined, x, 1) == [False, True, False, False, False]
    assert sees(scrambled, x, 1) == [False, False, True, True, False]
    torch.testing.assert_close(module.output(joined), module(x, mask=itself)[0])
