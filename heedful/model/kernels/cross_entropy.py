"""Label-smoothed cross-entropy and its gradient in one Triton kernel: each row of logits is read once.

A row is a token's logits over the whole vocabulary. Softmax, loss and gradient are made while the row is on the chip,
so logits are never written in fp32, and no second pass looks at them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _kernel(logits, labels, counted, scale, losses, gradient, vocabulary, smoothing, SIZE: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    there = column < vocabulary
    label = tl.load(labels + row)
    real = tl.load(counted + row) != 0
    scores = tl.load(logits + row * vocabulary + column, mask=there & real, other=float("-inf")).to(tl.float32)
    largest = tl.where(real, tl.max(scores, axis=0), 0.0)
    powers = tl.exp(scores - largest)
    total = tl.where(real, tl.sum(powers, axis=0), 1.0)
    of_label = tl.sum(tl.where(column == label, scores, 0.0), axis=0)
    of_all = tl.sum(tl.where(there & real, scores, 0.0), axis=0)
    loss = largest + tl.log(total) - (1 - smoothing) * of_label - smoothing / vocabulary * of_all
    tl.store(losses + row, tl.where(real, loss, 0.0))
    wanted = tl.where(column == label, 1 - smoothing, 0.0) + smoothing / vocabulary
    d_scores = tl.where(real, (powers / total - wanted) * tl.load(scale), 0.0)
    tl.store(gradient + row * vocabulary + column, d_scores.to(gradient.dtype.element_ty), mask=there)


def forward(logits: Tensor, labels: Tensor, counted: Tensor, scale: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Loss of every row (0 where it does not count), and the gradient of their sum times `scale`."""
    rows, vocabulary = logits.shape
    losses = torch.empty(rows, device=logits.device, dtype=torch.float32)
    gradient = torch.empty_like(logits)
    size = triton.next_power_of_2(vocabulary)
    _kernel[(rows,)](
        logits, labels, counted, scale, losses, gradient, vocabulary, smoothing,
        SIZE=size, num_warps=32 if size >= 1 << 15 else 16 if size >= 1 << 13 else 4,
    )  # fmt: skip
    return losses, gradient
