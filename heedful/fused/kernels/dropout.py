"""The dropout mask of the kernels: a hash of position and seed, so that the backward pass can compute it again."""

from __future__ import annotations

import triton
import triton.language as tl


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
