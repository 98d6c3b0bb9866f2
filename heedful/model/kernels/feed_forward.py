"""Backward through the outer matrix of a feed-forward layer and ReLU, in one Triton kernel.

d_inner = d_output W where the inner layer was above zero, and its sum over the rows for the bias: what a matrix product
would write and another kernel read back, mask and write again, is masked before it is written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS, DEPTH, WARPS, STAGES = 128, 128, 64, 4, 3
TOGETHER = 8
"""Blocks of rows that run side by side, so that they find the matrix in the chip's cache."""


@triton.jit
def _feed_forward_backward(
    d_output, weight, inner, d_inner, partial, num_rows, width, depth,
    TURNS: tl.constexpr, EVEN: tl.constexpr, TOGETHER: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    program, row_blocks, column_blocks = tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.cdiv(width, COLUMNS)
    bunch, rest = program // (TOGETHER * column_blocks), program % (TOGETHER * column_blocks)
    in_bunch = min(row_blocks - bunch * TOGETHER, TOGETHER)
    row_block, column_block = bunch * TOGETHER + rest % in_bunch, rest // in_bunch
    row, column = row_block * ROWS + tl.arange(0, ROWS), column_block * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    a_row, b_column = row % num_rows, column % width  # what lies outside is computed and thrown away
    k = tl.arange(0, DEPTH)
    a_at = d_output + a_row[:, None] * depth + k[None, :]
    b_at = weight + k[:, None] * width + b_column[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for turn in range(TURNS):
        if EVEN:
            a, b = tl.load(a_at), tl.load(b_at)
        else:
            left = depth - turn * DEPTH
            a = tl.load(a_at, mask=k[None, :] < left, other=0.0)
            b = tl.load(b_at, mask=k[:, None] < left, other=0.0)
        total = tl.dot(a, b, total)
        a_at += DEPTH
        b_at += DEPTH * width
    place = row[:, None] * width + column[None, :]
    passed = tl.load(inner + place, mask=inside, other=0.0) > 0
    d = tl.where(passed, total, 0.0)
    tl.store(d_inner + place, d.to(d_inner.dtype.element_ty), mask=inside)
    tl.store(partial + row_block * width + column, tl.sum(d, axis=0), mask=column < width)


def programs(inner: Tensor) -> int:
    """Into how many blocks the rows are divided."""
    return int(triton.cdiv(len(inner), ROWS))


def backward(d_output: Tensor, weight: Tensor, inner: Tensor, partial: Tensor) -> Tensor:
    """Gradient of what went into ReLU, (rows, width); writes partial sums of it by column, (blocks, width).

    Given is the gradient of what the outer matrix (depth, width) made of it.
    """
    (num_rows, width), depth = inner.shape, weight.shape[0]
    d_inner = torch.empty_like(inner)
    _feed_forward_backward[(len(partial) * triton.cdiv(width, COLUMNS),)](
        d_output, weight, inner, d_inner, partial, num_rows, width, depth,
        TURNS=triton.cdiv(depth, DEPTH), EVEN=depth % DEPTH == 0, TOGETHER=TOGETHER,
        ROWS=ROWS, COLUMNS=COLUMNS, DEPTH=DEPTH, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return d_inner
