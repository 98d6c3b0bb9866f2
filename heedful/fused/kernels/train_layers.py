"""Layers of training: embedding, residual sum with dropout and LayerNorm, feed-forward, and sums over rows.

`embedding_*` computes the embedding times a factor plus the position, with dropout, and the gradient of the table.

`add_norm_*` computes s = x + dropout(h + bias) and LayerNorm(s) and reads and writes each number once. Its backward
kernel also sums the gradients of bias, weight and shift over its rows.

`feed_forward_backward` goes backward through the outer matrix of a feed-forward layer and ReLU: d_inner = d_output W
where the inner layer was above zero, and its sum over the rows for the bias. The mask is applied before the product is
written, which saves a second kernel that reads and writes it again. The kernel is persistent: as many programs as run
at a time iterate over the tiles, so that loads of the next tile overlap with the end of the last. Tiles are copied by
the tensor memory accelerator where there is one.
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
def keep_mask(place, seeds, call, threshold):
    """Whether dropout keeps the number at this position: the finaliser of MurmurHash3 over position and seed."""
    mixed = (place.to(tl.uint32) * 0x9E3779B1) ^ tl.load(seeds + call).to(tl.uint32)
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35
    return (mixed ^ (mixed >> 16)) >= threshold.to(tl.uint32)


def dropout_constants(dropout: float) -> tuple[int, float]:
    """The hash below which a number is dropped, and the factor for the others."""
    return int(dropout * 2**32), 1 / (1 - dropout)


# ---- embedding

EMBEDDING_ROWS, EMBEDDING_WARPS = 4, 4
SUM_TOKENS, SUM_COLUMNS, SUM_WARPS = 32, 128, 4
SUM_BLOCKS = 16
"""Partial sums that are added up at a time."""
MAX_INT16_VOCABULARY = 1 << 15


@triton.jit
def _embedding_forward(
    table, encodings, tokens, positions, seeds, output, num_rows, width, factor, call, threshold, raise_by,
    HAS_ENCODINGS: tl.constexpr, DROPOUT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row[:, None] < num_rows) & (column[None, :] < width)
    place = row[:, None] * width + column[None, :]
    token = tl.load(tokens + row, mask=row < num_rows, other=0)
    x = tl.load(table + token[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32) * factor
    if HAS_ENCODINGS:
        position = tl.load(positions + row, mask=row < num_rows, other=0)
        x += tl.load(encodings + position[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if DROPOUT:
        x = tl.where(keep_mask(place, seeds, call, threshold), x * raise_by, 0.0)
    tl.store(output + place, x.to(output.dtype.element_ty), mask=inside)


@triton.jit
def _embedding_backward(
    d_output, seeds, d_drawn, num_numbers, factor, call, threshold, raise_by,
    DROPOUT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = place < num_numbers
    d = tl.load(d_output + place, mask=inside, other=0.0).to(tl.float32) * factor
    if DROPOUT:
        d = tl.where(keep_mask(place, seeds, call, threshold), d * raise_by, 0.0)
    tl.store(d_drawn + place, d.to(d_drawn.dtype.element_ty), mask=inside)


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
    """Gradient of each row that was looked up."""
    d_drawn = torch.empty_like(d_output)
    _embedding_backward[(triton.cdiv(d_output.numel(), 2048),)](
        d_output, seeds, d_drawn, d_output.numel(), factor, call, *dropout_constants(dropout),
        DROPOUT=dropout > 0, SIZE=2048, num_warps=4,
    )  # fmt: skip
    return d_drawn


# ---- gradient of the table
# Tokens are sorted, and a program sums the rows of equal tokens inside its block by a matrix product with zeros and
# ones. A token's run may continue in the next block: such sums are stored and added up by a second kernel. The result
# does not depend on the order in which programs run.


@triton.jit
def _sums_inside(
    first, second, tokens, order, gradient, heads, tails, num_first, num_tokens, width,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    block, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    start, there = block * TOKENS, (column < width)[None, :]
    end = tl.minimum(start + TOKENS, num_tokens)
    place = start + tl.arange(0, TOKENS)
    inside = place < end
    token = tl.load(tokens + place, mask=inside, other=-1).to(tl.int32)
    before = tl.load(tokens + place - 1, mask=inside & (place > start), other=-2).to(tl.int32)
    drawn = tl.load(order + place, mask=inside, other=0)
    one, other = inside & (drawn < num_first), inside & (drawn >= num_first)
    rows = tl.load(first + drawn[:, None] * width + column[None, :], mask=one[:, None] & there, other=0.0)
    drawn -= num_first
    rows += tl.load(second + drawn[:, None] * width + column[None, :], mask=other[:, None] & there, other=0.0)
    number = tl.cumsum((inside & (token != before)).to(tl.int32), axis=0) - 1
    belongs = (number[None, :] == tl.arange(0, TOKENS)[:, None]) & inside[None, :]
    sums = tl.dot(belongs.to(rows.dtype), rows, input_precision="ieee")
    whose = tl.max(tl.where(belongs, token[None, :], -1), axis=1)  # -1: there are fewer different tokens
    comes_from = whose == tl.load(tokens + start - 1, mask=start > 0, other=-2).to(tl.int32)
    goes_on = whose == tl.load(tokens + end, mask=end < num_tokens, other=-2).to(tl.int32)
    is_whole = (whose >= 0) & ~comes_from & ~goes_on
    at = gradient + whose.to(tl.int64)[:, None] * width + column[None, :]
    old = tl.load(at, mask=is_whole[:, None] & there, other=0.0).to(tl.float32)
    tl.store(at, (old + sums).to(gradient.dtype.element_ty), mask=is_whole[:, None] & there)
    kept = block * width + column[None, :] + tl.zeros((TOKENS, 1), dtype=tl.int32)
    tl.store(heads + kept, sums, mask=comes_from[:, None] & there)
    tl.store(tails + kept, sums, mask=(goes_on & ~comes_from)[:, None] & there)


@triton.jit
def _sums_across(
    tokens, gradient, heads, tails, num_tokens, num_blocks, width,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    block, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there, end = column < width, (block + 1) * TOKENS
    token = tl.load(tokens + end - 1, mask=end < num_tokens, other=-1).to(tl.int32)
    before = tl.load(tokens + block * TOKENS - 1, mask=block > 0, other=-1).to(tl.int32)
    goes_on = token == tl.load(tokens + end, mask=end < num_tokens, other=-2).to(tl.int32)
    if goes_on & (token != before):  # a token that begins here and ends elsewhere
        total = tl.load(tails + block * width + column, mask=there, other=0.0)
        later, following = tl.zeros((BLOCKS, COLUMNS), dtype=tl.float32), block + 1
        while goes_on:
            blocks = following + tl.arange(0, BLOCKS)
            same = tl.load(tokens + blocks * TOKENS, mask=blocks < num_blocks, other=-1).to(tl.int32) == token
            inside = same[:, None] & there[None, :]
            later += tl.load(heads + blocks[:, None] * width + column[None, :], mask=inside, other=0.0)
            following += BLOCKS
            goes_on = tl.sum(same.to(tl.int32), axis=0) == BLOCKS
        at = gradient + token.to(tl.int64) * width + column
        total += tl.sum(later, axis=0) + tl.load(at, mask=there, other=0.0).to(tl.float32)
        tl.store(at, total.to(gradient.dtype.element_ty), mask=there)


def embedding_add_rows(gradient: Tensor, tokens: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
    """Add the rows (…, D) of all tokens (…) to the gradient of a table (vocabulary, D)."""
    first, second = rows if len(rows) == 2 else (torch.cat(list(rows)),) * 2
    kind = torch.int16 if len(gradient) <= MAX_INT16_VOCABULARY else torch.int32
    drawn, order = torch.sort(torch.cat(list(tokens)).to(kind), stable=True)
    number, width = drawn.numel(), gradient.shape[1]
    blocks, columns = triton.cdiv(number, SUM_TOKENS), max(16, min(SUM_COLUMNS, triton.next_power_of_2(width)))
    heads, tails = torch.empty(2, blocks, width, device=gradient.device, dtype=torch.float32)
    grid = blocks, triton.cdiv(width, columns)
    _sums_inside[grid](
        first, second, drawn, order, gradient, heads, tails, len(first), number, width,
        TOKENS=SUM_TOKENS, COLUMNS=columns, num_warps=SUM_WARPS,
    )  # fmt: skip
    _sums_across[grid](
        drawn, gradient, heads, tails, number, blocks, width,
        TOKENS=SUM_TOKENS, COLUMNS=columns, BLOCKS=SUM_BLOCKS, num_warps=SUM_WARPS,
    )  # fmt: skip


# ---- residual sum, dropout, LayerNorm

NORM_NUMBERS = 1024
"""Numbers in a tile of the forward pass: two tokens of the base model."""
NORM_ROWS_BACKWARD, NORM_PROGRAMS = 2, 1056
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
    means, scales = (torch.empty(num_rows, device=x.device, dtype=torch.float32) for _ in range(2))
    rows, block, warps = _norm_tiling(width, NORM_NUMBERS // width)
    _add_norm_forward[(triton.cdiv(num_rows, rows),)](
        x, h, bias, weight, shift, seeds, total, output, means, scales,
        num_rows, width, call, *dropout_constants(dropout), epsilon,
        DROPOUT=dropout > 0, ROWS=rows, WIDTH=block, num_warps=warps,
    )  # fmt: skip
    return total, output, means, scales


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
    turns = triton.cdiv(triton.cdiv(num_rows, rows), len(partial))
    _add_norm_backward[(len(partial),)](
        total, weight, seeds, *statistics, d_output if d_total is None else d_total, d_output, d_x, d_h, partial,
        num_rows, width, call, *dropout_constants(dropout),
        DROPOUT=dropout > 0, HAS_TOTAL=d_total is not None, TURNS=turns,
        ROWS=rows, WIDTH=block, num_warps=warps,
    )  # fmt: skip
    return d_x, d_h


def num_add_norm_programs(total: Tensor) -> int:
    """Number of programs of the backward pass."""
    rows, _, _ = _norm_tiling(total.shape[-1], NORM_ROWS_BACKWARD)
    return int(min(NORM_PROGRAMS, triton.cdiv(total.numel() // total.shape[-1], rows)))


def _norm_tiling(width: int, rows: int) -> tuple[int, int, int]:
    """Rows in a tile, its width (a power of two), and the number of warps: sixteen numbers for each thread."""
    block, rows = triton.next_power_of_2(width), triton.next_power_of_2(max(1, rows))
    return rows, block, max(1, min(16, rows * block // 512))


# ---- feed-forward

FF_ROWS, FF_COLUMNS, FF_DEPTH, FF_WARPS, FF_STAGES = 128, 128, 64, 4, 4
FF_TOGETHER = 8
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
    return int(triton.cdiv(len(inner), FF_ROWS))


def feed_forward_backward(d_output: Tensor, weight: Tensor, inner: Tensor, partial: Tensor) -> Tensor:
    """Gradient of what went into ReLU, (rows, width); writes partial sums of it by column, (blocks, width).

    `d_output` is the gradient of the product with the outer matrix (depth, width); both are multiples of eight.
    """
    (num_rows, width), depth = inner.shape, weight.shape[0]
    d_inner = torch.empty_like(inner)
    size = inner.element_size()
    left = shared_memory(inner.device) - (2 * FF_ROWS * FF_COLUMNS * size if has_tma(inner.device) else 0)
    stages = max(1, min(FF_STAGES, left // ((FF_ROWS + FF_COLUMNS) * FF_DEPTH * size)))
    count = min(num_multiprocessors(inner.device), len(partial) * triton.cdiv(width, FF_COLUMNS))
    _feed_forward_backward[(count,)](
        TensorDescriptor.from_tensor(d_output, [FF_ROWS, FF_DEPTH]),
        TensorDescriptor.from_tensor(weight, [FF_DEPTH, FF_COLUMNS]),
        TensorDescriptor.from_tensor(inner, [FF_ROWS, FF_COLUMNS]),
        TensorDescriptor.from_tensor(d_inner, [FF_ROWS, FF_COLUMNS]),
        partial, num_rows, width, depth,
        PROGRAMS=count, TOGETHER=FF_TOGETHER, ROWS=FF_ROWS, COLUMNS=FF_COLUMNS, DEPTH=FF_DEPTH,
        num_warps=FF_WARPS, num_stages=stages,
    )  # fmt: skip
    return d_inner


# ---- sums over rows: partial sums in fp32, one for each program, and their sum in another type

REDUCE_ROWS, REDUCE_COLUMNS, REDUCE_WARPS = 512, 16, 8
COLUMN_SUM_ROWS, COLUMN_SUM_WIDTH = 64, 512
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
    _partial_sums[(triton.cdiv(width, REDUCE_COLUMNS), number)](
        partial,
        output,
        num_rows,
        width,
        TURNS=triton.cdiv(num_rows, REDUCE_ROWS),
        ROWS=REDUCE_ROWS,
        COLUMNS=REDUCE_COLUMNS,
        num_warps=REDUCE_WARPS,
    )
    return output


@triton.jit
def _column_sums(x, partial, num_rows, width, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    block, column = tl.program_id(0), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    row = block * ROWS + tl.arange(0, ROWS)
    inside = (row < num_rows)[:, None] & (column < width)[None, :]
    taken = tl.load(x + row.to(tl.int64)[:, None] * stride + column[None, :], mask=inside, other=0.0)
    tl.store(partial + block * width + column, tl.sum(taken.to(tl.float32), axis=0), mask=column < width)


def num_column_sum_programs(num_rows: int) -> int:
    """Number of programs that sum over so many rows."""
    return int(triton.cdiv(num_rows, COLUMN_SUM_ROWS))


def column_sums(x: Tensor, partial: Tensor) -> None:
    """Write partial sums over the rows of (rows, columns), whose columns are contiguous: (programs, columns)."""
    (num_rows, width), columns = x.shape, min(COLUMN_SUM_WIDTH, triton.next_power_of_2(x.shape[1]))
    _column_sums[(len(partial), triton.cdiv(width, columns))](
        x, partial, num_rows, width, x.stride(0), ROWS=COLUMN_SUM_ROWS, COLUMNS=columns, num_warps=4
    )
