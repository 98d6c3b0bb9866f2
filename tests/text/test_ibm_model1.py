"""IBM's first model: hand-made pairs whose words can only be told apart by it, in one portion or several."""

from __future__ import annotations

import numpy as np
import pytest

from heedful.text.ibm_model1 import Lexicon, link

PAIRS = [([1, 2], [5, 6]), ([1, 3], [5, 7]), ([2, 3], [6, 7]), ([1, 4], [5, 8])]
"""The source tokens 1 to 4 are the target tokens 5 to 8; no pair alone says which is which."""


def arrays(pairs: list[tuple[list[int], list[int]]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return [np.array(source) for source, _ in pairs], [np.array(target) for _, target in pairs]


@pytest.mark.parametrize("portions", [1, 2, 4])
def test_words_are_told_apart_by_the_company_they_keep(portions: int) -> None:
    lexicon = Lexicon(5, 9)
    pairs = PAIRS * 6
    for first in range(portions):
        lexicon.add(*arrays(pairs[first::portions]))
    starts, found = lexicon.likeliest(1)
    assert starts.tolist() == [0, 0, 1, 2, 3, 4]
    assert found.tolist() == [5, 6, 7, 8]


def test_counts_are_expected_counts() -> None:
    """Each token of the text comes from one token: the counts sum to the number of target tokens."""
    lexicon = Lexicon(5, 9)
    lexicon.add(*arrays(PAIRS))
    assert lexicon.counts.sum() == pytest.approx(8, abs=0.1)
    lexicon.add(*arrays(PAIRS))
    assert lexicon.counts.sum() == pytest.approx(16, abs=0.2)
    assert (np.diff(lexicon.codes) > 0).all()


def test_links_stand_between_all_tokens_of_a_pair() -> None:
    links = link(*arrays([([2, 1, 2], [4, 3]), ([1], [4])]), num_targets=10)
    assert [divmod(int(code), 10) for code in links.codes[links.kinds]] == [(1, 4), (2, 4), (1, 3), (2, 3), (1, 4)]
    assert links.starts.tolist() == [0, 2, 4]


def test_a_list_has_the_likeliest_in_rising_order() -> None:
    lexicon = Lexicon(3, 10)
    lexicon.codes, lexicon.counts = np.array([3, 5, 7, 24]), np.array([1.0, 3.0, 2.0, 1.0])
    starts, found = lexicon.likeliest(2)
    assert starts.tolist() == [0, 2, 2, 3]
    assert found.tolist() == [5, 7, 4]


def test_nothing_teaches_nothing() -> None:
    lexicon = Lexicon(3, 4)
    lexicon.add([], [])
    lexicon.add([np.array([1])], [np.array([], dtype=np.int64)])
    assert lexicon.likeliest(5)[0].tolist() == [0, 0, 0, 0]
