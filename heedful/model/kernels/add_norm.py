"""Residual sum, dropout and LayerNorm in one Triton kernel a direction: what stands between two matrix products.

`add_norm(x, h, …)` gives s = x + dropout(h + bias) and LayerNorm(s), reading and writing each number once. The backward
kernel also sums the gradients of bias, weight and shift over the rows it has at hand. Which numbers dropout keeps is
a hash of their place and a seed, computed again in the backward pass rather than remembered.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 4
"""Tokens that one program holds at a time."""
PROGRAMS = 528
"""Programs of the backward pass, four for each multiprocessor of an H200; each leaves one partial sum."""


@triton.jit
def _keeps(place, seeds, call, threshold):
    """Whether dropout keeps the number at this place: the finaliser of MurmurHash3 over place and seed."""
    mixed = (place.to(tl.uint32) * 0x9E3779B1) ^ tl.load(seeds + call).to(tl.uint32)
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35
    return (mixed ^ (mixed >> 16)) >= threshold.to(tl.uint32)


@triton.jit
def _forward(
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
        added = tl.where(_keeps(place, seeds, call, threshold), added * raise_by, 0.0)
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
def _backward(
    total, weight, seeds, means, scales, d_total, d_output, d_x, d_h, partial,
    num_rows, width, call, threshold, raise_by,
    DROPOUT: tl.constexpr, HAS_TOTAL: tl.constexpr, TURNS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    program, column = tl.program_id(0), tl.arange(0, WIDTH)
    there = column < width
    gamma = tl.load(weight + column, mask=there, other=0.0).to(tl.float32)
    d_gamma = tl.zeros((WIDTH,), dtype=tl.float32)
    d_beta = tl.zeros((WIDTH,), dtype=tl.float32)
    d_bias = tl.zeros((WIDTH,), dtype=tl.float32)
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
            d_added = tl.where(_keeps(place, seeds, call, threshold), d_s * raise_by, 0.0)
        tl.store(d_x + place, d_s.to(d_x.dtype.element_ty), mask=inside)
        tl.store(d_h + place, d_added.to(d_h.dtype.element_ty), mask=inside)
        d_gamma += tl.sum(d_y * normal, axis=0)
        d_beta += tl.sum(d_y, axis=0)
        d_bias += tl.sum(d_added, axis=0)
    place = partial + program * 3 * width + column
    tl.store(place, d_bias, mask=there)
    tl.store(place + width, d_gamma, mask=there)
    tl.store(place + 2 * width, d_beta, mask=there)


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
    """The sum, its LayerNorm, and mean and scale of every row, for the backward pass."""
    width = x.shape[-1]
    num_rows = x.numel() // width
    total, output = torch.empty_like(x), torch.empty_like(x)
    means, scales = (torch.empty(num_rows, device=x.device, dtype=torch.float32) for _ in range(2))
    _forward[(triton.cdiv(num_rows, ROWS),)](
        x, h, bias, weight, shift, seeds, total, output, means, scales,
        num_rows, width, call, *_dropped(dropout), epsilon,
        DROPOUT=dropout > 0, ROWS=ROWS, WIDTH=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    return total, output, means, scales


def backward(
    total: Tensor,
    weight: Tensor,
    seeds: Tensor,
    statistics: tuple[Tensor, Tensor],
    d_total: Tensor | None,
    d_output: Tensor,
    *,
    call: int,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x and h, and those of bias, weight and shift as three rows."""
    width = total.shape[-1]
    num_rows = total.numel() // width
    d_x, d_h = torch.empty_like(total), torch.empty_like(total)
    blocks = triton.cdiv(num_rows, ROWS)
    programs = min(PROGRAMS, blocks)
    partial = torch.empty(programs, 3, width, device=total.device, dtype=torch.float32)
    _backward[(programs,)](
        total, weight, seeds, *statistics, d_output if d_total is None else d_total, d_output, d_x, d_h, partial,
        num_rows, width, call, *_dropped(dropout),
        DROPOUT=dropout > 0, HAS_TOTAL=d_total is not None, TURNS=triton.cdiv(blocks, programs),
        ROWS=ROWS, WIDTH=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    return d_x, d_h, partial.sum(dim=0)


def _dropped(dropout: float) -> tuple[int, float]:
    """Below which hash a number is dropped, and by what the others are raised."""
    return int(dropout * 2**32), 1 / (1 - dropout)
