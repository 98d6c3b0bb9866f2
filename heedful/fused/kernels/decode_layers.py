"""Layers of decoding: attention, matrix products, embedding, residual sum with norm.

The bits of a row depend on that row alone. Attention iterates over a sentence's own keys from the first, in blocks of
one size, so that its sums depend neither on the other sentences in the batch nor on the capacity of the buffer.

A row of a matrix product is summed along the depth in one fixed order: parts of 512 numbers, each summed from its start
by the same instruction, then added up in order. Tiles only set how many rows and columns a program computes at a time.
For few rows the parts are spread over programs, which write partial sums for `add_norm` to add in the same order.
Triton uses one instruction for few rows (mma) and another for many (wgmma); on the tested GPUs both give the same bits,
and a test checks it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.sizes import PART, PRECISION, QUERIES, shared_memory

NORMS = {None: 0, "layer": 1, "rms": 2}
ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2, "swiglu": 3}
SUMS = 128
"""Most sums in a thread's registers: of a part and of all parts, of SwiGLU's two matrices."""


class Tile(NamedTuple):
    """The tile of one program and its launch settings. They change the speed, never the result."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


class Tiles(NamedTuple):
    """The tile of most products, and the one of products into the vocabulary."""

    usual: Tile
    wide: Tile


WIDE = 8192
"""A product with at least so many columns is wide."""
TILES = {
    torch.bfloat16: {
        64: Tiles(Tile(16, 32, 64, 4, 6), Tile(16, 64, 64, 4, 6)),
        512: Tiles(Tile(64, 32, 64, 4, 5), Tile(64, 128, 64, 4, 4)),
        1 << 30: Tiles(Tile(64, 128, 64, 4, 4), Tile(128, 256, 64, 8, 3)),
    },
    torch.float32: {  # all of one depth, which fixes the order of sums
        64: Tiles(Tile(16, 32, 32, 4, 3), Tile(16, 64, 32, 4, 3)),
        512: Tiles(Tile(32, 64, 32, 4, 3), Tile(64, 64, 32, 4, 3)),
        1 << 30: Tiles(Tile(64, 64, 32, 4, 3), Tile(128, 64, 32, 8, 3)),
    },
}
"""By type and most rows."""


@triton.jit
def _activated(total, gate, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        total = tl.maximum(total, 0.0)
    elif ACTIVATION == 2:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    elif ACTIVATION == 3:
        total = total * gate / (1.0 + tl.exp(-gate))
    return total


@triton.jit(do_not_specialize=["num_rows"])  # specialised code might sum in another order
def _product(
    x, weight, bias, output, places, num_rows, width, depth,
    PARTS: tl.constexpr, SPREAD: tl.constexpr, EVEN: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_PLACES: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    x_at = x + (row % num_rows).to(tl.int64)[:, None] * depth + k[None, :]  # rows outside are not stored
    w_at = weight + (column % width).to(tl.int64)[None, :] * depth + k[:, None]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    gate = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for turn in range(1 if SPREAD else PARTS):
        first = (tl.program_id(2) if SPREAD else turn) * PART
        part = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        part_of_gate = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for start in range(first, first + PART, DEPTH):
            if EVEN:
                a, b = tl.load(x_at + start), tl.load(w_at + start)
            else:
                a = tl.load(x_at + start, mask=k[None, :] < depth - start, other=0.0)
                b = tl.load(w_at + start, mask=k[:, None] < depth - start, other=0.0)
            part = tl.dot(a, b, part, input_precision=PRECISION)
            if ACTIVATION == 3:
                g = tl.load(w_at + width * depth + start, mask=k[:, None] < depth - start, other=0.0)
                part_of_gate = tl.dot(a, g, part_of_gate, input_precision=PRECISION)
        total += part
        if ACTIVATION == 3:
            gate += part_of_gate
    if HAS_BIAS:
        total += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
        if ACTIVATION == 3:
            gate += tl.load(bias + width + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
    total = _activated(total, gate, ACTIVATION)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)
    if SPREAD:
        place += tl.program_id(2).to(tl.int64) * num_rows
    if HAS_PLACES:
        place = tl.load(places + row, mask=row < num_rows, other=-1).to(tl.int64)
        inside = inside & (place >= 0)[:, None]
    tl.store(output + place[:, None] * width + column[None, :], total.to(output.dtype.element_ty), mask=inside)


def tile_for(num_rows: int, width: int, dtype: torch.dtype) -> Tile:
    """The tile of a product of so many rows and columns."""
    tiles = next(tiles for most, tiles in TILES[dtype].items() if num_rows <= most)
    return tiles.usual if width < WIDE else tiles.wide


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    output: Tensor,
    *,
    activation: str | None = None,
    places: Tensor | None = None,
    tile: Tile | None = None,
) -> None:
    """output = activation(x weightᵀ + bias), or its parts where `output` has three dimensions.

    `places`: in which row of the output each row goes, -1 for nowhere.
    """
    num_rows, depth = x.shape
    width = weight.shape[0] // (2 if activation == "swiglu" else 1)
    spread = output.dim() == 3 and output.shape[0] > 1
    parts, tile = triton.cdiv(depth, PART), tile or tile_for(num_rows, width, x.dtype)
    # A depth of less than one part needs no part of 512: the zeros after it would add nothing.
    part = min(PART, triton.cdiv(depth, tile.depth) * tile.depth)
    columns, sums = tile.columns, (2 if activation == "swiglu" else 1) * (1 if parts == 1 or spread else 2)
    while tile.rows * columns * sums > SUMS * 32 * tile.warps and columns > 16:
        columns //= 2
    matrices = columns * (2 if activation == "swiglu" else 1)
    stages = min(tile.stages, shared_memory(x.device) // ((tile.rows + matrices) * tile.depth * x.element_size()))
    grid = (triton.cdiv(num_rows, tile.rows), triton.cdiv(width, columns), parts if spread else 1)
    _product[grid](
        x, weight, bias if bias is not None else weight, output, places if places is not None else x,
        num_rows, width, depth,
        PARTS=parts, SPREAD=spread, EVEN=depth % part == 0, HAS_BIAS=bias is not None, HAS_PLACES=places is not None,
        ACTIVATION=ACTIVATIONS[activation], PRECISION=PRECISION,
        ROWS=tile.rows, COLUMNS=columns, DEPTH=tile.depth, PART=part,
        num_warps=tile.warps, num_stages=max(stages, 1),
    )  # fmt: skip


# ---- operations on each row: embedding, and residual sum with norm; one program a row


@triton.jit
def _embed(
    table, places, tokens, positions, stream, output, width, factor,
    BEAMS: tl.constexpr, HAS_PLACES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    inside = column < width
    token = tl.load(tokens + row).to(tl.int64)
    x = tl.load(table + token * width + column, mask=inside, other=0.0).to(tl.float32) * factor
    if HAS_PLACES:
        position = tl.load(positions + row // BEAMS)
        x += tl.load(places + position * width + column, mask=inside, other=0.0).to(tl.float32)
    place = row * width + column
    tl.store(stream + place, x, mask=inside)
    tl.store(output + place, x.to(output.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows"])  # specialised code might sum in another order
def _add_norm(
    stream, parts, bias, weight, shift, output, num_rows, width, epsilon,
    PARTS: tl.constexpr, HAS_BIAS: tl.constexpr, NORM: tl.constexpr, HAS_SHIFT: tl.constexpr, AFTER: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    inside = column < width
    place = row * width + column
    added = tl.zeros((WIDTH,), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        added += tl.load(parts + part * num_rows * width + place, mask=inside, other=0.0)
    if HAS_BIAS:
        added += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(stream + place, mask=inside, other=0.0) + added
    y = s
    if NORM == 1:
        mean = tl.sum(s, axis=0) / width
        centred = tl.where(inside, s - mean, 0.0)
        y = centred * tl.rsqrt(tl.sum(centred * centred, axis=0) / width + epsilon)
    elif NORM == 2:
        y = s * tl.rsqrt(tl.sum(s * s, axis=0) / width + epsilon)
    if NORM > 0:
        y *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_SHIFT:
        y += tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(stream + place, y if AFTER else s, mask=inside)
    tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)


def embed(
    table: Tensor, places: Tensor | None, tokens: Tensor, positions: Tensor,
    stream: Tensor, output: Tensor, *, factor: float, beams: int,
) -> None:  # fmt: skip
    """stream = output = table[token] · factor + places[position]; the beams of a sentence share a position."""
    width, block = table.shape[1], triton.next_power_of_2(table.shape[1])
    _embed[(tokens.shape[0],)](
        table, places if places is not None else table, tokens, positions, stream, output, width, factor,
        BEAMS=beams, HAS_PLACES=places is not None, WIDTH=block, num_warps=_warps(block),
    )  # fmt: skip


def add_norm(
    stream: Tensor, parts: Tensor | None, bias: Tensor | None, output: Tensor,
    *, norm: str | None, weight: Tensor | None, shift: Tensor | None, epsilon: float, after: bool,
) -> None:  # fmt: skip
    """s = stream + Σ parts + bias; output = norm(s); the stream becomes that (`after`) or s."""
    num_rows, width = stream.shape
    block = triton.next_power_of_2(width)
    _add_norm[(num_rows,)](
        stream, parts if parts is not None else stream, bias if bias is not None else stream,
        weight if weight is not None else stream, shift if shift is not None else stream, output,
        num_rows, width, epsilon,
        PARTS=parts.shape[0] if parts is not None else 0, HAS_BIAS=bias is not None, NORM=NORMS[norm],
        HAS_SHIFT=shift is not None, AFTER=after, WIDTH=block, num_warps=_warps(block),
    )  # fmt: skip


def _warps(block: int) -> int:
    return min(max(block // 256, 1), 8)


# ---- attention

PAST, PAST_WARPS = 32, 1
"""Earlier tokens in a block."""
MEMORY, MEMORY_WARPS = 32, 1
"""Source tokens in a block."""
PADDED_BEAMS = 16
"""Least number of rows for tensor cores; those without a beam are empty."""
KEYS, SOURCE_WARPS = 32, 4


@triton.jit
def _rotated(base, feature, there, position, cosines, sines, WIDTH: tl.constexpr, ROTARY: tl.constexpr):
    """The vectors at `base`, rotated by the angles of their positions; base and position broadcast over features."""
    x = tl.load(base + feature, mask=there, other=0.0).to(tl.float32)
    if ROTARY:
        partner = tl.load(base + (feature ^ 1), mask=there, other=0.0).to(tl.float32)
        angle = position * (WIDTH // 2) + feature // 2
        cosine, sine = tl.load(cosines + angle, mask=there, other=0.0), tl.load(sines + angle, mask=there, other=0.0)
        x = x * cosine + tl.where(feature % 2 == 0, -partner, partner) * sine
    return x


@triton.jit
def _attend_past(
    qkv, cache, ancestry, steps, done, cosines, sines, output, capacity, num_heads, scale,
    BEAMS: tl.constexpr, ROTARY: tl.constexpr, BLOCK: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    slot = row // BEAMS
    idle, step = tl.load(done + slot) != 0, tl.load(steps + slot)
    d, e = tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    d_there, e_there = d < KEY, e < VALUE
    kind = cache.dtype.element_ty
    here = qkv + row.to(tl.int64) * num_heads * (2 * KEY + VALUE)
    q = _rotated(here + head * KEY, d, d_there, step, cosines, sines, KEY, ROTARY).to(kind).to(tl.float32) * scale
    k = _rotated(here + (num_heads + head) * KEY, d, d_there, step, cosines, sines, KEY, ROTARY).to(kind)
    v = tl.load(here + 2 * num_heads * KEY + head * VALUE + e, mask=e_there, other=0.0)
    if idle:  # this late, so that all loads are issued together
        return
    width = num_heads * (KEY + VALUE)
    of_keys, of_values = head * KEY, num_heads * KEY + head * VALUE
    own = cache + (row.to(tl.int64) * capacity + step) * width
    tl.store(own + of_keys + d, k, mask=d_there)
    tl.store(own + of_values + e, v.to(kind), mask=e_there)
    largest = tl.sum(q * k.to(tl.float32), axis=0)  # its own token first, then those before it from the start
    total = 1.0
    o = v.to(tl.float32)
    for first in range(0, step, BLOCK):
        position = first + tl.arange(0, BLOCK)
        there = position < step
        writer = row + tl.zeros((BLOCK,), dtype=tl.int32)
        if BEAMS > 1:
            writer = slot * BEAMS + tl.load(ancestry + row * capacity + position, mask=there, other=0)
        at = cache + (writer.to(tl.int64) * capacity + position) * width
        keys = tl.load(at[:, None] + of_keys + d[None, :], mask=there[:, None] & d_there[None, :], other=0.0)
        values = tl.load(at[:, None] + of_values + e[None, :], mask=there[:, None] & e_there[None, :], other=0.0)
        scores = tl.where(there, tl.sum(q[None, :] * keys.to(tl.float32), axis=1), float("-inf"))
        new = tl.maximum(largest, tl.max(scores, axis=0))
        weights, shrink = tl.exp(scores - new), tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, axis=0)
        o = o * shrink + tl.sum(weights[:, None] * values.to(tl.float32), axis=0)
        largest = new
    tl.store(output + (row * num_heads + head) * VALUE + e, (o / total).to(output.dtype.element_ty), mask=e_there)


@triton.jit
def _attend_memory(
    queries, memory, limits, done, output, offset, memory_width, capacity, num_heads, scale,
    BEAMS: tl.constexpr, PADDED_BEAMS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    slot, head = tl.program_id(0), tl.program_id(1)
    idle, length = tl.load(done + slot) != 0, tl.load(limits + slot * 4 + 2)
    beam, d, e = tl.arange(0, PADDED_BEAMS), tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    row = slot * BEAMS + beam
    q_at = queries + (row * num_heads + head)[:, None] * KEY + d[None, :]
    q = tl.load(q_at, mask=(beam < BEAMS)[:, None] & (d < KEY)[None, :], other=0.0)
    if idle:
        return
    largest = tl.full((PADDED_BEAMS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((PADDED_BEAMS,), dtype=tl.float32)
    o = tl.zeros((PADDED_BEAMS, PADDED_VALUE), dtype=tl.float32)
    of_keys, of_values = offset + head * KEY, offset + num_heads * KEY + head * VALUE
    for first in range(0, length, BLOCK):
        position = first + tl.arange(0, BLOCK)
        there = position < length
        at = memory + (slot.to(tl.int64) * capacity + position)[:, None] * memory_width
        keys = tl.load(at + of_keys + d[None, :], mask=there[:, None] & (d < KEY)[None, :], other=0.0)
        values = tl.load(at + of_values + e[None, :], mask=there[:, None] & (e < VALUE)[None, :], other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where(there[None, :], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        weights, shrink = tl.exp(scores - new[:, None]), tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, axis=1)
        o = tl.dot(weights.to(values.dtype), values, o * shrink[:, None], input_precision=PRECISION)
        largest = new
    o_at = output + (row * num_heads + head)[:, None] * VALUE + e[None, :]
    o_there = (beam < BEAMS)[:, None] & (e < VALUE)[None, :]
    tl.store(o_at, (o / total[:, None]).to(output.dtype.element_ty), mask=o_there)


@triton.jit
def _attend_source(
    qkv, tiles, cosines, sines, output, num_heads, scale,
    ROTARY: tl.constexpr, PRECISION: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    KEY: tl.constexpr, VALUE: tl.constexpr, PADDED_KEY: tl.constexpr, PADDED_VALUE: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0) * 3, tl.program_id(1)
    begin, length, first = tl.load(tiles + tile), tl.load(tiles + tile + 1), tl.load(tiles + tile + 2)
    if length == 0:
        return
    d, e = tl.arange(0, PADDED_KEY)[None, :], tl.arange(0, PADDED_VALUE)[None, :]
    width = num_heads * (2 * KEY + VALUE)
    kind = qkv.dtype.element_ty
    place = (first + tl.arange(0, QUERIES))[:, None]
    q_at = qkv + (begin + place).to(tl.int64) * width + head * KEY
    q = _rotated(q_at, d, (place < length) & (d < KEY), place, cosines, sines, KEY, ROTARY).to(kind)
    largest = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    o = tl.zeros((QUERIES, PADDED_VALUE), dtype=tl.float32)
    for start in range(0, length, KEYS):
        other = (start + tl.arange(0, KEYS))[:, None]
        at = qkv + (begin + other).to(tl.int64) * width
        k_at = at + (num_heads + head) * KEY
        keys = _rotated(k_at, d, (other < length) & (d < KEY), other, cosines, sines, KEY, ROTARY).to(kind)
        values = tl.load(
            at + 2 * num_heads * KEY + head * VALUE + e, mask=(other < length) & (e < VALUE), other=0.0
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where((start + tl.arange(0, KEYS))[None, :] < length, scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        weights, shrink = tl.exp(scores - new[:, None]), tl.exp(largest - new)
        total = total * shrink + tl.sum(weights, axis=1)
        o = o * shrink[:, None] + tl.dot(weights.to(kind), values, input_precision=PRECISION)
        largest = new
    o_at = output + (begin + place).to(tl.int64) * (num_heads * VALUE) + head * VALUE + e
    tl.store(o_at, (o / total[:, None]).to(output.dtype.element_ty), mask=(place < length) & (e < VALUE))


def attend_past(
    qkv: Tensor, cache: Tensor, ancestry: Tensor, steps: Tensor, done: Tensor,
    rotations: tuple[Tensor, Tensor] | None, output: Tensor, *, num_heads: int, key_dim: int, beams: int, scale: float,
) -> None:  # fmt: skip
    """Put each row's newest key and value into the cache, then attend to all tokens that it descends from."""
    value_dim = output.shape[1] // num_heads
    cosines, sines = rotations or (output, output)
    _attend_past[(qkv.shape[0], num_heads)](
        qkv, cache, ancestry, steps, done, cosines, sines, output, cache.shape[1], num_heads, scale,
        BEAMS=beams, ROTARY=rotations is not None, BLOCK=PAST, KEY=key_dim, VALUE=value_dim,
        PADDED_KEY=triton.next_power_of_2(key_dim), PADDED_VALUE=triton.next_power_of_2(value_dim),
        num_warps=PAST_WARPS,
    )  # fmt: skip


def attend_memory(
    queries: Tensor, memory: Tensor, limits: Tensor, done: Tensor, output: Tensor,
    *, offset: int, num_heads: int, key_dim: int, beams: int, scale: float,
) -> None:  # fmt: skip
    """Let the beams of each sentence attend to its memory, whose keys and values of a layer begin at `offset`."""
    value_dim = output.shape[1] // num_heads
    _attend_memory[(memory.shape[0], num_heads)](
        queries, memory, limits, done, output, offset, memory.shape[2], memory.shape[1], num_heads, scale,
        BEAMS=beams, PADDED_BEAMS=PADDED_BEAMS, BLOCK=MEMORY, PRECISION=PRECISION, KEY=key_dim, VALUE=value_dim,
        PADDED_KEY=max(triton.next_power_of_2(key_dim), 16), PADDED_VALUE=max(triton.next_power_of_2(value_dim), 16),
        num_warps=MEMORY_WARPS,
    )  # fmt: skip


def attend_source(
    qkv: Tensor, tiles: Tensor, rotations: tuple[Tensor, Tensor] | None, output: Tensor,
    *, num_heads: int, key_dim: int, scale: float,
) -> None:  # fmt: skip
    """Attention of packed sentences, each inside itself. A tile: where its sentence begins, its length, first query."""
    value_dim = output.shape[1] // num_heads
    cosines, sines = rotations or (output, output)
    _attend_source[(tiles.shape[0], num_heads)](
        qkv, tiles, cosines, sines, output, num_heads, scale,
        ROTARY=rotations is not None, PRECISION=PRECISION, QUERIES=QUERIES, KEYS=KEYS, KEY=key_dim, VALUE=value_dim,
        PADDED_KEY=max(triton.next_power_of_2(key_dim), 16), PADDED_VALUE=max(triton.next_power_of_2(value_dim), 16),
        num_warps=SOURCE_WARPS,
    )  # fmt: skip
