"""The loss of the readable Transformer and its gradient, from its own parameters, computed efficiently on a CPU.

A packed row of 128 tokens holds about four sentences, so three quarters of its attention scores are masked; on a CPU
that costs time. Here the tokens of a group of sentences of similar length are concatenated without padding, and only
attention pads them. The matrix products of the backward pass add to the gradients in place; dropout draws sixteen
random bits for each number instead of thirty-two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from heedful.data.packing import Batch
from heedful.model.attention import MultiHeadAttention
from heedful.model.layers import ACTIVATIONS, DecoderLayer, EncoderLayer, FeedForward
from heedful.model.norms import LayerNorm, RMSNorm
from heedful.model.positions import LearnedPositions, rotate, sinusoidal_encoding
from heedful.model.transformer import Transformer

LOGIT_ROWS = 256
"""Rows of logits that are in memory at a time."""


def add_gradient(model: Transformer, group: SentenceGroup, scale: float, *, smoothing: float, seed: int) -> Tensor:
    """Add the gradient of `scale` times the label-smoothed loss to the parameters; returns the sum of losses."""
    run = _ForwardPass(model, group, seed)
    hidden = run.decode(run.encode())
    loss_sum, gradient = _loss(hidden.detach(), model.output_weight, group.target_output, scale, smoothing)
    hidden.backward(gradient)
    return loss_sum


class Dropout:
    """Dropout masks, with sixteen random bits for each number."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def factors(self, like: Tensor, dropout: float) -> Tensor:
        """0 for dropped numbers, 1 / (1 - dropout) for the others."""
        bits = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=self.generator)
        drawn = bits.view(torch.int16)[: like.numel()].view(like.shape)
        kept = torch.ge(drawn, round(dropout * 2**16) - 2**15, out=torch.empty_like(like))
        return kept.mul_(1 / (1 - dropout))


class _ForwardPass:
    """One forward pass over a group of sentences."""

    def __init__(self, model: Transformer, group: SentenceGroup, seed: int) -> None:
        self.model, self.group, self.draws = model, group, Dropout(seed)
        heads = model.config.num_heads
        self.sources, self.targets = Grid.of(group.source_lengths, heads), Grid.of(group.target_lengths, heads)
        dtype = model.source_embedding.weight.dtype
        # A target without a source attends to zeros.
        padding = self.sources.padding & (group.source_lengths > 0)[:, None]
        score_bias = torch.zeros(padding.shape, dtype=dtype).masked_fill_(padding, -math.inf)
        self.source_bias = score_bias.repeat_interleave(heads, dim=0)[:, None]
        self.causal_bias = torch.full((self.targets.width, self.targets.width), -math.inf, dtype=dtype).triu_(1)

    def encode(self) -> Tensor:
        model, group = self.model, self.group
        x = self.embed(model.source_embedding, model.source_positions, group.source, group.source_positions)
        for layer in model.encoder.layers:
            x = self.encoder_layer(cast(EncoderLayer, layer), x)
        return x if model.encoder.norm is None else _normalise(x, model.encoder.norm)

    def decode(self, memory: Tensor) -> Tensor:
        model, group = self.model, self.group
        x = self.embed(model.target_table, model.target_positions, group.target_input, group.target_positions)
        for layer in model.decoder.layers:
            x = self.decoder_layer(cast(DecoderLayer, layer), x, memory)
        return x if model.decoder.norm is None else _normalise(x, model.decoder.norm)

    def embed(self, table: nn.Embedding, learned: LearnedPositions | None, ids: Tensor, positions: Tensor) -> Tensor:
        config = self.model.config
        x = _embedding(table, ids) * math.sqrt(config.d_model)
        if learned is not None:
            x = x + learned(positions[None])[0]
        elif config.positions == "sinusoidal":
            x = x + sinusoidal_encoding(positions[None], config.d_model)[0].type_as(x)
        return self.dropped(x, self.model.embedding_dropout)

    def encoder_layer(self, layer: EncoderLayer, x: Tensor) -> Tensor:
        own = layer.self_attention
        positions = self.group.source_positions

        def attend(h: Tensor) -> Tensor:
            return self.attend(own, h, h, (self.sources, self.sources), (positions, positions), self.source_bias)

        x = self.residual(layer, x, attend, layer.self_attention_norm)
        return self.residual(layer, x, lambda h: self.feed_forward(layer.feed_forward, h), layer.feed_forward_norm)

    def decoder_layer(self, layer: DecoderLayer, x: Tensor, memory: Tensor) -> Tensor:
        own, cross, group = layer.self_attention, layer.cross_attention, self.group
        positions = group.target_positions

        def attend(h: Tensor) -> Tensor:
            return self.attend(own, h, h, (self.targets, self.targets), (positions, positions), self.causal_bias)

        def attend_memory(h: Tensor) -> Tensor:
            both = (positions, group.source_positions)
            return self.attend(cross, h, memory, (self.targets, self.sources), both, self.source_bias)

        x = self.residual(layer, x, attend, layer.self_attention_norm)
        x = self.residual(layer, x, attend_memory, layer.cross_attention_norm)
        return self.residual(layer, x, lambda h: self.feed_forward(layer.feed_forward, h), layer.feed_forward_norm)

    def residual(
        self, layer: EncoderLayer | DecoderLayer, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module
    ) -> Tensor:
        if layer.norm_placement == "pre":
            return self.summed(x, sublayer(_normalise(x, norm)), layer.dropout)
        return _normalise(self.summed(x, sublayer(x), layer.dropout), norm)

    def summed(self, x: Tensor, h: Tensor, dropout: float) -> Tensor:
        """x + dropout(h)."""
        return torch.addcmul(x, h, self.draws.factors(h, dropout)) if self._drops(dropout) else x + h

    def dropped(self, x: Tensor, dropout: float) -> Tensor:
        return x * self.draws.factors(x, dropout) if self._drops(dropout) else x

    def _drops(self, dropout: float) -> bool:
        return dropout > 0 and self.model.training

    def feed_forward(self, own: FeedForward, x: Tensor) -> Tensor:
        inner = _linear(x, own.inner)
        if own.gate is not None:
            inner = F.silu(_linear(x, own.gate)) * inner
        else:
            inner = ACTIVATIONS[own.activation](inner)
        return _linear(self.dropped(inner, own.dropout), own.output)

    def attend(
        self,
        own: MultiHeadAttention,
        x: Tensor,
        memory: Tensor,
        grids: tuple[Grid, Grid],
        positions: tuple[Tensor, Tensor],
        score_bias: Tensor,
    ) -> Tensor:
        """Attention of x to the memory of its sentence; `score_bias` is added to the scores."""
        query, key, value = _linear(x, own.query), _linear(memory, own.key), _linear(memory, own.value)
        if own.rotary:
            query, key = (_rotated(one, at, own.num_heads) for one, at in zip((query, key), positions, strict=True))
        shape = (grids[0].num_sentences * own.num_heads, grids[0].width, grids[1].width)
        kept = self.draws.factors(query.new_empty(shape), own.dropout) if self._drops(own.dropout) else None
        attended = _Attention.apply(query, key, value, grids, score_bias, own.scoring.scale, kept)  # type: ignore[no-untyped-call]
        return _linear(attended, own.output)


def _normalise(x: Tensor, norm: nn.Module) -> Tensor:
    if isinstance(norm, LayerNorm):
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
    assert isinstance(norm, RMSNorm)
    return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)


def _rotated(x: Tensor, positions: Tensor, num_heads: int) -> Tensor:
    heads = x.view(1, x.shape[0], num_heads, -1).transpose(1, 2)
    return rotate(heads, positions[None]).transpose(1, 2).reshape(x.shape)


# ---------------------------------------------------------------------- operations


def _gradient(parameter: Tensor) -> Tensor:
    """The buffer of a parameter's gradient."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _linear(x: Tensor, layer: nn.Linear) -> Tensor:
    projected: Tensor = _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return projected


def _embedding(table: nn.Embedding, ids: Tensor) -> Tensor:
    rows: Tensor = _Embedding.apply(table.weight, ids)  # type: ignore[no-untyped-call]
    return rows


class _Linear(Function):
    """x Wᵀ + b; gradients are added to those of W and b in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.parameters = weight, bias
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        (x,), (weight, bias) = ctx.saved_tensors, ctx.parameters
        _gradient(weight).addmm_(d_output.t(), x)
        if bias is not None:
            _gradient(bias).add_(d_output.sum(dim=0))
        return d_output @ weight, None, None


class _Embedding(Function):
    """Rows of a table; the gradient is added to the table's in place."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.table, ctx.ids = table, ids
        return table.index_select(0, ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[None, None]:
        _gradient(ctx.table).index_add_(0, ctx.ids, d_output)
        return None, None


class _Attention(Function):
    """softmax(Q Kᵀ · scale + score_bias) V of each sentence and head; input and output are concatenated tokens."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        grids: tuple[Grid, Grid],
        score_bias: Tensor,
        scale: float,
        kept: Tensor | None,
    ) -> Tensor:
        q, k, v = grids[0].pad(query), grids[1].pad(key), grids[1].pad(value)
        scores = torch.baddbmm(score_bias, q, k.transpose(1, 2), alpha=scale)
        weights = torch.softmax(scores, dim=-1)
        used = weights if kept is None else weights * kept
        ctx.grids, ctx.scale, ctx.kept = grids, scale, kept
        ctx.save_for_backward(q, k, v, weights, used)
        return grids[0].unpad(torch.bmm(used, v))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, used = ctx.saved_tensors
        queries, keys = ctx.grids
        d_values = queries.pad(d_output)
        d_used = torch.bmm(d_values, v.transpose(1, 2))
        d_weights = d_used if ctx.kept is None else d_used.mul_(ctx.kept)
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).mul_(ctx.scale)
        d_query, d_key = torch.bmm(d_scores, k), torch.bmm(d_scores.transpose(1, 2), q)
        d_value = torch.bmm(used.transpose(1, 2), d_values)
        sides = queries.unpad(d_query), keys.unpad(d_key), keys.unpad(d_value)
        return (*sides, None, None, None, None)


def _loss(hidden: Tensor, matrix: Tensor, labels: Tensor, scale: float, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sum of the label-smoothed losses, and the gradient of `scale` times it; the matrix's is added in place."""
    total, gradient, share = hidden.new_zeros(()), torch.empty_like(hidden), smoothing / matrix.shape[0]
    weight, d_weight = matrix.detach(), _gradient(matrix)
    for start in range(0, hidden.shape[0], LOGIT_ROWS):
        part, right = hidden[start : start + LOGIT_ROWS], labels[start : start + LOGIT_ROWS, None]
        log_probs = torch.log_softmax(part @ weight.t(), dim=-1)
        total -= (1 - smoothing) * log_probs.gather(1, right).sum() + share * log_probs.sum()
        d_logits = log_probs.exp_().sub_(share)
        d_logits.scatter_add_(1, right, d_logits.new_full(right.shape, smoothing - 1))
        d_weight.addmm_(d_logits.t(), part, alpha=scale)
        torch.mm(d_logits, weight, out=gradient[start : start + LOGIT_ROWS])
    return total, gradient.mul_(scale)


# ---- sentences of a batch of packed rows, grouped by length


@dataclass(frozen=True)
class Grid:
    """The padded layout of one side's tokens: (sentence, head, position).

    A token's vector is split into `num_heads` vectors; `positions` has the flat index of each in the grid.
    """

    num_sentences: int
    num_heads: int
    width: int
    positions: Tensor
    padding: Tensor
    """(sentence, position): True where there is no token."""

    @classmethod
    def of(cls, lengths: Tensor, num_heads: int) -> Grid:
        """The grid of sentences of these lengths, whose tokens are concatenated."""
        width = max(1, int(lengths.max()))
        here = torch.arange(width) < lengths[:, None]
        sentence, position = here.nonzero(as_tuple=True)
        positions = ((sentence[:, None] * num_heads + torch.arange(num_heads)) * width + position[:, None]).flatten()
        return cls(lengths.numel(), num_heads, width, positions, ~here)

    def pad(self, x: Tensor) -> Tensor:
        """(tokens, features) as (sentence · head, position, features of a head), with zeros as padding."""
        head_dim = x.shape[-1] // self.num_heads
        grid = x.new_zeros(self.num_sentences * self.num_heads * self.width, head_dim)
        return grid.index_copy_(0, self.positions, x.reshape(-1, head_dim)).view(-1, self.width, head_dim)

    def unpad(self, grid: Tensor) -> Tensor:
        """The inverse of `pad`: (tokens, features)."""
        head_dim = grid.shape[-1]
        return grid.reshape(-1, head_dim).index_select(0, self.positions).view(-1, self.num_heads * head_dim)


@dataclass(frozen=True)
class SentenceGroup:
    """Some sentence pairs: the concatenated tokens of all sources, and those of all targets."""

    source: Tensor
    source_positions: Tensor
    source_lengths: Tensor
    target_input: Tensor
    target_output: Tensor
    target_positions: Tensor
    target_lengths: Tensor


def group_by_length(batch: Batch, num_groups: int) -> list[SentenceGroup]:
    """The sentence pairs of packed rows, sorted by length, in at most `num_groups` groups of about as many tokens."""
    max_segments = int(torch.maximum(batch.source_segments.max(), batch.target_segments.max())) + 1
    sources, targets = _Side.of(batch.source_segments, max_segments), _Side.of(batch.target_segments, max_segments)
    wanted = (targets.lengths > 0).nonzero().flatten()
    if not wanted.numel():
        return []
    longest = torch.maximum(sources.lengths, targets.lengths)[wanted]
    wanted = wanted[longest.argsort(stable=True)]
    ends = (sources.lengths + targets.lengths)[wanted].cumsum(0)
    number = (ends - 1) * num_groups // ends[-1]
    parts = [wanted[number == one] for one in range(num_groups)]
    return [_build_group(batch, sources, targets, part) for part in parts if part.numel()]


@dataclass(frozen=True)
class _Side:
    """Length of every sentence of one side, by row and segment number, and where it starts in the flattened batch."""

    lengths: Tensor
    starts: Tensor

    @classmethod
    def of(cls, segments: Tensor, max_segments: int) -> _Side:
        sentence = (segments + torch.arange(segments.shape[0])[:, None] * max_segments).flatten()
        lengths = torch.bincount(sentence, minlength=segments.shape[0] * max_segments)
        starts = lengths.new_zeros(lengths.numel())
        begins = torch.ones_like(sentence, dtype=torch.bool)
        begins[1:] = sentence[1:] != sentence[:-1]
        first = begins.nonzero().flatten()
        starts[sentence[first]] = first
        lengths.view(segments.shape[0], max_segments)[:, 0] = 0  # segment 0 is padding
        return cls(lengths, starts)

    def tokens(self, wanted: Tensor) -> Tensor:
        """Indices of these sentences' tokens in the flattened batch."""
        lengths = self.lengths[wanted]
        before = lengths.cumsum(0) - lengths
        return torch.arange(int(lengths.sum())) + (self.starts[wanted] - before).repeat_interleave(lengths)


def _build_group(batch: Batch, sources: _Side, targets: _Side, wanted: Tensor) -> SentenceGroup:
    source, target = sources.tokens(wanted), targets.tokens(wanted)
    return SentenceGroup(
        source=batch.source.flatten()[source],
        source_positions=batch.source_positions.flatten()[source],
        source_lengths=sources.lengths[wanted],
        target_input=batch.target_input.flatten()[target],
        target_output=batch.target_output.flatten()[target],
        target_positions=batch.target_positions.flatten()[target],
        target_lengths=targets.lengths[wanted],
    )
