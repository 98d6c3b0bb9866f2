"""The forward pass of the readable Transformer, from its own parameters, in the fewest operations.

What is joined: queries, keys and values of a layer come from one matrix product; bias, dropout, residual sum and norm
are one operation; attention is one with the biases before it, and so is the loss with its gradient. What is computed is
the same. Nothing here needs a compiler: the operations are as large as it would make them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.backend_support import supports
from heedful.config import ModelConfig
from heedful.fused.grad_buffers import Gradients
from heedful.fused.kernels.attention_args import Rows
from heedful.fused.train_attention import Biases, Memory, memory_of_layers, row_attention
from heedful.fused.train_ops import Chance, add_norm, branch, embed, feed_forward, product, scaled_loss
from heedful.fused.unpack_rows import PackedRows
from heedful.model.attention import MultiHeadAttention
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward
from heedful.model.norms import LayerNorm
from heedful.model.positions import LearnedPositions, rotate, sinusoidal_encoding
from heedful.model.transformer import Transformer

LONGEST_ROW = 128
LARGEST_SEED = 1 << 31
MOST_NUMBERS = 1 << 31
"""In one tensor between the layers: kernels count its places in 32 bits."""


def can_be_fast(config: ModelConfig, width: int, num_rows: int = 1) -> bool:
    """Whether the kernels support a model of this configuration on `num_rows` rows of this width."""
    num_numbers = num_rows * width * max(config.d_model, config.d_ff)
    return supports("gpu_training", config) and width <= LONGEST_ROW and num_numbers < MOST_NUMBERS


class Losses(NamedTuple):
    """The loss to differentiate (its sum times the scale), and the sum itself."""

    scaled: Tensor
    loss_sum: Tensor


class _Pass:
    """One forward pass: hands out the chances of dropout, each with a seed of its own."""

    def __init__(self, model: Transformer, gradients: Gradients, device: torch.device) -> None:
        config, self.gradients = model.config, gradients
        count = 2 + 2 * config.num_encoder_layers + 3 * config.num_decoder_layers
        self.seeds = torch.randint(LARGEST_SEED, (count,), device=device)
        self.dropout, self.training, self.calls = config.dropout, model.training, 0

    def chance(self, dropout: float) -> Chance:
        """The next operation's."""
        call, self.calls = self.calls, self.calls + 1
        return Chance(self.seeds, call, dropout if self.training else 0.0)

    def join(self, x: Tensor, h: Tensor, bias: Tensor, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """x + dropout(h + bias), and its norm."""
        layer = cast(LayerNorm, norm)
        return add_norm(x, h, bias, layer.weight, layer.bias, self.chance(self.dropout), layer.eps, self.gradients)


def fast_losses(
    model: Transformer, rows: PackedRows, scale: Tensor, gradients: Gradients, *, smoothing: float
) -> Losses:
    """Label-smoothed loss of a batch, as `smoothed_cross_entropy(model(…))` would give it.

    After `backward`, the gradients of the weights are in `gradients`, for `hand_over`.
    """
    x = fast_hidden(model, rows, gradients)
    logits = product(x, [model.output_weight], gradients).flatten(0, 1)
    real = rows.target_segments > 0
    return Losses(*scaled_loss(logits, rows.target_output.flatten(), real.flatten(), scale, smoothing))


def fast_hidden(model: Transformer, rows: PackedRows, gradients: Gradients) -> Tensor:
    """What the readable model makes its logits of: (B, T, D)."""
    this = _Pass(model, gradients, rows.source.device)
    source, target = (one.int().contiguous() for one in (rows.source_segments, rows.target_segments))
    x = _embed(model, model.source_embedding, model.source_positions, rows.source, rows.source_positions, this)
    sublayers: list[_Sublayer] = []
    for layer in model.encoder.layers:
        encoder_layer = cast(EncoderLayer, layer)
        attention, inner = encoder_layer.self_attention, encoder_layer.feed_forward
        own = _SelfAttention(attention, Rows(source, source, False), rows.source_positions, gradients)
        sublayers += [
            _Sublayer(own, attention.output.bias, encoder_layer.self_attention_norm),
            _Sublayer(_FeedForward(inner, gradients), inner.output.bias, encoder_layer.feed_forward_norm),
        ]
    pre = model.config.norm_placement == "pre"
    memory = _stack(sublayers, model.encoder.norm, x, this, pre=pre)
    y = _embed(model, model.target_table, model.target_positions, rows.target_input, rows.target_positions, this)
    sublayers = []
    decoder_layers = [cast(DecoderLayer, layer) for layer in model.decoder.layers]
    crossing = [layer.cross_attention for layer in decoder_layers]
    sides = [side for cross in crossing for side in (cross.key, cross.value)]
    matrices, biases = [side.weight for side in sides], [side.bias for side in sides]
    memories = memory_of_layers(memory, matrices, biases, crossing[0].num_heads, gradients)
    for decoder_layer, of_layer in zip(decoder_layers, memories, strict=True):
        attention, cross = decoder_layer.self_attention, decoder_layer.cross_attention
        inner = decoder_layer.feed_forward
        own = _SelfAttention(attention, Rows(target, target, True), rows.target_positions, gradients)
        sublayers += [
            _Sublayer(own, attention.output.bias, decoder_layer.self_attention_norm),
            _Sublayer(
                _CrossAttention(cross, of_layer, Rows(target, source, False), gradients),
                cross.output.bias,
                decoder_layer.cross_attention_norm,
            ),
            _Sublayer(_FeedForward(inner, gradients), inner.output.bias, decoder_layer.feed_forward_norm),
        ]
    return _stack(sublayers, model.decoder.norm, y, this, pre=pre)


def _embed(
    model: Transformer,
    table: nn.Embedding,
    learned: LearnedPositions | None,
    tokens: Tensor,
    positions: Tensor,
    this: _Pass,
) -> Tensor:
    """As the readable model embeds; positions inside a row are few, so their encodings are worked out once."""
    chance = this.chance(model.embedding_dropout)
    if learned is not None:
        return model._embed(table, learned, tokens, positions)
    places = None
    if model.config.positions == "sinusoidal":
        places = _encodings(tokens.shape[1], model.config.d_model, table.weight.dtype, tokens.device)
    return embed(table.weight, places, tokens, positions, chance, math.sqrt(model.config.d_model), this.gradients)


def _encodings(width: int, d_model: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The encodings of the positions in a row, worked out once: they never change."""
    key = width, d_model, dtype, device
    if key in _known_encodings:
        return _known_encodings[key]
    with torch.inference_mode(mode=False):
        made = sinusoidal_encoding(torch.arange(width, device=device)[None], d_model)[0].to(dtype)
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():  # a recording's memory is its own
        _known_encodings[key] = made
    return made


_known_encodings: dict[tuple[int, int, torch.dtype, torch.device], Tensor] = {}


class _Sublayer(NamedTuple):
    """What a sublayer computes without its last bias, that bias, and its norm."""

    compute: _SelfAttention | _CrossAttention | _FeedForward
    bias: Tensor
    norm: nn.Module


def _stack(sublayers: Sequence[_Sublayer], final: nn.Module | None, x: Tensor, this: _Pass, *, pre: bool) -> Tensor:
    """All sublayers of one side. Pre-norm: the norm after a sum is that of the sublayer to come, or the last one."""
    if not pre:
        for sublayer in sublayers:
            x, h = sublayer.compute(x)
            _, x = this.join(x, h, sublayer.bias, sublayer.norm)
        return x if final is None else _normal(x, final)
    following = [*(sublayer.norm for sublayer in sublayers[1:]), final or sublayers[-1].norm]
    y = _normal(x, sublayers[0].norm)
    for sublayer, norm in zip(sublayers, following, strict=True):
        _, h = sublayer.compute(y)
        x, y = this.join(x, h, sublayer.bias, norm)
    return x if final is None else y


def _normal(x: Tensor, norm: nn.Module) -> Tensor:
    layer = cast(LayerNorm, norm)
    return F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, layer.eps)


class _SelfAttention:
    """Each sublayer gives its input once more, for the residual sum, and its result."""

    def __init__(self, attention: MultiHeadAttention, rows: Rows, positions: Tensor, gradients: Gradients) -> None:
        self.attention, self.rows, self.positions, self.gradients = attention, rows, positions, gradients

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        own = self.attention
        parts = (own.query, own.key, own.value)
        matrices, biases = [part.weight for part in parts], [part.bias for part in parts]
        x, packed = branch(x, matrices, self.gradients, () if own.rotary else biases)
        packed = packed.unflatten(-1, (3, own.num_heads, -1))
        if own.rotary:
            packed = self._turned(packed, biases)
        given = None if own.rotary else _biases(own)
        values = row_attention(packed, None, self.rows, own.scoring.scale, self.gradients, given)
        return x, product(values.flatten(2), [own.output.weight], self.gradients)

    def _turned(self, packed: Tensor, biases: Sequence[Tensor]) -> Tensor:
        """With rotary positions, through which the gradients of the biases have to go."""
        packed = packed + torch.stack(tuple(biases)).view(3, packed.shape[3], -1)
        turned = [rotate(packed[:, :, i].transpose(1, 2), self.positions).transpose(1, 2) for i in (0, 1)]
        return torch.stack((*turned, packed[:, :, 2]), dim=2)


class _CrossAttention:
    def __init__(self, attention: MultiHeadAttention, memory: Memory, rows: Rows, gradients: Gradients) -> None:
        self.attention, self.memory, self.rows, self.gradients = attention, memory, rows, gradients

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        own = self.attention
        x, query = branch(x, [own.query.weight], self.gradients, [own.query.bias])
        query = query.unflatten(-1, (1, own.num_heads, -1))
        values = row_attention(query, self.memory, self.rows, own.scoring.scale, self.gradients, _biases(own))
        return x, product(values.flatten(2), [own.output.weight], self.gradients)


def _biases(attention: MultiHeadAttention) -> Biases:
    query, key, value, output = attention.query, attention.key, attention.value, attention.output
    return Biases(query.bias, key.bias, value.bias, output.bias, output.weight)


class _FeedForward:
    def __init__(self, feed_forward: FeedForward, gradients: Gradients) -> None:
        self.feed_forward, self.gradients = feed_forward, gradients

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        own = self.feed_forward
        if own.activation == "relu" and not own.dropout:
            return feed_forward(x, own.inner.weight, own.inner.bias, own.output.weight, self.gradients)
        inner = F.dropout(own.activated(x), own.dropout, own.training)
        return x, product(inner, [own.output.weight], self.gradients)
