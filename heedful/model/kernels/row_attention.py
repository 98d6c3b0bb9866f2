"""Attention inside short rows in one Triton kernel a direction: a head's whole row fits on one multiprocessor.

Rows are at most 128 tokens wide, so the scores of a row (128 x 128) never leave the chip, softmax needs no second look,
and the boolean mask (B, 1, Q, K) is read as it is. Queries, keys, values and what comes out are (B, H, length, Dh), in
any order in memory, so that nothing has to be copied between the matrix products before and after.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _block(base, row, head, strides, length, LENGTH: tl.constexpr, DIM: tl.constexpr):
    """Addresses of a head's (LENGTH, DIM) block and which of them exist."""
    place, feature = tl.arange(0, LENGTH), tl.arange(0, DIM)
    first = base + row.to(tl.int64) * strides[0] + head * strides[1]
    return first + place[:, None] * strides[2] + feature[None, :], place[:, None] < length


@triton.jit
def _weights(q, k, mask, row, mask_strides, num_queries, num_keys, scale, Q: tl.constexpr, K: tl.constexpr):
    """exp2 of the scores, shifted by each query's largest, and their sums; queries without keys have zeros."""
    query, key = tl.arange(0, Q), tl.arange(0, K)
    inside = (query[:, None] < num_queries) & (key[None, :] < num_keys)
    places = (
        mask + row.to(tl.int64) * mask_strides[0] + query[:, None] * mask_strides[1] + key[None, :] * mask_strides[2]
    )
    allowed = tl.load(places, mask=inside, other=0) != 0
    scores = tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634)  # log2(e): exp2 is the chip's own
    scores = tl.where(allowed, scores, float("-inf"))
    largest = tl.max(scores, axis=1)
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    return tl.exp2(scores - shift[:, None]), shift


@triton.jit
def _forward(
    query, key, value, mask, output, logarithms,
    query_strides, key_strides, value_strides, mask_strides, output_strides,
    num_queries, num_keys, num_heads, scale,
    Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    q_at, q_there = _block(query, row, head, query_strides, num_queries, Q, DIM)
    k_at, k_there = _block(key, row, head, key_strides, num_keys, K, DIM)
    v_at, _ = _block(value, row, head, value_strides, num_keys, K, DIM)
    q, k = tl.load(q_at, mask=q_there, other=0.0), tl.load(k_at, mask=k_there, other=0.0)
    v = tl.load(v_at, mask=k_there, other=0.0)
    weights, shift = _weights(q, k, mask, row, mask_strides, num_queries, num_keys, scale, Q, K)
    total = tl.sum(weights, axis=1)
    o = tl.dot(weights.to(v.dtype), v) / tl.where(total == 0.0, 1.0, total)[:, None]
    o_at, o_there = _block(output, row, head, output_strides, num_queries, Q, DIM)
    tl.store(o_at, o.to(output.dtype.element_ty), mask=o_there)
    place = tl.arange(0, Q)
    kept = tl.where(total == 0.0, float("inf"), shift + tl.log2(tl.where(total == 0.0, 1.0, total)))
    tl.store(logarithms + (row * num_heads + head) * num_queries + place, kept, mask=place < num_queries)


@triton.jit
def _backward(
    query, key, value, mask, output, logarithms, d_output, d_query, d_key, d_value,
    query_strides, key_strides, value_strides, mask_strides, output_strides, d_output_strides,
    d_query_strides, d_key_strides, d_value_strides,
    num_queries, num_keys, num_heads, scale,
    Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    q_at, q_there = _block(query, row, head, query_strides, num_queries, Q, DIM)
    k_at, k_there = _block(key, row, head, key_strides, num_keys, K, DIM)
    v_at, _ = _block(value, row, head, value_strides, num_keys, K, DIM)
    o_at, _ = _block(output, row, head, output_strides, num_queries, Q, DIM)
    g_at, _ = _block(d_output, row, head, d_output_strides, num_queries, Q, DIM)
    q, k = tl.load(q_at, mask=q_there, other=0.0), tl.load(k_at, mask=k_there, other=0.0)
    v, g = tl.load(v_at, mask=k_there, other=0.0), tl.load(g_at, mask=q_there, other=0.0)
    o = tl.load(o_at, mask=q_there, other=0.0)
    place = tl.arange(0, Q)
    known = tl.load(
        logarithms + (row * num_heads + head) * num_queries + place, mask=place < num_queries, other=float("inf")
    )
    weights, shift = _weights(q, k, mask, row, mask_strides, num_queries, num_keys, scale, Q, K)
    weights = weights * tl.exp2(shift - known)[:, None]
    dv = tl.dot(tl.trans(weights.to(g.dtype)), g)
    v_at, v_there = _block(d_value, row, head, d_value_strides, num_keys, K, DIM)
    tl.store(v_at, dv.to(d_value.dtype.element_ty), mask=v_there)
    inner = tl.sum(g.to(tl.float32) * o.to(tl.float32), axis=1)
    d_scores = (weights * (tl.dot(g, tl.trans(v)) - inner[:, None]) * scale).to(q.dtype)
    q_at, q_there = _block(d_query, row, head, d_query_strides, num_queries, Q, DIM)
    tl.store(q_at, tl.dot(d_scores, k).to(d_query.dtype.element_ty), mask=q_there)
    k_at, k_there = _block(d_key, row, head, d_key_strides, num_keys, K, DIM)
    tl.store(k_at, tl.dot(tl.trans(d_scores), q).to(d_key.dtype.element_ty), mask=k_there)


def forward(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, output: Tensor, scale: float) -> Tensor:
    """Write what each query gets; return log2 of the sum of its weights before they are normalised, for backward."""
    logarithms = torch.empty(query.shape[:3], device=query.device, dtype=torch.float32)
    _forward[_grid(query)](
        query, key, value, mask.view(torch.uint8), output, logarithms,
        _strides(query), _strides(key), _strides(value), _mask_strides(mask), _strides(output),
        *_sizes(query, key, scale), **_shape(query, key), num_warps=_warps(query, key),
    )  # fmt: skip
    return logarithms


def backward(
    inputs: tuple[Tensor, Tensor, Tensor],
    mask: Tensor,
    kept: tuple[Tensor, Tensor],
    d_output: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor],
    scale: float,
) -> None:
    """Write the gradients of queries, keys and values; the weights are computed once more rather than kept."""
    query, key, value = inputs
    d_query, d_key, d_value = gradients
    output, logarithms = kept
    _backward[_grid(query)](
        query, key, value, mask.view(torch.uint8), output, logarithms, d_output, d_query, d_key, d_value,
        _strides(query), _strides(key), _strides(value), _mask_strides(mask), _strides(output), _strides(d_output),
        _strides(d_query), _strides(d_key), _strides(d_value),
        *_sizes(query, key, scale), **_shape(query, key), num_warps=_warps(query, key),
    )  # fmt: skip


def _grid(query: Tensor) -> tuple[int, int]:
    return query.shape[0], query.shape[1]


def _strides(x: Tensor) -> tuple[int, int, int]:
    if x.stride(3) != 1:
        raise ValueError("the features of a head must lie side by side in memory")
    return x.stride(0), x.stride(1), x.stride(2)


def _mask_strides(mask: Tensor) -> tuple[int, int, int]:
    return mask.stride(0), mask.stride(2), mask.stride(3)


def _sizes(query: Tensor, key: Tensor, scale: float) -> tuple[int, int, int, float]:
    return query.shape[2], key.shape[2], query.shape[1], scale


def _shape(query: Tensor, key: Tensor) -> dict[str, int]:
    whole = {"Q": query.shape[2], "K": key.shape[2]}
    return {**{name: max(16, triton.next_power_of_2(size)) for name, size in whole.items()}, "DIM": query.shape[3]}


def _warps(query: Tensor, key: Tensor) -> int:
    return 8 if min(query.shape[2], key.shape[2]) > 64 else 4
