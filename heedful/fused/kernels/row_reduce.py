"""Sums over rows: partial sums in fp32, one for each program, and their sum in another type."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS, ROWS, WARPS = 16, 512, 8
ROWS_EACH, WIDTH = 64, 512
"""Tile of a long sum; all its rows are loaded together to keep the memory busy."""


@triton.jit
def _partial_sums(
    partial, output, num_rows, width, TURNS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    which, column = tl.program_id(1), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    partial += which.to(tl.int64) * num_rows * width
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for turn in range(TURNS):
        row = turn * ROWS + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & (column < width)[None, :]
        total += tl.load(partial + row[:, None] * width + column[None, :], mask=inside, other=0.0)
    tl.store(output + which * width + column, tl.sum(total, axis=0).to(output.dtype.element_ty), mask=column < width)


def summed(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum over the second of three dimensions."""
    number, num_rows, width = partial.shape
    output = torch.empty(number, width, device=partial.device, dtype=dtype)
    _partial_sums[(triton.cdiv(width, COLUMNS), number)](
        partial, output, num_rows, width, TURNS=triton.cdiv(num_rows, ROWS), ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS
    )
    return output


@triton.jit
def _column_sums(x, partial, num_rows, width, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    block, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = block * ROWS + tl.arange(0, ROWS)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    taken = tl.load(x + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)
    tl.store(partial + block * width + column, tl.sum(taken.to(tl.float32), axis=0), mask=column < width)


def num_programs(num_rows: int) -> int:
    """Number of programs that sum over so many rows."""
    return int(triton.cdiv(num_rows, ROWS_EACH))


def column_sums(x: Tensor, partial: Tensor) -> None:
    """Write partial sums over the rows of (rows, columns), whose columns are contiguous: (programs, columns)."""
    (num_rows, width), columns = x.shape, min(WIDTH, triton.next_power_of_2(x.shape[1]))
    _column_sums[(len(partial), triton.cdiv(width, columns))](
        x, partial, num_rows, width, x.stride(0), ROWS=ROWS_EACH, COLUMNS=columns, num_warps=4
    )
