"""Attention within packed rows as one operation with its gradient: torch on CPUs, a Triton kernel on GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from heedful.fused.train_ops import Gradients, QueryKeyValue, Segments, affine, column_sums, concatenate
from heedful.model.attention import causal_mask, segment_mask


class SharedGradient:
    """One tensor for the gradients of several tensors that are slices of its third dimension."""

    def __init__(self, like: Tensor) -> None:
        self.like = like
        self._whole: Tensor | None = None

    @property
    def whole(self) -> Tensor:
        """The whole tensor."""
        if self._whole is None:
            self._whole = torch.empty_like(self.like)
        return self._whole

    def part(self, index: int) -> Tensor:
        """The slice of one of them."""
        return self.whole[:, :, index]


class MemoryKeysValues(NamedTuple):
    """Keys and values of the memory for one layer, (B, K, 2, H, Dh), and the buffer of their gradient."""

    keys_values: Tensor
    shared: SharedGradient
    layer: int


class Biases(NamedTuple):
    """The biases around an attention, and its output matrix.

    Tokens that may attend to nothing must have no gradient: in packed rows, these are the padding.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    weight: Tensor


def project_memory(
    memory: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], num_heads: int, gradients: Gradients
) -> list[MemoryKeysValues]:
    """Keys and values of the memory for all layers by one matrix product; `weights` are key and value of each layer.

    `row_attention` computes the gradients of the biases.
    """
    layers = len(weights) // 2
    shape = (*memory.shape[:2], layers, 2, num_heads, weights[0].shape[0] // num_heads)
    shared = SharedGradient(memory.new_empty(0))
    keys_values = _ProjectMemory.apply(memory, weights, biases, shape, shared, gradients)  # type: ignore[no-untyped-call]
    return [MemoryKeysValues(one, shared, layer) for layer, one in enumerate(keys_values)]


class _ProjectMemory(Function):
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
        weight = concatenate(owners)
        ctx.owners, ctx.shared, ctx.gradients = owners, shared, gradients
        ctx.save_for_backward(memory, weight)
        whole = affine(memory, weight, biases).view(shape)
        shared.like = whole
        return whole.unbind(2)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        memory, weight = ctx.saved_tensors
        d_keys_values = ctx.shared.whole.flatten(2)  # autograd passes slices of it
        ctx.gradients.add_product(ctx.owners, d_keys_values, memory)
        return d_keys_values @ weight, None, None, None, None, None


def row_attention(
    query: Tensor,
    memory: MemoryKeysValues | None,
    segments: Segments,
    scale: float,
    gradients: Gradients,
    biases: Biases | None = None,
) -> Tensor:
    """Attention of (B, Q, n, H, Dh) to keys and values of a memory; gives (B, Q, H, Dh).

    Self-attention has no memory: a token's three vectors are its query, key and value. `biases` are already added to
    them; their gradients are computed here and added to `gradients`.
    """
    result: Tensor = _RowAttention.apply(
        query, memory and memory.keys_values, segments, scale, gradients, biases, memory and memory[1:]
    )  # type: ignore[no-untyped-call]
    return result


class _RowAttention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys_values: Tensor | None,
        segments: Segments,
        scale: float,
        gradients: Gradients,
        biases: Biases | None,
        memory_gradient: tuple[SharedGradient, int] | None,
    ) -> Tensor:
        qkv = _split_sides(query, keys_values)
        output = query.new_empty(query.shape[0], query.shape[1], *query.shape[3:])
        if query.is_cuda:
            from heedful.fused.kernels import row_attention

            log_sums = row_attention.forward(qkv, segments, output.transpose(1, 2), scale)
        else:
            scores = _scores(qkv.query, qkv.key, segments, scale)
            log_sums = torch.logsumexp(scores, dim=-1)
            output.copy_((_weights(scores, log_sums) @ qkv.value).transpose(1, 2))
        ctx.segments, ctx.scale, ctx.gradients, ctx.biases, ctx.memory_gradient = (
            segments,
            scale,
            gradients,
            biases,
            memory_gradient,
        )
        ctx.save_for_backward(query, keys_values, output, log_sums)
        return output

    @staticmethod
    def backward(ctx: Any, d_output: Tensor) -> tuple[Tensor | None, ...]:
        query, keys_values, output, log_sums = ctx.saved_tensors
        d_query, d_keys_values = (
            torch.empty_like(query),
            None if ctx.memory_gradient is None else ctx.memory_gradient[0].part(ctx.memory_gradient[1]),
        )
        qkv, d_qkv = _split_sides(query, keys_values), _split_sides(d_query, d_keys_values)
        gradient, saved = d_output.contiguous().transpose(1, 2), (output.transpose(1, 2), log_sums)
        if query.is_cuda:
            from heedful.fused.kernels import row_attention

            row_attention.backward(qkv, ctx.segments, saved, gradient, d_qkv, ctx.scale)
        else:
            _plain_backward(qkv, ctx.segments, saved, gradient, d_qkv, ctx.scale)
        if ctx.biases is not None:
            _add_bias_gradients(ctx.biases, d_query, ctx.gradients)
        return d_query, d_keys_values, None, None, None, None, None


def _add_bias_gradients(biases: Biases, d_query: Tensor, gradients: Gradients) -> None:
    """Gradients of the biases; only the query's needs a sum over all tokens.

    The key's bias adds the same number to all scores of a query, and softmax ignores it. The value's bias passes
    unchanged, since weights sum to one, and is multiplied by the output matrix like the output's bias.
    """
    column_sums(d_query[:, :, 0].flatten(2).flatten(0, 1), biases.query, gradients)
    gradients.add([biases.key], gradients.zeros_like(biases.key))
    gradients.add_through(biases.value, biases.output, biases.weight)


def _split_sides(query: Tensor, keys_values: Tensor | None) -> QueryKeyValue:
    """Views of queries, keys and values: (B, H, length, Dh) each."""
    others = query if keys_values is None else keys_values
    return QueryKeyValue(*(one.transpose(1, 2) for one in (query[:, :, 0], others[:, :, -2], others[:, :, -1])))


# ---------------------------------------------------------------------- the plain form


def _scores(query: Tensor, key: Tensor, segments: Segments, scale: float) -> Tensor:
    mask = segment_mask(segments.query_segments, segments.key_segments)
    if segments.causal:
        mask = mask & causal_mask(mask.shape[-1], mask.device)
    return (query @ key.transpose(-2, -1) * scale).masked_fill(~mask, float("-inf"))


def _weights(scores: Tensor, log_sums: Tensor) -> Tensor:
    """Softmax; zeros for a query without any key."""
    return torch.exp(scores - log_sums.masked_fill(torch.isneginf(log_sums), 0.0)[..., None])


def _plain_backward(
    qkv: QueryKeyValue,
    segments: Segments,
    saved: tuple[Tensor, Tensor],
    gradient: Tensor,
    gradients: QueryKeyValue,
    scale: float,
) -> None:
    """Write the gradients of queries, keys and values."""
    (q, k, v), (output, log_sums) = qkv, saved
    weights = _weights(_scores(q, k, segments, scale), log_sums)
    inner = (gradient * output).sum(dim=-1, keepdim=True)
    d_scores = weights * (gradient @ v.transpose(-2, -1) - inner) * scale
    gradients.query.copy_(d_scores @ k)
    gradients.key.copy_(d_scores.transpose(-2, -1) @ q)
    gradients.value.copy_(weights.transpose(-2, -1) @ gradient)
