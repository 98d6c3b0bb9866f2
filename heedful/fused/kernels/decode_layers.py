"""Layers of decoding: attention, matrix products, embedding, residual sum with norm.

The kernels are batch-invariant: the bits of a row depend only on that row. Attention iterates over the keys of one
sentence from the first, in blocks of a fixed size, so that its sums depend neither on the other sentences in the batch
nor on the capacity of the cache.

A matrix product is summed along K in a fixed order: splits of 512, each accumulated from its start by the same
instruction, then added up in order. The tile only sets how many rows and columns a program computes. With few rows
(split-K) each split has its own program, and `add_norm` adds the partial sums in the same order. Triton uses one
instruction for few rows (mma) and another for many (wgmma); on the tested GPUs both give the same bits, and a test
checks it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.sizes import PRECISION, QUERIES, SPLIT_SIZE, shared_memory

NORMS = {None: 0, "layer": 1, "rms": 2}
ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2, "swiglu": 3}
MAX_ACCUMULATORS = 128
"""Maximum number of accumulators in the registers of a thread: a split and the total, for each matrix of SwiGLU."""


class Tile(NamedTuple):
    """The tile of one program and its launch settings. They affect the speed, never the result."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


class Tiles(NamedTuple):
    """The tile of most matrix products, and the tile of the output projection to the vocabulary."""

    default: Tile
    wide: Tile


WIDE_COLUMNS = 8192
"""A matrix product with at least this many columns uses the wide tile."""
TILES = {
    torch.bfloat16: {
        64: Tiles(Tile(16, 32, 64, 4, 6), Tile(16, 64, 64, 4, 6)),
        512: Tiles(Tile(64, 32, 64, 4, 5), Tile(64, 128, 64, 4, 4)),
        1 << 30: Tiles(Tile(64, 128, 64, 4, 4), Tile(128, 256, 64, 8, 3)),
    },
    torch.float32: {  # all of the same depth, which fixes the order of summation
        64: Tiles(Tile(16, 32, 32, 4, 3), Tile(16, 64, 32, 4, 3)),
        512: Tiles(Tile(32, 64, 32, 4, 3), Tile(64, 64, 32, 4, 3)),
        1 << 30: Tiles(Tile(64, 64, 32, 4, 3), Tile(128, 64, 32, 8, 3)),
    },
}
"""By dtype and maximum number of rows."""


@triton.jit
def _apply_activation(total, gate, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        total = tl.maximum(total, 0.0)
    elif ACTIVATION == 2:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == 3:
        total = total * gate / (1.0 + tl.exp(-gate))
    return total


@triton.jit(do_not_specialize=["num_rows"])  # specialised code might sum in another order
def _matmul(
    x, weight, bias, output, output_rows, num_rows, width, depth,
    NUM_SPLITS: tl.constexpr, SPLIT_K: tl.constexpr, EVEN: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_OUTPUT_ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, SPLIT_SIZE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    # Rows and columns out of bounds wrap around; the store masks them.
    x_pointers = x + (rows % num_rows).to(tl.int64)[:, None] * depth + k[None, :]
    weight_pointers = weight + (columns % width).to(tl.int64)[None, :] * depth + k[:, None]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    gate = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for split in range(1 if SPLIT_K else NUM_SPLITS):
        split_start = (tl.program_id(2) if SPLIT_K else split) * SPLIT_SIZE
        split_sum = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        gate_split_sum = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for start in range(split_start, split_start + SPLIT_SIZE, DEPTH):
            if EVEN:
                a, b = tl.load(x_pointers + start), tl.load(weight_pointers + start)
            else:
                a = tl.load(x_pointers + start, mask=k[None, :] < depth - start, other=0.0)
                b = tl.load(weight_pointers + start, mask=k[:, None] < depth - start, other=0.0)
            split_sum = tl.dot(a, b, split_sum, input_precision=PRECISION)
            if ACTIVATION == 3:
                g = tl.load(weight_pointers + width * depth + start, mask=k[:, None] < depth - start, other=0.0)
                gate_split_sum = tl.dot(a, g, gate_split_sum, input_precision=PRECISION)
        total += split_sum
        if ACTIVATION == 3:
            gate += gate_split_sum
    if HAS_BIAS:
        total += tl.load(bias + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
        if ACTIVATION == 3:
            gate += tl.load(bias + width + columns, mask=columns < width, other=0.0).to(tl.float32)[None, :]
    total = _apply_activation(total, gate, ACTIVATION)
    mask = (rows < num_rows)[:, None] & (columns < width)[None, :]
    output_row = rows.to(tl.int64)
    if SPLIT_K:
        output_row += tl.program_id(2).to(tl.int64) * num_rows
    if HAS_OUTPUT_ROWS:
        output_row = tl.load(output_rows + rows, mask=rows < num_rows, other=-1).to(tl.int64)
        mask = mask & (output_row >= 0)[:, None]
    tl.store(output + output_row[:, None] * width + columns[None, :], total.to(output.dtype.element_ty), mask=mask)


def tile_for(num_rows: int, width: int, dtype: torch.dtype) -> Tile:
    """The tile for a matrix product with this many rows and columns."""
    tiles = next(tiles for max_rows, tiles in TILES[dtype].items() if num_rows <= max_rows)
    return tiles.default if width < WIDE_COLUMNS else tiles.wide


def matmul(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    output: Tensor,
    *,
    activation: str | None = None,
    output_rows: Tensor | None = None,
    tile: Tile | None = None,
) -> None:
    """output = activation(x weightᵀ + bias). If `output` has three dimensions, its partial sums (split-K).

    `output_rows`: the row of the output for each row; -1 to drop it.
    """
    num_rows, depth = x.shape
    width = weight.shape[0] // (2 if activation == "swiglu" else 1)
    split_k = output.dim() == 3 and output.shape[0] > 1
    num_splits, tile = triton.cdiv(depth, SPLIT_SIZE), tile or tile_for(num_rows, width, x.dtype)
    # With a depth below one split, a smaller split saves the zeros after it.
    split_size = min(SPLIT_SIZE, triton.cdiv(depth, tile.depth) * tile.depth)
    columns, num_accumulators = (
        tile.columns,
        (2 if activation == "swiglu" else 1) * (1 if num_splits == 1 or split_k else 2),
    )
    while tile.rows * columns * num_accumulators > MAX_ACCUMULATORS * 32 * tile.warps and columns > 16:
        columns //= 2
    matrices = columns * (2 if activation == "swiglu" else 1)
    stages = min(tile.stages, shared_memory(x.device) // ((tile.rows + matrices) * tile.depth * x.element_size()))
    grid = (triton.cdiv(num_rows, tile.rows), triton.cdiv(width, columns), num_splits if split_k else 1)
    _matmul[grid](
        x, weight, bias if bias is not None else weight, output, output_rows if output_rows is not None else x,
        num_rows, width, depth,
        NUM_SPLITS=num_splits, SPLIT_K=split_k, EVEN=depth % split_size == 0, HAS_BIAS=bias is not None,
        HAS_OUTPUT_ROWS=output_rows is not None,
        ACTIVATION=ACTIVATIONS[activation], PRECISION=PRECISION,
        ROWS=tile.rows, COLUMNS=columns, DEPTH=tile.depth, SPLIT_SIZE=split_size,
        num_warps=tile.warps, num_stages=max(stages, 1),
    )  # fmt: skip


# ---- row operations: embedding, and residual sum with norm; one program per row


@triton.jit
def _embed(
    table, position_table, tokens, positions, residual, output, width, factor,
    BEAMS: tl.constexpr, HAS_POSITIONS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    mask = column < width
    token = tl.load(tokens + row).to(tl.int64)
    x = tl.load(table + token * width + column, mask=mask, other=0.0).to(tl.float32) * factor
    if HAS_POSITIONS:
        position = tl.load(positions + row // BEAMS)
        x += tl.load(position_table + position * width + column, mask=mask, other=0.0).to(tl.float32)
    offsets = row * width + column
    tl.store(residual + offsets, x, mask=mask)
    tl.store(output + offsets, x.to(output.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])  # specialised code might sum in another order
def _add_norm(
    residual, partial_sums, bias, weight, shift, output, num_rows, width, epsilon,
    NUM_SPLITS: tl.constexpr, HAS_BIAS: tl.constexpr, NORM: tl.constexpr, HAS_SHIFT: tl.constexpr,
    POST_NORM: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    mask = column < width
    offsets = row * width + column
    added = tl.zeros((WIDTH,), dtype=tl.float32)
    for split in tl.static_range(NUM_SPLITS):
        added += tl.load(partial_sums + split * num_rows * width + offsets, mask=mask, other=0.0)
    if HAS_BIAS:
        added += tl.load(bias + column, mask=mask, other=0.0).to(tl.float32)
    total = tl.load(residual + offsets, mask=mask, other=0.0) + added
    normalised = total
    if NORM == 1:
        mean = tl.sum(total, axis=0) / width
        centred = tl.where(mask, total - mean, 0.0)
        normalised = centred * tl.rsqrt(tl.sum(centred * centred, axis=0) / width + epsilon)
    elif NORM == 2:
        normalised = total * tl.rsqrt(tl.sum(total * total, axis=0) / width + epsilon)
    if NORM > 0:
        normalised *= tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    if HAS_SHIFT:
        normalised += tl.load(shift + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(residual + offsets, normalised if POST_NORM else total, mask=mask)
    tl.store(output + offsets, normalised.to(output.dtype.element_ty), mask=mask)


def embed(
    table: Tensor, position_table: Tensor | None, tokens: Tensor, positions: Tensor,
    residual: Tensor, output: Tensor, *, factor: float, beams: int,
) -> None:  # fmt: skip
    """residual = output = table[token] · factor + position_table[position]; beams of a sentence share a position."""
    width, block = table.shape[1], triton.next_power_of_2(table.shape[1])
    _embed[(tokens.shape[0],)](
        table, position_table if position_table is not None else table, tokens, positions, residual, output, width,
        factor, BEAMS=beams, HAS_POSITIONS=position_table is not None, WIDTH=block, num_warps=_warps(block),
    )  # fmt: skip


def add_norm(
    residual: Tensor, partial_sums: Tensor | None, bias: Tensor | None, output: Tensor,
    *, norm: str | None, weight: Tensor | None, shift: Tensor | None, epsilon: float, post_norm: bool,
) -> None:  # fmt: skip
    """s = residual + Σ partial_sums + bias; output = norm(s); residual = norm(s) with post-norm, s with pre-norm."""
    num_rows, width = residual.shape
    block = triton.next_power_of_2(width)
    _add_norm[(num_rows,)](
        residual, partial_sums if partial_sums is not None else residual, bias if bias is not None else residual,
        weight if weight is not None else residual, shift if shift is not None else residual, output,
        num_rows, width, epsilon,
        NUM_SPLITS=partial_sums.shape[0] if partial_sums is not None else 0, HAS_BIAS=bias is not None,
        NORM=NORMS[norm],
        HAS_SHIFT=shift is not None, POST_NORM=post_norm, WIDTH=block, num_warps=_warps(block),
    )  # fmt: skip


def _warps(block: int) -> int:
    return min(max(block // 256, 1), 8)


# ---- attention

SELF_BLOCK, SELF_WARPS = 32, 1
"""Cached target tokens in a block."""
CROSS_BLOCK, CROSS_WARPS = 32, 1
"""Source tokens in a block of cross-attention."""
PADDED_BEAMS = 16
"""Minimum number of rows for tensor cores; rows without a beam are masked."""
ENCODER_BLOCK, ENCODER_WARPS = 32, 4


@triton.jit
def _load_rotated(pointers, feature, mask, position, cosines, sines, WIDTH: tl.constexpr, ROTARY: tl.constexpr):
    """Load vectors and rotate them by the angles of their positions; pointers and positions broadcast over features."""
    x = tl.load(pointers + feature, mask=mask, other=0.0).to(tl.float32)
    if ROTARY:
        partner = tl.load(pointers + (feature ^ 1), mask=mask, other=0.0).to(tl.float32)
        angle_index = position * (WIDTH // 2) + feature // 2
        cosine, sine = (
            tl.load(cosines + angle_index, mask=mask, other=0.0),
            tl.load(sines + angle_index, mask=mask, other=0.0),
        )
        x = x * cosine + tl.where(feature % 2 == 0, -partner, partner) * sine
    return x


@triton.jit
def _decoder_self_attention(
    qkv, cache, ancestry, steps, done, cosines, sines, output, capacity, num_heads, scale,
    BEAMS: tl.constexpr, ROTARY: tl.constexpr, BLOCK: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    slot = row // BEAMS
    is_done, step = tl.load(done + slot) != 0, tl.load(steps + slot)
    d, e = tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    key_mask, value_mask = d < KEY, e < VALUE
    dtype = cache.dtype.element_ty
    row_qkv = qkv + row.to(tl.int64) * num_heads * (2 * KEY + VALUE)
    q = (
        _load_rotated(row_qkv + head * KEY, d, key_mask, step, cosines, sines, KEY, ROTARY).to(dtype).to(tl.float32)
        * scale
    )
    k = _load_rotated(row_qkv + (num_heads + head) * KEY, d, key_mask, step, cosines, sines, KEY, ROTARY).to(dtype)
    v = tl.load(row_qkv + 2 * num_heads * KEY + head * VALUE + e, mask=value_mask, other=0.0)
    if is_done:  # after the loads, so that they are issued together
        return
    width = num_heads * (KEY + VALUE)
    key_offset, value_offset = head * KEY, num_heads * KEY + head * VALUE
    new_entry = cache + (row.to(tl.int64) * capacity + step) * width
    tl.store(new_entry + key_offset + d, k, mask=key_mask)
    tl.store(new_entry + value_offset + e, v.to(dtype), mask=value_mask)
    running_max = tl.sum(q * k.to(tl.float32), axis=0)  # the new token first, then the earlier ones from position 0
    running_sum = 1.0
    acc = v.to(tl.float32)
    for block_start in range(0, step, BLOCK):
        position = block_start + tl.arange(0, BLOCK)
        mask = position < step
        cache_rows = row + tl.zeros((BLOCK,), dtype=tl.int32)
        if BEAMS > 1:
            cache_rows = slot * BEAMS + tl.load(ancestry + row * capacity + position, mask=mask, other=0)
        entries = cache + (cache_rows.to(tl.int64) * capacity + position) * width
        keys = tl.load(entries[:, None] + key_offset + d[None, :], mask=mask[:, None] & key_mask[None, :], other=0.0)
        values = tl.load(
            entries[:, None] + value_offset + e[None, :], mask=mask[:, None] & value_mask[None, :], other=0.0
        )
        scores = tl.where(mask, tl.sum(q[None, :] * keys.to(tl.float32), axis=1), float("-inf"))
        new_max = tl.maximum(running_max, tl.max(scores, axis=0))
        weights, rescale = tl.exp(scores - new_max), tl.exp(running_max - new_max)
        running_sum = running_sum * rescale + tl.sum(weights, axis=0)
        acc = acc * rescale + tl.sum(weights[:, None] * values.to(tl.float32), axis=0)
        running_max = new_max
    tl.store(
        output + (row * num_heads + head) * VALUE + e, (acc / running_sum).to(output.dtype.element_ty), mask=value_mask
    )


@triton.jit
def _cross_attention(
    queries, cross_cache, limits, done, output, offset, cache_width, capacity, num_heads, scale,
    BEAMS: tl.constexpr, PADDED_BEAMS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    slot, head = tl.program_id(0), tl.program_id(1)
    is_done, length = tl.load(done + slot) != 0, tl.load(limits + slot * 4 + 2)
    beam, d, e = tl.arange(0, PADDED_BEAMS), tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    row = slot * BEAMS + beam
    q_pointers = queries + (row * num_heads + head)[:, None] * KEY + d[None, :]
    q = tl.load(q_pointers, mask=(beam < BEAMS)[:, None] & (d < KEY)[None, :], other=0.0)
    if is_done:
        return
    running_max = tl.full((PADDED_BEAMS,), float("-inf"), dtype=tl.float32)
    running_sum = tl.zeros((PADDED_BEAMS,), dtype=tl.float32)
    acc = tl.zeros((PADDED_BEAMS, PADDED_VALUE), dtype=tl.float32)
    key_offset, value_offset = offset + head * KEY, offset + num_heads * KEY + head * VALUE
    for block_start in range(0, length, BLOCK):
        position = block_start + tl.arange(0, BLOCK)
        mask = position < length
        entries = cross_cache + (slot.to(tl.int64) * capacity + position)[:, None] * cache_width
        keys = tl.load(entries + key_offset + d[None, :], mask=mask[:, None] & (d < KEY)[None, :], other=0.0)
        values = tl.load(entries + value_offset + e[None, :], mask=mask[:, None] & (e < VALUE)[None, :], other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where(mask[None, :], scores, float("-inf"))
        new_max = tl.maximum(running_max, tl.max(scores, axis=1))
        weights, rescale = tl.exp(scores - new_max[:, None]), tl.exp(running_max - new_max)
        running_sum = running_sum * rescale + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(values.dtype), values, acc * rescale[:, None], input_precision=PRECISION)
        running_max = new_max
    output_pointers = output + (row * num_heads + head)[:, None] * VALUE + e[None, :]
    output_mask = (beam < BEAMS)[:, None] & (e < VALUE)[None, :]
    tl.store(output_pointers, (acc / running_sum[:, None]).to(output.dtype.element_ty), mask=output_mask)


@triton.jit
def _encoder_self_attention(
    qkv, tiles, cosines, sines, output, num_heads, scale,
    ROTARY: tl.constexpr, PRECISION: tl.constexpr, QUERIES: tl.constexpr, ENCODER_BLOCK: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0) * 3, tl.program_id(1)
    sentence_start, length, first_query = tl.load(tiles + tile), tl.load(tiles + tile + 1), tl.load(tiles + tile + 2)
    if length == 0:
        return
    d, e = tl.arange(0, PADDED_KEY)[None, :], tl.arange(0, PADDED_VALUE)[None, :]
    width = num_heads * (2 * KEY + VALUE)
    dtype = qkv.dtype.element_ty
    q_pos = (first_query + tl.arange(0, QUERIES))[:, None]
    q_pointers = qkv + (sentence_start + q_pos).to(tl.int64) * width + head * KEY
    q = _load_rotated(q_pointers, d, (q_pos < length) & (d < KEY), q_pos, cosines, sines, KEY, ROTARY).to(dtype)
    running_max = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    running_sum = tl.zeros((QUERIES,), dtype=tl.float32)
    acc = tl.zeros((QUERIES, PADDED_VALUE), dtype=tl.float32)
    for block_start in range(0, length, ENCODER_BLOCK):
        k_pos = (block_start + tl.arange(0, ENCODER_BLOCK))[:, None]
        entries = qkv + (sentence_start + k_pos).to(tl.int64) * width
        key_pointers = entries + (num_heads + head) * KEY
        keys = _load_rotated(key_pointers, d, (k_pos < length) & (d < KEY), k_pos, cosines, sines, KEY, ROTARY).to(
            dtype
        )
        values = tl.load(
            entries + 2 * num_heads * KEY + head * VALUE + e, mask=(k_pos < length) & (e < VALUE), other=0.0
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where((block_start + tl.arange(0, ENCODER_BLOCK))[None, :] < length, scores, float("-inf"))
        new_max = tl.maximum(running_max, tl.max(scores, axis=1))
        weights, rescale = tl.exp(scores - new_max[:, None]), tl.exp(running_max - new_max)
        running_sum = running_sum * rescale + tl.sum(weights, axis=1)
        acc = acc * rescale[:, None] + tl.dot(weights.to(dtype), values, input_precision=PRECISION)
        running_max = new_max
    output_pointers = output + (sentence_start + q_pos).to(tl.int64) * (num_heads * VALUE) + head * VALUE + e
    tl.store(
        output_pointers, (acc / running_sum[:, None]).to(output.dtype.element_ty), mask=(q_pos < length) & (e < VALUE)
    )


def decoder_self_attention(
    qkv: Tensor, cache: Tensor, ancestry: Tensor, steps: Tensor, done: Tensor,
    rotations: tuple[Tensor, Tensor] | None, output: Tensor, *, num_heads: int, key_dim: int, beams: int, scale: float,
) -> None:  # fmt: skip
    """Write the newest key and value of each row to the cache, then attend to all positions of its history."""
    value_dim = output.shape[1] // num_heads
    cosines, sines = rotations or (output, output)
    _decoder_self_attention[(qkv.shape[0], num_heads)](
        qkv, cache, ancestry, steps, done, cosines, sines, output, cache.shape[1], num_heads, scale,
        BEAMS=beams, ROTARY=rotations is not None, BLOCK=SELF_BLOCK, KEY=key_dim, VALUE=value_dim,
        PADDED_KEY=triton.next_power_of_2(key_dim), PADDED_VALUE=triton.next_power_of_2(value_dim),
        num_warps=SELF_WARPS,
    )  # fmt: skip


def cross_attention(
    queries: Tensor, cross_cache: Tensor, limits: Tensor, done: Tensor, output: Tensor,
    *, offset: int, num_heads: int, key_dim: int, beams: int, scale: float,
) -> None:  # fmt: skip
    """Attention of the beams to the encoder output; keys and values of this layer begin at `offset`."""
    value_dim = output.shape[1] // num_heads
    _cross_attention[(cross_cache.shape[0], num_heads)](
        queries, cross_cache, limits, done, output, offset, cross_cache.shape[2], cross_cache.shape[1], num_heads,
        scale,
        BEAMS=beams, PADDED_BEAMS=PADDED_BEAMS, BLOCK=CROSS_BLOCK, PRECISION=PRECISION, KEY=key_dim, VALUE=value_dim,
        PADDED_KEY=max(triton.next_power_of_2(key_dim), 16), PADDED_VALUE=max(triton.next_power_of_2(value_dim), 16),
        num_warps=CROSS_WARPS,
    )  # fmt: skip


def encoder_self_attention(
    qkv: Tensor, tiles: Tensor, rotations: tuple[Tensor, Tensor] | None, output: Tensor,
    *, num_heads: int, key_dim: int, scale: float,
) -> None:  # fmt: skip
    """Attention within each packed sentence. A tile is (start of the sentence, its length, first query)."""
    value_dim = output.shape[1] // num_heads
    cosines, sines = rotations or (output, output)
    _encoder_self_attention[(tiles.shape[0], num_heads)](
        qkv, tiles, cosines, sines, output, num_heads, scale,
        ROTARY=rotations is not None, PRECISION=PRECISION, QUERIES=QUERIES, ENCODER_BLOCK=ENCODER_BLOCK, KEY=key_dim,
        VALUE=value_dim,
        PADDED_KEY=max(triton.next_power_of_2(key_dim), 16), PADDED_VALUE=max(triton.next_power_of_2(value_dim), 16),
        num_warps=ENCODER_WARPS,
    )  # fmt: skip
