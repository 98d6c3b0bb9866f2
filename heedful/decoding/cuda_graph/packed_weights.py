"""The weights of a Transformer in the layout of the decoding kernels.

Matrices with the same input are concatenated, and norms are in the order in which they are computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.model.attention import MultiHeadAttention
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward
from heedful.model.norms import LayerNorm, RMSNorm
from heedful.model.positions import LearnedPositions, inverse_frequencies, sinusoidal_encoding
from heedful.model.transformer import Transformer


class Linear(NamedTuple):
    """A matrix (output width, input width) and its bias."""

    weight: Tensor
    bias: Tensor | None


class Norm(NamedTuple):
    """A norm of each row; `kind` None is the identity."""

    kind: str | None
    weight: Tensor | None
    shift: Tensor | None
    epsilon: float


class Layer(NamedTuple):
    """A layer of the encoder or decoder; encoder layers have no cross-attention."""

    qkv: Linear
    """Query, key and value projections of self-attention, concatenated."""
    self_output: Linear
    inner: Linear
    """For SwiGLU, the inner matrix and the gate matrix, concatenated."""
    outer: Linear
    norms: tuple[Norm, ...]
    """The norm computed after each sublayer: its own norm with post-norm, that of the next with pre-norm."""
    cross_query: Linear | None = None
    cross_output: Linear | None = None


class Stack(NamedTuple):
    """Encoder or decoder."""

    table: Tensor
    position_table: Tensor | None
    """Added to the embedding at each position, in float32; None with rotary positions."""
    first_norm: Norm | None
    """The norm of the first sublayer, with pre-norm."""
    layers: list[Layer]
    last_norm: Norm | None
    """The norm of the stack's output, with post-norm."""


class Shape(NamedTuple):
    """The sizes and settings of a model that the kernels need."""

    num_heads: int
    key_dim: int
    value_dim: int
    d_model: int
    d_ff: int
    vocabulary: int
    activation: str
    post_norm: bool
    """Whether norms come after the residual sum."""
    scale: float
    """Factor of the attention scores."""
    factor: float
    """Factor of the embeddings."""

    @property
    def qkv_width(self) -> int:
        """Width of queries, keys and values of one token."""
        return self.num_heads * (2 * self.key_dim + self.value_dim)

    @property
    def kv_width(self) -> int:
        """Width of keys and values of one token."""
        return self.num_heads * (self.key_dim + self.value_dim)


class PackedWeights(NamedTuple):
    """The weights that a decoding step uses."""

    shape: Shape
    encoder: Stack
    decoder: Stack
    cross_kv: Linear
    """Key and value projections of cross-attention for all decoder layers, concatenated."""
    output: Tensor
    rotary: tuple[Tensor, Tensor] | None
    """Cosines and sines of rotary positions; None with other positions."""


@torch.no_grad()
def pack_weights(model: Transformer) -> PackedWeights:
    """Pack the current weights. Tensors that need no concatenation are shared with the model."""
    config = model.config
    first: MultiHeadAttention = model.decoder.layers[0].self_attention  # type: ignore[assignment]
    shape = Shape(
        num_heads=config.num_heads,
        key_dim=config.attention_key_dim,
        value_dim=config.attention_head_dim,
        d_model=config.d_model,
        d_ff=config.d_ff,
        vocabulary=config.target_vocab_size,
        activation=config.activation,
        post_norm=config.norm_placement == "post",
        scale=first.scoring.scale,
        factor=math.sqrt(config.d_model),
    )
    target = model.source_embedding if model.target_embedding is None else model.target_embedding
    decoders: list[DecoderLayer] = list(model.decoder.layers)  # type: ignore[arg-type]
    sides = [side for layer in decoders for side in (layer.cross_attention.key, layer.cross_attention.value)]
    return PackedWeights(
        shape=shape,
        encoder=pack_stack(model, model.source_embedding, model.source_positions, list(model.encoder.layers)),
        decoder=pack_stack(model, target, model.target_positions, list(model.decoder.layers)),
        cross_kv=concat_linears(sides),
        output=(target if model.output is None else model.output).weight.detach(),
        rotary=rotary_table(config.max_length, shape.key_dim, target.weight.device)
        if config.positions == "rotary"
        else None,
    )


def pack_stack(
    model: Transformer, table: nn.Embedding, learned: LearnedPositions | None, layers: list[nn.Module]
) -> Stack:
    """Pack the encoder or decoder, with its norms in the order in which they are computed."""
    norms = [norm for layer in layers for norm in iter_norms(layer)]
    last = model.encoder.norm if isinstance(layers[0], EncoderLayer) else model.decoder.norm
    final, post_norm = pack_norm(last), model.config.norm_placement == "post"
    order = norms if post_norm else [*norms[1:], final]
    per_layer = len(norms) // len(layers)
    position_table = None
    if learned is not None:
        position_table = learned.embedding.weight.detach()
    elif model.config.positions == "sinusoidal":
        count = torch.arange(model.config.max_length, device=table.weight.device)
        position_table = sinusoidal_encoding(count[None], model.config.d_model)[0]
    return Stack(
        table=table.weight.detach(),
        position_table=position_table,
        first_norm=None if post_norm else norms[0],
        layers=[
            pack_layer(layer, tuple(order[number * per_layer : (number + 1) * per_layer]))
            for number, layer in enumerate(layers)
        ],
        last_norm=final if post_norm and last is not None else None,
    )


def pack_layer(layer: nn.Module, norms: tuple[Norm, ...]) -> Layer:
    """Pack a layer, with the norms that follow its sublayers."""
    assert isinstance(layer, (EncoderLayer, DecoderLayer))
    attention, forward = layer.self_attention, layer.feed_forward
    cross = layer.cross_attention if isinstance(layer, DecoderLayer) else None
    return Layer(
        qkv=concat_linears([attention.query, attention.key, attention.value]),
        self_output=linear(attention.output),
        inner=pack_feed_forward(forward),
        outer=linear(forward.output),
        norms=norms,
        cross_query=linear(cross.query) if cross is not None else None,
        cross_output=linear(cross.output) if cross is not None else None,
    )


def iter_norms(layer: nn.Module) -> Iterator[Norm]:
    """The norms of a layer, in the order of its sublayers."""
    assert isinstance(layer, (EncoderLayer, DecoderLayer))
    yield pack_norm(layer.self_attention_norm)
    if isinstance(layer, DecoderLayer):
        yield pack_norm(layer.cross_attention_norm)
    yield pack_norm(layer.feed_forward_norm)


def pack_norm(norm: nn.Module | None) -> Norm:
    """Pack a norm; None is the identity."""
    if isinstance(norm, RMSNorm):
        return Norm("rms", norm.weight.detach(), None, float(norm.eps or 0.0))
    if isinstance(norm, LayerNorm):
        return Norm("layer", norm.weight.detach(), norm.bias.detach() if norm.bias is not None else None, norm.eps)
    return Norm(None, None, None, 0.0)


def linear(module: nn.Linear) -> Linear:
    """The tensors of a module, not copied."""
    return Linear(module.weight.detach(), module.bias.detach() if module.bias is not None else None)


def concat_linears(modules: Sequence[nn.Linear]) -> Linear:
    """Concatenate matrices with the same input along the output dimension."""
    weight = torch.cat([module.weight.detach() for module in modules])
    biases = [module.bias.detach() for module in modules if module.bias is not None]
    return Linear(weight, torch.cat(biases) if biases else None)


def pack_feed_forward(forward: FeedForward) -> Linear:
    """The inner projection of a feed-forward layer, with its gate if it has one."""
    return linear(forward.inner) if forward.gate is None else concat_linears([forward.inner, forward.gate])


def rotary_table(length: int, key_dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angle of each position and feature pair."""
    angles = torch.arange(length, device=device)[:, None].float() * inverse_frequencies(key_dim, device)
    return angles.cos().contiguous(), angles.sin().contiguous()


def iter_tensors(part: object) -> Iterator[Tensor]:
    """All tensors in a nested tuple or list, in a fixed order."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, (tuple, list)):
        for item in part:
            yield from iter_tensors(item)
