"""Layers of decoding: matrix products, embedding, residual sum with norm. The bits of a row depend on that row alone.

A row's sums run along the depth in one fixed order: parts of 512 numbers, each summed from its start by the same
instruction, then added up in order. Tiles only set how many rows and columns a program computes at a time. For few rows
the parts are spread over programs, which write partial sums for `join` to add in the same order. Triton uses one
instruction for few rows (mma) and another for many (wgmma); on the tested GPUs both give the same bits, and a test
checks it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.decode_constants import PART, PRECISION
from heedful.fused.kernels.device_limits import shared_memory

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
def _join(
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


def join(
    stream: Tensor, parts: Tensor | None, bias: Tensor | None, output: Tensor,
    *, norm: str | None, weight: Tensor | None, shift: Tensor | None, epsilon: float, after: bool,
) -> None:  # fmt: skip
    """s = stream + Σ parts + bias; output = norm(s); the stream becomes that (`after`) or s."""
    num_rows, width = stream.shape
    block = triton.next_power_of_2(width)
    _join[(num_rows,)](
        stream, parts if parts is not None else stream, bias if bias is not None else stream,
        weight if weight is not None else stream, shift if shift is not None else stream, output,
        num_rows, width, epsilon,
        PARTS=parts.shape[0] if parts is not None else 0, HAS_BIAS=bias is not None, NORM=NORMS[norm],
        HAS_SHIFT=shift is not None, AFTER=after, WIDTH=block, num_warps=_warps(block),
    )  # fmt: skip


def _warps(block: int) -> int:
    return min(max(block // 256, 1), 8)
