"""The loss of the readable Transformer and its gradient, from its own parameters, in the way that suits a CPU.

Tokens stand one after the other without padding, and only sentences attend to themselves. Gradients of matrices are
added where they belong by the matrix product itself; dropout draws sixteen bits a number instead of thirty-two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from heedful.fused.unpack_rows import Grid, Group
from heedful.model.attention import MultiHeadAttention
from heedful.model.layers import ACTIVATIONS, DecoderLayer, EncoderLayer, FeedForward
from heedful.model.norms import LayerNorm, RMSNorm
from heedful.model.positions import LearnedPositions, rotate, sinusoidal_encoding
from heedful.model.transformer import Transformer

TOKENS_AT_ONCE = 256
"""Rows of logits that exist at a time."""


def add_gradient(model: Transformer, group: Group, scale: float, *, smoothing: float, seed: int) -> Tensor:
    """Add the gradient of `scale` times the label-smoothed loss to the parameters; returns the sum of losses."""
    run = _Run(model, group, seed)
    hidden = run.decode(run.encode())
    loss_sum, gradient = _loss(hidden.detach(), model.output_weight, group.target_output, scale, smoothing)
    hidden.backward(gradient)
    return loss_sum


class Dropout:
    """Draws of dropout: which numbers are kept, sixteen random bits each."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def factors(self, like: Tensor, dropout: float) -> Tensor:
        """0 for what is dropped, 1 / (1 - dropout) for what is kept."""
        bits = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=self.generator)
        drawn = bits.view(torch.int16)[: like.numel()].view(like.shape)
        kept = torch.ge(drawn, round(dropout * 2**16) - 2**15, out=torch.empty_like(like))
        return kept.mul_(1 / (1 - dropout))


class _Run:
    """One forward pass over a group."""

    def __init__(self, model: Transformer, group: Group, seed: int) -> None:
        self.model, self.group, self.draws = model, group, Dropout(seed)
        heads = model.config.num_heads
        self.sources, self.targets = Grid.of(group.source_lengths, heads), Grid.of(group.target_lengths, heads)
        dtype = model.source_embedding.weight.dtype
        # Who has no source at all attends to zeros.
        ended = self.sources.ended & (group.source_lengths > 0)[:, None]
        blocked = torch.zeros(ended.shape, dtype=dtype).masked_fill_(ended, -math.inf)
        self.blocked = blocked.repeat_interleave(heads, dim=0)[:, None]
        self.later = torch.full((self.targets.width, self.targets.width), -math.inf, dtype=dtype).triu_(1)

    def encode(self) -> Tensor:
        model, group = self.model, self.group
        x = self.embed(model.source_embedding, model.source_positions, group.source, group.source_positions)
        for layer in model.encoder.layers:
            x = self.encoder_layer(cast(EncoderLayer, layer), x)
        return x if model.encoder.norm is None else _normal(x, model.encoder.norm)

    def decode(self, memory: Tensor) -> Tensor:
        model, group = self.model, self.group
        x = self.embed(model.target_table, model.target_positions, group.target_input, group.target_positions)
        for layer in model.decoder.layers:
            x = self.decoder_layer(cast(DecoderLayer, layer), x, memory)
        return x if model.decoder.norm is None else _normal(x, model.decoder.norm)

    def embed(self, table: nn.Embedding, learned: LearnedPositions | None, ids: Tensor, positions: Tensor) -> Tensor:
        config = self.model.config
        x = _rows_of(table, ids) * math.sqrt(config.d_model)
        if learned is not None:
            x = x + learned(positions[None])[0]
        elif config.positions == "sinusoidal":
            x = x + sinusoidal_encoding(positions[None], config.d_model)[0].type_as(x)
        return self.dropped(x, self.model.embedding_dropout)

    def encoder_layer(self, layer: EncoderLayer, x: Tensor) -> Tensor:
        own = layer.self_attention
        positions = self.group.source_positions

        def attend(h: Tensor) -> Tensor:
            return self.attend(own, h, h, (self.sources, self.sources), (positions, positions), self.blocked)

        x = self.residual(layer, x, attend, layer.self_attention_norm)
        return self.residual(layer, x, lambda h: self.feed_forward(layer.feed_forward, h), layer.feed_forward_norm)

    def decoder_layer(self, layer: DecoderLayer, x: Tensor, memory: Tensor) -> Tensor:
        own, cross, group = layer.self_attention, layer.cross_attention, self.group
        positions = group.target_positions

        def attend(h: Tensor) -> Tensor:
            return self.attend(own, h, h, (self.targets, self.targets), (positions, positions), self.later)

        def attend_memory(h: Tensor) -> Tensor:
            both = (positions, group.source_positions)
            return self.attend(cross, h, memory, (self.targets, self.sources), both, self.blocked)

        x = self.residual(layer, x, attend, layer.self_attention_norm)
        x = self.residual(layer, x, attend_memory, layer.cross_attention_norm)
        return self.residual(layer, x, lambda h: self.feed_forward(layer.feed_forward, h), layer.feed_forward_norm)

    def residual(
        self, layer: EncoderLayer | DecoderLayer, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module
    ) -> Tensor:
        if layer.norm_placement == "pre":
            return self.summed(x, sublayer(_normal(x, norm)), layer.dropout)
        return _normal(self.summed(x, sublayer(x), layer.dropout), norm)

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
        blocked: Tensor,
    ) -> Tensor:
        """Attention of x to the memory, each sentence to its own; `blocked` is added to the scores."""
        query, key, value = _linear(x, own.query), _linear(memory, own.key), _linear(memory, own.value)
        if own.rotary:
            query, key = (_turned(one, at, own.num_heads) for one, at in zip((query, key), positions, strict=True))
        shape = (grids[0].num_sentences * own.num_heads, grids[0].width, grids[1].width)
        kept = self.draws.factors(query.new_empty(shape), own.dropout) if self._drops(own.dropout) else None
        attended = _Attention.apply(query, key, value, grids, blocked, own.scoring.scale, kept)  # type: ignore[no-untyped-call]
        return _linear(attended, own.output)


def _normal(x: Tensor, norm: nn.Module) -> Tensor:
    if isinstance(norm, LayerNorm):
        return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)
    assert isinstance(norm, RMSNorm)
    return F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)


def _turned(x: Tensor, positions: Tensor, num_heads: int) -> Tensor:
    heads = x.view(1, x.shape[0], num_heads, -1).transpose(1, 2)
    return rotate(heads, positions[None]).transpose(1, 2).reshape(x.shape)


# ---------------------------------------------------------------------- operations


def _gradient(parameter: Tensor) -> Tensor:
    """Where a parameter's gradient is summed up."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _linear(x: Tensor, layer: nn.Linear) -> Tensor:
    projected: Tensor = _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
    return projected


def _rows_of(table: nn.Embedding, ids: Tensor) -> Tensor:
    rows: Tensor = _Embedding.apply(table.weight, ids)  # type: ignore[no-untyped-call]
    return rows


class _Linear(Function):
    """x Wᵀ + b. The gradients of W and b are added to those they have."""

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
    """Rows of a table, whose gradient is added to the one it has."""

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
    """softmax(Q Kᵀ · scale + blocked) V of each sentence and head, from and to tokens one after the other."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        grids: tuple[Grid, Grid],
        blocked: Tensor,
        scale: float,
        kept: Tensor | None,
    ) -> Tensor:
        q, k, v = grids[0].laid_out(query), grids[1].laid_out(key), grids[1].laid_out(value)
        scores = torch.baddbmm(blocked, q, k.transpose(1, 2), alpha=scale)
        weights = torch.softmax(scores, dim=-1)
        used = weights if kept is None else weights * kept
        ctx.grids, ctx.scale, ctx.kept = grids, scale, kept
        ctx.save_for_backward(q, k, v, weights, used)
        return grids[0].taken_back(torch.bmm(used, v))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, used = ctx.saved_tensors
        queries, keys = ctx.grids
        d_values = queries.laid_out(d_output)
        d_used = torch.bmm(d_values, v.transpose(1, 2))
        d_weights = d_used if ctx.kept is None else d_used.mul_(ctx.kept)
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).mul_(ctx.scale)
        d_query, d_key = torch.bmm(d_scores, k), torch.bmm(d_scores.transpose(1, 2), q)
        d_value = torch.bmm(used.transpose(1, 2), d_values)
        sides = queries.taken_back(d_query), keys.taken_back(d_key), keys.taken_back(d_value)
        return (*sides, None, None, None, None)


def _loss(hidden: Tensor, matrix: Tensor, labels: Tensor, scale: float, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sum of the label-smoothed losses, and the gradient of `scale` times it; the matrix's is added to its own."""
    total, gradient, share = hidden.new_zeros(()), torch.empty_like(hidden), smoothing / matrix.shape[0]
    weight, d_weight = matrix.detach(), _gradient(matrix)
    for start in range(0, hidden.shape[0], TOKENS_AT_ONCE):
        part, right = hidden[start : start + TOKENS_AT_ONCE], labels[start : start + TOKENS_AT_ONCE, None]
        log_probs = torch.log_softmax(part @ weight.t(), dim=-1)
        total -= (1 - smoothing) * log_probs.gather(1, right).sum() + share * log_probs.sum()
        d_logits = log_probs.exp_().sub_(share)
        d_logits.scatter_add_(1, right, d_logits.new_full(right.shape, smoothing - 1))
        d_weight.addmm_(d_logits.t(), part, alpha=scale)
        torch.mm(d_logits, weight, out=gradient[start : start + TOKENS_AT_ONCE])
    return total, gradient.mul_(scale)
