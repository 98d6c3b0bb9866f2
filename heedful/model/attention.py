"""Attention (section 3.2): masks, scoring functions, two implementations of attention, and multi-head attention.

Masks are boolean, True = may attend, and combine with `&`. `attend_fused` is fast and does not return the weights;
`attend_explicit` follows equation 1 and does. Both have the same signature and give the same result (tests compare
them). A query that may attend to nothing gets zeros. Kinds of attention whose weights are not the softmax of the scores
(`heedful.model.weighting`) use the explicit implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.batch_invariance import is_fused_attention_invariant
from heedful.model.kv_cache import KeysValues, LayerCache
from heedful.model.positions import rotate
from heedful.model.weighting import Weigh, Weighting, masked_softmax
from heedful.tensor_types import Bool, Float, Int


def causal_mask(length: int, device: torch.device) -> Bool[Tensor, "1 1 T T"]:
    """The causal mask: a target position attends to itself and to earlier positions."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def segment_mask(query_segments: Int[Tensor, "B Q"], key_segments: Int[Tensor, "B K"]) -> Bool[Tensor, "B 1 Q K"]:
    """A token attends only within its sentence pair; padding (segment 0) neither attends nor is attended to."""
    same = query_segments[:, :, None] == key_segments[:, None, :]
    return (same & (key_segments > 0)[:, None, :])[:, None]


class Attended(NamedTuple):
    """The weighted sums of the values, and the weights (before dropout) if they were computed."""

    values: Float[Tensor, "B H Q Dh"]
    weights: Float[Tensor, "B H Q K"] | None


class Scoring(nn.Module):
    """The score of a query and a key: q·k/√d_k (the paper's), q·k, or v·tanh(q + k) (Bahdanau's, section 3.2.1)."""

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
    weigh: Weigh = masked_softmax,
) -> Attended:
    """Equation 1, step by step: softmax(Q Kᵀ / √d_k) V; `weigh` may replace the softmax."""
    weights = weigh(scoring(query, key).float(), mask)
    return Attended(F.dropout(weights, dropout).type_as(value) @ value, weights)


def attend_fused(
    query: Float[Tensor, "B H Q Dk"],
    key: Float[Tensor, "B H K Dk"],
    value: Float[Tensor, "B H K Dh"],
    mask: Bool[Tensor, "#B #H #Q K"],
    *,
    scoring: Scoring,
    dropout: float,
    weigh: Weigh = masked_softmax,
) -> Attended:
    """The same by torch's fused kernels, which do not return the weights.

    The explicit implementation is used for additive scores, for weights other than the softmax, and for queries whose
    bits would depend on the batch.
    """
    if scoring.vector is not None or weigh is not masked_softmax or not is_fused_attention_invariant(query):
        return attend_explicit(query, key, value, mask, scoring=scoring, dropout=dropout, weigh=weigh)
    # Kernels disagree on fully masked rows: let those attend to everything, then set them to zero.
    empty = ~mask.any(dim=-1, keepdim=True)
    values = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask | empty, dropout_p=dropout, scale=scoring.scale
    )
    return Attended(values.masked_fill(empty, 0.0), None)


ATTENTION: dict[str, Callable[..., Attended]] = {"fused": attend_fused, "explicit": attend_explicit}


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) W_O with head_i = Attention(Q W_Q, K W_K, V W_V) (section 3.2.2).

    `query`, `key`, `value` and `output` are W_Q, W_K, W_V and W_O of all heads together; `head_dim` is d_v, and also
    d_k unless `key_dim` is set. `kind` is a value of `model.self_attention` or `model.cross_attention`; windows around
    known positions are part of the mask.
    """

    def __init__(self, config: ModelConfig, *, rotary: bool = False, kind: str = "global") -> None:
        super().__init__()
        self.num_heads = config.num_heads
        keys, values = config.num_heads * config.attention_key_dim, config.num_heads * config.attention_head_dim
        self.query = nn.Linear(config.d_model, keys, bias=config.bias)
        self.key = nn.Linear(config.d_model, keys, bias=config.bias)
        self.value = nn.Linear(config.d_model, values, bias=config.bias)
        self.output = nn.Linear(values, config.d_model, bias=config.bias)
        self.scoring = Scoring(config.attention_scoring, config.num_heads, config.attention_key_dim)
        self.weighting = Weighting(kind, config, num_heads=config.num_heads, width=config.attention_key_dim)
        self.rotary, self.dropout, self.backend = rotary, config.attention_dropout, "fused"

    def queries(
        self, x: Float[Tensor, "B Q D"], positions: Int[Tensor, "B Q"] | None = None
    ) -> Float[Tensor, "B H Q Dk"]:
        """Q W_Q, split into heads and, with rotary positions, rotated."""
        query = self._split_heads(self.query(x))
        return rotate(query, positions) if self.rotary and positions is not None else query

    def keys_values(self, x: Float[Tensor, "B K D"], positions: Int[Tensor, "B K"] | None = None) -> KeysValues:
        """K W_K and V W_V, split into heads; decoding computes those of the memory once."""
        key = self._split_heads(self.key(x))
        return KeysValues(
            rotate(key, positions) if self.rotary and positions is not None else key,
            self._split_heads(self.value(x)),
        )

    def weigh(self, x: Float[Tensor, "B Q D"]) -> Weigh:
        """How the scores of the queries that are computed from x become weights."""
        return masked_softmax if self.weighting.is_softmax else partial(self.weighting, x=x)

    def forward(
        self,
        x: Float[Tensor, "B Q D"],
        *,
        mask: Bool[Tensor, "#B #H #Q K"],
        memory: Float[Tensor, "B S D"] | KeysValues | None = None,
        positions: Int[Tensor, "B Q"] | None = None,
        cache: LayerCache | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B H Q K"] | None]:
        """Attention of x to `memory`, or to itself; and the weights, if `need_weights` (else None).

        `memory` may be projected already (`keys_values`). A `cache` holds the keys and values of earlier positions.
        """
        query = self.queries(x, positions)
        if not isinstance(memory, KeysValues):
            memory = self.keys_values(x, positions) if memory is None else self.keys_values(memory)
        key, value = memory if cache is None else cache.append(*memory)
        attend = ATTENTION["explicit" if need_weights else self.backend]
        dropout = self.dropout if self.training else 0.0
        attended = attend(query, key, value, mask, scoring=self.scoring, dropout=dropout, weigh=self.weigh(x))
        concatenated = attended.values.transpose(1, 2).flatten(2)  # (B, H, Q, Dh) -> (B, Q, H·Dh)
        return self.output(concatenated), attended.weights if need_weights else None

    def _split_heads(self, x: Float[Tensor, "B T inner"]) -> Float[Tensor, "B H T width"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
