"""Attention weights without numpy behave as numpy's arrays do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from heedful.search_types import AttentionWeights


def random_weights(num_rows: int, num_columns: int, seed: int = 1) -> np.ndarray:
    """Few different values, so that rows have equal maxima."""
    return np.random.default_rng(seed).integers(0, 4, (num_rows, num_columns)).astype(np.float32) / 7


@given(rows=some.integers(0, 6), columns=some.integers(1, 6), offset=some.integers(0, 1), num_tags=some.integers(0, 1))
def test_weights_match_numpy(rows: int, columns: int, offset: int, num_tags: int) -> None:
    expected = random_weights(rows, columns)
    found = AttentionWeights.of(expected)
    assert found.shape == expected.shape and len(found) == len(expected)
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert np.asarray(found).dtype == np.float32 and np.asarray(found, dtype=np.float64).dtype == np.float64
    assert found.tolist() == expected.tolist()
    assert found.largest_columns() == expected.argmax(axis=1).tolist()
    part = found[offset : offset + 3, num_tags:-1]
    assert part.shape == expected[offset : offset + 3, num_tags:-1].shape
    np.testing.assert_array_equal(part, expected[offset : offset + 3, num_tags:-1])


def test_block_diagonal_keeps_sentences_apart() -> None:
    blocks = [random_weights(2, 3), random_weights(0, 2), random_weights(3, 1)]
    whole = np.asarray(AttentionWeights.block_diagonal([AttentionWeights.of(block) for block in blocks]))
    assert whole.shape == (5, 6)
    np.testing.assert_array_equal(whole[:2, :3], blocks[0])
    np.testing.assert_array_equal(whole[2:, 5:], blocks[2])
    assert whole.sum() == pytest.approx(sum(block.sum() for block in blocks))
    assert AttentionWeights.block_diagonal([]).shape == (0, 0)


def test_numpy_view_without_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="copied"):
        AttentionWeights.of(random_weights(2, 2)).__array__(copy=False)
