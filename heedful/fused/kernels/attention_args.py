"""What attention takes: its three sides, and the rows they stand in."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Sides(NamedTuple):
    """Queries, keys and values, each (B, H, length, Dh); or their biases, each (H, Dh); or gradients of either."""

    query: Tensor
    key: Tensor
    value: Tensor


class Rows(NamedTuple):
    """Which sentence pair each token belongs to, of both sides, and whether a query sees only what came before it."""

    query_segments: Tensor
    key_segments: Tensor
    causal: bool
