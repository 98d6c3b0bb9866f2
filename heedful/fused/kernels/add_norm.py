"""Residual sum, dropout and LayerNorm between two matrix products, in one Triton kernel for each direction.

`add_norm(x, h, …)` computes s = x + dropout(h + bias) and LayerNorm(s) and reads and writes each number once. The
backward kernel also sums the gradients of bias, weight and shift over its rows. The dropout mask is a hash of position
and seed, computed again in the backward pass.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.dropout import dropout_constants, keep_mask

NUMBERS = 1024
"""Numbers in a tile of the forward pass: two tokens of the base model."""
ROWS_BACKWARD, PROGRAMS = 2, 1056
"""Tokens in a tile of the backward pass, and the number of its programs (eight for each multiprocessor of an H200);
each program writes one partial sum."""


@triton.jit
def _add_norm_forward(
    x, h, bias, weight, shift, seeds, total, output, means, scales,
    num_rows, width, call, threshold, raise_by, epsilon,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    there = column < width
    inside = (row[:, None] < num_rows) & there[None, :]
    place = row[:, None] * width + column[None, :]
    added = tl.load(h + place, mask=inside, other=0.0).to(tl.float32)
    added += tl.load(bias + column, mask=there, other=0.0).to(tl.float32)[None, :]
    if DROPOUT:
        added = tl.where(keep_mask(place, seeds, call, threshold), added * raise_by, 0.0)
    s = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + added).to(total.dtype.element_ty)
    tl.store(total + place, s, mask=inside)
    s = tl.where(inside, s.to(tl.float32), 0.0)
    mean = tl.sum(s, axis=1) / width
    centred = tl.where(inside, s - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / width + epsilon)
    gamma = tl.load(weight + column, mask=there, other=0.0).to(tl.float32)
    beta = tl.load(shift + column, mask=there, other=0.0).to(tl.float32)
    y = centred * scale[:, None] * gamma[None, :] + beta[None, :]
    tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)
    tl.store(means + row, mean, mask=row < num_rows)
    tl.store(scales + row, scale, mask=row < num_rows)


@triton.jit
def _add_norm_backward(
    total, weight, seeds, means, scales, d_total, d_output, d_x, d_h, partial,
    num_rows, width, call, threshold, raise_by,
    DROPOUT: tl.constexpr, HAS_TOTAL: tl.constexpr, TURNS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    program, column = tl.program_id(0), tl.arange(0, WIDTH)
    there = column < width
    gamma = tl.load(weight + column, mask=there, other=0.0).to(tl.float32)
    # Summed over rows only at the end: a sum across threads in every turn would cost more than all the rest.
    d_gamma = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    d_beta = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    d_bias = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    for turn in range(TURNS):
        row = (turn * tl.num_programs(0) + program) * ROWS + tl.arange(0, ROWS)
        inside = (row[:, None] < num_rows) & there[None, :]
        place = row[:, None] * width + column[None, :]
        mean = tl.load(means + row, mask=row < num_rows, other=0.0)
        scale = tl.load(scales + row, mask=row < num_rows, other=0.0)
        s = tl.load(total + place, mask=inside, other=0.0).to(tl.float32)
        normal = tl.where(inside, (s - mean[:, None]) * scale[:, None], 0.0)
        d_y = tl.load(d_output + place, mask=inside, other=0.0).to(tl.float32)
        scaled = d_y * gamma[None, :]
        along = tl.sum(scaled * normal, axis=1) / width
        level = tl.sum(scaled, axis=1) / width
        d_s = (scaled - level[:, None] - normal * along[:, None]) * scale[:, None]
        if HAS_TOTAL:
            d_s += tl.load(d_total + place, mask=inside, other=0.0).to(tl.float32)
        d_s = tl.where(inside, d_s, 0.0)
        d_added = d_s
        if DROPOUT:
            d_added = tl.where(keep_mask(place, seeds, call, threshold), d_s * raise_by, 0.0)
        tl.store(d_x + place, d_s.to(d_x.dtype.element_ty), mask=inside)
        tl.store(d_h + place, d_added.to(d_h.dtype.element_ty), mask=inside)
        d_gamma += d_y * normal
        d_beta += d_y
        d_bias += d_added
    place = partial + program * 3 * width + column
    tl.store(place, tl.sum(d_bias, axis=0), mask=there)
    tl.store(place + width, tl.sum(d_gamma, axis=0), mask=there)
    tl.store(place + 2 * width, tl.sum(d_beta, axis=0), mask=there)


def forward(
    x: Tensor,
    h: Tensor,
    bias: Tensor,
    weight: Tensor,
    shift: Tensor,
    seeds: Tensor,
    call: int,
    dropout: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum, its LayerNorm, and the mean and scale of every row for the backward pass."""
    width = x.shape[-1]
    num_rows = x.numel() // width
    total, output = torch.empty_like(x), torch.empty_like(x)
    means, scales = (torch.empty(num_rows, device=x.device, dtype=torch.float32) for _ in range(2))
    rows, block, warps = _tiling(width, NUMBERS // width)
    _add_norm_forward[(triton.cdiv(num_rows, rows),)](
        x, h, bias, weight, shift, seeds, total, output, means, scales,
        num_rows, width, call, *dropout_constants(dropout), epsilon,
        DROPOUT=dropout > 0, ROWS=rows, WIDTH=block, num_warps=warps,
    )  # fmt: skip
    return total, output, means, scales


def backward(
    total: Tensor,
    weight: Tensor,
    seeds: Tensor,
    statistics: tuple[Tensor, Tensor],
    d_total: Tensor | None,
    d_output: Tensor,
    partial: Tensor,
    *,
    call: int,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Gradients of x and h; writes those of bias, weight and shift as partial sums, (programs, 3 · width)."""
    width = total.shape[-1]
    num_rows = total.numel() // width
    d_x, d_h = torch.empty_like(total), torch.empty_like(total)
    rows, block, warps = _tiling(width, ROWS_BACKWARD)
    turns = triton.cdiv(triton.cdiv(num_rows, rows), len(partial))
    _add_norm_backward[(len(partial),)](
        total, weight, seeds, *statistics, d_output if d_total is None else d_total, d_output, d_x, d_h, partial,
        num_rows, width, call, *dropout_constants(dropout),
        DROPOUT=dropout > 0, HAS_TOTAL=d_total is not None, TURNS=turns,
        ROWS=rows, WIDTH=block, num_warps=warps,
    )  # fmt: skip
    return d_x, d_h


def num_programs(total: Tensor) -> int:
    """Number of programs of the backward pass."""
    rows, _, _ = _tiling(total.shape[-1], ROWS_BACKWARD)
    return int(min(PROGRAMS, triton.cdiv(total.numel() // total.shape[-1], rows)))


def _tiling(width: int, rows: int) -> tuple[int, int, int]:
    """Rows in a tile, its width (a power of two), and the number of warps: sixteen numbers for each thread."""
    block, rows = triton.next_power_of_2(width), triton.next_power_of_2(max(1, rows))
    return rows, block, max(1, min(16, rows * block // 512))
