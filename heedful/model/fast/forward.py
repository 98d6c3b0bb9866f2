"""The forward pass of the readable Transformer, from its own parameters, in the fewest operations.

What is joined: queries, keys and values of a layer come from one matrix product; bias, dropout, residual sum and norm
are one operation; attention is one, and so is the loss with its gradient. What is computed is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.attention import MultiHeadAttention
from heedful.model.fast.operations import add_norm, row_attention, scaled_loss
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward
from heedful.model.masks import causal_mask, segment_mask
from heedful.model.norms import LayerNorm
from heedful.model.positions import rotate
from heedful.model.transformer import Transformer

LONGEST_ROW, HEAD_DIMS = 128, frozenset((16, 32, 64, 128))
LARGEST_VOCABULARY = 1 << 16
LARGEST_SEED = 1 << 31


def can_be_fast(config: ModelConfig, width: int) -> bool:
    """Whether the operations are made for a model of this shape on rows of this width."""
    return (
        config.architecture == "transformer"
        and config.norm == "layer"
        and config.bias
        and config.attention_scoring == "scaled_dot"
        and not config.attention_dropout
        and config.key_dim in (None, config.attention_head_dim)
        and config.attention_head_dim in HEAD_DIMS
        and width <= LONGEST_ROW
        and config.target_vocab_size <= LARGEST_VOCABULARY
    )


@runtime_checkable
class Rows(Protocol):
    """The parts of a batch that the model sees."""

    @property
    def source(self) -> Tensor: ...
    @property
    def source_segments(self) -> Tensor: ...
    @property
    def source_positions(self) -> Tensor: ...
    @property
    def target_input(self) -> Tensor: ...
    @property
    def target_output(self) -> Tensor: ...
    @property
    def target_segments(self) -> Tensor: ...
    @property
    def target_positions(self) -> Tensor: ...


class Losses(NamedTuple):
    """The loss to differentiate (its sum times the scale), and the sum itself."""

    scaled: Tensor
    loss_sum: Tensor


class _Join:
    """How sublayers join the residual stream: counts its calls, so that each has a seed of its own."""

    def __init__(self, seeds: Tensor, dropout: float) -> None:
        self.seeds, self.dropout, self.calls = seeds, dropout, 0

    def __call__(self, x: Tensor, h: Tensor, bias: Tensor, norm: LayerNorm) -> tuple[Tensor, Tensor]:
        """x + dropout(h + bias), and its norm."""
        call, self.calls = self.calls, self.calls + 1
        joined = add_norm(x, h, bias, norm.weight, norm.bias, self.seeds, call, self.dropout, norm.eps)
        return joined[0], joined[1]


def fast_losses(model: Transformer, rows: Rows, scale: Tensor, *, smoothing: float) -> Losses:
    """Label-smoothed loss of a batch, as `smoothed_cross_entropy(model(…))` would give it."""
    x = fast_hidden(model, rows)
    logits = F.linear(x, _output_weight(model)).flatten(0, 1)
    real = rows.target_segments > 0
    scaled, loss_sum, _ = scaled_loss(logits, rows.target_output.flatten(), real.flatten(), scale, smoothing)
    return Losses(scaled, loss_sum)


def fast_hidden(model: Transformer, rows: Rows) -> Tensor:
    """What the readable model makes its logits of: (B, T, D)."""
    config = model.config
    count = 2 * config.num_encoder_layers + 3 * config.num_decoder_layers
    seeds = torch.randint(LARGEST_SEED, (count,), device=rows.source.device)
    join = _Join(seeds, config.dropout if model.training else 0.0)
    x = model._embed(model.source_embedding, model.source_positions, rows.source, rows.source_positions)
    mask = segment_mask(rows.source_segments, rows.source_segments)
    encoder_layers = [cast(EncoderLayer, layer) for layer in model.encoder.layers]
    memory = _encode(encoder_layers, model.encoder.norm, x, mask, rows.source_positions, join)
    y = model._embed_target(rows.target_input, rows.target_positions)
    own = segment_mask(rows.target_segments, rows.target_segments)
    masks = (own & causal_mask(own.shape[-1], own.device), segment_mask(rows.target_segments, rows.source_segments))
    decoder_layers = [cast(DecoderLayer, layer) for layer in model.decoder.layers]
    return _decode(decoder_layers, model.decoder.norm, y, memory, masks, rows.target_positions, join)


def _encode(
    layers: Sequence[EncoderLayer], final: nn.Module | None, x: Tensor, mask: Tensor, positions: Tensor, join: _Join
) -> Tensor:
    sublayers: list[_Sublayer] = []
    for layer in layers:
        attention, feed_forward = layer.self_attention, layer.feed_forward
        sublayers += [
            _Sublayer(_SelfAttention(attention, mask, positions), attention.output.bias, layer.self_attention_norm),
            _Sublayer(_Inner(feed_forward), feed_forward.output.bias, layer.feed_forward_norm),
        ]
    return _stack(sublayers, final, x, join, pre=layers[0].norm_placement == "pre")


def _decode(
    layers: Sequence[DecoderLayer],
    final: nn.Module | None,
    x: Tensor,
    memory: Tensor,
    masks: tuple[Tensor, Tensor],
    positions: Tensor,
    join: _Join,
) -> Tensor:
    sublayers: list[_Sublayer] = []
    for layer in layers:
        attention, cross, feed_forward = layer.self_attention, layer.cross_attention, layer.feed_forward
        sublayers += [
            _Sublayer(_SelfAttention(attention, masks[0], positions), attention.output.bias, layer.self_attention_norm),
            _Sublayer(_CrossAttention(cross, memory, masks[1]), cross.output.bias, layer.cross_attention_norm),
            _Sublayer(_Inner(feed_forward), feed_forward.output.bias, layer.feed_forward_norm),
        ]
    return _stack(sublayers, final, x, join, pre=layers[0].norm_placement == "pre")


class _Sublayer(NamedTuple):
    """What a sublayer computes without its last bias, that bias, and its norm."""

    compute: _SelfAttention | _CrossAttention | _Inner
    bias: Tensor
    norm: nn.Module


def _stack(sublayers: Sequence[_Sublayer], final: nn.Module | None, x: Tensor, join: _Join, *, pre: bool) -> Tensor:
    """All sublayers of one side. Pre-norm: the norm after a sum is that of the sublayer to come, or the last one."""
    if not pre:
        for sublayer in sublayers:
            _, x = join(x, sublayer.compute(x), sublayer.bias, cast(LayerNorm, sublayer.norm))
        return x if final is None else _normal(x, final)
    following = [*(sublayer.norm for sublayer in sublayers[1:]), final or sublayers[-1].norm]
    y = _normal(x, sublayers[0].norm)
    for sublayer, norm in zip(sublayers, following, strict=True):
        x, y = join(x, sublayer.compute(y), sublayer.bias, cast(LayerNorm, norm))
    return x if final is None else y


def _normal(x: Tensor, norm: nn.Module) -> Tensor:
    layer = cast(LayerNorm, norm)
    return F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, layer.eps)


class _SelfAttention:
    def __init__(self, attention: MultiHeadAttention, mask: Tensor, positions: Tensor) -> None:
        self.attention, self.mask, self.positions = attention, mask, positions

    def __call__(self, x: Tensor) -> Tensor:
        own = self.attention
        packed = _packed(x, [own.query, own.key, own.value], own)
        if own.rotary:
            turned = [rotate(packed[:, :, i].transpose(1, 2), self.positions).transpose(1, 2) for i in (0, 1)]
            packed = torch.stack((*turned, packed[:, :, 2]), dim=2)
        values, _ = row_attention(packed, packed, self.mask, own.scoring.scale)
        return F.linear(values.flatten(2), own.output.weight)


class _CrossAttention:
    def __init__(self, attention: MultiHeadAttention, memory: Tensor, mask: Tensor) -> None:
        self.attention, self.mask = attention, mask
        self.sides = _packed(memory, [attention.key, attention.value], attention)

    def __call__(self, x: Tensor) -> Tensor:
        own = self.attention
        values, _ = row_attention(_packed(x, [own.query], own), self.sides, self.mask, own.scoring.scale)
        return F.linear(values.flatten(2), own.output.weight)


class _Inner:
    """Feed-forward without the last bias."""

    def __init__(self, feed_forward: FeedForward) -> None:
        self.feed_forward = feed_forward

    def __call__(self, x: Tensor) -> Tensor:
        own = self.feed_forward
        return F.linear(F.dropout(own.activated(x), own.dropout, own.training), own.output.weight)


def _packed(x: Tensor, projections: Sequence[nn.Linear], attention: MultiHeadAttention) -> Tensor:
    """Several projections by one matrix product: (B, T, n, H, Dh)."""
    weight = torch.cat([one.weight for one in projections])
    bias = torch.cat([one.bias for one in projections])
    shape = (len(projections), attention.num_heads, -1)
    return F.linear(x, weight, bias).unflatten(-1, shape)


def _output_weight(model: Transformer) -> Tensor:
    if model.output is not None:
        return model.output.weight
    table = model.source_embedding if model.target_embedding is None else model.target_embedding
    return table.weight
