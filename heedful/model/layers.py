"""The layers of the two stacks (section 3.1): attention and feed-forward sublayers, with residual sums and norms."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import MultiHeadAttention
from heedful.model.batch_invariance import silu
from heedful.model.kv_cache import KeysValues, LayerCache
from heedful.model.norms import Norm, build_norm, normalise
from heedful.tensor_types import Bool, Float, Int

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2); or with GELU, or SwiGLU and its third matrix."""

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
        return ACTIVATIONS[self.activation](inner)


class Layer(nn.Module):
    """The residual connection that both kinds of layer have around each sublayer: "Add & Norm" in Figure 1.

    Post-norm, as in the paper: norm(x + dropout(sublayer(x))). Pre-norm: x + dropout(sublayer(norm(x))).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_placement, self.dropout = config.norm_placement, config.dropout

    def sublayer_input(
        self, x: Float[Tensor, "B T D"], norm: Norm, mask: Bool[Tensor, "#B #H #T K"]
    ) -> Float[Tensor, "B T D"]:
        """The input of a sublayer: x, or norm(x) with pre-norm."""
        return normalise(norm, x, mask) if self.norm_placement == "pre" else x

    def add_and_norm(
        self, x: Float[Tensor, "B T D"], h: Float[Tensor, "B T D"], norm: Norm, mask: Bool[Tensor, "#B #H #T K"]
    ) -> Float[Tensor, "B T D"]:
        """x + dropout(h), where h is the sublayer's output; then, with post-norm, the norm."""
        x = x + F.dropout(h, self.dropout, self.training)
        return x if self.norm_placement == "pre" else normalise(norm, x, mask)


class EncoderLayer(Layer):
    """Self-attention, then feed-forward: a layer of the encoder, and of both kinds of language model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.self_attention = MultiHeadAttention(
            config, rotary=config.positions == "rotary", kind=config.self_attention
        )
        self.self_attention_norm = build_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = build_norm(config)

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "#B #H #S K"],
        positions: Int[Tensor, "B S"],
        *,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B S D"]:
        """The output; K is S, or the number of cached positions when a language model decodes with a `cache`."""
        h = self.sublayer_input(x, self.self_attention_norm, mask)
        h, _ = self.self_attention(h, mask=mask, positions=positions, cache=cache)
        x = self.add_and_norm(x, h, self.self_attention_norm, mask)

        h = self.sublayer_input(x, self.feed_forward_norm, mask)
        h = self.feed_forward(h)
        return self.add_and_norm(x, h, self.feed_forward_norm, mask)


class DecoderLayer(Layer):
    """Masked self-attention over the target so far, cross-attention over the memory, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.self_attention = MultiHeadAttention(
            config, rotary=config.positions == "rotary", kind=config.self_attention
        )
        self.self_attention_norm = build_norm(config)
        self.cross_attention = MultiHeadAttention(config, kind=config.cross_attention)
        self.cross_attention_norm = build_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = build_norm(config)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        mask: Bool[Tensor, "#R #H #T K"],
        positions: Int[Tensor, "R T"],
        memory: Float[Tensor, "B S D"] | KeysValues,
        memory_mask: Bool[Tensor, "B #H #Q S"],
        *,
        cache: LayerCache | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "R T D"], Float[Tensor, "B H Q S"] | None]:
        """The output, and the cross-attention weights if `need_weights`.

        Training reads the whole target at once, without a cache. Decoding reads one token, with earlier ones in the
        cache; x then has one row for each beam, and the beams of a sentence are the queries of its memory (Q = beams).
        """
        h = self.sublayer_input(x, self.self_attention_norm, mask)
        h, _ = self.self_attention(h, mask=mask, positions=positions, cache=cache)
        x = self.add_and_norm(x, h, self.self_attention_norm, mask)

        h = self.sublayer_input(x, self.cross_attention_norm, mask)
        h = h.reshape(memory_mask.shape[0], -1, h.shape[-1])  # (R, 1, D) -> (B, beams, D); unchanged in training
        h, weights = self.cross_attention(h, memory=memory, mask=memory_mask, need_weights=need_weights)
        x = self.add_and_norm(x, h.reshape(x.shape), self.cross_attention_norm, mask)

        h = self.sublayer_input(x, self.feed_forward_norm, mask)
        h = self.feed_forward(h)
        return self.add_and_norm(x, h, self.feed_forward_norm, mask), weights
