"""Embedding times a factor, plus position, with dropout: one Triton kernel, and one for its gradient."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.dropout import dropped, keeps

ROWS, WARPS = 4, 4


@triton.jit
def _embedding_forward(
    table, places, tokens, positions, seeds, output, num_rows, width, factor, call, threshold, raise_by,
    HAS_PLACES: tl.constexpr, DROPOUT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (row[:, None] < num_rows) & (column[None, :] < width)
    place = row[:, None] * width + column[None, :]
    token = tl.load(tokens + row, mask=row < num_rows, other=0)
    x = tl.load(table + token[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32) * factor
    if HAS_PLACES:
        position = tl.load(positions + row, mask=row < num_rows, other=0)
        x += tl.load(places + position[:, None] * width + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if DROPOUT:
        x = tl.where(keeps(place, seeds, call, threshold), x * raise_by, 0.0)
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
        d = tl.where(keeps(place, seeds, call, threshold), d * raise_by, 0.0)
    tl.store(d_drawn + place, d.to(d_drawn.dtype.element_ty), mask=inside)


def forward(
    table: Tensor,
    places: Tensor | None,
    tokens: Tensor,
    positions: Tensor,
    seeds: Tensor,
    call: int,
    dropout: float,
    factor: float,
) -> Tensor:
    """dropout(table[token] · factor + places[position]): (B, T, D)."""
    width = table.shape[1]
    output = torch.empty(*tokens.shape, width, device=table.device, dtype=table.dtype)
    _embedding_forward[(triton.cdiv(tokens.numel(), ROWS),)](
        table, table if places is None else places, tokens, positions, seeds, output,
        tokens.numel(), width, factor, call, *dropped(dropout),
        HAS_PLACES=places is not None, DROPOUT=dropout > 0, ROWS=ROWS, WIDTH=triton.next_power_of_2(width),
        num_warps=WARPS,
    )  # fmt: skip
    return output


def backward(d_output: Tensor, seeds: Tensor, call: int, dropout: float, factor: float) -> Tensor:
    """Gradient of each row that was drawn from the table."""
    d_drawn = torch.empty_like(d_output)
    _embedding_backward[(triton.cdiv(d_output.numel(), 2048),)](
        d_output, seeds, d_drawn, d_output.numel(), factor, call, *dropped(dropout),
        DROPOUT=dropout > 0, SIZE=2048, num_warps=4,
    )  # fmt: skip
    return d_drawn
