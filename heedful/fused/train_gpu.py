"""The loss of the readable Transformer, from its own parameters, in few fused operations, for training on a GPU.

Queries, keys and values of a layer come from one matrix product; bias, dropout, residual sum and norm are one
operation; so are attention with the biases before it, and the loss with its gradient. The result equals that of the
readable model. No compiler is needed: the operations are as large as it would make them.
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
from heedful.data.packing import Batch
from heedful.fused.train_attention import Biases, MemoryKeysValues, project_memory, row_attention
from heedful.fused.train_ops import (
    DropoutSeed,
    Gradients,
    Segments,
    add_norm,
    embed,
    feed_forward,
    linear,
    linear_branch,
    scaled_loss,
)
from heedful.model.attention import MultiHeadAttention
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward
from heedful.model.norms import LayerNorm
from heedful.model.positions import LearnedPositions, rotate, sinusoidal_encoding
from heedful.model.transformer import Transformer

MAX_ROW_WIDTH = 128
MAX_SEED = 1 << 31
MAX_NUMBERS = 1 << 31
"""Most numbers in a tensor between layers: kernels index them with 32 bits."""


def supports_batch(config: ModelConfig, width: int, num_rows: int = 1) -> bool:
    """Whether the kernels support a model of this configuration on `num_rows` rows of this width."""
    num_numbers = num_rows * width * max(config.d_model, config.d_ff)
    return supports("gpu_training", config) and width <= MAX_ROW_WIDTH and num_numbers < MAX_NUMBERS


class Losses(NamedTuple):
    """The loss to differentiate (its sum times the scale), and the sum itself."""

    scaled: Tensor
    loss_sum: Tensor


class _Pass:
    """One forward pass; gives each dropout operation a separate seed."""

    def __init__(self, model: Transformer, gradients: Gradients, device: torch.device) -> None:
        config, self.gradients = model.config, gradients
        count = 2 + 2 * config.num_encoder_layers + 3 * config.num_decoder_layers
        self.seeds = torch.randint(MAX_SEED, (count,), device=device)
        self.dropout, self.training, self.calls = config.dropout, model.training, 0

    def dropout_seed(self, dropout: float) -> DropoutSeed:
        """The seed of the next operation."""
        call, self.calls = self.calls, self.calls + 1
        return DropoutSeed(self.seeds, call, dropout if self.training else 0.0)

    def add_norm(self, x: Tensor, h: Tensor, bias: Tensor, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """x + dropout(h + bias), and its norm."""
        layer = cast(LayerNorm, norm)
        return add_norm(
            x, h, bias, layer.weight, layer.bias, self.dropout_seed(self.dropout), layer.eps, self.gradients
        )


def fused_losses(model: Transformer, batch: Batch, scale: Tensor, gradients: Gradients, *, smoothing: float) -> Losses:
    """Label-smoothed loss of a batch, equal to `smoothed_cross_entropy(model(…))`.

    After `backward`, the gradients of the weights are in `gradients`; `flush` adds them to the parameters.
    """
    x = fused_hidden(model, batch, gradients)
    logits = linear(x, [model.output_weight], gradients).flatten(0, 1)
    real = batch.target_segments > 0
    return Losses(*scaled_loss(logits, batch.target_output.flatten(), real.flatten(), scale, smoothing))


def fused_hidden(model: Transformer, batch: Batch, gradients: Gradients) -> Tensor:
    """The decoder's output, (B, T, D)."""
    run = _Pass(model, gradients, batch.source.device)
    source, target = (one.int().contiguous() for one in (batch.source_segments, batch.target_segments))
    x = _embed(model, model.source_embedding, model.source_positions, batch.source, batch.source_positions, run)
    sublayers: list[_Sublayer] = []
    for layer in model.encoder.layers:
        encoder_layer = cast(EncoderLayer, layer)
        attention, inner = encoder_layer.self_attention, encoder_layer.feed_forward
        own = _SelfAttention(attention, Segments(source, source, False), batch.source_positions, gradients)
        sublayers += [
            _Sublayer(own, attention.output.bias, encoder_layer.self_attention_norm),
            _Sublayer(_FeedForward(inner, gradients), inner.output.bias, encoder_layer.feed_forward_norm),
        ]
    pre = model.config.norm_placement == "pre"
    memory = _run_stack(sublayers, model.encoder.norm, x, run, pre=pre)
    y = _embed(model, model.target_table, model.target_positions, batch.target_input, batch.target_positions, run)
    sublayers = []
    decoder_layers = [cast(DecoderLayer, layer) for layer in model.decoder.layers]
    crossing = [layer.cross_attention for layer in decoder_layers]
    projections = [projection for cross in crossing for projection in (cross.key, cross.value)]
    matrices, biases = (
        [projection.weight for projection in projections],
        [projection.bias for projection in projections],
    )
    layer_memories = project_memory(memory, matrices, biases, crossing[0].num_heads, gradients)
    for decoder_layer, layer_memory in zip(decoder_layers, layer_memories, strict=True):
        attention, cross = decoder_layer.self_attention, decoder_layer.cross_attention
        inner = decoder_layer.feed_forward
        own = _SelfAttention(attention, Segments(target, target, True), batch.target_positions, gradients)
        sublayers += [
            _Sublayer(own, attention.output.bias, decoder_layer.self_attention_norm),
            _Sublayer(
                _CrossAttention(cross, layer_memory, Segments(target, source, False), gradients),
                cross.output.bias,
                decoder_layer.cross_attention_norm,
            ),
            _Sublayer(_FeedForward(inner, gradients), inner.output.bias, decoder_layer.feed_forward_norm),
        ]
    return _run_stack(sublayers, model.decoder.norm, y, run, pre=pre)


def _embed(
    model: Transformer,
    table: nn.Embedding,
    learned: LearnedPositions | None,
    tokens: Tensor,
    positions: Tensor,
    run: _Pass,
) -> Tensor:
    """The embedding of the readable model; the encodings of the positions in a row are computed once."""
    dropout_seed = run.dropout_seed(model.embedding_dropout)
    if learned is not None:
        return model._embed(table, learned, tokens, positions)
    encodings = None
    if model.config.positions == "sinusoidal":
        encodings = _encodings(tokens.shape[1], model.config.d_model, table.weight.dtype, tokens.device)
    return embed(
        table.weight, encodings, tokens, positions, dropout_seed, math.sqrt(model.config.d_model), run.gradients
    )


def _encodings(width: int, d_model: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The encodings of the positions in a row, cached."""
    key = width, d_model, dtype, device
    if key in _encodings_cache:
        return _encodings_cache[key]
    with torch.inference_mode(mode=False):
        made = sinusoidal_encoding(torch.arange(width, device=device)[None], d_model)[0].to(dtype)
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():  # a graph's memory belongs to the graph
        _encodings_cache[key] = made
    return made


_encodings_cache: dict[tuple[int, int, torch.dtype, torch.device], Tensor] = {}


class _Sublayer(NamedTuple):
    """A sublayer without its last bias, that bias, and its norm."""

    compute: _SelfAttention | _CrossAttention | _FeedForward
    bias: Tensor
    norm: nn.Module


def _run_stack(sublayers: Sequence[_Sublayer], final: nn.Module | None, x: Tensor, run: _Pass, *, pre: bool) -> Tensor:
    """All sublayers of one stack. Pre-norm: the norm after a sum is that of the next sublayer, or the last one."""
    if not pre:
        for sublayer in sublayers:
            x, h = sublayer.compute(x)
            _, x = run.add_norm(x, h, sublayer.bias, sublayer.norm)
        return x if final is None else _normalise(x, final)
    following = [*(sublayer.norm for sublayer in sublayers[1:]), final or sublayers[-1].norm]
    y = _normalise(x, sublayers[0].norm)
    for sublayer, norm in zip(sublayers, following, strict=True):
        _, h = sublayer.compute(y)
        x, y = run.add_norm(x, h, sublayer.bias, norm)
    return x if final is None else y


def _normalise(x: Tensor, norm: nn.Module) -> Tensor:
    layer = cast(LayerNorm, norm)
    return F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, layer.eps)


class _SelfAttention:
    """Self-attention. Each sublayer returns its input, for the residual sum, and its output."""

    def __init__(
        self, attention: MultiHeadAttention, segments: Segments, positions: Tensor, gradients: Gradients
    ) -> None:
        self.attention, self.segments, self.positions, self.gradients = attention, segments, positions, gradients

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        own = self.attention
        parts = (own.query, own.key, own.value)
        matrices, biases = [part.weight for part in parts], [part.bias for part in parts]
        x, packed = linear_branch(x, matrices, self.gradients, () if own.rotary else biases)
        packed = packed.unflatten(-1, (3, own.num_heads, -1))
        if own.rotary:
            packed = self._rotated(packed, biases)
        given = None if own.rotary else _biases(own)
        values = row_attention(packed, None, self.segments, own.scoring.scale, self.gradients, given)
        return x, linear(values.flatten(2), [own.output.weight], self.gradients)

    def _rotated(self, packed: Tensor, biases: Sequence[Tensor]) -> Tensor:
        """Add the biases and rotate; the gradients of the biases go through the rotation."""
        packed = packed + torch.stack(tuple(biases)).view(3, packed.shape[3], -1)
        turned = [rotate(packed[:, :, i].transpose(1, 2), self.positions).transpose(1, 2) for i in (0, 1)]
        return torch.stack((*turned, packed[:, :, 2]), dim=2)


class _CrossAttention:
    def __init__(
        self, attention: MultiHeadAttention, memory: MemoryKeysValues, segments: Segments, gradients: Gradients
    ) -> None:
        self.attention, self.memory, self.segments, self.gradients = attention, memory, segments, gradients

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        own = self.attention
        x, query = linear_branch(x, [own.query.weight], self.gradients, [own.query.bias])
        query = query.unflatten(-1, (1, own.num_heads, -1))
        values = row_attention(query, self.memory, self.segments, own.scoring.scale, self.gradients, _biases(own))
        return x, linear(values.flatten(2), [own.output.weight], self.gradients)


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
        return x, linear(inner, [own.output.weight], self.gradients)
