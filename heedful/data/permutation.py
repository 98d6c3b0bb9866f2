"""Random permutations as a formula, computed element by element with a keyed Feistel network.

An index is split into a quotient and a remainder, and each in turn is shifted by a hash of the other, which is
invertible and therefore one-to-one. No list of the elements is needed in memory.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_64_BITS = (1 << 64) - 1
_MULTIPLIERS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_FEISTEL_ROUNDS = 4


def combined_key(*numbers: int) -> int:
    """One 64-bit key from several numbers, such as seed, epoch and purpose; any change gives an unrelated key."""
    key = 0
    for number in numbers:
        key = _mix((key + number + 0x9E3779B97F4A7C15) & _64_BITS)
    return key


def _mix(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit flips half of the output bits."""
    value = (value ^ (value >> 30)) * _MULTIPLIERS[0] & _64_BITS
    value = (value ^ (value >> 27)) * _MULTIPLIERS[1] & _64_BITS
    return value ^ (value >> 31)


def _mix_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`_mix` of each value; 64-bit arithmetic of numpy arrays wraps as required."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MULTIPLIERS[0])
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MULTIPLIERS[1])
    return values ^ (values >> np.uint64(31))


def permuted(indices: Integers, size: int, key: int) -> Integers:
    """The image of each index under a permutation of [0, size) that the key selects."""
    num_columns = max(math.isqrt(size), 1)
    num_rows = -(-size // num_columns)
    values = _feistel(indices.astype(np.uint64), num_rows, num_columns, key)
    # num_rows * num_columns may exceed size a little: values outside are permuted again until they are inside
    outside = np.flatnonzero(values >= size)
    while outside.size:
        values[outside] = _feistel(values[outside], num_rows, num_columns, key)
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def _feistel(values: NDArray[np.uint64], num_rows: int, num_columns: int, key: int) -> NDArray[np.uint64]:
    rows, columns = np.uint64(num_rows), np.uint64(num_columns)
    high, low = np.divmod(values, columns)
    for turn in range(_FEISTEL_ROUNDS):
        high = (high + _mix_array(low + np.uint64(combined_key(key, turn, 0))) % rows) % rows
        low = (low + _mix_array(high + np.uint64(combined_key(key, turn, 1))) % columns) % columns
    return high * columns + low
