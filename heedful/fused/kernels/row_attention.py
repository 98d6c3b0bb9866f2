"""Attention inside short rows in one Triton kernel a direction: a head's whole row fits on one multiprocessor.

Rows are at most 128 tokens wide, so scores never leave the chip and softmax needs no second look. Who may attend to
whom is worked out from the segments, which is less to read than a mask. Queries, keys, values and what comes out are
(B, H, length, Dh) in any order in memory, so that nothing has to be copied between the matrix products before and
after.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels import row_attention_tma
from heedful.fused.kernels.attention_args import Rows, Sides

QUERIES, WARPS = 128, 8
"""Queries that are looked at together in the forward pass, and the warps that do it."""
QUERIES_BACKWARD, WARPS_BACKWARD = 32, 4
LOG2_E = 1.4426950408889634


@triton.jit
def _block(base, row, head, strides, first, length, LENGTH: tl.constexpr, DIM: tl.constexpr):
    """Addresses of a head's vectors from `first` on, (LENGTH, DIM), and which of them exist."""
    place, feature = first + tl.arange(0, LENGTH), tl.arange(0, DIM)
    start = base + row.to(tl.int64) * strides[0] + head * strides[1]
    return start + place[:, None] * strides[2] + feature[None, :], place[:, None] < length


@triton.jit
def _row_attention_forward(
    query, key, value, query_segments, key_segments, output, logarithms,
    query_strides, key_strides, value_strides, output_strides, num_queries, num_keys, num_heads, scale,
    CAUSAL: tl.constexpr, Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    head, row, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * Q
    q_at, q_there = _block(query, row, head, query_strides, first, num_queries, Q, DIM)
    k_at, k_there = _block(key, row, head, key_strides, 0, num_keys, K, DIM)
    v_at, v_there = _block(value, row, head, value_strides, 0, num_keys, K, DIM)
    q, k = tl.load(q_at, mask=q_there, other=0.0), tl.load(k_at, mask=k_there, other=0.0)
    v = tl.load(v_at, mask=v_there, other=0.0)
    place, key_place = first + tl.arange(0, Q), tl.arange(0, K)
    own = tl.load(query_segments + row * num_queries + place, mask=place < num_queries, other=-1)
    other = tl.load(key_segments + row * num_keys + key_place, mask=key_place < num_keys, other=0)
    allowed = (own[:, None] == other[None, :]) & (own > 0)[:, None]
    if CAUSAL:
        allowed = allowed & (place[:, None] >= key_place[None, :])
    scores = tl.dot(q, tl.trans(k)) * scale
    scores = tl.where(allowed, scores, float("-inf"))
    largest = tl.max(scores, axis=1)
    shift = tl.where(largest == float("-inf"), 0.0, largest)  # queries without keys have weights of zero
    weights = tl.exp2(scores - shift[:, None])
    total = tl.sum(weights, axis=1)
    seen = total > 0.0
    o = tl.dot(weights.to(v.dtype), v) / tl.where(seen, total, 1.0)[:, None]
    o_at, o_there = _block(output, row, head, output_strides, first, num_queries, Q, DIM)
    tl.store(o_at, o.to(output.dtype.element_ty), mask=o_there)
    kept = tl.where(seen, shift + tl.log2(tl.where(seen, total, 1.0)), float("inf"))
    tl.store(logarithms + (row * num_heads + head) * num_queries + place, kept, mask=place < num_queries)


@triton.jit
def _row_attention_backward(
    query, key, value, query_segments, key_segments, output, logarithms,
    d_output, d_query, d_key, d_value,
    query_strides, key_strides, value_strides, output_strides, d_output_strides,
    d_query_strides, d_key_strides, d_value_strides,
    num_queries, num_keys, num_heads, scale, d_scale,
    CAUSAL: tl.constexpr, TURNS: tl.constexpr, Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1)
    k_at, k_there = _block(key, row, head, key_strides, 0, num_keys, K, DIM)
    v_at, v_there = _block(value, row, head, value_strides, 0, num_keys, K, DIM)
    k, v = tl.load(k_at, mask=k_there, other=0.0), tl.load(v_at, mask=v_there, other=0.0)
    key_place = tl.arange(0, K)
    other = tl.load(key_segments + row * num_keys + key_place, mask=key_place < num_keys, other=0)
    dk = tl.zeros((K, DIM), dtype=tl.float32)
    dv = tl.zeros((K, DIM), dtype=tl.float32)
    for turn in range(TURNS):
        first = turn * Q
        place = first + tl.arange(0, Q)
        q_at, q_there = _block(query, row, head, query_strides, first, num_queries, Q, DIM)
        g_at, g_there = _block(d_output, row, head, d_output_strides, first, num_queries, Q, DIM)
        o_at, o_there = _block(output, row, head, output_strides, first, num_queries, Q, DIM)
        q, g = tl.load(q_at, mask=q_there, other=0.0), tl.load(g_at, mask=g_there, other=0.0)
        o = tl.load(o_at, mask=o_there, other=0.0).to(tl.float32)
        known = (row * num_heads + head) * num_queries + place
        logarithm = tl.load(logarithms + known, mask=place < num_queries, other=float("inf"))
        own = tl.load(query_segments + row * num_queries + place, mask=place < num_queries, other=-1)
        inner = tl.sum(g.to(tl.float32) * o, axis=1)
        # Keys by queries: as they come out of the product, weights and gradients are what the next products take.
        allowed = (other[:, None] == own[None, :]) & (other > 0)[:, None]
        if CAUSAL:
            allowed = allowed & (place[None, :] >= key_place[:, None])
        scores = tl.dot(k, tl.trans(q)) * scale
        weights = tl.where(allowed, tl.exp2(scores - logarithm[None, :]), 0.0)
        dv += tl.dot(weights.to(g.dtype), g)
        d_scores = (weights * (tl.dot(v, tl.trans(g)) - inner[None, :]) * d_scale).to(q.dtype)
        dk += tl.dot(d_scores, q)
        dq = tl.dot(tl.trans(d_scores), k)
        q_at, q_there = _block(d_query, row, head, d_query_strides, first, num_queries, Q, DIM)
        tl.store(q_at, dq.to(d_query.dtype.element_ty), mask=q_there)
    k_at, k_there = _block(d_key, row, head, d_key_strides, 0, num_keys, K, DIM)
    tl.store(k_at, dk.to(d_key.dtype.element_ty), mask=k_there)
    v_at, v_there = _block(d_value, row, head, d_value_strides, 0, num_keys, K, DIM)
    tl.store(v_at, dv.to(d_value.dtype.element_ty), mask=v_there)


def forward(sides: Sides, rows: Rows, output: Tensor, scale: float) -> Tensor:
    """Write what each query gets; return log2 of the sum of its weights before they are normalised, for backward."""
    query, key, _ = sides
    num_queries, num_keys = query.shape[2], key.shape[2]
    logarithms = torch.empty(query.shape[:3], device=query.device, dtype=torch.float32)
    block = min(QUERIES, _power(num_queries))
    _row_attention_forward[(query.shape[1], query.shape[0], triton.cdiv(num_queries, block))](
        *sides, rows.query_segments, rows.key_segments, output, logarithms,
        *(_strides(side) for side in sides), _strides(output), num_queries, num_keys, query.shape[1], scale * LOG2_E,
        CAUSAL=rows.causal, Q=block, K=_power(num_keys), DIM=query.shape[3],
        num_warps=WARPS if block * num_keys > 64 * 64 else 4,
    )  # fmt: skip
    return logarithms


def backward(
    sides: Sides, rows: Rows, kept: tuple[Tensor, Tensor], d_output: Tensor, gradients: Sides, scale: float
) -> None:
    """Write the gradients of queries, keys and values. The weights are computed once more rather than kept."""
    query, key, _ = sides
    output, logarithms = kept
    num_queries, num_keys = query.shape[2], key.shape[2]
    lengths = _power(num_queries), _power(num_keys)
    if row_attention_tma.fits(query, lengths):
        row_attention_tma.backward(sides, rows, logarithms, d_output, gradients, scale, lengths)
        return
    block = min(QUERIES_BACKWARD, lengths[0])
    _row_attention_backward[(query.shape[1], query.shape[0])](
        *sides, rows.query_segments, rows.key_segments, output, logarithms,
        d_output, *gradients,
        *(_strides(side) for side in sides), _strides(output), _strides(d_output),
        *(_strides(side) for side in gradients),
        num_queries, num_keys, query.shape[1], scale * LOG2_E, scale,
        CAUSAL=rows.causal, TURNS=triton.cdiv(num_queries, block),
        Q=block, K=lengths[1], DIM=query.shape[3],
        num_warps=WARPS_BACKWARD if block * num_keys > 64 * 64 else 4,
    )  # fmt: skip


def _power(length: int) -> int:
    """The power of two that holds a length; matrix products want sixteen at least."""
    return max(16, int(triton.next_power_of_2(length)))


def _strides(x: Tensor) -> tuple[int, int, int]:
    if x.stride(3) != 1:
        raise ValueError("the features of a head must lie side by side in memory")
    return x.stride(0), x.stride(1), x.stride(2)
