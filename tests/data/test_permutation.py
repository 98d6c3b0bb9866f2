"""Permutations are one-to-one and look random."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.permutation import combined_key, permuted


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_permuted_is_one_to_one(size: int, key: int) -> None:
    image = permuted(np.arange(size), size, key)
    assert sorted(image.tolist()) == list(range(size))


def test_permuted_of_a_part_is_part_of_the_permutation() -> None:
    whole = permuted(np.arange(1000), 1000, 7)
    assert (permuted(np.arange(300, 400), 1000, 7) == whole[300:400]).all()


def test_permuted_reaches_beyond_32_bits() -> None:
    size = (1 << 40) + 12_345
    image = permuted(np.arange(200_000), size, 5)
    assert 0 <= image.min() < size // 1000
    assert size - size // 1000 < image.max() < size
    assert np.unique(image).size == 200_000


def test_permuted_looks_random() -> None:
    """Few fixed points, no correlation with the index, distant neighbours, and independent keys."""
    size = 100_000
    one, other = permuted(np.arange(size), size, 1), permuted(np.arange(size), size, 2)
    for image in (one, other):
        assert (image == np.arange(size)).sum() < 12
        assert abs(np.corrcoef(image, np.arange(size))[0, 1]) < 0.02
        assert abs(np.abs(np.diff(image)).mean() / (size / 3) - 1) < 0.02
    assert (one == other).sum() < 12
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02


def test_small_permutations_are_about_equally_frequent() -> None:
    counts = Counter(tuple(permuted(np.arange(4), 4, combined_key(key)).tolist()) for key in range(4800))
    assert len(counts) == 24
    assert min(counts.values()) > 100
    assert max(counts.values()) < 320


def test_combined_key_depends_on_every_number_and_their_order() -> None:
    keys = {combined_key(*numbers) for numbers in ((1, 2), (2, 1), (1, 2, 0), (0, 1, 2), (1,), (-1, 2))}
    assert len(keys) == 6
