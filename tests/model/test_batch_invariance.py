"""The bits of a row do not depend on its position in the batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heedful.model.attention import Scoring, attend_explicit, attend_fused
from heedful.model.batch_invariance import align, sigmoid, silu


def test_align_rounds_up() -> None:
    assert [align(count) for count in (0, 1, 4, 5, 8)] == [0, 4, 4, 8, 8]


@pytest.mark.parametrize(("mine", "torchs"), [(sigmoid, torch.sigmoid), (silu, torch.nn.functional.silu)])
def test_sigmoid_and_silu_are_close_to_torch(mine, torchs) -> None:
    x = torch.tensor([-torch.inf, -200.0, -100.0, -80.0, -1.5, -0.0, 0.0, 1e-8, 3.0, 80.0, 200.0])
    x = x[1:] if mine is silu else x
    with torch.no_grad():
        torch.testing.assert_close(mine(x), torchs(x))
    x.requires_grad_()
    assert torch.equal(mine(x), torchs(x))


@pytest.mark.parametrize("function", [sigmoid, silu])
@pytest.mark.parametrize("rows", [3, 48])  # a remainder at the end; distributed among threads
@torch.no_grad()
def test_row_bits_do_not_depend_on_position(function, rows: int) -> None:
    torch.manual_seed(0)
    for _ in range(20):
        y: Tensor = function(torch.randn(1, 1366).repeat(rows, 1))
        assert torch.equal(y, y[:1].expand_as(y))


@pytest.mark.parametrize("num_queries", [1, 3, 4, 5])
@torch.no_grad()
def test_attention_bits_do_not_depend_on_position_in_batch(num_queries: int) -> None:
    torch.manual_seed(0)
    for width, num_keys in ((6, 4), (16, 12), (32, 16), (64, 20)):
        scoring, mask = Scoring("scaled_dot", 2, width), torch.ones(16, 1, 1, num_keys, dtype=torch.bool)
        query, key, value = (
            torch.randn(1, 2, count, width).repeat(16, 1, 1, 1) for count in (num_queries, num_keys, num_keys)
        )
        found = attend_fused(query, key, value, mask, scoring=scoring, dropout=0.0).values
        assert torch.equal(found, found[:1].expand_as(found))
        expected = attend_explicit(query, key, value, mask, scoring=scoring, dropout=0.0).values
        torch.testing.assert_close(found, expected)
