"""What keeps the bits of a row the same wherever in a batch it stands, on a CPU.

Two things in torch look at places. Intel's MKL on processors of others: it takes another kernel for a small matrix
product if its numbers do not begin at a multiple of 16 bytes, and sums up in another order. So whatever begins inside a
tensor should begin after a multiple of `STEADY` numbers. And torch's own sigmoid, everywhere: it is computed for many
numbers at once, but what is left over at the end of a thread's share one by one, with another exp.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.tensor_types import Float

STEADY = 4
"""Numbers of 32 bits in the 16 bytes that MKL asks for."""


def steady(count: int) -> int:
    """The next multiple of `STEADY`."""
    return -(-count // STEADY) * STEADY


def is_steady(x: Tensor) -> bool:
    """Whether bits must not depend on places here: on a CPU, when nothing is learned from it."""
    return x.device.type == "cpu" and not torch.is_grad_enabled()


def sigmoid(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """σ(x) = 1 / (1 + exp(-x)); torch's exp has the same bits at every place."""
    return (torch.exp(-x) + 1).reciprocal() if is_steady(x) else torch.sigmoid(x)


def silu(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """x · σ(x)."""
    return x / (torch.exp(-x) + 1) if is_steady(x) else F.silu(x)
