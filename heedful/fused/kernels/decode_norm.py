"""What happens to each row of decoding by itself: its embedding, and residual sum with norm. One program a row."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

NORMS = {None: 0, "layer": 1, "rms": 2}


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


@triton.jit(do_not_specialize=["num_rows"])  # else code, and with it the order of sums, might depend on it
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
    """s = stream + Σ parts + bias; output = norm(s); the stream goes on as that (`after`) or as s."""
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
