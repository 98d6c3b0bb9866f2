"""Greedy search, sampling, beam search and forced decoding."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import DecodingConfig, ModelConfig
from heedful.decoding.constraints import SpecialTokens
from heedful.decoding.search import (
    alignment_weights,
    beam_search,
    draw,
    force_decode,
    greedy_search,
    kept_distribution,
    sample,
)
from heedful.errors import DecodingError
from heedful.model.seq2seq import StepOutput
from heedful.model.transformer import Transformer
from heedful.model_dir.save_load import AlignmentSource
from tests.decoding.stub_models import BOS, EOS, PAD, SPECIAL, TableModel, batch_of, exhaustive, naive_beam

penalties = st.tuples(st.sampled_from(["paper", "average", "none"]), st.floats(0, 2))
sources = st.lists(st.lists(st.integers(3, 9), min_size=1, max_size=5), min_size=1, max_size=4)
METHODS = {"beam": beam_search, "greedy": greedy_search, "sampling": sample}
SETTINGS = {
    "beam": DecodingConfig(beam_size=3, num_best=3),
    "greedy": DecodingConfig(method="greedy"),
    "sampling": DecodingConfig(method="sampling", num_best=3),
}
SOURCES = [[3, 4], [5], [6, 6, 7]]


def search(model, ids, config, *, max_lengths, **more):
    return METHODS[config.method](model, *batch_of(ids), config, SPECIAL, max_lengths=max_lengths, **more)


def plain(hypotheses):
    return [tuple(hypothesis.tokens) for hypothesis in hypotheses]


@given(st.integers(0, 10**6), penalties, st.integers(1, 4), st.integers(0, 2))
def test_wide_beam_is_exhaustive_search(seed, penalty, max_length, min_length):
    config = DecodingConfig(
        beam_size=60, num_best=7, length_penalty=penalty[0], length_penalty_alpha=penalty[1],
        min_length=min(min_length, max_length),
    )  # fmt: skip
    model = TableModel(vocab_size=5, seed=seed)
    ids = [[3, 4], [4]]
    found = search(model, ids, config, max_lengths=[max_length, max_length])
    for source, hypotheses in zip(ids, found, strict=True):
        expected = exhaustive(partial(model.log_probs, tuple(source)), config, max_length, ordinary=[3, 4])[:7]
        assert plain(hypotheses) == [tokens for tokens, _, _ in expected]
        assert [h.log_prob for h in hypotheses] == pytest.approx([e[1] for e in expected], abs=1e-4)
        assert [h.score for h in hypotheses] == pytest.approx([e[2] for e in expected], abs=1e-4)


@given(st.integers(0, 10**6), penalties, st.integers(1, 5), st.data())
def test_early_stopping_does_not_change_results(seed, penalty, beam_size, data):
    num_best = data.draw(st.integers(1, beam_size))
    config = DecodingConfig(
        beam_size=beam_size, num_best=num_best, length_penalty=penalty[0], length_penalty_alpha=penalty[1]
    )
    model = TableModel(seed=seed)
    (found,) = search(model, [[3, 4, 5]], config, max_lengths=[8])
    assert plain(found) == [e[0] for e in naive_beam(partial(model.log_probs, (3, 4, 5)), config, 8)]


def test_beam_stops_early():
    class Sure(TableModel):
        def logits(self, source, prefix):
            return np.where(np.arange(self.vocab_size) == (EOS if len(prefix) >= 2 else 3), 10.0, 0.0)

    model = Sure()
    search(model, [[3]], DecodingConfig(beam_size=2), max_lengths=[500])
    assert max(len(prefix) for _, prefix in model.table) < 20


def test_beam_continues_while_length_penalty_favours_longer_hypotheses():
    class LongIsSure(TableModel):
        """Ends at once with probability 0.6, or emits 3 (0.4), and then 3 with certainty until there are five."""

        def logits(self, source, prefix):
            if not prefix:
                return np.log([1e-9, 0.6, 1e-9, 0.4, 1e-9, 1e-9])
            wanted = 3 if len(prefix) < 5 else EOS
            return np.where(np.arange(6) == wanted, 0.0, -9.0)

    for penalty, alpha, expected in (("average", 1.0, [3] * 5 + [EOS]), ("none", 1.0, [EOS])):
        config = DecodingConfig(beam_size=2, length_penalty=penalty, length_penalty_alpha=alpha)
        ((best,),) = search(LongIsSure(), [[3]], config, max_lengths=[10])
        assert best.tokens == expected


def test_beam_continues_to_maximum_length():
    """With the end token it has one token more than `max_length`; a bound of one less would stop before it."""

    class LongIsSure(TableModel):
        def logits(self, source, prefix):
            if not prefix:
                return np.log([1e-9, 0.76, 1e-9, 0.24, 1e-9, 1e-9])
            wanted = 3 if len(prefix) < 5 else EOS
            return np.where(np.arange(6) == wanted, 0.0, -30.0)

    config = DecodingConfig(beam_size=2, length_penalty="average", length_penalty_alpha=1.0)
    ((best,),) = search(LongIsSure(), [[3]], config, max_lengths=[5])
    assert best.tokens == [3] * 5 + [EOS]


@given(st.integers(0, 10**6), sources, st.integers(1, 6))
def test_beam_of_one_is_greedy(seed, ids, max_length):
    model = TableModel(seed=seed, scale=3.0)
    limits = [max_length + index for index in range(len(ids))]
    one = search(model, ids, DecodingConfig(beam_size=1), max_lengths=limits)
    other = search(model, ids, DecodingConfig(method="greedy"), max_lengths=limits)
    assert one == other


def test_greedy_takes_best_token_and_lowest_id_of_ties():
    model = TableModel(seed=3)
    ((found,),) = search(model, [[5, 6]], DecodingConfig(method="greedy"), max_lengths=[6])
    for place, token in enumerate(found.tokens[:6]):
        log_probs = model.log_probs((5, 6), tuple(found.tokens[:place]))
        log_probs[[PAD, BOS]] = -np.inf
        assert token == log_probs.argmax()

    class Undecided(TableModel):
        def logits(self, source, prefix):
            return np.zeros(self.vocab_size)

    undecided = Undecided(vocab_size=200)
    for config in (DecodingConfig(method="greedy", min_length=3), DecodingConfig(beam_size=1, min_length=3)):
        ((found,),) = search(undecided, [[4]], config, max_lengths=[9])
        assert found.tokens == [3, 3, 3, EOS]
    (found,) = search(undecided, [[4]], DecodingConfig(beam_size=3, num_best=3, min_length=2), max_lengths=[2])
    assert plain(found) == [(3, 3, EOS), (3, 4, EOS), (3, 5, EOS)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch_invariant", [True, False])
@given(seed=st.integers(0, 10**6), ids=sources, max_length=st.integers(1, 6))
def test_batched_equals_alone(method, batch_invariant, seed, ids, max_length):
    model, config = TableModel(seed=seed), replace(SETTINGS[method], batch_invariant=batch_invariant)
    limits = [max_length + index for index in range(len(ids))]
    together = search(model, ids, config, max_lengths=limits)
    alone = [search(model, [one], config, max_lengths=[limit])[0] for one, limit in zip(ids, limits, strict=True)]
    assert together == alone


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10**6), ids=sources)
def test_search_scores_equal_forced_decoding(method, seed, ids):
    model, config = TableModel(seed=seed), SETTINGS[method]
    found = search(model, ids, config, max_lengths=[5] * len(ids))
    for rank in range(config.num_best):
        forced = force_decode(model, *batch_of(ids), [hypotheses[rank].tokens for hypotheses in found], bos_id=BOS)
        for hypotheses, score in zip(found, forced, strict=True):
            assert hypotheses[rank].token_log_probs == pytest.approx(score.token_log_probs, abs=1e-5)
            assert hypotheses[rank].log_prob == pytest.approx(score.log_prob, abs=1e-5)


@given(st.integers(0, 10**6), sources, penalties)
def test_n_best_is_sorted_unique_and_ends(seed, ids, penalty):
    config = DecodingConfig(beam_size=4, num_best=4, length_penalty=penalty[0], length_penalty_alpha=penalty[1])
    for hypotheses in search(TableModel(seed=seed), ids, config, max_lengths=[5] * len(ids)):
        assert len(hypotheses) == 4 == len(set(plain(hypotheses)))
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert all(a >= b - 1e-6 for a, b in itertools.pairwise(scores))
        for hypothesis in hypotheses:
            assert hypothesis.tokens[-1] == EOS
            assert not {EOS, PAD, BOS} & set(hypothesis.tokens[:-1])
            assert hypothesis.finished == (len(hypothesis.tokens) <= 5)


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10**6), low=st.integers(0, 4), extra=st.integers(0, 3))
def test_lengths_stay_between_minimum_and_maximum(method, seed, low, extra):
    config = DecodingConfig(**{**vars(SETTINGS[method]), "min_length": low})
    limit = max(low + extra, 1)
    for hypotheses in search(TableModel(seed=seed), [[3], [4, 5]], config, max_lengths=[limit, limit + 2]):
        for hypothesis in hypotheses:
            assert low <= len(hypothesis.tokens) - 1 <= limit + 2
    assert all(len(h.tokens) - 1 <= limit for h in search(TableModel(seed=seed), [[3]], config, max_lengths=[limit])[0])


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10**6), prefix=st.lists(st.integers(0, 5).filter(lambda i: i != EOS), max_size=4))
def test_prefix_is_forced_and_scored(method, seed, prefix):
    model, config = TableModel(seed=seed), SETTINGS[method]
    ids = [[3, 4], [5]]
    found = search(model, ids, config, max_lengths=[6, 6], prefix=[prefix, []])
    assert all(hypothesis.tokens[: len(prefix)] == prefix for hypothesis in found[0])
    forced = force_decode(model, *batch_of(ids[:1]), [found[0][0].tokens], bos_id=BOS)
    assert found[0][0].log_prob == pytest.approx(forced[0].log_prob, abs=1e-5)
    assert found[1] == search(model, ids[1:], config, max_lengths=[6])[0]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_nan_weights_are_refused(beam_size):
    class Damaged(TableModel):
        def logits(self, source, prefix):
            return super().logits(source, prefix) * np.nan

    source, mask = batch_of([(3, 4), (5,)])
    with pytest.raises(DecodingError, match="damaged"):
        beam_search(Damaged(), source, mask, DecodingConfig(beam_size=beam_size), SPECIAL, max_lengths=[4, 3])


def test_prefix_longer_than_maximum_is_refused():
    with pytest.raises(DecodingError, match="sentence 2 has 3 tokens"):
        search(TableModel(), [[3], [4]], DecodingConfig(), max_lengths=[2, 2], prefix=[[3], [3, 3, 3]])


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10**6), ngram=st.integers(1, 3))
def test_no_ngram_is_repeated(method, seed, ngram):
    config = DecodingConfig(**{**vars(SETTINGS[method]), "no_repeat_ngram_size": ngram, "min_length": 7})
    for hypothesis in search(TableModel(vocab_size=5, seed=seed), [[3]], config, max_lengths=[12])[0]:
        words = hypothesis.tokens[:-1]
        ngrams = [tuple(words[place : place + ngram]) for place in range(len(words) - ngram + 1)]
        assert len(ngrams) == len(set(ngrams))


def test_forbidden_tokens_never_appear():
    special = SpecialTokens(bos_id=BOS, eos_id=EOS, pad_id=PAD, forbidden=(3, 5))
    for method, config in SETTINGS.items():
        found = METHODS[method](TableModel(), *batch_of([[3]]), config, special, max_lengths=[9])
        assert {token for hypothesis in found[0] for token in hypothesis.tokens} <= {4, EOS}


def tiny_transformer(**changes):
    torch.manual_seed(1)
    config = ModelConfig(
        source_vocab_size=11, target_vocab_size=11, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=2,
        num_decoder_layers=2, max_length=64, **changes,
    )  # fmt: skip
    return Transformer(config).eval()


@pytest.mark.parametrize("changes", [{}, {"norm_placement": "pre", "positions": "rotary"}, {"positions": "learned"}])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_cached_beam_on_the_transformer_equals_naive_uncached_beam(changes, beam_size):
    model = tiny_transformer(**changes)
    ids = [[5, 6, 7, EOS], [9, EOS], [3, 3, 8, 4, 10, EOS]]
    limits = [9, 4, 12]
    config = DecodingConfig(beam_size=beam_size, num_best=min(beam_size, 3))
    found = search(model, ids, config, max_lengths=limits)

    def next_log_probs(source, prefix):
        with torch.inference_mode():
            logits = model(torch.tensor([source]), torch.tensor([[BOS, *prefix]]))[0, -1]
        return torch.log_softmax(logits.double(), dim=-1).numpy()

    for source, limit, hypotheses in zip(ids, limits, found, strict=True):
        expected = naive_beam(partial(next_log_probs, source), config, limit)
        assert plain(hypotheses) == [tokens for tokens, _, _ in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for _, _, score in expected], abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch_invariant", [True, False])
def test_batched_equals_alone_on_the_transformer(method, batch_invariant):
    model, config = tiny_transformer(), replace(SETTINGS[method], batch_invariant=batch_invariant)
    ids = [[5, 6, 7, EOS], [9, EOS], [3, 3, 8, 4, 10, EOS], [4, 4, EOS]]
    together = search(model, ids, config, max_lengths=[9, 4, 12, 5])
    for one, limit, hypotheses in zip(ids, [9, 4, 12, 5], together, strict=True):
        alone = search(model, [one], config, max_lengths=[limit])[0]
        assert plain(alone) == plain(hypotheses)
        assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], abs=1e-5)


def draws(model, ids, **settings):
    config = DecodingConfig(method="sampling", **settings)
    return sample(model, *batch_of(ids), config, SPECIAL, max_lengths=[6] * len(ids))


@pytest.mark.parametrize("settings", [{"temperature": 1e-9}, {"temperature": 1e-3}, {"top_k": 1}, {"top_p": 1e-6}])
def test_sampling_from_one_token_is_greedy(settings):
    model = TableModel(seed=5)
    expected = greedy_search(model, *batch_of(SOURCES), DecodingConfig(method="greedy"), SPECIAL, max_lengths=[6, 6, 6])
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
    probs, token_ids = kept_distribution(log_probs, config)
    kept = token_ids[probs > 0].tolist()
    available = torch.softmax(log_probs[0].sort(descending=True).values[: top_k or None], dim=0).double()
    assert 1 <= len(kept) <= len(available)
    assert available[: len(kept)].sum() >= top_p - 1e-5
    assert available[: len(kept) - 1].sum() < top_p + 1e-5
    assert log_probs[0, kept].min() >= max([log_probs[0, i] for i in range(len(logits)) if i not in kept], default=-99)


def test_extreme_uniform_numbers_give_kept_tokens():
    log_probs = torch.log_softmax(torch.tensor([[0.0, 1.0, 2.0, -torch.inf]] * 2), dim=-1)
    ends = draw(log_probs, torch.tensor([0.0, 1.0]), DecodingConfig(method="sampling"))
    assert ends.tolist() == [2, 0]


def test_sampling_row_without_allowed_tokens():
    """A finished row continues, unused, until all rows of its sentence end, and may have no allowed token."""
    log_probs = torch.tensor([[-torch.inf] * 4, [0.0, -torch.inf, -torch.inf, -torch.inf]])
    assert draw(log_probs, torch.tensor([0.5, 0.5]), DecodingConfig(top_p=0.9))[1] == 0


def test_best_score_first():
    for hypotheses in draws(TableModel(seed=5), SOURCES, num_best=6):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert all(hypothesis.tokens[-1] == EOS for hypothesis in hypotheses)


def test_step_by_step_scores_equal_parallel_scores():
    config = ModelConfig(
        source_vocab_size=9, target_vocab_size=9, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1,
        num_decoder_layers=3, max_length=20,
    )  # fmt: skip
    model = Transformer(config).eval()
    sources, targets = [[4, 5, 6, EOS], [7, EOS]], [[3, EOS], [4, 4, 8, EOS]]
    forced = force_decode(model, *batch_of(sources), targets, bos_id=BOS, need_weights=True)
    for source, target, score in zip(sources, targets, forced, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([source]), torch.tensor([[BOS, *target[:-1]]]))[0]
        expected = torch.log_softmax(logits, dim=-1)[range(len(target)), target]
        assert score.token_log_probs == pytest.approx(expected.tolist(), abs=1e-5)
        assert score.log_prob == pytest.approx(float(expected.sum()), abs=1e-5)
        assert score.attention.shape == (len(target), 3, 2, len(source))
        torch.testing.assert_close(score.attention.sum(dim=-1), torch.ones(len(target), 3, 2))


@pytest.mark.parametrize(("num_layers", "layer"), [(1, 0), (2, 1), (3, 2), (4, 2), (6, 4)])
def test_default_alignment_is_head_mean_of_late_layer(num_layers, layer):
    attention = torch.softmax(torch.randn(4, num_layers, 3, 5), dim=-1)
    expected = (attention[:, layer, 0] + attention[:, layer, 1] + attention[:, layer, 2]) / 3
    torch.testing.assert_close(alignment_weights(attention), expected)


def test_alignment_uses_given_layer_and_head():
    attention = torch.softmax(torch.randn(4, 2, 3, 5), dim=-1)
    torch.testing.assert_close(alignment_weights(attention, AlignmentSource(0, 1)), attention[:, 0].mean(dim=1))
    torch.testing.assert_close(alignment_weights(attention, AlignmentSource(1, 0, head=2)), attention[:, 1, 2])


def test_model_without_attention_raises():
    class Blind(TableModel):
        def step(self, tokens, state, *, need_weights=False):
            return StepOutput(super().step(tokens, state).logits, None)

    assert force_decode(Blind(), *batch_of([[3]]), [[3, EOS]], bos_id=BOS)[0].attention is None
    with pytest.raises(DecodingError, match="no cross-attention"):
        force_decode(Blind(), *batch_of([[3]]), [[3, EOS]], bos_id=BOS, need_weights=True)
