"""The bracket constraint: output is a valid tree over the words of the sentence, for any logits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import DecodingConfig
from heedful.decoding.constraints import MAX_OPENING_RUN, BracketSymbols, make_bracket_constraint, make_constraints
from heedful.decoding.search import beam_search, greedy_search, sample
from heedful.errors import DecodingError
from heedful.paper.parsing import WordSymbols, linearize, rebuild
from tests.decoding.stub_models import BOS, EOS, PAD, SPECIAL, TableModel, batch_of

NAMES = ["<pad>", "</s>", "<s>", "(A", ")A", "(B", ")B", "XX", "?"]
SYMBOLS = BracketSymbols(pairs=((3, 4), (5, 6)), word_ids=(7,), eos_id=EOS, vocab_size=len(NAMES))
CPU = torch.device("cpu")
SEARCHES = {
    "greedy": (greedy_search, DecodingConfig(method="greedy")),
    "beam": (beam_search, DecodingConfig(beam_size=3, num_best=3)),
    "sampling": (sample, DecodingConfig(method="sampling", num_best=3)),
}


NUMBERED_NAMES = [*NAMES[:7], "<w0>", "<w1>", "<w2>"]
NUMBERED = BracketSymbols(
    pairs=((3, 4), (5, 6)), word_ids=(7, 8, 9), eos_id=EOS, vocab_size=len(NUMBERED_NAMES), numbered=True
)


def constraint_for(num_words: list[int], max_lengths: list[int]):
    return make_bracket_constraint(SYMBOLS, num_words=num_words, max_lengths=max_lengths, device=CPU)


def allowed_after(text: str, *, num_words: int, max_length: int) -> set[str]:
    history = torch.tensor([[NAMES.index(name) for name in text.split()]], dtype=torch.long).view(1, -1)
    [mask] = constraint_for([num_words], [max_length]).allowed(history)
    return {name for name, may in zip(NAMES, mask.tolist(), strict=True) if may}


@pytest.mark.parametrize(
    ("history", "num_words", "max_length", "expected"),
    [
        ("", 2, 20, {"(A", "(B"}),
        ("(A", 2, 20, {"(A", "(B", "XX"}),  # an empty constituent cannot be closed
        ("(A XX", 2, 20, {"(A", "(B", "XX"}),  # the root stays open while words are left
        ("(A (B XX", 2, 20, {"(A", "(B", "XX", ")B"}),
        ("(A (B XX )B", 2, 20, {"(A", "(B", "XX"}),
        ("(A (B XX (A XX )A", 2, 20, {")B"}),  # the innermost open one is B again
        ("(A XX XX", 2, 20, {")A"}),
        ("(A XX XX )A", 2, 20, {"</s>"}),
        ("(A XX XX )A </s>", 2, 20, {"</s>"}),
        ("(A XX", 2, 4, {"XX"}),  # too short for another pair of brackets
        ("(A XX", 2, 6, {"(A", "(B", "XX"}),
        ("(A XX", 2, 5, {"XX"}),
    ],
)
def test_allowed_next_tokens(history: str, num_words: int, max_length: int, expected: set[str]):
    assert allowed_after(history, num_words=num_words, max_length=max_length) == expected


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("(A", {"(A", "(B", "<w0>"}),
        ("(A <w0>", {"(A", "(B", "<w1>"}),
        ("(A <w0> (B <w1> )B <w2>", {"(A", "(B", "<w0>"}),  # after the last number comes the first
        ("(A <w0> <w1> <w2> <w0>", {")A"}),
    ],
)
def test_numbered_words_are_in_order(history: str, expected: set[str]):
    constraint = make_bracket_constraint(NUMBERED, num_words=[4], max_lengths=[30], device=CPU)
    [mask] = constraint.allowed(torch.tensor([[NUMBERED_NAMES.index(name) for name in history.split()]]))
    assert {name for name, may in zip(NUMBERED_NAMES, mask.tolist(), strict=True) if may} == expected


def test_all_word_symbols_are_allowed_and_counted():
    symbols = dataclasses.replace(NUMBERED, numbered=False)
    constraint = make_bracket_constraint(symbols, num_words=[2, 2], max_lengths=[30, 30], device=CPU)
    histories = [[3, 9], [3, 8]]
    words = {"(A", "(B", "<w0>", "<w1>", "<w2>"}
    for mask in constraint.allowed(torch.tensor(histories)):
        assert {name for name, may in zip(NUMBERED_NAMES, mask.tolist(), strict=True) if may} == words
    done = constraint.allowed(torch.tensor([[3, 9, 7], [3, 8, 8]]))
    assert done.nonzero().tolist() == [[0, 4], [1, 4]]


@pytest.mark.parametrize("method", SEARCHES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), num_words=st.lists(st.integers(1, 8), min_size=1, max_size=3))
def test_random_logits_give_valid_numbered_trees(method, seed, num_words):
    search, config = SEARCHES[method]
    model = TableModel(vocab_size=len(NUMBERED_NAMES), seed=seed, scale=3.0)
    limits = [words + 9 for words in num_words]
    source, mask = batch_of([[3 + number] * words for number, words in enumerate(num_words)])
    constraint = make_bracket_constraint(NUMBERED, num_words=num_words, max_lengths=limits, device=CPU)
    found = search(model, source, mask, config, SPECIAL, max_lengths=limits, constraint=constraint)
    for words, hypotheses in zip(num_words, found, strict=True):
        symbols = [NUMBERED_NAMES[token] for token in hypotheses[0].tokens[:-1]]
        tree = rebuild(symbols, ["word"] * words, word_symbols=WordSymbols("index", cycle=3))
        assert linearize(tree, WordSymbols("index", cycle=3)) == symbols


def test_runs_of_opening_brackets_are_limited():
    assert "(A" in allowed_after("(A " * (MAX_OPENING_RUN - 1), num_words=1, max_length=99)
    assert allowed_after("(A " * MAX_OPENING_RUN, num_words=1, max_length=99) == {"XX"}


@pytest.mark.parametrize("method", SEARCHES)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    num_words=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    num_symbols=st.integers(2, 30),
    scale=st.sampled_from([0.5, 3.0, 20.0]),
    no_repeat_ngram_size=st.sampled_from([0, 0, 2]),
)
def test_random_logits_give_valid_trees(method, seed, num_words, num_symbols, scale, no_repeat_ngram_size):
    search, config = SEARCHES[method]
    model = TableModel(vocab_size=len(NAMES), seed=seed, scale=scale)
    limits = [words + num_symbols for words in num_words]
    source, mask = batch_of([[3 + number] * words for number, words in enumerate(num_words)])
    changed = DecodingConfig(**{**vars(config), "no_repeat_ngram_size": no_repeat_ngram_size})
    found = search(
        model, source, mask, changed, SPECIAL, max_lengths=limits, constraint=constraint_for(num_words, limits)
    )
    for words, limit, hypotheses in zip(num_words, limits, found, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens[-1] == EOS
            assert len(hypothesis.tokens) <= limit + 1
            symbols = [NAMES[token] for token in hypothesis.tokens[:-1]]
            assert linearize(rebuild(symbols, ["word"] * words)) == symbols
            assert np.isfinite(hypothesis.log_prob)


class SpeakingModel(TableModel):
    """Generates a fixed sequence for each source, chosen by its first token, with a little noise."""

    def __init__(self, sayings: dict[int, str], seed: int) -> None:
        super().__init__(vocab_size=len(NAMES), seed=seed, scale=0.3)
        self.sayings = {key: [*map(NAMES.index, text.split()), EOS] for key, text in sayings.items()}

    def logits(self, source, prefix):
        logits = super().logits(source, prefix)
        saying = self.sayings[source[0]]
        logits[saying[min(len(prefix), len(saying) - 1)]] += 10.0
        return logits


@pytest.mark.parametrize("method", ["greedy", "beam"])
@given(seed=st.integers(0, 2**31))
@settings(max_examples=15)
def test_bracket_constraint_keeps_valid_trees(method, seed):
    sayings = {3: "(A XX (B XX )B )A", 4: "(B (B XX )B (A XX XX )A )B"}
    source, mask = batch_of([[3, 3], [4, 4, 4]])
    search, config = SEARCHES[method]
    config = DecodingConfig(**{**vars(config), "num_best": 1})
    kwargs = {"max_lengths": [20, 20]}
    free = search(SpeakingModel(sayings, seed), source, mask, config, SPECIAL, **kwargs)
    forced = search(
        SpeakingModel(sayings, seed),
        source,
        mask,
        config,
        SPECIAL,
        **kwargs,
        constraint=constraint_for([2, 3], [20, 20]),
    )
    said = [" ".join(NAMES[token] for token in hypotheses[0].tokens[:-1]) for hypotheses in forced]
    assert said == list(sayings.values())
    assert forced == free


def test_bracket_constraint_repairs_invalid_trees():
    source, mask = batch_of([[3, 3]])
    model = SpeakingModel({3: "(A XX )B )A XX (A"}, seed=1)
    [[found]] = greedy_search(
        model,
        source,
        mask,
        DecodingConfig(method="greedy"),
        SPECIAL,
        max_lengths=[12],
        constraint=constraint_for([2], [12]),
    )
    symbols = [NAMES[token] for token in found.tokens[:-1]]
    assert rebuild(symbols, ["a", "b"]).words == ("a", "b")


@pytest.mark.parametrize("method", SEARCHES)
@pytest.mark.parametrize("prefix", ["(A XX XX", "(A XX )A (A", "(A XX )A XX", "XX", ")A", "?"])
def test_prefix_violating_bracket_constraint_still_ends(method: str, prefix: str) -> None:
    """No valid tree has this prefix, but the search must always have an allowed token."""
    search, config = SEARCHES[method]
    tokens = [NAMES.index(name) for name in prefix.split()]
    source, mask = batch_of([[3], [4]])
    model = TableModel(vocab_size=len(NAMES), seed=1, scale=1.0)
    limits = [20, 20]
    found = search(
        model,
        source,
        mask,
        config,
        SPECIAL,
        max_lengths=limits,
        prefix=[tokens, []],
        constraint=constraint_for([1, 1], limits),
    )
    for broken in found[0]:
        assert broken.tokens[: len(tokens)] == tokens and broken.tokens[-1] == EOS
        assert np.isfinite(broken.log_prob) and PAD not in broken.tokens
    assert found[0]
    for whole in found[1]:
        rebuild([NAMES[token] for token in whole.tokens[:-1]], ["word"])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    num_words=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    num_symbols=st.integers(2, 9),
    changes=st.fixed_dictionaries(
        {
            "min_length": st.sampled_from([0, 5, 60]),
            "no_repeat_ngram_size": st.sampled_from([0, 1, 2, 3]),
            "top_k": st.sampled_from([0, 1, 2]),
            "top_p": st.sampled_from([1.0, 0.3, 0.01]),
            "temperature": st.sampled_from([0.01, 1.0, 5.0]),
        }
    ),
    way=st.sampled_from(["sampling", "greedy", 1, 2, 5, 9]),
    begun=st.booleans(),
)
def test_trees_are_valid_with_other_search_settings(seed, num_words, num_symbols, changes, way, begun):
    """Filters that exclude all allowed tokens, more beams than tokens, sentences that finish early."""
    method = "beam" if isinstance(way, int) else way
    beams = {"beam_size": way, "num_best": way} if isinstance(way, int) else {"num_best": 3 if way == "sampling" else 1}
    config = DecodingConfig(**{"method": method, **beams, **changes})
    limits = [words + num_symbols + number for number, words in enumerate(num_words)]
    source, mask = batch_of([[3 + number] * words for number, words in enumerate(num_words)])
    prefix = [[3, 7] if begun and words > 1 else [] for words in num_words]
    model = TableModel(vocab_size=len(NAMES), seed=seed, scale=20.0)
    found = SEARCHES[method][0](
        model,
        source,
        mask,
        config,
        SPECIAL,
        max_lengths=limits,
        prefix=prefix,
        constraint=constraint_for(num_words, limits),
    )
    for words, limit, beginning, hypotheses in zip(num_words, limits, prefix, found, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens[: len(beginning)] == beginning and len(hypothesis.tokens) <= limit + 1
            assert np.isfinite(hypothesis.log_prob)
            rebuild([NAMES[token] for token in hypothesis.tokens[:-1]], ["word"] * words)


def test_bracket_constraint_select_keeps_sentences():
    constraint = constraint_for([1, 2, 3], [10, 11, 12]).select(torch.tensor([2, 0]))
    assert constraint.num_words.tolist() == [3, 1]
    assert constraint.max_lengths.tolist() == [12, 10]
    constraints = make_constraints(
        DecodingConfig(),
        SPECIAL,
        max_lengths=[10, 11],
        prefix=None,
        constraint=constraint_for([1, 2], [10, 11]),
        device=CPU,
    )
    assert constraints.select(torch.tensor([1])).constraint.num_words.tolist() == [2]
    assert PAD != BOS


def test_bracket_constraint_refuses_too_many_words():
    with pytest.raises(DecodingError, match="sentence 2 has 4 words and its tree may have 5 symbols"):
        constraint_for([1, 4], [5, 5])
