"""Backward through the outer matrix of a feed-forward layer and ReLU, in one Triton kernel.

d_inner = d_output W where the inner layer was above zero, and its sum over the rows for the bias. The mask is applied
before the product is written, which saves a second kernel that reads and writes it again. The kernel is persistent: as
many programs as run at a time iterate over the tiles, so that loads of the next tile overlap with the end of the last.
Tiles are copied by the tensor memory accelerator where there is one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from heedful.fused.kernels.device_limits import has_tma, num_multiprocessors, shared_memory

ROWS, COLUMNS, DEPTH, WARPS, STAGES = 128, 128, 64, 4, 4
TOGETHER = 8
"""Blocks of rows that run together, so that they find the matrix in the L2 cache."""


@triton.jit
def _feed_forward_backward(
    d_output, weight, inner, d_inner, partial, num_rows, width, depth,
    PROGRAMS: tl.constexpr, TOGETHER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row_blocks, column_blocks = tl.cdiv(num_rows, ROWS), tl.cdiv(width, COLUMNS)
    turns = tl.cdiv(depth, DEPTH)
    for tile in tl.range(tl.program_id(0), row_blocks * column_blocks, PROGRAMS, flatten=True):
        bunch, rest = tile // (TOGETHER * column_blocks), tile % (TOGETHER * column_blocks)
        in_bunch = min(row_blocks - bunch * TOGETHER, TOGETHER)
        row_block, column_block = bunch * TOGETHER + rest % in_bunch, rest // in_bunch
        row, column = row_block * ROWS, column_block * COLUMNS
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for turn in range(turns):  # numbers outside are read as zero
            total = tl.dot(d_output.load([row, turn * DEPTH]), weight.load([turn * DEPTH, column]), total)
        d = tl.where(inner.load([row, column]) > 0, total, 0.0)
        d_inner.store([row, column], d.to(d_inner.dtype))
        place = column + tl.arange(0, COLUMNS)
        tl.store(partial + row_block * width + place, tl.sum(d, axis=0), mask=place < width)


def num_row_blocks(inner: Tensor) -> int:
    """Number of blocks of rows."""
    return int(triton.cdiv(len(inner), ROWS))


def backward(d_output: Tensor, weight: Tensor, inner: Tensor, partial: Tensor) -> Tensor:
    """Gradient of what went into ReLU, (rows, width); writes partial sums of it by column, (blocks, width).

    `d_output` is the gradient of the product with the outer matrix (depth, width); both are multiples of eight.
    """
    (num_rows, width), depth = inner.shape, weight.shape[0]
    d_inner = torch.empty_like(inner)
    size = inner.element_size()
    left = shared_memory(inner.device) - (2 * ROWS * COLUMNS * size if has_tma(inner.device) else 0)
    stages = max(1, min(STAGES, left // ((ROWS + COLUMNS) * DEPTH * size)))
    count = min(num_multiprocessors(inner.device), len(partial) * triton.cdiv(width, COLUMNS))
    _feed_forward_backward[(count,)](
        TensorDescriptor.from_tensor(d_output, [ROWS, DEPTH]), TensorDescriptor.from_tensor(weight, [DEPTH, COLUMNS]),
        TensorDescriptor.from_tensor(inner, [ROWS, COLUMNS]), TensorDescriptor.from_tensor(d_inner, [ROWS, COLUMNS]),
        partial, num_rows, width, depth,
        PROGRAMS=count, TOGETHER=TOGETHER, ROWS=ROWS, COLUMNS=COLUMNS, DEPTH=DEPTH,
        num_warps=WARPS, num_stages=stages,
    )  # fmt: skip
    return d_inner
