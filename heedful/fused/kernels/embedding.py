"""Embedding times a factor, plus position, with dropout; the gradient of its rows, and their sum into the table's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.dropout import dropout_constants, keep_mask

ROWS, WARPS = 4, 4
TOKENS, COLUMNS, SUM_WARPS = 32, 128, 4
BLOCKS = 16
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


def forward(
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
    _embedding_forward[(triton.cdiv(tokens.numel(), ROWS),)](
        table, table if encodings is None else encodings, tokens, positions, seeds, output,
        tokens.numel(), width, factor, call, *dropout_constants(dropout),
        HAS_ENCODINGS=encodings is not None, DROPOUT=dropout > 0, ROWS=ROWS, WIDTH=triton.next_power_of_2(width),
        num_warps=WARPS,
    )  # fmt: skip
    return output


def backward(d_output: Tensor, seeds: Tensor, call: int, dropout: float, factor: float) -> Tensor:
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


def add_rows(gradient: Tensor, tokens: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
    """Add the rows (…, D) of all tokens (…) to the gradient of a table (vocabulary, D)."""
    first, second = rows if len(rows) == 2 else (torch.cat(list(rows)),) * 2
    kind = torch.int16 if len(gradient) <= MAX_INT16_VOCABULARY else torch.int32
    drawn, order = torch.sort(torch.cat(list(tokens)).to(kind), stable=True)
    number, width = drawn.numel(), gradient.shape[1]
    blocks, columns = triton.cdiv(number, TOKENS), max(16, min(COLUMNS, triton.next_power_of_2(width)))
    heads, tails = torch.empty(2, blocks, width, device=gradient.device, dtype=torch.float32)
    grid = blocks, triton.cdiv(width, columns)
    _sums_inside[grid](
        first, second, drawn, order, gradient, heads, tails, len(first), number, width,
        TOKENS=TOKENS, COLUMNS=columns, num_warps=SUM_WARPS,
    )  # fmt: skip
    _sums_across[grid](
        drawn, gradient, heads, tails, number, blocks, width,
        TOKENS=TOKENS, COLUMNS=columns, BLOCKS=BLOCKS, num_warps=SUM_WARPS,
    )  # fmt: skip
