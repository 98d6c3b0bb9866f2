"""Layers of training: embedding, residual sum with dropout and LayerNorm, feed-forward, and sums over rows.

`embedding_*` computes the embedding times a factor plus the position, with dropout, and the gradient of the table.

`add_norm_*` computes s = x + dropout(h + bias) and LayerNorm(s), reading and writing each number once. Its backward
kernel also sums the gradients of bias, weight and shift over its rows.

`feed_forward_backward` is the backward pass of the outer matrix of a feed-forward layer and ReLU: d_inner = d_output W
where the inner layer is positive, and its sum over the rows for the bias. The mask is applied before the product is
written, which saves a second kernel that reads and writes it again. The kernel is persistent: each program iterates
over tiles, so that the loads of the next tile overlap with the end of the last. Tiles are copied by the tensor memory
accelerator (TMA) if the GPU has one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from heedful.fused.kernels.sizes import has_tma, num_multiprocessors, shared_memory

# ---- dropout


@triton.jit
def dropout_mask(index, seeds, call, threshold):
    """Whether dropout keeps the element at this index: the finaliser of MurmurHash3 over index and seed."""
    hashed = (index.to(tl.uint32) * 0x9E3779B1) ^ tl.load(seeds + call).to(tl.uint32)
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35
    return (hashed ^ (hashed >> 16)) >= threshold.to(tl.uint32)


def dropout_constants(dropout: float) -> tuple[int, float]:
    """The hash threshold below which an element is dropped, and the scale of the others."""
    return int(dropout * 2**32), 1 / (1 - dropout)


# ---- embedding

EMBEDDING_ROWS, EMBEDDING_WARPS = 4, 4
SUM_TOKENS, SUM_COLUMNS, SUM_WARPS = 32, 128, 4
SUM_BLOCKS = 16
"""Partial sums that are loaded at a time."""
MAX_INT16_VOCABULARY = 1 << 15


@triton.jit
def _embedding_forward(
    table, encodings, tokens, positions, seeds, output, num_rows, width, factor, call, threshold, keep_scale,
    HAS_ENCODINGS: tl.constexpr, DROPOUT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask = (row[:, None] < num_rows) & (column[None, :] < width)
    offsets = row[:, None] * width + column[None, :]
    token = tl.load(tokens + row, mask=row < num_rows, other=0)
    x = tl.load(table + token[:, None] * width + column[None, :], mask=mask, other=0.0).to(tl.float32) * factor
    if HAS_ENCODINGS:
        position = tl.load(positions + row, mask=row < num_rows, other=0)
        x += tl.load(encodings + position[:, None] * width + column[None, :], mask=mask, other=0.0).to(tl.float32)
    if DROPOUT:
        x = tl.where(dropout_mask(offsets, seeds, call, threshold), x * keep_scale, 0.0)
    tl.store(output + offsets, x.to(output.dtype.element_ty), mask=mask)


@triton.jit
def _embedding_backward(
    d_output, seeds, d_rows, num_elements, factor, call, threshold, keep_scale,
    DROPOUT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    mask = offsets < num_elements
    d = tl.load(d_output + offsets, mask=mask, other=0.0).to(tl.float32) * factor
    if DROPOUT:
        d = tl.where(dropout_mask(offsets, seeds, call, threshold), d * keep_scale, 0.0)
    tl.store(d_rows + offsets, d.to(d_rows.dtype.element_ty), mask=mask)


def embedding_forward(
    table: Tensor,
    encodings: Tensor | None,
    tokens: Tensor,
    positions: Tensor,
    seeds: Tensor,
    call: int,
    dropout: float,
    factor: float,
) -> Tensor:
    """dropout(table[token] · factor + encodings[position]): (B, T, D)."""
    width = table.shape[1]
    output = torch.empty(*tokens.shape, width, device=table.device, dtype=table.dtype)
    _embedding_forward[(triton.cdiv(tokens.numel(), EMBEDDING_ROWS),)](
        table, table if encodings is None else encodings, tokens, positions, seeds, output,
        tokens.numel(), width, factor, call, *dropout_constants(dropout),
        HAS_ENCODINGS=encodings is not None, DROPOUT=dropout > 0, ROWS=EMBEDDING_ROWS,
        WIDTH=triton.next_power_of_2(width), num_warps=EMBEDDING_WARPS,
    )  # fmt: skip
    return output


def embedding_backward(d_output: Tensor, seeds: Tensor, call: int, dropout: float, factor: float) -> Tensor:
    """Gradient of each embedding row looked up."""
    d_rows = torch.empty_like(d_output)
    _embedding_backward[(triton.cdiv(d_output.numel(), 2048),)](
        d_output, seeds, d_rows, d_output.numel(), factor, call, *dropout_constants(dropout),
        DROPOUT=dropout > 0, SIZE=2048, num_warps=4,
    )  # fmt: skip
    return d_rows


# ---- gradient of the table
# Tokens are sorted, and a program sums the rows of equal tokens within its block by a matrix product with a 0/1 matrix.
# A run of equal tokens may continue in the next block: these sums are stored and added up by a second kernel. The
# result does not depend on the order in which programs run.


@triton.jit
def _block_sums(
    first, second, tokens, order, gradient, heads, tails, num_first, num_tokens, width,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    block, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    start, column_mask = block * TOKENS, (column < width)[None, :]
    end = tl.minimum(start + TOKENS, num_tokens)
    position = start + tl.arange(0, TOKENS)
    mask = position < end
    token = tl.load(tokens + position, mask=mask, other=-1).to(tl.int32)
    previous_token = tl.load(tokens + position - 1, mask=mask & (position > start), other=-2).to(tl.int32)
    index = tl.load(order + position, mask=mask, other=0)
    in_first, in_second = mask & (index < num_first), mask & (index >= num_first)
    rows = tl.load(first + index[:, None] * width + column[None, :], mask=in_first[:, None] & column_mask, other=0.0)
    index -= num_first
    rows += tl.load(second + index[:, None] * width + column[None, :], mask=in_second[:, None] & column_mask, other=0.0)
    run = tl.cumsum((mask & (token != previous_token)).to(tl.int32), axis=0) - 1
    membership = (run[None, :] == tl.arange(0, TOKENS)[:, None]) & mask[None, :]
    sums = tl.dot(membership.to(rows.dtype), rows, input_precision="ieee")
    run_token = tl.max(tl.where(membership, token[None, :], -1), axis=1)  # -1: no such run in this block
    continued = run_token == tl.load(tokens + start - 1, mask=start > 0, other=-2).to(tl.int32)
    continues = run_token == tl.load(tokens + end, mask=end < num_tokens, other=-2).to(tl.int32)
    is_complete = (run_token >= 0) & ~continued & ~continues
    pointers = gradient + run_token.to(tl.int64)[:, None] * width + column[None, :]
    previous = tl.load(pointers, mask=is_complete[:, None] & column_mask, other=0.0).to(tl.float32)
    tl.store(pointers, (previous + sums).to(gradient.dtype.element_ty), mask=is_complete[:, None] & column_mask)
    block_offsets = block * width + column[None, :] + tl.zeros((TOKENS, 1), dtype=tl.int32)
    tl.store(heads + block_offsets, sums, mask=continued[:, None] & column_mask)
    tl.store(tails + block_offsets, sums, mask=(continues & ~continued)[:, None] & column_mask)


@triton.jit
def _cross_block_sums(
    tokens, gradient, heads, tails, num_tokens, num_blocks, width,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    block, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask, end = column < width, (block + 1) * TOKENS
    token = tl.load(tokens + end - 1, mask=end < num_tokens, other=-1).to(tl.int32)
    previous_token = tl.load(tokens + block * TOKENS - 1, mask=block > 0, other=-1).to(tl.int32)
    continues = token == tl.load(tokens + end, mask=end < num_tokens, other=-2).to(tl.int32)
    if continues & (token != previous_token):  # a run that starts in this block and continues
        total = tl.load(tails + block * width + column, mask=mask, other=0.0)
        later_sums, next_block = tl.zeros((BLOCKS, COLUMNS), dtype=tl.float32), block + 1
        while continues:
            blocks = next_block + tl.arange(0, BLOCKS)
            same = tl.load(tokens + blocks * TOKENS, mask=blocks < num_blocks, other=-1).to(tl.int32) == token
            block_mask = same[:, None] & mask[None, :]
            later_sums += tl.load(heads + blocks[:, None] * width + column[None, :], mask=block_mask, other=0.0)
            next_block += BLOCKS
            continues = tl.sum(same.to(tl.int32), axis=0) == BLOCKS
        pointers = gradient + token.to(tl.int64) * width + column
        total += tl.sum(later_sums, axis=0) + tl.load(pointers, mask=mask, other=0.0).to(tl.float32)
        tl.store(pointers, total.to(gradient.dtype.element_ty), mask=mask)


def embedding_add_rows(gradient: Tensor, tokens: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
    """Add the rows (…, D) of all tokens (…) to the gradient of a table (vocabulary, D)."""
    first, second = rows if len(rows) == 2 else (torch.cat(list(rows)),) * 2
    dtype = torch.int16 if len(gradient) <= MAX_INT16_VOCABULARY else torch.int32
    sorted_tokens, order = torch.sort(torch.cat(list(tokens)).to(dtype), stable=True)
    num_tokens, width = sorted_tokens.numel(), gradient.shape[1]
    num_blocks, columns = triton.cdiv(num_tokens, SUM_TOKENS), max(16, min(SUM_COLUMNS, triton.next_power_of_2(width)))
    heads, tails = torch.empty(2, num_blocks, width, device=gradient.device, dtype=torch.float32)
    grid = num_blocks, triton.cdiv(width, columns)
    _block_sums[grid](
        first, second, sorted_tokens, order, gradient, heads, tails, len(first), num_tokens, width,
        TOKENS=SUM_TOKENS, COLUMNS=columns, num_warps=SUM_WARPS,
    )  # fmt: skip
    _cross_block_sums[grid](
        sorted_tokens, gradient, heads, tails, num_tokens, num_blocks, width,
        TOKENS=SUM_TOKENS, COLUMNS=columns, BLOCKS=SUM_BLOCKS, num_warps=SUM_WARPS,
    )  # fmt: skip


# ---- residual sum, dropout, LayerNorm

NORM_TILE_SIZE = 1024
"""Elements in a tile of the forward pass: two tokens of the base model."""
NORM_ROWS_BACKWARD, NORM_PROGRAMS = 2, 1056
"""Tokens in a tile of the backward pass, and the number of its programs (eight for each multiprocessor of an H200);
each program writes one partial sum."""


@triton.jit
def _add_norm_forward(
    x, h, bias, weight, shift, seeds, total, output, means, inverse_stds,
    num_rows, width, call, threshold, keep_scale, epsilon,
    DROPOUT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    column_mask = column < width
    mask = (row[:, None] < num_rows) & column_mask[None, :]
    offsets = row[:, None] * width + column[None, :]
    branch = tl.load(h + offsets, mask=mask, other=0.0).to(tl.float32)
    branch += tl.load(bias + column, mask=column_mask, other=0.0).to(tl.float32)[None, :]
    if DROPOUT:
        branch = tl.where(dropout_mask(offsets, seeds, call, threshold), branch * keep_scale, 0.0)
    residual = (tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32) + branch).to(total.dtype.element_ty)
    tl.store(total + offsets, residual, mask=mask)
    residual = tl.where(mask, residual.to(tl.float32), 0.0)
    mean = tl.sum(residual, axis=1) / width
    centred = tl.where(mask, residual - mean[:, None], 0.0)
    inverse_std = tl.rsqrt(tl.sum(centred * centred, axis=1) / width + epsilon)
    gamma = tl.load(weight + column, mask=column_mask, other=0.0).to(tl.float32)
    beta = tl.load(shift + column, mask=column_mask, other=0.0).to(tl.float32)
    y = centred * inverse_std[:, None] * gamma[None, :] + beta[None, :]
    tl.store(output + offsets, y.to(output.dtype.element_ty), mask=mask)
    tl.store(means + row, mean, mask=row < num_rows)
    tl.store(inverse_stds + row, inverse_std, mask=row < num_rows)


@triton.jit
def _add_norm_backward(
    total, weight, seeds, means, inverse_stds, d_total, d_output, d_x, d_h, partial,
    num_rows, width, call, threshold, keep_scale,
    DROPOUT: tl.constexpr, HAS_TOTAL: tl.constexpr, NUM_TILES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    program, column = tl.program_id(0), tl.arange(0, WIDTH)
    column_mask = column < width
    gamma = tl.load(weight + column, mask=column_mask, other=0.0).to(tl.float32)
    # Summed over rows only at the end: a reduction across threads in every iteration would dominate the time.
    d_gamma = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    d_beta = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    d_bias = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    for tile in range(NUM_TILES):
        row = (tile * tl.num_programs(0) + program) * ROWS + tl.arange(0, ROWS)
        mask = (row[:, None] < num_rows) & column_mask[None, :]
        offsets = row[:, None] * width + column[None, :]
        mean = tl.load(means + row, mask=row < num_rows, other=0.0)
        inverse_std = tl.load(inverse_stds + row, mask=row < num_rows, other=0.0)
        residual = tl.load(total + offsets, mask=mask, other=0.0).to(tl.float32)
        normalised = tl.where(mask, (residual - mean[:, None]) * inverse_std[:, None], 0.0)
        d_y = tl.load(d_output + offsets, mask=mask, other=0.0).to(tl.float32)
        scaled = d_y * gamma[None, :]
        mean_product = tl.sum(scaled * normalised, axis=1) / width
        mean_scaled = tl.sum(scaled, axis=1) / width
        d_residual = (scaled - mean_scaled[:, None] - normalised * mean_product[:, None]) * inverse_std[:, None]
        if HAS_TOTAL:
            d_residual += tl.load(d_total + offsets, mask=mask, other=0.0).to(tl.float32)
        d_residual = tl.where(mask, d_residual, 0.0)
        d_branch = d_residual
        if DROPOUT:
            d_branch = tl.where(dropout_mask(offsets, seeds, call, threshold), d_residual * keep_scale, 0.0)
        tl.store(d_x + offsets, d_residual.to(d_x.dtype.element_ty), mask=mask)
        tl.store(d_h + offsets, d_branch.to(d_h.dtype.element_ty), mask=mask)
        d_gamma += d_y * normalised
        d_beta += d_y
        d_bias += d_branch
    offsets = partial + program * 3 * width + column
    tl.store(offsets, tl.sum(d_bias, axis=0), mask=column_mask)
    tl.store(offsets + width, tl.sum(d_gamma, axis=0), mask=column_mask)
    tl.store(offsets + 2 * width, tl.sum(d_beta, axis=0), mask=column_mask)


def add_norm_forward(
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
    means, inverse_stds = (torch.empty(num_rows, device=x.device, dtype=torch.float32) for _ in range(2))
    rows, block, warps = _norm_tiling(width, NORM_TILE_SIZE // width)
    _add_norm_forward[(triton.cdiv(num_rows, rows),)](
        x, h, bias, weight, shift, seeds, total, output, means, inverse_stds,
        num_rows, width, call, *dropout_constants(dropout), epsilon,
        DROPOUT=dropout > 0, ROWS=rows, WIDTH=block, num_warps=warps,
    )  # fmt: skip
    return total, output, means, inverse_stds


def add_norm_backward(
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
    rows, block, warps = _norm_tiling(width, NORM_ROWS_BACKWARD)
    num_tiles = triton.cdiv(triton.cdiv(num_rows, rows), len(partial))
    _add_norm_backward[(len(partial),)](
        total, weight, seeds, *statistics, d_output if d_total is None else d_total, d_output, d_x, d_h, partial,
        num_rows, width, call, *dropout_constants(dropout),
        DROPOUT=dropout > 0, HAS_TOTAL=d_total is not None, NUM_TILES=num_tiles,
        ROWS=rows, WIDTH=block, num_warps=warps,
    )  # fmt: skip
    return d_x, d_h


def num_add_norm_programs(total: Tensor) -> int:
    """Number of programs of the backward pass."""
    rows, _, _ = _norm_tiling(total.shape[-1], NORM_ROWS_BACKWARD)
    return int(min(NORM_PROGRAMS, triton.cdiv(total.numel() // total.shape[-1], rows)))


def _norm_tiling(width: int, rows: int) -> tuple[int, int, int]:
    """Rows in a tile, its width (a power of two), and the number of warps: sixteen elements per thread."""
    block, rows = triton.next_power_of_2(width), triton.next_power_of_2(max(1, rows))
    return rows, block, max(1, min(16, rows * block // 512))


# ---- feed-forward

FF_ROWS, FF_COLUMNS, FF_DEPTH, FF_WARPS, FF_STAGES = 128, 128, 64, 4, 4
FF_GROUP = 8
"""Blocks of rows that run together, so that the matrix stays in the L2 cache."""


@triton.jit
def _feed_forward_backward(
    d_output, weight, inner, d_inner, partial, num_rows, width, depth,
    PROGRAMS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    row_blocks, column_blocks = tl.cdiv(num_rows, ROWS), tl.cdiv(width, COLUMNS)
    num_depth_blocks = tl.cdiv(depth, DEPTH)
    for tile in tl.range(tl.program_id(0), row_blocks * column_blocks, PROGRAMS, flatten=True):
        group, rest = tile // (GROUP * column_blocks), tile % (GROUP * column_blocks)
        group_rows = min(row_blocks - group * GROUP, GROUP)
        row_block, column_block = group * GROUP + rest % group_rows, rest // group_rows
        row, column = row_block * ROWS, column_block * COLUMNS
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for depth_block in range(num_depth_blocks):  # elements out of bounds are loaded as zero
            total = tl.dot(d_output.load([row, depth_block * DEPTH]), weight.load([depth_block * DEPTH, column]), total)
        d_tile = tl.where(inner.load([row, column]) > 0, total, 0.0)
        d_inner.store([row, column], d_tile.to(d_inner.dtype))
        columns = column + tl.arange(0, COLUMNS)
        tl.store(partial + row_block * width + columns, tl.sum(d_tile, axis=0), mask=columns < width)


def num_row_blocks(inner: Tensor) -> int:
    """Number of blocks of rows."""
    return int(triton.cdiv(len(inner), FF_ROWS))


def feed_forward_backward(d_output: Tensor, weight: Tensor, inner: Tensor, partial: Tensor) -> Tensor:
    """Gradient of the input of ReLU, (rows, width); writes its partial sums by column, (blocks, width).

    `d_output` is the gradient of the product with the outer matrix (depth, width); both are multiples of eight.
    """
    (num_rows, width), depth = inner.shape, weight.shape[0]
    d_inner = torch.empty_like(inner)
    size = inner.element_size()
    available = shared_memory(inner.device) - (2 * FF_ROWS * FF_COLUMNS * size if has_tma(inner.device) else 0)
    stages = max(1, min(FF_STAGES, available // ((FF_ROWS + FF_COLUMNS) * FF_DEPTH * size)))
    num_programs = min(num_multiprocessors(inner.device), len(partial) * triton.cdiv(width, FF_COLUMNS))
    _feed_forward_backward[(num_programs,)](
        TensorDescriptor.from_tensor(d_output, [FF_ROWS, FF_DEPTH]),
        TensorDescriptor.from_tensor(weight, [FF_DEPTH, FF_COLUMNS]),
        TensorDescriptor.from_tensor(inner, [FF_ROWS, FF_COLUMNS]),
        TensorDescriptor.from_tensor(d_inner, [FF_ROWS, FF_COLUMNS]),
        partial, num_rows, width, depth,
        PROGRAMS=num_programs, GROUP=FF_GROUP, ROWS=FF_ROWS, COLUMNS=FF_COLUMNS, DEPTH=FF_DEPTH,
        num_warps=FF_WARPS, num_stages=stages,
    )  # fmt: skip
    return d_inner


# ---- sums over rows: fp32 partial sums, one for each program, and their total in another dtype

REDUCE_ROWS, REDUCE_COLUMNS, REDUCE_WARPS = 512, 16, 8
COLUMN_SUM_ROWS, COLUMN_SUM_WIDTH = 64, 512
"""Tile of a column sum; all of its rows are loaded together to saturate memory bandwidth."""


@triton.jit
def _sum_partials(
    partial, output, num_rows, width, NUM_BLOCKS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    index, column = tl.program_id(1), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    partial += index.to(tl.int64) * num_rows * width
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for block in range(NUM_BLOCKS):
        row = block * ROWS + tl.arange(0, ROWS)
        mask = (row < num_rows)[:, None] & (column < width)[None, :]
        total += tl.load(partial + row[:, None] * width + column[None, :], mask=mask, other=0.0)
    tl.store(output + index * width + column, tl.sum(total, axis=0).to(output.dtype.element_ty), mask=column < width)


def sum_partials(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum over the second of three dimensions."""
    count, num_rows, width = partial.shape
    output = torch.empty(count, width, device=partial.device, dtype=dtype)
    _sum_partials[(triton.cdiv(width, REDUCE_COLUMNS), count)](
        partial,
        output,
        num_rows,
        width,
        NUM_BLOCKS=triton.cdiv(num_rows, REDUCE_ROWS),
        ROWS=REDUCE_ROWS,
        COLUMNS=REDUCE_COLUMNS,
        num_warps=REDUCE_WARPS,
    )
    return output


@triton.jit
def _column_sums(x, partial, num_rows, width, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    block, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = block * ROWS + tl.arange(0, ROWS)
    mask = (row < num_rows)[:, None] & (column < width)[None, :]
    values = tl.load(x + row.to(tl.int64)[:, None] * stride + column[None, :], mask=mask, other=0.0)
    tl.store(partial + block * width + column, tl.sum(values.to(tl.float32), axis=0), mask=column < width)


def num_column_sum_programs(num_rows: int) -> int:
    """Number of programs of a column sum over this many rows."""
    return int(triton.cdiv(num_rows, COLUMN_SUM_ROWS))


def column_sums(x: Tensor, partial: Tensor) -> None:
    """Write partial sums over the rows of (rows, columns), whose columns are contiguous: (programs, columns)."""
    (num_rows, width), columns = x.shape, min(COLUMN_SUM_WIDTH, triton.next_power_of_2(x.shape[1]))
    _column_sums[(len(partial), triton.cdiv(width, columns))](
        x, partial, num_rows, width, x.stride(0), ROWS=COLUMN_SUM_ROWS, COLUMNS=columns, num_warps=4
    )
