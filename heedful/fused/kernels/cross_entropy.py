"""Label-smoothed cross-entropy and its gradient in one Triton kernel, without fp32 logits in memory.

A program reads the logits of one token twice, block by block: once for the softmax denominator, once for the gradient.
Eviction policies keep them in the L2 cache between the two reads.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES, GROUPS, WARPS = 2048, 2, 8
"""A block has LANES columns of GROUPS logits. Each lane has a separate running maximum, which saves exponentials."""


@triton.jit
def _cross_entropy(
    logits, labels, token_mask, scale, losses, gradient, vocabulary, smoothing,
    BLOCKS: tl.constexpr, GROUPS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    row_logits = logits + row * vocabulary
    label = tl.load(labels + row)
    is_real = tl.load(token_mask + row) != 0
    block_columns = tl.arange(0, GROUPS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    running_max = tl.full((LANES,), float("-inf"), dtype=tl.float32)
    running_sum = tl.zeros((LANES,), dtype=tl.float32)
    logit_sums = tl.zeros((LANES,), dtype=tl.float32)
    for block in range(BLOCKS):  # online softmax per lane, combined after the loop
        columns = block * (GROUPS * LANES) + block_columns
        mask = (columns < vocabulary) & is_real
        values = tl.load(row_logits + columns, mask=mask, other=float("-inf"), eviction_policy="evict_last").to(
            tl.float32
        )
        new_max = tl.maximum(running_max, tl.max(values, axis=0))
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        running_sum = running_sum * tl.exp(running_max - safe_max) + tl.sum(tl.exp(values - safe_max[None, :]), axis=0)
        logit_sums += tl.sum(tl.where(mask, values, 0.0), axis=0)
        running_max = new_max
    max_logit = tl.where(is_real, tl.max(running_max, axis=0), 0.0)
    logit_sum = tl.sum(logit_sums, axis=0)
    exp_sum = tl.where(is_real, tl.sum(running_sum * tl.exp(running_max - max_logit), axis=0), 1.0)
    label_logit = tl.load(row_logits + label, mask=is_real, other=0.0).to(tl.float32)
    loss = max_logit + tl.log(exp_sum) - (1 - smoothing) * label_logit - smoothing / vocabulary * logit_sum
    tl.store(losses + row, tl.where(is_real, loss, 0.0))
    gradient_scale = tl.where(is_real, tl.load(scale), 0.0)
    prob_scale, uniform_gradient = gradient_scale / exp_sum, gradient_scale * smoothing / vocabulary
    for block in range(BLOCKS):
        columns = block * (GROUPS * LANES) + block_columns
        mask = columns < vocabulary
        values = tl.load(
            row_logits + columns, mask=mask & is_real, other=float("-inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        d_logits = tl.exp(values - max_logit) * prob_scale - uniform_gradient
        d_logits = tl.where(columns == label, d_logits - (1 - smoothing) * gradient_scale, d_logits)
        d_logits = d_logits.to(gradient.dtype.element_ty)
        tl.store(gradient + row * vocabulary + columns, d_logits, mask=mask, eviction_policy="evict_first")


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
