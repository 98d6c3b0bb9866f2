"""Word alignment: from subwords, bytes and Chinese pieces to character spans of words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.translator import Translator
from heedful.decoding.word_alignment import align_words, locate, words_of
from heedful.model_dir.registry import bundled_model
from heedful.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(bundled_model())


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.pieces(tokenizer.encode_target(text)[:-1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Das unwahrscheinlichste Auto.", ["Das", "unwahrscheinlichste", "Auto", "."]),
        ('  He said:\n "Don\'t!"  ', ["He", "said", ":", '"', "Don't", "!", '"']),
        ("E-Mail an Jürgen’s Büro (3.5 %)", ["E-Mail", "an", "Jürgen’s", "Büro", "(", "3", ".", "5", "%", ")"]),
        ("ok 😀 𓀀\u2581 x", ["ok", "😀", "𓀀", "▁", "x"]),
        ("用Python写", ["用", "Python", "写"]),
    ],
)
def test_words_of_finds_character_spans(tokenizer: Tokenizer, text: str, words: list[str]) -> None:
    found = dict.fromkeys(word for piece in words_of(text, pieces(tokenizer, text)) for word in piece)
    assert [text[start:end] for start, end in found] == words


def test_each_chinese_subword_is_a_word(tokenizer: Tokenizer) -> None:
    text = "我昨天买了一辆红色的汽车。"
    tokens = pieces(tokenizer, text)
    places = locate(text, tokens)
    assert ["".join(tokens).strip("▁")[start:end] for start, end in places] == [piece.strip("▁") for piece in tokens]
    assert [words for words in words_of(text, tokens) if words] == [[place] for place in places if place[0] < place[1]]


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_subwords_cover_every_visible_character_in_order(text: str) -> None:
    tokenizer = Tokenizer.load(bundled_model())
    places = locate(text, pieces(tokenizer, text))
    assert [place for place in places if place[0] < place[1]] == sorted(p for p in places if p[0] < p[1])
    covered = {character for start, end in places for character in range(start, end)}
    assert all(character in covered or not text[character].isprintable() or text[character].isspace()
               or not text[character].strip("\ufe0e\ufe0f") for character in range(len(text)))  # fmt: skip


def test_locate_subwords_spelled_differently_in_the_text() -> None:
    assert locate("Siehe https://a.example/b dort", ["▁Siehe", "▁X", "▁dort"]) == [(0, 5), (6, 25), (26, 30)]
    assert locate("so ⁇ ja", ["▁so", "▁", "<unk>", "▁ja"]) == [(0, 2), (2, 2), (3, 4), (5, 7)]
    assert locate("a\ufffd\ufffdb", ["▁a", "<0xE2>", "<0x96>", "b"]) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert locate("", ["▁a"]) == [(0, 0)]
    assert locate("a", []) == []


def test_words_are_linked_once() -> None:
    links = [(0, 0), (1, 1), (2, 1), (2, 2)]
    found = align_words("rotes Haus", ["▁ro", "tes", "▁Haus"], "red house", ["▁red", "▁ho", "use"], links)
    assert found == [((0, 5), (0, 3)), ((0, 5), (4, 9)), ((6, 10), (4, 9))]


@pytest.mark.parametrize("text", ["  Guten Morgen!\n\n Das ist alles 😀.", "你好！\n再见。", " "])
def test_word_alignment_of_several_sentences(text: str) -> None:
    translator = Translator.load(engine="native")
    (translation,) = translator.translate([text], align=True, target_language="en", split="always")
    expected = align_words(
        text, translation.source_tokens, translation.text, translation.tokens, translation.alignment or []
    )
    assert translation.word_alignment == expected
    plain = json.loads(translation.to_json(text))
    assert plain["word_alignment"] == [[list(source), list(target)] for source, target in expected]
    for (start, end), (first, last) in expected:
        assert text[start:end].split() == [text[start:end]]
        assert translation.text[first:last].split() == [translation.text[first:last]]
        assert text[:end].count("\n") == translation.text[:last].count("\n")
    assert translator.translate([text], target_language="en")[0].word_alignment is None
