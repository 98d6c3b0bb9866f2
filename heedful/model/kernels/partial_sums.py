"""The last step of a sum over rows: from partial sums in fp32, which many programs left, to one row of another type."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS, ROWS, WARPS = 16, 512, 8


@triton.jit
def _partial_sums(
    partial, output, num_rows, width, TURNS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for turn in range(TURNS):
        row = turn * ROWS + tl.arange(0, ROWS)
        inside = (row < num_rows)[:, None] & (column < width)[None, :]
        total += tl.load(partial + row[:, None] * width + column[None, :], mask=inside, other=0.0)
    tl.store(output + column, tl.sum(total, axis=0).to(output.dtype.element_ty), mask=column < width)


def summed(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum over the first dimension, as one long row."""
    num_rows, width = partial.shape[0], partial.numel() // partial.shape[0]
    output = torch.empty(width, device=partial.device, dtype=dtype)
    _partial_sums[(triton.cdiv(width, COLUMNS),)](
        partial, output, num_rows, width, TURNS=triton.cdiv(num_rows, ROWS), ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS
    )
    return output
