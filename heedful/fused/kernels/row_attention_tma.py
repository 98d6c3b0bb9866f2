"""Backward pass of attention inside short rows where the chip's own copy engine brings the tiles.

As many programs as run at a time go from head to head: while one head's row is worked on, those of the next two are on
their way. All of a row fits: scores and weights stay in registers, every number is read and written once.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from heedful.fused.kernels.attention_args import Rows, Sides
from heedful.fused.kernels.device_limits import copies_by_itself, shared_memory, units

WARPS, STAGES = 8, 3
LOG2_E = 1.4426950408889634


@triton.jit
def _who_and_how_much(
    query_segments, key_segments, logarithms, tile, tiles, num_queries, num_keys, num_heads,
    Q: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Segments of queries and keys, which are equal where a query sees a key, and the queries' logarithms."""
    row, place, key_place = tile // num_heads, tl.arange(0, Q), tl.arange(0, K)
    there, key_there = (place < num_queries) & (tile < tiles), (key_place < num_keys) & (tile < tiles)
    logarithm = tl.load(logarithms + tile * num_queries + place, mask=there, other=float("inf"))
    own = tl.load(query_segments + row * num_queries + place, mask=there, other=-1)
    other = tl.load(key_segments + row * num_keys + key_place, mask=key_there, other=0)
    return own, tl.where(other > 0, other, -2), logarithm


@triton.jit
def _put(base, x, row, head, strides, length, LENGTH: tl.constexpr, DIM: tl.constexpr):
    """Store a head's vectors, (LENGTH, DIM), of which so many exist."""
    place, feature = tl.arange(0, LENGTH), tl.arange(0, DIM)
    start = base + row * strides[0].to(tl.int64) + head * strides[1]
    at = start + place[:, None] * strides[2] + feature[None, :]
    tl.store(at, x.to(base.dtype.element_ty), mask=place[:, None] < length)


@triton.jit
def _row_attention_backward(
    query, key, value, d_output, query_segments, key_segments, logarithms,
    d_query, d_key, d_value, d_query_strides, d_key_strides, d_value_strides,
    tiles, num_queries, num_keys, num_heads, scale, d_scale,
    CAUSAL: tl.constexpr, PROGRAMS: tl.constexpr, STAGES: tl.constexpr,
    Q: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    place, key_place = tl.arange(0, Q), tl.arange(0, K)
    own, other, logarithm = _who_and_how_much(
        query_segments, key_segments, logarithms, tl.program_id(0), tiles, num_queries, num_keys, num_heads, Q, K
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
        weights = tl.where(allowed, tl.exp2(scores - logarithm[:, None]), 0.0)
        d_weights = tl.dot(g, tl.trans(v))
        inner = tl.sum(weights * d_weights, axis=1)
        dv = tl.dot(tl.trans(weights.to(g.dtype)), g)
        d_scores = (weights * (d_weights - inner[:, None]) * d_scale).to(q.dtype)
        dq = tl.dot(d_scores, k)
        dk = tl.dot(tl.trans(d_scores), q)
        own, other, logarithm = _who_and_how_much(  # of the next tile, so that nothing waits for them
            query_segments, key_segments, logarithms, tile + PROGRAMS, tiles, num_queries, num_keys, num_heads, Q, K
        )
        _put(d_value, dv, row, head, d_value_strides, num_keys, K, DIM)
        _put(d_key, dk, row, head, d_key_strides, num_keys, K, DIM)
        _put(d_query, dq, row, head, d_query_strides, num_queries, Q, DIM)


def fits(query: Tensor, lengths: tuple[int, int]) -> bool:
    """Whether tiles of so many queries and keys, in all their stages, are few enough bytes for the chip."""
    size, (queries, keys) = query.element_size(), lengths
    tiles, between = 2 * (queries + keys) * query.shape[3] * size, max(queries, keys) * max(keys, query.shape[3]) * size
    return (
        copies_by_itself(query.device) and size == 2 and STAGES * tiles + between + 2048 <= shared_memory(query.device)
    )


def backward(
    sides: Sides,
    rows: Rows,
    logarithms: Tensor,
    d_output: Tensor,
    gradients: Sides,
    scale: float,
    lengths: tuple[int, int],
) -> None:
    """Write the gradients of queries, keys and values, in tiles of `lengths` (powers of two) queries and keys."""
    (num_rows, num_heads, num_queries, dim), num_keys = sides.query.shape, sides.key.shape[2]
    (queries, keys), tiles = lengths, num_rows * num_heads
    count = min(units(sides.query.device), tiles)
    _row_attention_backward[(count,)](
        _tiles(sides.query, queries), _tiles(sides.key, keys), _tiles(sides.value, keys), _tiles(d_output, queries),
        rows.query_segments, rows.key_segments, logarithms,
        *gradients, *(side.stride()[:3] for side in gradients),
        tiles, num_queries, num_keys, num_heads, scale * LOG2_E, scale,
        CAUSAL=rows.causal, PROGRAMS=count, STAGES=STAGES, Q=queries, K=keys, DIM=dim, num_warps=WARPS,
    )  # fmt: skip


def _tiles(x: Tensor, length: int) -> TensorDescriptor:
    """(B, H, length, Dh) as the copy engine takes it: a head's whole row at a time."""
    return TensorDescriptor.from_tensor(x.transpose(1, 2).flatten(2), [1, length, x.shape[3]])
