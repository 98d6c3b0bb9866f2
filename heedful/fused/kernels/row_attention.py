"""Attention inside short rows in one Triton kernel for each direction: a head's whole row fits on one multiprocessor.

Rows are at most 128 tokens wide, so scores stay on the chip and softmax needs one pass. The mask is computed from the
segments, which are less to read. Queries, keys, values and the output are (B, H, length, Dh) with any strides, so that
nothing is copied between the matrix products before and after.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from heedful.fused.kernels.sizes import has_tma, num_multiprocessors, shared_memory
from heedful.fused.train_ops import QueryKeyValue, Segments

QUERIES, WARPS = 128, 8
"""Queries in a tile of the forward pass, and its warps."""
QUERIES_BACKWARD, WARPS_BACKWARD = 32, 4
TMA_WARPS, TMA_STAGES = 8, 3
LOG2_E = 1.4426950408889634


@triton.jit
def _block(base, row, head, strides, first, length, LENGTH: tl.constexpr, DIM: tl.constexpr):
    """Addresses of a head's vectors from `first` on, (LENGTH, DIM), and which of them exist."""
    place, feature = first + tl.arange(0, LENGTH), tl.arange(0, DIM)
    start = base + row.to(tl.int64) * strides[0] + head * strides[1]
    return start + place[:, None] * strides[2] + feature[None, :], place[:, None] < length


@triton.jit
def _row_attention_forward(
    query, key, value, query_segments, key_segments, output, log_sums,
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
    shift = tl.where(largest == float("-inf"), 0.0, largest)  # queries without keys get weights of zero
    weights = tl.exp2(scores - shift[:, None])
    total = tl.sum(weights, axis=1)
    seen = total > 0.0
    o = tl.dot(weights.to(v.dtype), v) / tl.where(seen, total, 1.0)[:, None]
    o_at, o_there = _block(output, row, head, output_strides, first, num_queries, Q, DIM)
    tl.store(o_at, o.to(output.dtype.element_ty), mask=o_there)
    kept = tl.where(seen, shift + tl.log2(tl.where(seen, total, 1.0)), float("inf"))
    tl.store(log_sums + (row * num_heads + head) * num_queries + place, kept, mask=place < num_queries)


@triton.jit
def _row_attention_backward(
    query, key, value, query_segments, key_segments, output, log_sums,
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
        log_sum = tl.load(log_sums + known, mask=place < num_queries, other=float("inf"))
        own = tl.load(query_segments + row * num_queries + place, mask=place < num_queries, other=-1)
        inner = tl.sum(g.to(tl.float32) * o, axis=1)
        # Keys by queries: the next products take weights and gradients in this layout.
        allowed = (other[:, None] == own[None, :]) & (other > 0)[:, None]
        if CAUSAL:
            allowed = allowed & (place[None, :] >= key_place[:, None])
        scores = tl.dot(k, tl.trans(q)) * scale
        weights = tl.where(allowed, tl.exp2(scores - log_sum[None, :]), 0.0)
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


def forward(qkv: QueryKeyValue, segments: Segments, output: Tensor, scale: float) -> Tensor:
    """Write the output; return log2 of the sum of each query's unnormalised weights, for the backward pass."""
    query, key, _ = qkv
    num_queries, num_keys = query.shape[2], key.shape[2]
    log_sums = torch.empty(query.shape[:3], device=query.device, dtype=torch.float32)
    block = min(QUERIES, _tile_length(num_queries))
    _row_attention_forward[(query.shape[1], query.shape[0], triton.cdiv(num_queries, block))](
        *qkv, segments.query_segments, segments.key_segments, output, log_sums,
        *(_strides(side) for side in qkv), _strides(output), num_queries, num_keys, query.shape[1], scale * LOG2_E,
        CAUSAL=segments.causal, Q=block, K=_tile_length(num_keys), DIM=query.shape[3],
        num_warps=WARPS if block * num_keys > 64 * 64 else 4,
    )  # fmt: skip
    return log_sums


def backward(
    qkv: QueryKeyValue,
    segments: Segments,
    saved: tuple[Tensor, Tensor],
    d_output: Tensor,
    gradients: QueryKeyValue,
    scale: float,
) -> None:
    """Write the gradients of queries, keys and values. The weights are computed again."""
    query, key, _ = qkv
    output, log_sums = saved
    num_queries, num_keys = query.shape[2], key.shape[2]
    lengths = _tile_length(num_queries), _tile_length(num_keys)
    if _fits_tma(query, lengths):
        _backward_tma(qkv, segments, log_sums, d_output, gradients, scale, lengths)
        return
    block = min(QUERIES_BACKWARD, lengths[0])
    _row_attention_backward[(query.shape[1], query.shape[0])](
        *qkv, segments.query_segments, segments.key_segments, output, log_sums,
        d_output, *gradients,
        *(_strides(side) for side in qkv), _strides(output), _strides(d_output),
        *(_strides(side) for side in gradients),
        num_queries, num_keys, query.shape[1], scale * LOG2_E, scale,
        CAUSAL=segments.causal, TURNS=triton.cdiv(num_queries, block),
        Q=block, K=lengths[1], DIM=query.shape[3],
        num_warps=WARPS_BACKWARD if block * num_keys > 64 * 64 else 4,
    )  # fmt: skip


def _tile_length(length: int) -> int:
    """The next power of two; matrix products need at least sixteen."""
    return max(16, int(triton.next_power_of_2(length)))


def _strides(x: Tensor) -> tuple[int, int, int]:
    if x.stride(3) != 1:
        raise ValueError("the features of a head must be contiguous")
    return x.stride(0), x.stride(1), x.stride(2)


# ---- backward pass with the tensor memory accelerator (TMA)
# As many programs as run at a time iterate over the heads: while one head's row is computed, the tiles of the next two
# are copied. A whole row fits: scores and weights stay in registers, and every number is read and written once.


@triton.jit
def _load_segments(
    query_segments, key_segments, log_sums, tile, tiles, num_queries, num_keys, num_heads,
    Q: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Segments of queries and keys, equal where a query may attend to a key, and the queries' log sums."""
    row, place, key_place = tile // num_heads, tl.arange(0, Q), tl.arange(0, K)
    there, key_there = (place < num_queries) & (tile < tiles), (key_place < num_keys) & (tile < tiles)
    log_sum = tl.load(log_sums + tile * num_queries + place, mask=there, other=float("inf"))
    own = tl.load(query_segments + row * num_queries + place, mask=there, other=-1)
    other = tl.load(key_segments + row * num_keys + key_place, mask=key_there, other=0)
    return own, tl.where(other > 0, other, -2), log_sum


@triton.jit
def _store_head(base, x, row, head, strides, length, LENGTH: tl.constexpr, DIM: tl.constexpr):
    """Store the first `length` vectors of a head, (LENGTH, DIM)."""
    place, feature = tl.arange(0, LENGTH), tl.arange(0, DIM)
    start = base + row * strides[0].to(tl.int64) + head * strides[1]
    at = start + place[:, None] * strides[2] + feature[None, :]
    tl.store(at, x.to(base.dtype.element_ty), mask=place[:, None] < length)


@triton.jit
def _row_attention_tma_backward(
    query, key, value, d_output, query_segments, key_segments, log_sums,
    d_query, d_key, d_value, d_query_strides, d_key_strides, d_value_strides,
    tiles, num_queries, num_keys, num_heads, scale, d_scale,
    CAUSAL: tl.constexpr, PROGRAMS: tl.constexpr, STAGES: tl.constexpr,
    Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    place, key_place = tl.arange(0, Q), tl.arange(0, K)
    own, other, log_sum = _load_segments(
        query_segments, key_segments, log_sums, tl.program_id(0), tiles, num_queries, num_keys, num_heads, Q, K
    )
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, num_stages=STAGES):
        row, head = tile // num_heads, tile % num_heads
        q = query.load([row, 0, head * DIM]).reshape(Q, DIM)
        k = key.load([row, 0, head * DIM]).reshape(K, DIM)
        v = value.load([row, 0, head * DIM]).reshape(K, DIM)
        g = d_output.load([row, 0, head * DIM]).reshape(Q, DIM)
        allowed = own[:, None] == other[None, :]
        if CAUSAL:
            allowed = allowed & (place[:, None] >= key_place[None, :])
        scores = tl.dot(q, tl.trans(k)) * scale
        weights = tl.where(allowed, tl.exp2(scores - log_sum[:, None]), 0.0)
        d_weights = tl.dot(g, tl.trans(v))
        inner = tl.sum(weights * d_weights, axis=1)
        dv = tl.dot(tl.trans(weights.to(g.dtype)), g)
        d_scores = (weights * (d_weights - inner[:, None]) * d_scale).to(q.dtype)
        dq = tl.dot(d_scores, k)
        dk = tl.dot(tl.trans(d_scores), q)
        own, other, log_sum = _load_segments(  # of the next tile, loaded ahead
            query_segments, key_segments, log_sums, tile + PROGRAMS, tiles, num_queries, num_keys, num_heads, Q, K
        )
        _store_head(d_value, dv, row, head, d_value_strides, num_keys, K, DIM)
        _store_head(d_key, dk, row, head, d_key_strides, num_keys, K, DIM)
        _store_head(d_query, dq, row, head, d_query_strides, num_queries, Q, DIM)


def _fits_tma(query: Tensor, lengths: tuple[int, int]) -> bool:
    """Whether all stages of tiles of so many queries and keys fit in shared memory."""
    size, (queries, keys) = query.element_size(), lengths
    tiles, between = 2 * (queries + keys) * query.shape[3] * size, max(queries, keys) * max(keys, query.shape[3]) * size
    return has_tma(query.device) and size == 2 and TMA_STAGES * tiles + between + 2048 <= shared_memory(query.device)


def _backward_tma(
    qkv: QueryKeyValue,
    segments: Segments,
    log_sums: Tensor,
    d_output: Tensor,
    gradients: QueryKeyValue,
    scale: float,
    lengths: tuple[int, int],
) -> None:
    """Write the gradients of queries, keys and values, in tiles of `lengths` (powers of two) queries and keys."""
    (num_rows, num_heads, num_queries, dim), num_keys = qkv.query.shape, qkv.key.shape[2]
    (queries, keys), tiles = lengths, num_rows * num_heads
    count = min(num_multiprocessors(qkv.query.device), tiles)
    _row_attention_tma_backward[(count,)](
        _head_descriptor(qkv.query, queries), _head_descriptor(qkv.key, keys),
        _head_descriptor(qkv.value, keys), _head_descriptor(d_output, queries),
        segments.query_segments, segments.key_segments, log_sums,
        *gradients, *(side.stride()[:3] for side in gradients),
        tiles, num_queries, num_keys, num_heads, scale * LOG2_E, scale,
        CAUSAL=segments.causal, PROGRAMS=count, STAGES=TMA_STAGES, Q=queries, K=keys, DIM=dim, num_warps=TMA_WARPS,
    )  # fmt: skip


def _head_descriptor(x: Tensor, length: int) -> TensorDescriptor:
    """(B, H, length, Dh) for the TMA: a head's whole row at a time."""
    return TensorDescriptor.from_tensor(x.transpose(1, 2).flatten(2), [1, length, x.shape[3]])
