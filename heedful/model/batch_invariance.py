"""Operations whose result for a row does not depend on its position in the batch, on a CPU.

Two operations of torch depend on the position. On processors other than Intel's, MKL uses another kernel, with another
order of summation, for a small matrix product whose data does not start at a multiple of 16 bytes; so every slice of a
tensor has to start at a multiple of `ALIGNMENT` numbers. And torch's sigmoid is vectorised, but the remainder at the
end of a thread's share is computed by scalar code with a different exp.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.tensor_types import Float

ALIGNMENT = 4
"""Number of float32 values in 16 bytes."""


def align(count: int) -> int:
    """Round up to a multiple of `ALIGNMENT`."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def requires_invariance(x: Tensor) -> bool:
    """Whether the result must not depend on the position in the batch: on a CPU, without gradients."""
    return x.device.type == "cpu" and not torch.is_grad_enabled()


def is_fused_attention_invariant(query: Float[Tensor, "B H Q Dk"]) -> bool:
    """Whether torch's fused attention may be used for these queries.

    On a CPU each thread has a buffer that starts after the one of the thread before and is as large as the number of
    queries: it is aligned only if that is a multiple of `ALIGNMENT`. For the single query of a decoding step the
    explicit implementation is as fast.
    """
    return not requires_invariance(query) or query.shape[2] % ALIGNMENT == 0


def sigmoid(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """σ(x) = 1 / (1 + exp(-x)); torch's exp gives the same bits at every position."""
    return (torch.exp(-x) + 1).reciprocal() if requires_invariance(x) else torch.sigmoid(x)


def silu(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """x · σ(x)."""
    return x / (torch.exp(-x) + 1) if requires_invariance(x) else F.silu(x)
