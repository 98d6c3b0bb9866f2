"""Adam's update of one flat vector of weights in one Triton kernel, which also writes their low-precision copy."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 1024, 4


@triton.jit
def _adam(
    weights, gradient, exp_avg, exp_avg_sq, low_precision, learning_rate, bias_corrections, gradient_scale, skipped,
    size, beta1, beta2, epsilon,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (offsets < size) & (tl.load(skipped) == 0)
    g = tl.load(gradient + offsets, mask=mask, other=0.0).to(tl.float32) * tl.load(gradient_scale)
    m = tl.load(exp_avg + offsets, mask=mask, other=0.0)
    v = tl.load(exp_avg_sq + offsets, mask=mask, other=0.0)
    w = tl.load(weights + offsets, mask=mask, other=0.0)
    m += (g - m) * (1 - beta1)
    v = beta2 * v + (1 - beta2) * g * g
    denominator = tl.sqrt(v / tl.load(bias_corrections + 1)) + epsilon
    w -= tl.load(learning_rate) / tl.load(bias_corrections) * m / denominator
    tl.store(weights + offsets, w, mask=mask)
    tl.store(exp_avg + offsets, m, mask=mask)
    tl.store(exp_avg_sq + offsets, v, mask=mask)
    tl.store(low_precision + offsets, w.to(low_precision.dtype.element_ty), mask=mask)


def update(
    weights: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor],
    low_precision: Tensor,
    *,
    learning_rate: Tensor,
    corrections: Tensor,
    factor: Tensor,
    skipped: Tensor,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """Update weights, moments and low-precision copy in place by `factor` times the gradient, unless `skipped`.

    `corrections`: 1 - β₁ᵗ and 1 - β₂ᵗ.
    """
    size = weights.numel()
    _adam[(triton.cdiv(size, BLOCK),)](
        weights, gradient, *moments, low_precision, learning_rate, corrections, factor, skipped, size, *betas, epsilon,
        BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
