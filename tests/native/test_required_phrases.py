"""Required phrases: the best sequence that contains them is found, as whole words; other sentences do not change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from heedful.config import DecodingConfig
from heedful.decoding.utf8_automaton import is_valid_utf8
from heedful.errors import DecodingError
from heedful.model_dir.shortlist import Shortlist
from heedful.native.bindings import CONTINUES_WORD, ENDS_IN_WORD, kernel_names
from heedful.native.engine import NativeEngine
from heedful.search_types import PhrasePlacement, RequiredPhrase, length_penalty
from tests.native.native_models import BOS, EOS, SPECIAL, engine_of, random_model, random_sources, small_config


def phrases_of(*alternatives: tuple[tuple[int, ...], ...]) -> list[RequiredPhrase]:
    return [RequiredPhrase(each) for each in alternatives]


TINY = 8
"""Vocabulary of the models whose sequences are all tried: the special tokens and four others."""
LIMIT = 5
WORDS = bytes([0, 0, 0, 0, 2, 3, 2, 0])
"""Tokens 4 and 6 begin a word, 5 continues one, 7 is punctuation."""


def found_phrases(tokens: Sequence[int], phrases: Sequence[RequiredPhrase], flags: bytes | None) -> set[int]:
    """The phrases that tokens contain: from the left, the longest that is still missing."""

    def inside_word(at: int) -> bool:
        if flags is None or not 0 < at < len(tokens):
            return False
        return bool(flags[tokens[at - 1]] & ENDS_IN_WORD and flags[tokens[at]] & CONTINUES_WORD)

    found: set[int] = set()
    at = 0
    while at < len(tokens):
        matches = [
            (-len(ids), number)
            for number, phrase in enumerate(phrases)
            for ids in (*phrase.alternatives, *(() if at else phrase.at_beginning))
            if number not in found and tuple(tokens[at : at + len(ids)]) == tuple(ids)
            if not inside_word(at) and not inside_word(at + len(ids))
        ]
        if not matches:
            at += 1
            continue
        length, number = min(matches)
        found.add(number)
        at -= length
    return found


def all_sequences(engine: NativeEngine, source: list[int], allowed: Sequence[int]) -> dict[tuple[int, ...], float]:
    """The log-probability of every sequence up to the limit, with the end token."""
    steps: dict[tuple[int, ...], np.ndarray] = {}
    for length in range(LIMIT + 1):
        for tokens in product(allowed, repeat=length):
            logits = engine.logits(source, [BOS, *tokens])[-1].astype(np.float64)
            steps[tokens] = logits - np.logaddexp.reduce(logits)
    return {
        tokens: float(sum(steps[tokens[:at]][token] for at, token in enumerate(tokens)) + steps[tokens][EOS])
        for tokens in steps
    }


PHRASES = {
    "one token": phrases_of(((6,),)),
    "two tokens": phrases_of(((4, 5),)),
    "alternatives": phrases_of(((7, 7, 7), (4, 6))),
    "two phrases": phrases_of(((4, 5),), ((6,), (7, 4))),
    "twice the same": phrases_of(((6, 6),), ((6, 6),)),
    "one inside the other": phrases_of(((4, 6),), ((4,),), ((6,),)),
    "at the beginning": [
        RequiredPhrase(((7, 7),), at_beginning=((6,),)),
        RequiredPhrase(((4,),), at_beginning=((5,),)),
    ],
    "overlapping itself": phrases_of(((4, 4, 7),)),
}


@pytest.mark.parametrize("name", PHRASES)
@pytest.mark.parametrize("flags", [None, WORDS], ids=["tokens", "words"])
def test_best_of_all_sequences_is_found(name: str, flags: bytes | None, tmp_path: Path) -> None:
    phrases = PHRASES[name]
    config = DecodingConfig(beam_size=1000, num_best=3, length_penalty="average")
    for seed in range(3):
        model = random_model(small_config(source_vocab_size=TINY, target_vocab_size=TINY), seed=seed)
        engine = engine_of(model, tmp_path / str(seed), precision="float32")
        source = [4 + seed, 5, 7, EOS]
        scores = {
            tokens: log_prob / length_penalty(float(len(tokens) + 1), config)
            for tokens, log_prob in all_sequences(engine, source, (4, 5, 6, 7)).items()
            if len(found_phrases(tokens, phrases, flags)) == len(phrases)
        }
        expected = sorted(scores, key=lambda tokens: -scores[tokens])[:3]
        given = {"phrases": [phrases], "placement": PhrasePlacement(word_flags=flags)}
        [found] = engine.translate_ids([source], config, SPECIAL, max_lengths=[LIMIT], **given)
        assert [tuple(one.tokens[:-1]) for one in found] == expected
        assert all(one.missing == () for one in found)
        assert [one.score for one in found] == pytest.approx([scores[tokens] for tokens in expected], rel=1e-4)


MANY = [
    phrases_of(((9, 10),), ((20,), (21, 22))),
    [],
    phrases_of(((30, 31, 32),)),
    phrases_of(((40,),), ((40,),), ((9, 10),)),
    [],
    phrases_of(((50, 51),)),
]
SEARCHES = {
    "greedy": DecodingConfig(method="greedy"),
    "beam": DecodingConfig(beam_size=4, num_best=2),
    "limits": DecodingConfig(beam_size=3, num_best=3, min_length=6, no_repeat_ngram_size=2, length_penalty="none"),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_phrases_stand_in_every_translation_and_change_no_other(search: str, precision: str, tmp_path: Path) -> None:
    config, sources = SEARCHES[search], random_sources(len(MANY), longest=12)
    model, limits = random_model(small_config()), [15] * len(MANY)
    given = {"max_lengths": limits, "prefix": [[], [], [30], [7, 9], [8], []]}
    expected = None
    for kernels in kernel_names():
        engine = engine_of(model, tmp_path, precision=precision, kernels=kernels)
        plain = engine.translate_ids(sources, config, SPECIAL, **given)
        found = engine.translate_ids(sources, config, SPECIAL, **given, phrases=MANY)
        for index, (phrases, hypotheses, prefix) in enumerate(zip(MANY, found, given["prefix"], strict=True)):
            if not phrases:
                assert hypotheses == plain[index]
            for one in hypotheses:
                assert one.missing == ()
                assert one.tokens[: len(prefix)] == prefix
                assert found_phrases(one.tokens[:-1], phrases, None) == set(range(len(phrases)))
                assert len(one.tokens) > config.min_length
            alone = engine.translate_ids(
                sources[index : index + 1],
                config,
                SPECIAL,
                max_lengths=[15],
                prefix=[prefix],
                phrases=[phrases],
            )
            assert alone == [hypotheses]
        assert expected is None or found == expected
        expected = found


def test_phrases_outside_the_shortlist_and_with_byte_tokens(tmp_path: Path) -> None:
    model = random_model(small_config(source_vocab_size=300, target_vocab_size=300))
    engine = engine_of(model, tmp_path, precision="int8")
    engine.use_shortlist(
        Shortlist(np.arange(301, dtype=np.int64), np.full(300, 280, np.int32), np.arange(270, 290, dtype=np.int32))
    )
    special = replace(SPECIAL, byte_ids=tuple(range(4, 260)))
    euro = tuple(4 + byte for byte in "€".encode())
    phrases = [phrases_of(((290, *euro),), (euro,), ((295,),))]
    for config in (DecodingConfig(beam_size=4), DecodingConfig(method="greedy")):
        [[found]] = engine.translate_ids([[5, 6, EOS]], config, special, max_lengths=[12], phrases=phrases)
        assert found_phrases(found.tokens[:-1], phrases[0], None) == {0, 1, 2}
        assert is_valid_utf8(found.tokens, special.byte_ids)


def test_missing_phrases_are_named(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    phrases = [phrases_of(((9, 10, 11),), ((20,),), ((21, 22),))]
    for limit, num_missing in ((0, 3), (1, 2), (3, 1), (5, 1), (6, 0)):
        for config in (DecodingConfig(beam_size=4, num_best=4), DecodingConfig(method="greedy")):
            [found] = engine.translate_ids([[5, EOS]], config, SPECIAL, max_lengths=[limit], phrases=phrases)
            assert {len(one.missing) for one in found} == {num_missing}
            for one in found:
                met = found_phrases(one.tokens[:-1], phrases[0], None)
                assert set(one.missing) == {0, 1, 2} - met


NINE = phrases_of(((9,),))


def test_words_that_begin_with_a_phrase_do_not_count(tmp_path: Path) -> None:
    flags = bytearray(70)
    flags[9], flags[10], flags[11] = ENDS_IN_WORD, CONTINUES_WORD | ENDS_IN_WORD, 0
    placement = PhrasePlacement(word_flags=bytes(flags))
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    for prefix in ([9, 10], [9, 10, 10]):
        given = {"max_lengths": [9], "prefix": [prefix], "phrases": [NINE], "placement": placement}
        [[found]] = engine.translate_ids([[5, EOS]], DecodingConfig(), SPECIAL, **given)
        assert found_phrases(found.tokens[:-1], NINE, bytes(flags)) == {0}
        assert found.tokens.count(9) >= 2
    given = {"max_lengths": [9], "prefix": [[9, 11]], "phrases": [NINE], "placement": placement}
    [[found]] = engine.translate_ids([[5, EOS]], DecodingConfig(), SPECIAL, **given)
    [[plain]] = engine.translate_ids([[5, EOS]], DecodingConfig(), SPECIAL, max_lengths=[9], prefix=[[9, 11]])
    assert found.log_prob >= plain.log_prob - 1e-6


@pytest.mark.parametrize(
    ("phrases", "message"),
    [
        (phrases_of(((70,),)), "token 70 is not in the vocabulary"),
        (phrases_of(((-1,),)), "token -1 is not in the vocabulary"),
        (phrases_of(((9, EOS),)), "no translation may contain"),
        (phrases_of(((1,),)), "no translation may contain"),
        (phrases_of(()), "has no alternative"),
        (phrases_of(((),)), "has no token"),
        (NINE * 65, "at most 64 phrases"),
        ([RequiredPhrase(((9,),), (1, 3))], "the source of a phrase"),
        ([RequiredPhrase(((9,),), (-1, 1))], "the source of a phrase"),
    ],
)
def test_invalid_phrases_are_refused(phrases: list[RequiredPhrase], message: str, tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    with pytest.raises(DecodingError, match=message):
        engine.translate_ids([[5, EOS]], DecodingConfig(), SPECIAL, max_lengths=[9], phrases=[phrases])


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (PhrasePlacement(word_flags=b"12"), "one byte for each token"),
        (PhrasePlacement(layer=2), "no such layer or head"),
        (PhrasePlacement(head=4), "no such layer or head"),
        (PhrasePlacement(offset=2), "no such layer or head"),
        (PhrasePlacement(weight=-1.0), "weight of the placement"),
        (PhrasePlacement(weight=float("nan")), "weight of the placement"),
    ],
)
def test_invalid_placements_are_refused(placement: PhrasePlacement, message: str, tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    given = {"max_lengths": [9], "phrases": [NINE], "placement": placement}
    with pytest.raises(DecodingError, match=message):
        engine.translate_ids([[5, EOS]], DecodingConfig(), SPECIAL, **given)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("head", [None, 1])
def test_tokens_outside_of_phrases_cost_their_attention_to_sources_of_phrases(
    offset: int, head: int | None, tmp_path: Path
) -> None:
    config = DecodingConfig(beam_size=50, num_best=4)
    engine = engine_of(random_model(small_config()), tmp_path, precision="float32")
    source, phrases = [5, 9, 30, 12, EOS], [RequiredPhrase(((20, 21),), (1, 3)), RequiredPhrase(((40,),), (3, 4))]
    placement = PhrasePlacement(layer=1, head=head, offset=offset, weight=3.0)
    given = {"max_lengths": [9], "phrases": [phrases]}
    [found] = engine.translate_ids([source], config, SPECIAL, **given, placement=placement)
    for one in found:
        tokens = one.tokens[:-1]
        [weights] = engine.align_ids([source], [[BOS, *tokens]], layer=1, head=head)
        masses = [sum(row[1:4]) for row in weights.tolist()][offset:][: len(tokens)]
        at = tokens.index(20)
        for place in (at, at + 1, tokens.index(40)):
            masses[place] = 0.0
        expected = (one.log_prob - 3.0 * sum(masses)) / length_penalty(float(len(one.tokens)), config)
        assert tokens[at + 1] == 21 and one.score == pytest.approx(expected, rel=1e-4)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    [plain] = engine.translate_ids([source], config, SPECIAL, **given)
    assert max(one.log_prob for one in found) <= plain[0].log_prob + 1e-4
