"""The order of an epoch is a permutation given by a formula, and weights count exactly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_stores import random_store

from heedful.data.permutation import EpochOrder, combined_key, permuted
from heedful.errors import ConfigError, CorpusError


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


def test_permuted_looks_shuffled() -> None:
    """Close to what chance gives: few fixed points, no drift, neighbours torn apart, keys unlike each other."""
    size = 100_000
    one, other = permuted(np.arange(size), size, 1), permuted(np.arange(size), size, 2)
    for image in (one, other):
        assert (image == np.arange(size)).sum() < 12
        assert abs(np.corrcoef(image, np.arange(size))[0, 1]) < 0.02
        assert abs(np.abs(np.diff(image)).mean() / (size / 3) - 1) < 0.02
    assert (one == other).sum() < 12
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.02


def test_small_permutations_are_all_reached_about_equally() -> None:
    counts = Counter(tuple(permuted(np.arange(4), 4, combined_key(key)).tolist()) for key in range(4800))
    assert len(counts) == 24
    assert min(counts.values()) > 100
    assert max(counts.values()) < 320


def test_keys_differ_with_every_number_and_their_order() -> None:
    keys = {combined_key(*numbers) for numbers in ((1, 2), (2, 1), (1, 2, 0), (0, 1, 2), (1,), (-1, 2))}
    assert len(keys) == 6


CORPORA = [0] * 40 + [1] * 31 + [0] * 10 + [2] * 21 + [1, 2] * 5  # in runs, and mixed


def shown(order: EpochOrder, epoch: int) -> list[int]:
    size = order.size(epoch)
    parts = [order.pairs(epoch, start, min(start + 17, size)) for start in range(0, size, 17)]
    return [int(pair) for part in parts for pair in part]


def test_weights_show_pairs_that_often(tmp_path: Path) -> None:
    store = random_store(tmp_path, len(CORPORA), corpora=CORPORA)
    order = EpochOrder(store, weights=[2, 0.5, 1.5], seed=3)
    over_epochs: Counter[int] = Counter()
    for epoch in range(4):
        counts = Counter(shown(order, epoch))
        over_epochs.update(counts)
        assert {counts[pair] for pair in range(len(store)) if CORPORA[pair] == 0} == {2}
        assert {counts[pair] for pair in range(len(store)) if CORPORA[pair] == 1} == {0, 1}
        assert {counts[pair] for pair in range(len(store)) if CORPORA[pair] == 2} == {1, 2}
        assert sum(counts[pair] for pair in range(len(store)) if CORPORA[pair] == 1) == 18
    assert all(over_epochs[pair] == {0: 8, 1: 2, 2: 6}[CORPORA[pair]] for pair in range(len(store)))


def test_half_of_a_corpus_and_then_the_other_half(tmp_path: Path) -> None:
    order = EpochOrder(random_store(tmp_path, 41), weights=[0.5], seed=3)
    first, second = shown(order, 0), shown(order, 1)
    assert {len(first), len(second)} == {20, 21}
    assert sorted(first + second) == list(range(41))
    assert sorted(first) != list(range(len(first)))


def test_a_corpus_of_weight_zero_is_left_out(tmp_path: Path) -> None:
    store = random_store(tmp_path, len(CORPORA), corpora=CORPORA, corpus_weights=[1, 0, 1])
    pairs = shown(EpochOrder(store, weights=None, seed=3), 0)
    assert sorted(pairs) == [pair for pair in range(len(store)) if CORPORA[pair] != 1]


def test_the_weights_given_stand_before_those_of_the_store(tmp_path: Path) -> None:
    store = random_store(tmp_path, 10, corpus_weights=[3])
    assert EpochOrder(store, weights=None, seed=1).size(0) == 30
    assert EpochOrder(store, weights=[1], seed=1).size(0) == 10


def test_impossible_weights(tmp_path: Path) -> None:
    store = random_store(tmp_path, 10, corpora=[0] * 5 + [1] * 5)
    for weights, error in (
        ([1, -1], ConfigError),
        ([1, float("nan")], ConfigError),
        ([2], ConfigError),
        ([0, 0], CorpusError),
    ):
        with pytest.raises(error):
            EpochOrder(store, weights=weights, seed=1)


def test_an_empty_store_has_no_order(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no pairs"):
        EpochOrder(random_store(tmp_path, 0), weights=None, seed=1)
