"""Adam's update of one flat vector of weights in one Triton kernel, which also writes their low-precision copy."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 1024, 4


@triton.jit
def _adam(
    weights, gradient, first, second, low_precision, learning_rate, corrections, factor, skipped, size,
    keep_first, keep_second, epsilon,
    BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = (place < size) & (tl.load(skipped) == 0)
    g = tl.load(gradient + place, mask=there, other=0.0).to(tl.float32) * tl.load(factor)
    m = tl.load(first + place, mask=there, other=0.0)
    v = tl.load(second + place, mask=there, other=0.0)
    w = tl.load(weights + place, mask=there, other=0.0)
    m += (g - m) * (1 - keep_first)
    v = keep_second * v + (1 - keep_second) * g * g
    down = tl.sqrt(v / tl.load(corrections + 1)) + epsilon
    w -= tl.load(learning_rate) / tl.load(corrections) * m / down
    tl.store(weights + place, w, mask=there)
    tl.store(first + place, m, mask=there)
    tl.store(second + place, v, mask=there)
    tl.store(low_precision + place, w.to(low_precision.dtype.element_ty), mask=there)


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
