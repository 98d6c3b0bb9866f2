"""The layers of the two stacks (section 3.1): attention and feed-forward sublayers, with residual sums and norms."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import MultiHeadAttention
from heedful.model.batch_invariance import silu
from heedful.model.kv_cache import LayerCache
from heedful.model.norms import Norm, build_norm
from heedful.tensor_types import Bool, Float, Int


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2); gelu, or SwiGLU with its third matrix, on request."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation, self.dropout = config.activation, config.activation_dropout
        self.inner = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias) if config.activation == "swiglu" else None
        self.output = nn.Linear(config.d_ff, config.d_model, bias=config.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.output(F.dropout(self.activated(x), self.dropout, self.training))

    def activated(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T F"]:
        """The inner layer after its activation."""
        inner = self.inner(x)
        if self.gate is not None:
            return silu(self.gate(x)) * inner
        return F.gelu(inner) if self.activation == "gelu" else F.relu(inner)


class Layer(nn.Module):
    """What both kinds of layer share: how a sublayer joins the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_placement, self.dropout = config.norm_placement, config.dropout

    def residual(
        self,
        x: Float[Tensor, "B T D"],
        sublayer: Callable[[Tensor], Tensor],
        norm: Norm,
        token_mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, "B T D"]:
        """Post: norm(x + dropout(sublayer(x))), as in the paper. Pre: x + dropout(sublayer(norm(x)))."""
        if self.norm_placement == "pre":
            return x + F.dropout(sublayer(norm(x, token_mask)), self.dropout, self.training)
        return norm(x + F.dropout(sublayer(x), self.dropout, self.training), token_mask)


class EncoderLayer(Layer):
    """Self-attention over the source, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.self_attention = MultiHeadAttention(config, rotary=config.positions == "rotary")
        self.self_attention_norm = build_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = build_norm(config)

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B #H #S S"],
        positions: Int[Tensor, "B S"],
        token_mask: Bool[Tensor, "B S"],
    ) -> Float[Tensor, "B S D"]:
        def attend(h: Tensor) -> Tensor:
            queries = self.self_attention.queries(h, positions)
            keys, values = self.self_attention.keys_values(h, positions)
            return self.self_attention(queries, keys, values, mask)[0]

        x = self.residual(x, attend, self.self_attention_norm, token_mask)
        return self.residual(x, self.feed_forward, self.feed_forward_norm, token_mask)


class DecoderLayer(Layer):
    """Masked self-attention over the target so far, cross-attention over the memory, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.self_attention = MultiHeadAttention(config, rotary=config.positions == "rotary")
        self.self_attention_norm = build_norm(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_norm = build_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = build_norm(config)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        mask: Bool[Tensor, "#R #H #T K"],
        positions: Int[Tensor, "R T"],
        token_mask: Bool[Tensor, "R T"],
        memory_keys_values: tuple[Float[Tensor, "B H S Dk"], Float[Tensor, "B H S Dh"]],
        memory_mask: Bool[Tensor, "B #H #Q S"],
        *,
        cache: LayerCache | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "B H Q S"] | None]:
        """The same code trains (whole target, no cache) and decodes (one token, earlier ones in the cache).

        While decoding, x has one row a beam; the beams of a sentence then query its memory side by side (Q = beams).
        """
        weights: Tensor | None = None

        def attend(h: Tensor) -> Tensor:
            queries = self.self_attention.queries(h, positions)
            keys, values = self.self_attention.keys_values(h, positions)
            if cache is not None:
                keys, values = cache.append(keys, values)
            return self.self_attention(queries, keys, values, mask)[0]

        def attend_memory(h: Tensor) -> Tensor:
            nonlocal weights
            keys, values = memory_keys_values
            queries = self.cross_attention.queries(h.reshape(keys.shape[0], -1, h.shape[-1]))
            attended, weights = self.cross_attention(queries, keys, values, memory_mask, need_weights=need_weights)
            return attended.reshape(h.shape)

        x = self.residual(x, attend, self.self_attention_norm, token_mask)
        x = self.residual(x, attend_memory, self.cross_attention_norm, token_mask)
        return self.residual(x, self.feed_forward, self.feed_forward_norm, token_mask), weights
