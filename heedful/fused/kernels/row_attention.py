"""Attention within short packed rows, one Triton kernel for each direction: a row of a head fits on a multiprocessor.

Rows have at most 128 tokens, so scores stay on chip and softmax needs one pass. The mask is computed from segment ids,
which are smaller to read. Queries, keys, values and the output are (B, H, length, Dh) with any strides, so that no copy
is needed between attention and the matrix products around it.
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
def _head_pointers(base, row, head, strides, first, length, LENGTH: tl.constexpr, DIM: tl.constexpr):
    """Pointers to the vectors of a head from `first` on, (LENGTH, DIM), and their mask."""
    position, feature = first + tl.arange(0, LENGTH), tl.arange(0, DIM)
    start = base + row.to(tl.int64) * strides[0] + head * strides[1]
    return start + position[:, None] * strides[2] + feature[None, :], position[:, None] < length


@triton.jit
def _row_attention_forward(
    query, key, value, query_segments, key_segments, output, log_sums,
    query_strides, key_strides, value_strides, output_strides, num_queries, num_keys, num_heads, scale,
    CAUSAL: tl.constexpr, Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    head, row, first_query = tl.program_id(0), tl.program_id(1), tl.program_id(2) * Q
    q_pointers, q_mask = _head_pointers(query, row, head, query_strides, first_query, num_queries, Q, DIM)
    k_pointers, k_mask = _head_pointers(key, row, head, key_strides, 0, num_keys, K, DIM)
    v_pointers, v_mask = _head_pointers(value, row, head, value_strides, 0, num_keys, K, DIM)
    q, k = tl.load(q_pointers, mask=q_mask, other=0.0), tl.load(k_pointers, mask=k_mask, other=0.0)
    v = tl.load(v_pointers, mask=v_mask, other=0.0)
    q_pos, k_pos = first_query + tl.arange(0, Q), tl.arange(0, K)
    query_segment = tl.load(query_segments + row * num_queries + q_pos, mask=q_pos < num_queries, other=-1)
    key_segment = tl.load(key_segments + row * num_keys + k_pos, mask=k_pos < num_keys, other=0)
    allowed = (query_segment[:, None] == key_segment[None, :]) & (query_segment > 0)[:, None]
    if CAUSAL:
        allowed = allowed & (q_pos[:, None] >= k_pos[None, :])
    scores = tl.dot(q, tl.trans(k)) * scale
    scores = tl.where(allowed, scores, float("-inf"))
    max_score = tl.max(scores, axis=1)
    safe_max = tl.where(max_score == float("-inf"), 0.0, max_score)  # queries without keys get weights of zero
    weights = tl.exp2(scores - safe_max[:, None])
    weight_sum = tl.sum(weights, axis=1)
    has_keys = weight_sum > 0.0
    o = tl.dot(weights.to(v.dtype), v) / tl.where(has_keys, weight_sum, 1.0)[:, None]
    o_pointers, o_mask = _head_pointers(output, row, head, output_strides, first_query, num_queries, Q, DIM)
    tl.store(o_pointers, o.to(output.dtype.element_ty), mask=o_mask)
    log_sum = tl.where(has_keys, safe_max + tl.log2(tl.where(has_keys, weight_sum, 1.0)), float("inf"))
    tl.store(log_sums + (row * num_heads + head) * num_queries + q_pos, log_sum, mask=q_pos < num_queries)


@triton.jit
def _row_attention_backward(
    query, key, value, query_segments, key_segments, output, log_sums,
    d_output, d_query, d_key, d_value,
    query_strides, key_strides, value_strides, output_strides, d_output_strides,
    d_query_strides, d_key_strides, d_value_strides,
    num_queries, num_keys, num_heads, scale, d_scale,
    CAUSAL: tl.constexpr, NUM_BLOCKS: tl.constexpr, Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1)
    k_pointers, k_mask = _head_pointers(key, row, head, key_strides, 0, num_keys, K, DIM)
    v_pointers, v_mask = _head_pointers(value, row, head, value_strides, 0, num_keys, K, DIM)
    k, v = tl.load(k_pointers, mask=k_mask, other=0.0), tl.load(v_pointers, mask=v_mask, other=0.0)
    k_pos = tl.arange(0, K)
    key_segment = tl.load(key_segments + row * num_keys + k_pos, mask=k_pos < num_keys, other=0)
    dk = tl.zeros((K, DIM), dtype=tl.float32)
    dv = tl.zeros((K, DIM), dtype=tl.float32)
    for block in range(NUM_BLOCKS):
        first_query = block * Q
        q_pos = first_query + tl.arange(0, Q)
        q_pointers, q_mask = _head_pointers(query, row, head, query_strides, first_query, num_queries, Q, DIM)
        do_pointers, do_mask = _head_pointers(d_output, row, head, d_output_strides, first_query, num_queries, Q, DIM)
        o_pointers, o_mask = _head_pointers(output, row, head, output_strides, first_query, num_queries, Q, DIM)
        q, do = tl.load(q_pointers, mask=q_mask, other=0.0), tl.load(do_pointers, mask=do_mask, other=0.0)
        o = tl.load(o_pointers, mask=o_mask, other=0.0).to(tl.float32)
        log_sum_offsets = (row * num_heads + head) * num_queries + q_pos
        log_sum = tl.load(log_sums + log_sum_offsets, mask=q_pos < num_queries, other=float("inf"))
        query_segment = tl.load(query_segments + row * num_queries + q_pos, mask=q_pos < num_queries, other=-1)
        delta = tl.sum(do.to(tl.float32) * o, axis=1)
        # Transposed (keys, queries): the layout that the next products need.
        allowed = (key_segment[:, None] == query_segment[None, :]) & (key_segment > 0)[:, None]
        if CAUSAL:
            allowed = allowed & (q_pos[None, :] >= k_pos[:, None])
        scores = tl.dot(k, tl.trans(q)) * scale
        weights = tl.where(allowed, tl.exp2(scores - log_sum[None, :]), 0.0)
        dv += tl.dot(weights.to(do.dtype), do)
        d_scores = (weights * (tl.dot(v, tl.trans(do)) - delta[None, :]) * d_scale).to(q.dtype)
        dk += tl.dot(d_scores, q)
        dq = tl.dot(tl.trans(d_scores), k)
        q_pointers, q_mask = _head_pointers(d_query, row, head, d_query_strides, first_query, num_queries, Q, DIM)
        tl.store(q_pointers, dq.to(d_query.dtype.element_ty), mask=q_mask)
    k_pointers, k_mask = _head_pointers(d_key, row, head, d_key_strides, 0, num_keys, K, DIM)
    tl.store(k_pointers, dk.to(d_key.dtype.element_ty), mask=k_mask)
    v_pointers, v_mask = _head_pointers(d_value, row, head, d_value_strides, 0, num_keys, K, DIM)
    tl.store(v_pointers, dv.to(d_value.dtype.element_ty), mask=v_mask)


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
    """Write the gradients of queries, keys and values. The weights are recomputed."""
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
        CAUSAL=segments.causal, NUM_BLOCKS=triton.cdiv(num_queries, block),
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
# A persistent kernel: each program iterates over rows of heads and copies the tiles of the next two while it computes
# one. A row fits on chip: scores and weights stay in registers, and every number is read and written once.


@triton.jit
def _load_segments(
    query_segments, key_segments, log_sums, tile, num_tiles, num_queries, num_keys, num_heads,
    Q: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Segment ids of queries and keys, equal where a query may attend to a key, and the log sums of the queries."""
    row, q_pos, k_pos = tile // num_heads, tl.arange(0, Q), tl.arange(0, K)
    query_mask, key_mask = (q_pos < num_queries) & (tile < num_tiles), (k_pos < num_keys) & (tile < num_tiles)
    log_sum = tl.load(log_sums + tile * num_queries + q_pos, mask=query_mask, other=float("inf"))
    query_segment = tl.load(query_segments + row * num_queries + q_pos, mask=query_mask, other=-1)
    key_segment = tl.load(key_segments + row * num_keys + k_pos, mask=key_mask, other=0)
    return query_segment, tl.where(key_segment > 0, key_segment, -2), log_sum


@triton.jit
def _store_head(base, x, row, head, strides, length, LENGTH: tl.constexpr, DIM: tl.constexpr):
    """Store the first `length` vectors of a head, (LENGTH, DIM)."""
    position, feature = tl.arange(0, LENGTH), tl.arange(0, DIM)
    start = base + row * strides[0].to(tl.int64) + head * strides[1]
    pointers = start + position[:, None] * strides[2] + feature[None, :]
    tl.store(pointers, x.to(base.dtype.element_ty), mask=position[:, None] < length)


@triton.jit
def _row_attention_tma_backward(
    query, key, value, d_output, query_segments, key_segments, log_sums,
    d_query, d_key, d_value, d_query_strides, d_key_strides, d_value_strides,
    num_tiles, num_queries, num_keys, num_heads, scale, d_scale,
    CAUSAL: tl.constexpr, PROGRAMS: tl.constexpr, STAGES: tl.constexpr,
    Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    q_pos, k_pos = tl.arange(0, Q), tl.arange(0, K)
    query_segment, key_segment, log_sum = _load_segments(
        query_segments, key_segments, log_sums, tl.program_id(0), num_tiles, num_queries, num_keys, num_heads, Q, K
    )
    for tile in tl.range(tl.program_id(0), num_tiles, PROGRAMS, num_stages=STAGES):
        row, head = tile // num_heads, tile % num_heads
        q = query.load([row, 0, head * DIM]).reshape(Q, DIM)
        k = key.load([row, 0, head * DIM]).reshape(K, DIM)
        v = value.load([row, 0, head * DIM]).reshape(K, DIM)
        do = d_output.load([row, 0, head * DIM]).reshape(Q, DIM)
        allowed = query_segment[:, None] == key_segment[None, :]
        if CAUSAL:
            allowed = allowed & (q_pos[:, None] >= k_pos[None, :])
        scores = tl.dot(q, tl.trans(k)) * scale
        weights = tl.where(allowed, tl.exp2(scores - log_sum[:, None]), 0.0)
        d_weights = tl.dot(do, tl.trans(v))
        delta = tl.sum(weights * d_weights, axis=1)
        dv = tl.dot(tl.trans(weights.to(do.dtype)), do)
        d_scores = (weights * (d_weights - delta[:, None]) * d_scale).to(q.dtype)
        dq = tl.dot(d_scores, k)
        dk = tl.dot(tl.trans(d_scores), q)
        query_segment, key_segment, log_sum = _load_segments(  # prefetch for the next tile
            query_segments, key_segments, log_sums, tile + PROGRAMS, num_tiles, num_queries, num_keys, num_heads, Q, K
        )
        _store_head(d_value, dv, row, head, d_value_strides, num_keys, K, DIM)
        _store_head(d_key, dk, row, head, d_key_strides, num_keys, K, DIM)
        _store_head(d_query, dq, row, head, d_query_strides, num_queries, Q, DIM)


def _fits_tma(query: Tensor, lengths: tuple[int, int]) -> bool:
    """Whether all pipeline stages fit in shared memory with tiles of this many queries and keys."""
    size, (queries, keys) = query.element_size(), lengths
    bytes_per_stage, scratch_bytes = (
        2 * (queries + keys) * query.shape[3] * size,
        max(queries, keys) * max(keys, query.shape[3]) * size,
    )
    return (
        has_tma(query.device)
        and size == 2
        and TMA_STAGES * bytes_per_stage + scratch_bytes + 2048 <= shared_memory(query.device)
    )


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
    (queries, keys), num_tiles = lengths, num_rows * num_heads
    num_programs = min(num_multiprocessors(qkv.query.device), num_tiles)
    _row_attention_tma_backward[(num_programs,)](
        _head_descriptor(qkv.query, queries), _head_descriptor(qkv.key, keys),
        _head_descriptor(qkv.value, keys), _head_descriptor(d_output, queries),
        segments.query_segments, segments.key_segments, log_sums,
        *gradients, *(side.stride()[:3] for side in gradients),
        num_tiles, num_queries, num_keys, num_heads, scale * LOG2_E, scale,
        CAUSAL=segments.causal, PROGRAMS=num_programs, STAGES=TMA_STAGES, Q=queries, K=keys, DIM=dim,
        num_warps=TMA_WARPS,
    )  # fmt: skip


def _head_descriptor(x: Tensor, length: int) -> TensorDescriptor:
    """(B, H, length, Dh) for the TMA, in tiles of one row of a head."""
    return TensorDescriptor.from_tensor(x.transpose(1, 2).flatten(2), [1, length, x.shape[3]])
