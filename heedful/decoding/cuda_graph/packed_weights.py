"""The weights of a Transformer as the kernels of decoding take them: matrices of one input joined, norms in order."""

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
    """A norm of each row; no kind: the row as it is."""

    kind: str | None
    weight: Tensor | None
    shift: Tensor | None
    epsilon: float


class Layer(NamedTuple):
    """A layer of either stack; the encoder's has no memory to ask."""

    joined: Linear
    """Queries, keys and values of self-attention, side by side."""
    self_output: Linear
    inner: Linear
    """Of SwiGLU the inner matrix above the gate's."""
    outer: Linear
    norms: tuple[Norm, ...]
    """After each sublayer: its own, or where norms come before, that of the sublayer which follows."""
    memory_query: Linear | None = None
    memory_output: Linear | None = None


class Stack(NamedTuple):
    """Encoder or decoder."""

    table: Tensor
    places: Tensor | None
    """What is added to the embedding at each position, in float32."""
    first: Norm | None
    """The first sublayer's norm, where norms come before."""
    layers: list[Layer]
    last: Norm | None
    """A norm of the whole stack's output, where norms come after."""


class Shape(NamedTuple):
    """The numbers of a model that the kernels must know."""

    num_heads: int
    key_dim: int
    value_dim: int
    d_model: int
    d_ff: int
    vocabulary: int
    activation: str
    after: bool
    """Norms come after the residual sum."""
    scale: float
    factor: float

    @property
    def joined(self) -> int:
        """Width of queries, keys and values of one token."""
        return self.num_heads * (2 * self.key_dim + self.value_dim)

    @property
    def kept(self) -> int:
        """Width of keys and values of one token."""
        return self.num_heads * (self.key_dim + self.value_dim)


class PackedWeights(NamedTuple):
    """All that a step computes with."""

    shape: Shape
    encoder: Stack
    decoder: Stack
    memory: Linear
    """Keys and values of the memory for all decoder layers, side by side."""
    output: Tensor
    turns: tuple[Tensor, Tensor] | None
    """Cosines and sines of rotary positions."""


@torch.no_grad()
def pack_weights(model: Transformer) -> PackedWeights:
    """The weights as they are now. Those that need no joining stay the model's own tensors."""
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
        after=config.norm_placement == "post",
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
        memory=joined(sides),
        output=(target if model.output is None else model.output).weight.detach(),
        turns=turns(config.max_length, shape.key_dim, target.weight.device) if config.positions == "rotary" else None,
    )


def pack_stack(
    model: Transformer, table: nn.Embedding, learned: LearnedPositions | None, layers: list[nn.Module]
) -> Stack:
    """One of the two stacks, its norms in the order in which they are computed."""
    own = [norm for layer in layers for norm in iter_norms(layer)]
    last = model.encoder.norm if isinstance(layers[0], EncoderLayer) else model.decoder.norm
    final, after = pack_norm(last), model.config.norm_placement == "post"
    order = own if after else [*own[1:], final]
    per_layer = len(own) // len(layers)
    places = None
    if learned is not None:
        places = learned.embedding.weight.detach()
    elif model.config.positions == "sinusoidal":
        count = torch.arange(model.config.max_length, device=table.weight.device)
        places = sinusoidal_encoding(count[None], model.config.d_model)[0]
    return Stack(
        table=table.weight.detach(),
        places=places,
        first=None if after else own[0],
        layers=[
            pack_layer(layer, tuple(order[number * per_layer : (number + 1) * per_layer]))
            for number, layer in enumerate(layers)
        ],
        last=final if after and last is not None else None,
    )


def pack_layer(layer: nn.Module, norms: tuple[Norm, ...]) -> Layer:
    """One layer, with the norms that follow its sublayers."""
    assert isinstance(layer, (EncoderLayer, DecoderLayer))
    attention, forward = layer.self_attention, layer.feed_forward
    crossing = layer.cross_attention if isinstance(layer, DecoderLayer) else None
    return Layer(
        joined=joined([attention.query, attention.key, attention.value]),
        self_output=linear(attention.output),
        inner=pack_feed_forward(forward),
        outer=linear(forward.output),
        norms=norms,
        memory_query=linear(crossing.query) if crossing is not None else None,
        memory_output=linear(crossing.output) if crossing is not None else None,
    )


def iter_norms(layer: nn.Module) -> Iterator[Norm]:
    """The norms of a layer, in the order of its sublayers."""
    assert isinstance(layer, (EncoderLayer, DecoderLayer))
    yield pack_norm(layer.self_attention_norm)
    if isinstance(layer, DecoderLayer):
        yield pack_norm(layer.cross_attention_norm)
    yield pack_norm(layer.feed_forward_norm)


def pack_norm(norm: nn.Module | None) -> Norm:
    """A norm as the kernels take it."""
    if isinstance(norm, RMSNorm):
        return Norm("rms", norm.weight.detach(), None, float(norm.eps or 0.0))
    if isinstance(norm, LayerNorm):
        return Norm("layer", norm.weight.detach(), norm.bias.detach() if norm.bias is not None else None, norm.eps)
    return Norm(None, None, None, 0.0)


def linear(module: nn.Linear) -> Linear:
    """The module's own tensors."""
    return Linear(module.weight.detach(), module.bias.detach() if module.bias is not None else None)


def joined(modules: Sequence[nn.Linear]) -> Linear:
    """Matrices of one input as one, outputs side by side."""
    weight = torch.cat([module.weight.detach() for module in modules])
    biases = [module.bias.detach() for module in modules if module.bias is not None]
    return Linear(weight, torch.cat(biases) if biases else None)


def pack_feed_forward(forward: FeedForward) -> Linear:
    """What a feed-forward layer computes first."""
    return linear(forward.inner) if forward.gate is None else joined([forward.inner, forward.gate])


def turns(length: int, key_dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angle of each position and pair of features."""
    angles = torch.arange(length, device=device)[:, None].float() * inverse_frequencies(key_dim, device)
    return angles.cos().contiguous(), angles.sin().contiguous()


def iter_tensors(part: object) -> Iterator[Tensor]:
    """All tensors inside, in one fixed order."""
    if isinstance(part, Tensor):
        yield part
    elif isinstance(part, (tuple, list)):
        for item in part:
            yield from iter_tensors(item)
