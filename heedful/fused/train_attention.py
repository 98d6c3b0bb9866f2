"""Attention inside rows as one operation: a plain form for CPUs, a kernel of our own for GPUs, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from heedful.fused.grad_buffers import Gradients, joined
from heedful.fused.kernels.attention_args import Rows, Sides
from heedful.fused.train_ops import column_sums, with_bias
from heedful.model.masks import causal_mask, segment_mask


class SharedGradient:
    """One tensor for the gradients of several that stand side by side in its third dimension."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self._whole: Tensor | None = None

    @property
    def whole(self) -> Tensor:
        """All of them."""
        if self._whole is None:
            self._whole = torch.empty_like(self.like)
        return self._whole

    def part(self, index: int) -> Tensor:
        """Where one of them belongs."""
        return self.whole[:, :, index]


class Memory(NamedTuple):
    """Keys and values of the memory for one layer, (B, K, 2, H, Dh), and the place for their gradient."""

    sides: Tensor
    shared: SharedGradient
    layer: int


class Biases(NamedTuple):
    """The biases around an attention, and the matrix that its result goes through.

    Tokens that see nothing must have no gradient: in rows, these are the ones that fill them up.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    weight: Tensor


def memory_of_layers(
    memory: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], num_heads: int, gradients: Gradients
) -> list[Memory]:
    """Keys and values of the memory for all layers by one matrix product; `weights` are key and value of each layer.

    The gradients of the biases are left to `row_attention`.
    """
    layers = len(weights) // 2
    shape = (*memory.shape[:2], layers, 2, num_heads, weights[0].shape[0] // num_heads)
    shared = SharedGradient(memory.new_empty(0))
    sides = _MemoryOfLayers.apply(memory, weights, biases, shape, shared, gradients)  # type: ignore[no-untyped-call]
    return [Memory(one, shared, layer) for layer, one in enumerate(sides)]


class _MemoryOfLayers(Function):
    @staticmethod
    def forward(
        ctx: Any,
        memory: Tensor,
        owners: Sequence[Tensor],
        biases: Sequence[Tensor],
        shape: tuple[int, ...],
        shared: SharedGradient,
        gradients: Gradients,
    ) -> tuple[Tensor, ...]:
        weight = joined(owners)
        ctx.owners, ctx.shared, ctx.gradients = owners, shared, gradients
        ctx.save_for_backward(memory, weight)
        whole = with_bias(memory, weight, biases).view(shape)
        shared.like = whole
        return whole.unbind(2)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        memory, weight = ctx.saved_tensors
        d_sides = ctx.shared.whole.flatten(2)  # what autograd brings are parts of it
        ctx.gradients.give_product(ctx.owners, d_sides, memory)
        return d_sides @ weight, None, None, None, None, None


def row_attention(
    query: Tensor, memory: Memory | None, rows: Rows, scale: float, gradients: Gradients, biases: Biases | None = None
) -> Tensor:
    """Attention of (B, Q, n, H, Dh) to keys and values of a memory; gives (B, Q, H, Dh).

    Self-attention has no memory: a token's three vectors are then its query, key and value. `biases` are in all of them
    already, and get their gradients here through `gradients`.
    """
    result: Tensor = _RowAttention.apply(
        query, memory and memory.sides, rows, scale, gradients, biases, memory and memory[1:]
    )  # type: ignore[no-untyped-call]
    return result


class _RowAttention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        sides: Tensor | None,
        rows: Rows,
        scale: float,
        gradients: Gradients,
        biases: Biases | None,
        room: tuple[SharedGradient, int] | None,
    ) -> Tensor:
        taken = _heads_first(query, sides)
        output = query.new_empty(query.shape[0], query.shape[1], *query.shape[3:])
        if query.is_cuda:
            from heedful.fused.kernels import row_attention as kernel

            logarithms = kernel.forward(taken, rows, output.transpose(1, 2), scale)
        else:
            scores = _scores(taken.query, taken.key, rows, scale)
            logarithms = torch.logsumexp(scores, dim=-1)
            output.copy_((_weights(scores, logarithms) @ taken.value).transpose(1, 2))
        ctx.rows, ctx.scale, ctx.gradients, ctx.biases, ctx.room = rows, scale, gradients, biases, room
        ctx.save_for_backward(query, sides, output, logarithms)
        return output

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        query, sides, output, logarithms = ctx.saved_tensors
        d_query, d_sides = torch.empty_like(query), None if ctx.room is None else ctx.room[0].part(ctx.room[1])
        taken, d_taken = _heads_first(query, sides), _heads_first(d_query, d_sides)
        gradient, kept = d_output.contiguous().transpose(1, 2), (output.transpose(1, 2), logarithms)
        if query.is_cuda:
            from heedful.fused.kernels import row_attention as kernel

            kernel.backward(taken, ctx.rows, kept, gradient, d_taken, ctx.scale)
        else:
            _plain_backward(taken, ctx.rows, kept, gradient, d_taken, ctx.scale)
        if ctx.biases is not None:
            _give_biases(ctx.biases, d_query, ctx.gradients)
        return d_query, d_sides, None, None, None, None, None


def _give_biases(biases: Biases, d_query: Tensor, gradients: Gradients) -> None:
    """Their gradients, of which only the query's takes a sum over all tokens.

    The key's adds the same to all scores of a query, which softmax does not see. The value's comes out as it is, since
    weights sum to one, and goes through the output matrix to where the output's bias is added.
    """
    column_sums(d_query[:, :, 0].flatten(2).flatten(0, 1), biases.query, gradients)
    gradients.give([biases.key], gradients.nothing(biases.key))
    gradients.give_through(biases.value, biases.output, biases.weight)


def _heads_first(query: Tensor, sides: Tensor | None) -> Sides:
    """Views of queries, keys and values: (B, H, length, Dh) each."""
    others = query if sides is None else sides
    return Sides(*(one.transpose(1, 2) for one in (query[:, :, 0], others[:, :, -2], others[:, :, -1])))


# ---------------------------------------------------------------------- the plain form


def _scores(query: Tensor, key: Tensor, rows: Rows, scale: float) -> Tensor:
    mask = segment_mask(rows.query_segments, rows.key_segments)
    if rows.causal:
        mask = mask & causal_mask(mask.shape[-1], mask.device)
    return (query @ key.transpose(-2, -1) * scale).masked_fill(~mask, float("-inf"))


def _weights(scores: Tensor, logarithms: Tensor) -> Tensor:
    """Softmax; a query without any key has zeros."""
    return torch.exp(scores - logarithms.masked_fill(torch.isneginf(logarithms), 0.0)[..., None])


def _plain_backward(
    taken: Sides, rows: Rows, kept: tuple[Tensor, Tensor], gradient: Tensor, gradients: Sides, scale: float
) -> None:
    """Write all gradients where they belong."""
    (q, k, v), (output, logarithms) = taken, kept
    weights = _weights(_scores(q, k, rows, scale), logarithms)
    inner = (gradient * output).sum(dim=-1, keepdim=True)
    d_scores = weights * (gradient @ v.transpose(-2, -1) - inner) * scale
    gradients.query.copy_(d_scores @ k)
    gradients.key.copy_(d_scores.transpose(-2, -1) @ q)
    gradients.value.copy_(weights.transpose(-2, -1) @ gradient)
