"""Output checks: differing numbers, repetitions and empty translations are searched again or marked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heedful.config import DecodingConfig
from heedful.decoding.translation import NUMBERS_DIFFER, REPETITION, TERM_MISSING, TOO_LONG, UNTRANSLATED, WARNINGS
from heedful.decoding.translator import Translator
from heedful.native import available
from heedful.text.language_routing import Choice
from heedful.text.translation_checks import is_repetition_loop, numbers_differ

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)
CORRECTED = [
    "The speeds of 802.11n are substantially faster than that of its predecessors with a maximum theoretical "
    "throughput of 600Mbit/s.",
    "The truck driver, who is aged 64, was not injured in the crash.",
]
NOT_CORRECTED = (
    'His 1,000th stamp was the magnificent "Great Deeds by Swedish Kings" by David Klöcker Ehrenstrahl in 2000, which '
    "is listed in the Guinness Book of World Records."
)
REPEATED = (
    "Later reports then stated the plane received a bomb threat and was diverted back to Afghanistan, landing in "
    "Kandahar."
)
NO_OUTPUT = "\u04d8\u0487\ubd2b\ucb3e\ud002Haus"
"""A source with an empty greedy translation."""
PLAIN = ["Good morning.", "We met 12 people in 2014."]
TO_CHINESE = {"source_language": "en", "target_language": "zh"}


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load("en-de-zh", engine="native")


@pytest.fixture(scope="module")
def torch() -> Translator:
    return Translator.load("en-de-zh", engine="torch", device="cpu")


def test_differing_numbers_are_searched_again(translator: Translator) -> None:
    before = translator.translate(CORRECTED, **TO_CHINESE, checks=False)
    assert all(numbers_differ(text, one.text) for text, one in zip(CORRECTED, before, strict=True))
    after = translator.translate(CORRECTED, **TO_CHINESE)
    assert not any(numbers_differ(text, one.text) for text, one in zip(CORRECTED, after, strict=True))
    assert [one.warnings for one in before + after] == [[]] * 4


def test_remaining_problem_becomes_a_warning(translator: Translator) -> None:
    [found] = translator.translate([NOT_CORRECTED], **TO_CHINESE)
    assert found.warnings == [NUMBERS_DIFFER]
    assert found.to_dict()["warnings"] == [NUMBERS_DIFFER]
    assert set(WARNINGS) == {NUMBERS_DIFFER, REPETITION, TERM_MISSING, TOO_LONG, UNTRANSLATED}


def test_repetition_loop_is_searched_again(translator: Translator) -> None:
    [before] = translator.translate([REPEATED], **TO_CHINESE, method="greedy", checks=False)
    [after] = translator.translate([REPEATED], **TO_CHINESE, method="greedy")
    assert is_repetition_loop(REPEATED, before.text)
    assert not is_repetition_loop(REPEATED, after.text)
    assert after.warnings == []


def test_empty_translation_is_replaced_by_source(translator: Translator) -> None:
    [empty] = translator.translate([NO_OUTPUT], **TO_CHINESE, method="greedy", checks=False)
    [copied] = translator.translate([NO_OUTPUT], **TO_CHINESE, method="greedy")
    assert empty.text == ""
    assert (copied.text, copied.warnings) == (NO_OUTPUT, [UNTRANSLATED])


def test_checks_do_not_depend_on_other_sentences(translator: Translator) -> None:
    texts = [*PLAIN, *CORRECTED, NOT_CORRECTED, REPEATED, NO_OUTPUT]
    alone = [translator.translate([text], **TO_CHINESE)[0] for text in texts]
    assert translator.translate(texts, **TO_CHINESE) == alone
    assert translator.translate(PLAIN, **TO_CHINESE) == translator.translate(PLAIN, **TO_CHINESE, checks=False)


def test_alignment_matches_the_kept_translation(translator: Translator) -> None:
    plain = translator.translate(CORRECTED, **TO_CHINESE)
    for found, expected in zip(translator.translate(CORRECTED, **TO_CHINESE, align=True), plain, strict=True):
        assert (found.text, found.score) == (expected.text, expected.score)
        assert found.attention is not None
        assert found.attention.shape == (len(found.tokens), len(found.source_tokens))


def test_checked_n_best_is_best_first(translator: Translator) -> None:
    for found in translator.translate(CORRECTED, **TO_CHINESE, num_best=3):
        scores = [one.score for one in found.n_best]
        assert scores == sorted(scores, reverse=True)
        assert not any(
            numbers_differ(CORRECTED[0], one.text) and numbers_differ(CORRECTED[1], one.text) for one in found.n_best
        )


def test_torch_corrects_differing_numbers(torch: Translator) -> None:
    [found] = torch.translate(CORRECTED[1:], **TO_CHINESE)
    assert found.warnings == []
    assert not numbers_differ(CORRECTED[1], found.text)


def test_ctranslate2_corrects_differing_numbers() -> None:
    pytest.importorskip("ctranslate2")
    engine = Translator.load("en-de-zh", engine="ctranslate2", device="cpu")
    found = engine.translate([CORRECTED[1], NOT_CORRECTED, REPEATED], **TO_CHINESE)
    assert found[0].warnings == []
    assert len(found) == 3


def test_sampled_translations_are_not_searched_again(torch: Translator) -> None:
    settings = {**TO_CHINESE, "method": "sampling", "temperature": 1.2}
    [drawn], [checked] = (torch.translate([NOT_CORRECTED], **settings, checks=flag) for flag in (False, True))
    assert drawn.tokens == checked.tokens
    assert bool(checked.warnings) == numbers_differ(NOT_CORRECTED, checked.text)


def test_checks_require_two_known_languages() -> None:
    from heedful.decoding.output_checks import is_checked

    config = DecodingConfig()
    assert is_checked(config, Choice("en", "de"))
    assert not is_checked(config, Choice(None, "de"))
    assert not is_checked(config, Choice(None, None))
    assert not is_checked(config, Choice("de", "de"))
    assert not is_checked(config, Choice("num", "txt"))
    assert is_checked(config, Choice("en-US", "zh-Hans"))
    assert is_checked(replace(config, checks=True), Choice())
    assert not is_checked(replace(config, checks=False), Choice("en", "de"))
