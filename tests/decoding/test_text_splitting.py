"""Texts are split without losing a character and joined by the rules of the target language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.text_splitting import Segment, SplitRule, join_text, split_text

texts = st.text(alphabet=st.sampled_from("ab C.!?。！好行\u3000 \t\n\r\u2028,"), max_size=80)


def rule(split="long", typical_length=10, max_length=20):
    return SplitRule(split=split, typical_length=typical_length, max_length=max_length, num_tokens=len)


@given(texts, st.sampled_from(["long", "always", "never"]))
def test_split_and_join_restores_text_without_outer_white_space(text, split):
    segments = split_text(text, rule(split))
    assert join_text(segments, [segment.text for segment in segments]) == text.strip()
    assert all(segment.text == segment.text.strip() != "" for segment in segments)
    assert not any("\n" in segment.text or "\r" in segment.text for segment in segments)
    if split != "never":
        assert all(len(segment.text) <= 20 for segment in segments)


def test_split_text():
    two = "One two. Three four."
    assert [s.text for s in split_text(two, rule())] == ["One two.", "Three four."]
    assert [s.text for s in split_text(two, rule(typical_length=20))] == [two]
    assert [s.text for s in split_text(two, rule("always", typical_length=20))] == ["One two.", "Three four."]
    assert [s.text for s in split_text(two, rule("never"))] == [two]
    assert split_text(" a\r\n\n  b ", rule()) == [Segment("", "a"), Segment("\r\n\n  ", "b")]
    assert split_text(" \n ", rule()) == []
    assert [s.text for s in split_text("one long clause, another clause", rule())] == [
        "one long clause,",
        "another clause",
    ]


@pytest.mark.parametrize(
    ("source", "translations", "expected"),
    [
        ("好。行。", ["Good.", "Fine."], "Good. Fine."),
        ("好。行。", ["好。", "行。"], "好。行。"),
        ("Good. Fine.", ["好。", "行。"], "好。行。"),
        ("Good.  Fine.", ["Gut.", "Fein."], "Gut.  Fein."),
        ("Good.\nFine.", ["好。", "行。"], "好。\n行。"),
        ("好。\n行。", ["Good.", "Fine."], "Good.\nFine."),
        ("Good. Fine.", ["", "Fein."], " Fein."),
        ("“好。”Tom说。“行。”", ["“Good.”", "Tom said.", "“Fine.”"], "“Good.” Tom said. “Fine.”"),
        ("“Good.” “Fine.”", ["“好。”", "“行。”"], "“好。”“行。”"),
        ('"Gut." "Fein."', ['"Good."', '"Fine."'], '"Good." "Fine."'),
    ],
)
def test_space_between_sentences_follows_target_language(source, translations, expected):
    assert join_text(split_text(source, rule("always")), translations) == expected
