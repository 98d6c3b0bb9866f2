"""Sentence splitting: sentence boundaries, splitting of long texts, and no loss of characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.sentence_splitter import split_long, split_sentences

TEXTS = st.text() | st.text(alphabet="aB .!?,;。！？…；「」“”\"')3\u0301\u200d🇩🇪\u3000\n", max_size=60)


@given(text=TEXTS)
def test_sentences_concatenate_to_the_text(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentences)


@given(text=TEXTS, size=st.integers(min_value=1, max_value=20))
def test_pieces_concatenate_to_the_text_and_fit(text: str, size: int) -> None:
    pieces = split_long(text, lambda piece: len(piece.encode()) <= 4 * size)
    assert "".join(pieces) == text
    for piece in pieces:  # only one character with all its marks may be too long
        assert len(piece.encode()) <= 4 * size or not piece.isascii()


@pytest.mark.parametrize(
    "sentences",
    [
        ["Hello there. ", "How are you? ", "Fine!"],
        ["I paid 3.5 dollars. ", "Dr. Smith, e.g. the old one, came at 5 p.m. ", "Then he left."],
        ["Das ist z.B. gut. ", "Am 3. Oktober kam er. ", "„Geh!“ sagte er."],
        ["J. R. R. Tolkien wrote it. ", "He said “Go.” ", "Then (he left.) ", "End"],
        ["Well... maybe. ", "Wait... ", "What?"],
        ["你好。", "我很好！", "你呢？", "“好的。”", "他说。"],
        ["これはペンです。", "「はい。」", "そうです。"],
        ["एक वाक्य। ", "दूसरा वाक्य।"],
        ["No end here, see www.example.org/a.b for v1.2.3"],
        ["   "],
    ],
)
def test_sentence_boundaries(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences


def test_long_sentence_is_cut_at_clauses_then_spaces_then_anywhere() -> None:
    def fits(piece: str) -> bool:
        return len(piece) <= 12

    assert split_long("Short one. Then first, second part", fits) == ["Short one. ", "Then first, ", "second part"]
    assert split_long("one two three four", fits) == ["one two ", "three four"]
    assert split_long("abcdefghijklmnopqrstuvwxyz", fits) == ["abcdefghijkl", "mnopqrstuvwx", "yz"]


def test_fitting_text_stays_whole_and_empty_text_gives_no_pieces() -> None:
    assert split_long("One. Two.", lambda piece: True) == ["One. Two."]
    assert split_long("", lambda piece: False) == []
    assert split_sentences("") == []


def test_grapheme_clusters_are_not_cut() -> None:
    text = "e\u0301" * 3 + "👩\u200d🚀" + "🇩🇪🇫🇷"
    pieces = split_long(text, lambda piece: len(piece) <= 3)
    assert pieces == ["e\u0301", "e\u0301", "e\u0301", "👩\u200d🚀", "🇩🇪", "🇫🇷"]


def test_cluster_that_does_not_fit_is_cut_without_loss() -> None:
    text = "Good morning, a" + "\u0301" * 260 + " and more."
    pieces = split_long(text, lambda piece: len(piece.encode()) <= 100)
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= 100 for piece in pieces)
