"""Glossaries in the translator: terms stand in the translations of their sentences, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.config import TokenizerConfig
from heedful.decoding.glossary_phrases import CONTINUES_WORD, ENDS_IN_WORD, PhraseEncoder, word_flags
from heedful.decoding.translation import TERM_MISSING
from heedful.errors import ConfigError, GlossaryError
from heedful.native import available
from heedful.text.glossary import Glossary, Match
from heedful.text.tokenizer import train_tokenizer

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)

TEXTS = [
    "The server sends the page to the browser.",
    "The weather is nice today.",
    "Residual connections help.",
    "Each layer adds its residual to the output of the previous layer.",
    "A server is a server.",
]
TERMS = [("server", "Rechner"), ("browser", "Anzeigeprogramm"), ("residual", "Restbetrag"), ("layer", "Lage")]
INTO_GERMAN: Any = {"source_language": "en", "target_language": "de"}


@pytest.fixture(scope="module")
def translator() -> heedful.Translator:
    return heedful.Translator.load("en-de-zh", device="cpu", engine="native")


def texts(translations: list[heedful.Translation]) -> list[str]:
    return [one.text for one in translations]


@pytest.mark.parametrize("settings", [{}, {"method": "greedy"}, {"beam_size": 2, "num_best": 2}], ids=str)
def test_terms_stand_in_translations_and_other_sentences_stay(
    translator: heedful.Translator, settings: dict[str, Any]
) -> None:
    plain = translator.translate(TEXTS, **INTO_GERMAN, **settings)
    found = translator.translate(TEXTS, **INTO_GERMAN, glossary=TERMS, **settings)
    assert found[1] == plain[1]
    assert "Rechner" in found[0].text and "Anzeigeprogramm" in found[0].text
    assert "Rest" in found[2].text
    assert "Restbetrag" in found[3].text and found[3].text.count("Lage") >= 2
    assert found[4].text.count("Rechner") >= 2
    assert all(TERM_MISSING not in one.warnings for one in found)
    alone = [translator.translate([text], **INTO_GERMAN, glossary=TERMS, **settings)[0] for text in TEXTS]
    assert alone == found
    assert translator.translate(TEXTS, **INTO_GERMAN, glossary=[], **settings) == plain


def test_chinese_terms(translator: heedful.Translator) -> None:
    [found] = translator.translate(
        ["We add the residual to the output of the layer."],
        source_language="en",
        target_language="zh",
        glossary=[("residual", "残余量"), ("layer", "网络层")],
    )
    assert "残余量" in found.text and "网络层" in found.text and "▁" not in found.text
    [back] = translator.translate(
        ["我们把残差加到层的输出上。"],
        source_language="zh",
        target_language="en",
        glossary=[("残差", "leftover value")],
    )
    assert "leftover value" in back.text.lower()


def test_term_stands_where_its_source_does(translator: heedful.Translator) -> None:
    [found] = translator.translate(TEXTS[:1], **INTO_GERMAN, glossary=TERMS, align=True)
    links = {TEXTS[0][slice(*source)]: found.text[slice(*target)] for source, target in found.word_alignment or ()}
    assert links["server"] == "Rechner" and links["browser"] == "Anzeigeprogramm"


def test_spans_are_protected_from_terms(translator: heedful.Translator) -> None:
    text = "Open https://server.example/layer with `server` and the server {0}."
    [found] = translator.translate([text], **INTO_GERMAN, glossary=[*TERMS, ("0", "null"), ("example", "Beispiel")])
    for span in ("https://server.example/layer", "`server`", "{0}"):
        assert span in found.text
    assert found.text.count("Rechner") == 1


def test_prefix_may_contain_the_term(translator: heedful.Translator) -> None:
    [found] = translator.translate(TEXTS[:1], **INTO_GERMAN, glossary=TERMS[:1], target_prefix=["Vom Rechner kommt"])
    assert found.text.startswith("Vom Rechner kommt") and found.text.count("Rechner") == 1


def test_missing_terms_are_warned_of(translator: heedful.Translator) -> None:
    [found] = translator.translate(TEXTS[:1], **INTO_GERMAN, glossary=TERMS, max_length=2)
    assert TERM_MISSING in found.warnings


def test_long_texts_lines_and_documents(translator: heedful.Translator) -> None:
    long = " ".join([TEXTS[0]] * 600)
    [found] = translator.translate([long], **INTO_GERMAN, glossary=TERMS[:1], method="greedy")
    assert found.text.count("Rechner") == 600
    assert texts(list(translator.translate_lines(TEXTS, **INTO_GERMAN, glossary=TERMS, chunk_size=2))) == texts(
        translator.translate(TEXTS, **INTO_GERMAN, glossary=TERMS)
    )
    page = "<p>The <b>server</b> sends.</p>"
    assert "Rechner" in translator.translate_document(page, "html", **INTO_GERMAN, glossary=TERMS)


def test_other_engines_and_bad_entries_are_refused(translator: heedful.Translator) -> None:
    with pytest.raises(GlossaryError, match="glossary entry 2: the translation is empty"):
        translator.translate(TEXTS, **INTO_GERMAN, glossary=[("a", "b"), ("c", "")])
    with pytest.raises(ConfigError, match="a glossary needs the engine native"):
        heedful.Translator.load("en-de-zh", device="cpu", engine="torch").translate(
            TEXTS, **INTO_GERMAN, glossary=TERMS
        )
    with pytest.raises(ConfigError, match="a glossary needs the engine native"):
        heedful.Translator.load("en-de-zh", device="cpu").translate(
            TEXTS, **INTO_GERMAN, glossary=TERMS, method="sampling"
        )


def test_phrases_spell_the_term(translator: heedful.Translator) -> None:
    tokenizer = translator.tokenizer
    encoder = PhraseEncoder(tokenizer)
    for term in ("Rechner", "machine learning", "注意力", "C++", "iPhone", "Größe", "𝄞 key", "(x)"):
        source = tokenizer.encode_source("The term.", "de")
        [phrase] = encoder.phrases([Match(4, 8, term)], "The term.", source)
        assert tokenizer.source_pieces(source[slice(*phrase.source)]) == ["▁term"]
        spelled = {tokenizer.decode(ids).strip() for ids in phrase.alternatives}
        assert spelled == {term}
        capital = {tokenizer.decode(ids).strip() for ids in phrase.at_beginning}
        assert capital == ({"Machine learning"} if term == "machine learning" else set())
    flags = word_flags(tokenizer)
    pieces = dict(zip(tokenizer.pieces(range(tokenizer.target_vocab_size)), flags, strict=True))
    assert pieces["▁the"] == ENDS_IN_WORD and pieces["s"] == CONTINUES_WORD | ENDS_IN_WORD
    assert pieces[","] == pieces["的"] == pieces["</s>"] == pieces["<0xE4>"] == 0


def test_terms_that_the_vocabulary_cannot_spell_are_left_out(tmp_path: Path) -> None:
    pairs = [("a b c", "a b c")] * 5
    tokenizer = train_tokenizer(pairs, TokenizerConfig(byte_fallback=False))
    encoder = PhraseEncoder(tokenizer)
    matches = Glossary.of([("a", "ж"), ("b", "c b")]).find("a b")
    assert len(matches) == 2 and len(encoder.phrases(matches, "a b", tokenizer.encode_source("a b"))) == 1
