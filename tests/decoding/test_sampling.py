"""Sampling: the distribution, temperature, top-k and top-p, and reproducibility with a seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import DecodingConfig
from heedful.decoding import greedy, sampling
from tests.decoding.stub_models import BOS, EOS, PAD, SPECIAL, TableModel, batch_of

SOURCES = [[3, 4], [5], [6, 6, 7]]


def draws(model, ids, **settings):
    config = DecodingConfig(method="sampling", **settings)
    return sampling.search(model, *batch_of(ids), config, SPECIAL, max_lengths=[6] * len(ids))


@pytest.mark.parametrize("settings", [{"temperature": 1e-9}, {"temperature": 1e-3}, {"top_k": 1}, {"top_p": 1e-6}])
def test_sampling_from_one_token_is_greedy(settings):
    model = TableModel(seed=5)
    expected = greedy.search(model, *batch_of(SOURCES), DecodingConfig(method="greedy"), SPECIAL, max_lengths=[6, 6, 6])
    assert draws(model, SOURCES, **settings) == expected


def test_samples_depend_only_on_seed_and_sentence():
    model = TableModel(seed=5)
    found = draws(model, SOURCES, num_best=5)
    assert found == draws(model, SOURCES, num_best=5)
    assert found[::-1] == draws(model, SOURCES[::-1], num_best=5)
    assert found != draws(model, SOURCES, num_best=5, seed=2)
    torch.manual_seed(99)
    assert found == draws(model, SOURCES, num_best=5)
    assert len({tuple(hypothesis.tokens) for hypothesis in found[0]}) > 1


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.7}])
def test_token_frequencies_match_probabilities(settings):
    model, count = TableModel(seed=8, vocab_size=8, scale=1.0), 4000
    (found,) = draws(model, [[3]], num_best=count, **settings)
    frequency = Counter(hypothesis.tokens[0] for hypothesis in found)

    probs = np.exp(model.log_probs((3,), ()) / settings.get("temperature", 1.0))
    probs[[PAD, BOS]] = 0
    probs /= probs.sum()
    order = np.argsort(-probs)
    kept = order[: settings.get("top_k", len(order))]
    if "top_p" in settings:
        kept = order[: int(np.searchsorted(np.cumsum(probs[order]), settings["top_p"])) + 1]
    expected = np.zeros_like(probs)
    expected[kept] = probs[kept] / probs[kept].sum()

    assert set(frequency) <= set(kept.tolist())
    for token, probability in enumerate(expected):
        deviation = (probability * (1 - probability) / count) ** 0.5
        assert abs(frequency[token] / count - probability) <= 4 * deviation


@given(st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=12), st.floats(0.01, 1.0), st.integers(0, 13))
def test_top_p_keeps_smallest_sufficient_set(logits, top_p, top_k):
    config = DecodingConfig(method="sampling", top_p=top_p, top_k=top_k)
    log_probs = torch.log_softmax(torch.tensor([logits]), dim=-1)
    probs, token_ids = sampling.kept_distribution(log_probs, config)
    kept = token_ids[probs > 0].tolist()
    available = torch.softmax(log_probs[0].sort(descending=True).values[: top_k or None], dim=0).double()
    assert 1 <= len(kept) <= len(available)
    assert available[: len(kept)].sum() >= top_p - 1e-5
    assert available[: len(kept) - 1].sum() < top_p + 1e-5
    assert log_probs[0, kept].min() >= max([log_probs[0, i] for i in range(len(logits)) if i not in kept], default=-99)


def test_extreme_uniform_numbers_give_kept_tokens():
    log_probs = torch.log_softmax(torch.tensor([[0.0, 1.0, 2.0, -torch.inf]] * 2), dim=-1)
    ends = sampling.draw(log_probs, torch.tensor([0.0, 1.0]), DecodingConfig(method="sampling"))
    assert ends.tolist() == [2, 0]


def test_sampling_row_without_allowed_tokens():
    """A finished row continues, unused, until all rows of its sentence end, and may have no allowed token."""
    log_probs = torch.tensor([[-torch.inf] * 4, [0.0, -torch.inf, -torch.inf, -torch.inf]])
    assert sampling.draw(log_probs, torch.tensor([0.5, 0.5]), DecodingConfig(top_p=0.9))[1] == 0


def test_best_score_first():
    for hypotheses in draws(TableModel(seed=5), SOURCES, num_best=6):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert all(hypothesis.tokens[-1] == EOS for hypothesis in hypotheses)
