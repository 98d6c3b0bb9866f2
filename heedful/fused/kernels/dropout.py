"""Which numbers dropout keeps, as the kernels compute it: a hash of place and seed, so that nothing is remembered."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def keeps(place, seeds, call, threshold):
    """Whether dropout keeps the number at this place: the finaliser of MurmurHash3 over place and seed."""
    mixed = (place.to(tl.uint32) * 0x9E3779B1) ^ tl.load(seeds + call).to(tl.uint32)
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35
    return (mixed ^ (mixed >> 16)) >= threshold.to(tl.uint32)


def dropped(dropout: float) -> tuple[int, float]:
    """Below which hash a number is dropped, and by what the others are raised."""
    return int(dropout * 2**32), 1 / (1 - dropout)
