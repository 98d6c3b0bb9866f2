"""Attention (section 3.2): how a query meets keys, two ways to compute it, and several heads side by side.

The fused way never writes the weights down and is fast; the explicit way follows equation 1 and can show them. They
have one signature and, tested, one result. A query that may attend to nothing gets zeros from both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.batch_invariance import STEADY, is_steady
from heedful.model.positions import rotate
from heedful.tensor_types import Bool, Float, Int


class Attended(NamedTuple):
    """What attention gives: weighted sums of the values, and the weights (before dropout) where they exist."""

    values: Float[Tensor, "B H Q Dh"]
    weights: Float[Tensor, "B H Q K"] | None


class Scoring(nn.Module):
    """How well a query and a key match: q·k/√d_k (the paper's), q·k, or v·tanh(q + k) (Bahdanau's, section 3.2.1)."""

    def __init__(self, kind: str, num_heads: int, key_dim: int) -> None:
        super().__init__()
        self.scale = key_dim**-0.5 if kind == "scaled_dot" else 1.0
        self.vector = nn.Parameter(torch.empty(num_heads, key_dim)) if kind == "additive" else None

    def forward(self, query: Float[Tensor, "B H Q Dk"], key: Float[Tensor, "B H K Dk"]) -> Float[Tensor, "B H Q K"]:
        if self.vector is not None:
            summed = torch.tanh(query[:, :, :, None] + key[:, :, None])  # (B, H, Q, K, Dk)
            return torch.einsum("bhqkd,hd->bhqk", summed, self.vector.type_as(summed))
        return (query @ key.transpose(-2, -1)) * self.scale


def attend_explicit(
    query: Float[Tensor, "B H Q Dk"],
    key: Float[Tensor, "B H K Dk"],
    value: Float[Tensor, "B H K Dh"],
    mask: Bool[Tensor, "#B #H #Q K"],
    *,
    scoring: Scoring,
    dropout: float,
) -> Attended:
    """Equation 1, step by step: softmax(Q Kᵀ / √d_k) V."""
    scores = scoring(query, key).float().masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    weights = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)  # nothing to attend to: zeros, not NaN
    return Attended(F.dropout(weights, dropout).type_as(value) @ value, weights)


def attend_fused(
    query: Float[Tensor, "B H Q Dk"],
    key: Float[Tensor, "B H K Dk"],
    value: Float[Tensor, "B H K Dh"],
    mask: Bool[Tensor, "#B #H #Q K"],
    *,
    scoring: Scoring,
    dropout: float,
) -> Attended:
    """The same by torch's fused kernels, which keep no weights. Additive scores have no such kernel.

    That for CPUs gives each thread its room after another's, as large as the queries ask for: bits would depend on the
    thread, were there not a multiple of `STEADY` of them. For the one query of a step the explicit way is as fast.
    """
    if scoring.vector is not None or (is_steady(query) and query.shape[2] % STEADY):
        return attend_explicit(query, key, value, mask, scoring=scoring, dropout=dropout)
    # Kernels differ on rows that are masked everywhere, so such rows attend to everything and are then emptied.
    empty = ~mask.any(dim=-1, keepdim=True)
    values = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask | empty, dropout_p=dropout, scale=scoring.scale
    )
    return Attended(values.masked_fill(empty, 0.0), None)


ATTENTION: dict[str, Callable[..., Attended]] = {"fused": attend_fused, "explicit": attend_explicit}


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) W_O with head_i = Attention(Q W_Q, K W_K, V W_V) (section 3.2.2).

    Our `query`, `key`, `value` and `output` are W_Q, W_K, W_V and W_O of all heads at once; `head_dim` is d_v, and
    d_k too unless `key_dim` says otherwise.
    """

    def __init__(self, config: ModelConfig, *, rotary: bool = False) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        keys, values = config.num_heads * config.attention_key_dim, config.num_heads * config.attention_head_dim
        self.query = nn.Linear(config.d_model, keys, bias=config.bias)
        self.key = nn.Linear(config.d_model, keys, bias=config.bias)
        self.value = nn.Linear(config.d_model, values, bias=config.bias)
        self.output = nn.Linear(values, config.d_model, bias=config.bias)
        self.scoring = Scoring(config.attention_scoring, config.num_heads, config.attention_key_dim)
        self.rotary, self.dropout, self.backend = rotary, config.attention_dropout, "fused"

    def queries(
        self, x: Float[Tensor, "B Q D"], positions: Int[Tensor, "B Q"] | None = None
    ) -> Float[Tensor, "B H Q Dk"]:
        """What each position asks for."""
        query = self._split_heads(self.query(x))
        return rotate(query, positions) if self.rotary and positions is not None else query

    def keys_values(
        self, x: Float[Tensor, "B K D"], positions: Int[Tensor, "B K"] | None = None
    ) -> tuple[Float[Tensor, "B H K Dk"], Float[Tensor, "B H K Dh"]]:
        """What each position offers, and what it gives when chosen; computed once and kept while decoding."""
        key = self._split_heads(self.key(x))
        return (
            rotate(key, positions) if self.rotary and positions is not None else key,
            self._split_heads(self.value(x)),
        )

    def forward(
        self,
        query: Float[Tensor, "B H Q Dk"],
        key: Float[Tensor, "B H K Dk"],
        value: Float[Tensor, "B H K Dh"],
        mask: Bool[Tensor, "#B #H #Q K"],
        *,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q K"] | None]:
        """Attend with projected queries, keys and values; the weights come only when asked for."""
        attend = ATTENTION["explicit" if need_weights else self.backend]
        dropout = self.dropout if self.training else 0.0
        attended = attend(query, key, value, mask, scoring=self.scoring, dropout=dropout)
        joined = attended.values.transpose(1, 2).flatten(2)  # (B, H, Q, Dh) -> (B, Q, H·Dh)
        return self.output(joined), attended.weights if need_weights else None

    def _split_heads(self, x: Float[Tensor, "B T inner"]) -> Float[Tensor, "B H T width"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
