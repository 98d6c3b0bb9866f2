"""Label-smoothed cross-entropy and its gradient in one Triton kernel, so that logits are never written in fp32.

A program reads a token's logits over the whole vocabulary twice, block by block: for the sum of the softmax, then for
the gradient. Eviction policies keep them in the L2 cache between the two reads and no longer.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES, GROUPS, WARPS = 2048, 2, 8
"""A block has LANES columns of GROUPS logits. Each lane keeps its own maximum, since exponentials are costly."""


@triton.jit
def _cross_entropy(
    logits, labels, token_mask, scale, losses, gradient, vocabulary, smoothing,
    BLOCKS: tl.constexpr, GROUPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = logits + row * vocabulary
    label = tl.load(labels + row)
    real = tl.load(token_mask + row) != 0
    column = tl.arange(0, GROUPS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    largest = tl.full((LANES,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((LANES,), dtype=tl.float32)
    of_all = tl.zeros((LANES,), dtype=tl.float32)
    for block in range(BLOCKS):  # each lane by itself, combined after the loop
        here = block * (GROUPS * LANES) + column
        there = (here < vocabulary) & real
        scores = tl.load(at + here, mask=there, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        new = tl.maximum(largest, tl.max(scores, axis=0))
        shift = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(largest - shift) + tl.sum(tl.exp(scores - shift[None, :]), axis=0)
        of_all += tl.sum(tl.where(there, scores, 0.0), axis=0)
        largest = new
    top = tl.where(real, tl.max(largest, axis=0), 0.0)
    sum_of_all = tl.sum(of_all, axis=0)
    normaliser = tl.where(real, tl.sum(total * tl.exp(largest - top), axis=0), 1.0)
    of_label = tl.load(at + label, mask=real, other=0.0).to(tl.float32)
    loss = top + tl.log(normaliser) - (1 - smoothing) * of_label - smoothing / vocabulary * sum_of_all
    tl.store(losses + row, tl.where(real, loss, 0.0))
    factor = tl.where(real, tl.load(scale), 0.0)
    share, everywhere = factor / normaliser, factor * smoothing / vocabulary
    for block in range(BLOCKS):
        here = block * (GROUPS * LANES) + column
        there = here < vocabulary
        scores = tl.load(at + here, mask=there & real, other=float("-inf"), eviction_policy="evict_first").to(
            tl.float32
        )
        d_scores = tl.exp(scores - top) * share - everywhere
        d_scores = tl.where(here == label, d_scores - (1 - smoothing) * factor, d_scores)
        d_scores = d_scores.to(gradient.dtype.element_ty)
        tl.store(gradient + row * vocabulary + here, d_scores, mask=there, eviction_policy="evict_first")


def forward(
    logits: Tensor, labels: Tensor, token_mask: Tensor, scale: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Loss of every row (0 where it is masked), and the gradient of their sum times `scale`."""
    rows, vocabulary = logits.shape
    losses = torch.empty(rows, device=logits.device, dtype=torch.float32)
    gradient = torch.empty_like(logits)
    groups = min(GROUPS, triton.next_power_of_2(triton.cdiv(vocabulary, LANES)))
    _cross_entropy[(rows,)](
        logits, labels, token_mask, scale, losses, gradient, vocabulary, smoothing,
        BLOCKS=triton.cdiv(vocabulary, groups * LANES), GROUPS=groups, LANES=LANES, num_warps=WARPS,
    )  # fmt: skip
    return losses, gradient
