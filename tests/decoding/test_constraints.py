"""Constraints compared with simple reference implementations."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import DecodingConfig
from heedful.decoding.constraints import FREE, forbid_end, forbid_repeats, force_tokens
from heedful.search_types import length_penalty


@given(
    st.integers(1, 4),
    st.integers(0, 9).flatmap(
        lambda length: st.lists(st.lists(st.integers(0, 3), min_size=length, max_size=length), min_size=1, max_size=4)
    ),
)
def test_repeated_ngrams_equal_reference_loop(ngram, rows):
    log_probs = torch.zeros(len(rows), 5)
    found = forbid_repeats(log_probs, torch.tensor(rows, dtype=torch.long), ngram)
    for row, history in enumerate(rows):
        seen = {tuple(history[place : place + ngram]) for place in range(len(history) - ngram + 1)}
        for token in range(5):
            repeats = (*history[len(history) - ngram + 1 :], token) in seen
            assert (found[row, token] == -torch.inf) == repeats


def test_end_is_forbidden_unless_it_is_the_only_token():
    log_probs = torch.tensor([[-1.0, -2.0, -3.0], [-torch.inf, -0.5, -torch.inf]])
    assert forbid_end(log_probs, 1).tolist() == [[-1.0, -torch.inf, -3.0], [-torch.inf, -0.5, -torch.inf]]


def test_forced_token_keeps_log_prob_even_if_forbidden():
    log_probs = torch.tensor([[-1.0, -2.0], [-1.0, -2.0]])
    allowed = torch.tensor([[-1.0, -torch.inf], [-1.0, -torch.inf]])
    assert force_tokens(log_probs, allowed, torch.tensor([1, FREE])).tolist() == [
        [-torch.inf, -2.0],
        [-1.0, -torch.inf],
    ]


def test_length_penalty_formulas():
    paper = DecodingConfig(length_penalty="paper", length_penalty_alpha=0.6)
    average = DecodingConfig(length_penalty="average", length_penalty_alpha=1.0)
    none = DecodingConfig(length_penalty="none")
    assert length_penalty(7.0, paper) == pytest.approx(2**0.6)
    assert length_penalty(1.0, paper) == 1.0
    assert length_penalty(7.0, average) == 7.0
    assert length_penalty(7.0, none) == 1.0
    assert length_penalty(torch.tensor([7.0, 1.0]), paper).tolist() == pytest.approx([2**0.6, 1.0])
    assert length_penalty(torch.tensor([7.0]), none).tolist() == [1.0]
