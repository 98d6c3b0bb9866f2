"""Protected spans are copied unchanged, tested with the bundled model."""

from __future__ import annotations

import json

import pytest

from heedful.config import DecodingConfig
from heedful.decoding.span_masking import (
    change_mask_format,
    has_all_spans,
    restore_spans,
    split_at_spans,
    split_cells,
    split_into_cells,
)
from heedful.decoding.text_splitting import Segment, SplitRule, join_text
from heedful.decoding.translator import Translator
from heedful.model_dir.registry import bundled_model
from heedful.native import available
from heedful.search_types import DecodeResult, Hypothesis
from heedful.text.corpus import Direction
from heedful.text.language_routing import Directions

RULE = SplitRule(split="long", typical_length=60, max_length=120, num_tokens=len)
ENGINES = ["torch", *(["native"] if available() else [])]
SPANS = {
    "URL": ("Visit https://example.com/bestellung?id=7 for more details.", ["https://example.com/bestellung?id=7"]),
    "e-mail": ("Please write to info@beispiel.de or anna+x@mail.cn.", ["info@beispiel.de", "anna+x@mail.cn"]),
    "path": (r"Copy C:\Users\Anna\a.txt to /etc/hosts first.", [r"C:\Users\Anna\a.txt", "/etc/hosts"]),
    "placeholder": ("Hello {name}, you have %1$s of %(total)s messages.", ["{name}", "%1$s", "%(total)s"]),
    "tag": ("Click <b>Save</b> to continue.<br/>", ["<b>", "</b>", "<br/>"]),
    "entity": ("Research &amp; development costs 5&nbsp;euros.", ["&amp;", "&nbsp;"]),
    "code": ("Use `pip install heedful` to install it.", ["`pip install heedful`"]),
    "emoji": ("I love you ❤️ and coffee ☕ every day 👩🏽‍💻🇩🇪", ["❤️", "☕", "👩🏽‍💻🇩🇪"]),
    "hashtag": ("We meet at #WorldNews with @anna_b today.", ["#WorldNews", "@anna_b"]),
    "hash": ("The text is aGVsbG8gd29ybGQ= and the commit is 3f2a9bc1.", ["aGVsbG8gd29ybGQ=", "3f2a9bc1"]),
    "time code": ("The song begins at 00:01:02,500 today.", ["00:01:02,500"]),
}


@pytest.fixture(scope="module", params=ENGINES)
def translator(request):
    return Translator.load(bundled_model(), engine=request.param)


@pytest.fixture(scope="module")
def native():
    return Translator.load(bundled_model())


def translate(translator, *texts, target="de", **settings):
    return [one.text for one in translator.translate(texts, source_language="en", target_language=target, **settings)]


@pytest.mark.parametrize("target", ["de", "zh"])
def test_every_kind_of_span_is_kept_and_the_rest_is_translated(translator, target):
    texts = [text for text, _ in SPANS.values()]
    for (kind, (text, spans)), found in zip(SPANS.items(), translate(translator, *texts, target=target), strict=True):
        assert [found.count(span) for span in spans] == [text.count(span) for span in spans], (kind, found)
        assert "\ufffd" not in found
        assert found != text


def test_white_space_tabs_and_line_ends_are_kept(translator):
    assert translate(translator, "Name:\tAnna") == ["Name:\tAnna"]
    (row,) = translate(translator, "\tApples\t$3.50\t\t12 pieces  ")
    assert (
        row.split("\t")[::2] == ["", "$3.50", row.split("\t")[4]] and row.startswith("\tÄpfel\t") and row.endswith("  ")
    )
    (text,) = translate(translator, "    Good morning!\r\n\r\n\tGood night!\n")
    assert text == "    Guten Morgen!\r\n\r\n\tGute Nacht!\n"


@pytest.mark.parametrize(
    "line",
    ["</div>", "```bash", "aGVsbG8gd29ybGQ=", "00:00:01,000 --> 00:00:04,000", "$3.50", "12:30", "---", "|---|",
     "❤️", "https://a.de https://b.de", "{a}: {b}", "  ", "\t", "1,000.50 %", "…", "`ls -l`", "#1", "3/4"],
)  # fmt: skip
def test_line_without_prose_is_copied(native, line):
    (found,) = native.translate([line], target_language="de", align=True)
    assert (found.text, found.tokens, found.num_sentences, found.log_prob, found.alignment) == (line, [], 0, 0.0, [])


def test_code_blocks_are_copied(native):
    (found,) = translate(native, "Good morning!\n```\nGood morning!\n```\nGood morning!")
    assert found == "Guten Morgen!\n```\nGood morning!\n```\nGuten Morgen!"


def test_plain_text_is_translated_as_without_protection(native):
    texts = ["Tea and/or coffee, e.g. at 10:30, costs 3/4 of it.", "C++ is #1 if a < b.", "Everything in the 50% sale."]
    settings = {"source_language": "en", "target_language": "zh", "num_best": 3, "align": True}
    assert native.translate(texts, **settings) == native.translate(texts, protect=False, **settings)


def test_span_protection_can_be_disabled(native):
    text = " See https://example.com now.\t"
    assert translate(native, text, protect=False) == translate(native, text.strip(), protect=False)
    assert translate(native, text, protect=False)[0][0] != " "


def test_span_protection_default_depends_on_model(native):
    model, tokenizer = native.engine, native.tokenizer
    languages = {"directions": native.directions, "target_language": None}
    text = ["\t1.50"]

    def translated(config=None, **settings):
        return Translator(model, tokenizer, config, **settings).translate(text, target_language="de")[0].text

    assert native.directions.are_natural_languages
    assert translated(**languages) == translated(DecodingConfig(protect=True)) == "\t1.50"
    assert translated() != "\t1.50" != translated(DecodingConfig(protect=False), **languages)
    unnamed = Directions((Direction(None, "de"),), tokenizer.tags)
    same = Directions((Direction("de", "de"),), tokenizer.tags)
    invented = Directions((Direction("aa", "bb"),), tokenizer.tags)
    assert not any(one.are_natural_languages for one in (unnamed, same, invented))
    assert Directions((Direction("lzh", "zh"), Direction("sv", "pt-BR"))).are_natural_languages


def test_alternatives_and_alignment_are_those_of_the_masked_sentence(translator):
    text = "Copy https://example.com/a to {folder} and then tell anna@example.com about it."
    (found,) = translator.translate([text], source_language="en", target_language="de", num_best=4, align=True)
    assert 1 <= len(found.n_best) <= 4 and found.n_best[0].text == found.text
    assert len({one.text for one in found.n_best}) == len(found.n_best)
    for one in found.n_best:
        assert [one.text.count(span) for span in ("https://example.com/a", "{folder}", "anna@example.com")] == [1, 1, 1]
    assert [one.score for one in found.n_best] == sorted((one.score for one in found.n_best), reverse=True)
    assert found.attention.shape == (len(found.tokens), len(found.source_tokens))
    assert len(found.alignment) == len(found.tokens)
    assert "".join(found.source_tokens).count("{") == 3 and json.dumps(found.to_dict(), default=list)
    assert {found.source_tokens[s] for s, t in found.alignment if found.tokens[t] == "2"} <= {"2", "}", "▁{"}


def test_prefix_with_spans(native):
    text = "Click <b>Save</b> and open https://a.de/b now."
    for prefix in ("Klicken Sie", "Klicken Sie auf <b>", "<b>"):
        (found,) = native.translate([text], source_language="en", target_language="de", target_prefix=[prefix])
        assert found.text.startswith(prefix)
        assert [found.text.count(span) for span in ("<b>", "</b>", "https://a.de/b")] == [1, 1, 1]


def test_streams_and_long_texts_keep_their_spans(native):
    lines = [f"\tPlease visit https://a.de/{number} and wait.  " for number in range(40)]
    found = list(native.translate_lines(lines, source_language="en", target_language="zh", chunk_size=16))
    assert all(f"https://a.de/{n}" in one.text and one.text.endswith("  ") for n, one in enumerate(found))
    (long,) = native.translate([" ".join(map(str.strip, lines))], source_language="en", target_language="de")
    assert long.num_sentences > 1
    assert [long.text.count(f"https://a.de/{n} ") for n in range(40)] == [1] * 40


class Forgetful:
    """An engine that loses a mask of the given forms, so that the translator must retry."""

    def __init__(self, engine, tokenizer, forms):
        self.engine, self.tokenizer, self.forms, self.max_length = engine, tokenizer, forms, engine.max_length

    def decode(self, requests, config, *, align, constraint_factory):
        found = self.engine.decode(requests, config, align=align, constraint_factory=constraint_factory)
        for request in requests:
            if any(f"{bracket}0" in request.text for bracket in self.forms):
                tokens = [*self.tokenizer.encode_target("Nichts da.")]
                found[request] = DecodeResult(
                    [Hypothesis(tokens, [0.0] * len(tokens), 0.0, 0.0)], found[request].attention
                )
        return found


@pytest.mark.parametrize(("forms", "sentences"), [("{", 1), ("{<", 2)])
def test_lost_masks_use_other_format_then_pieces(forms, sentences):
    translator = Translator.load(bundled_model())
    translator.engine = Forgetful(translator.engine, translator.tokenizer, forms)
    text = "The weather is fine at https://a.de/b and my sister lives in the city {name}."
    (found,) = translator.translate([text], source_language="en", target_language="de", align=True)
    assert [found.text.count(span) for span in ("https://a.de/b", "{name}")] == [1, 1]
    assert "Schwester" in found.text and "Wetter" in found.text
    assert found.num_sentences == sentences
    assert found.attention.shape == (len(found.tokens), len(found.source_tokens))


def masked(text, **settings):
    return split_cells(split_into_cells(text), RULE, **settings)


def test_masked_spans_and_adjacent_text():
    (segment,) = masked("Visit https://a.de or {name} now.")
    assert (segment.text, segment.spans) == ("Visit {0} or {1} now.", ("https://a.de", "{name}"))
    assert [(s.before, s.text, s.copied) for s in masked("🎉 <p>More: {x} is here! 👍</p>")] == [
        ("", "🎉", True),
        (" ", "<p>", True),
        ("", "More: {0} is here!", False),
        (" ", "👍</p>", True),
    ]
    assert [s.text for s in masked("README.md: See it at https://a.de")] == ["README.md:", "See it at {0}"]
    assert [s.text for s in masked("More here: https://a.de")] == ["More here:", "https://a.de"]
    assert [s.text for s in masked("<b>Bold</b> text", keep_start=True)] == ["{0}Bold{1} text"]


@pytest.mark.parametrize(
    "text", ["  See https://a.de\tor\r\n\n<b>x</b> y {z}! 👍 ", "\u3000好{a}的\n```\nx\n```\n", "a `b` c\v\u2028d "]
)
def test_identity_translation_keeps_text(text):
    segments = masked(text)
    assert join_text(segments, [restore_spans(segment, segment.text) for segment in segments]) == text


def test_has_all_spans_requires_each_mask_once():
    segment = Segment("", "Click {0}Save{1} in {2}.", spans=("<b>", "</b>", "{0}"))
    assert has_all_spans(segment, "In {2} auf {0}Sichern{1} klicken.")
    assert has_all_spans(segment, "在｛2｝中单击{ 0 }保存{1}。")
    for wrong in ("{0}Sichern{1}", "{0}{1}{2}", "{0}a{1}{2}{2}", "{0}a{1}{2}{3}", "{1}Sichern{0} {2}"):
        assert not has_all_spans(segment, wrong)
    assert restore_spans(segment, "In {2} auf {0}Sichern{1} klicken.") == "In {0} auf <b>Sichern</b> klicken."
    assert change_mask_format(segment, 1).text == "Click <0>Save<1> in <2>."


def test_restored_span_is_separated_from_words():
    segment = Segment("", "See {0} and {1} for {2}.", spans=("https://a.de/b", "#tag", "{x}"))
    assert restore_spans(segment, "关于{2}请看{0}和{1}了解") == "关于{x}请看https://a.de/b 和 #tag 了解"
    glued = Segment("", "请看{0}和", spans=("https://a.de/b",))
    assert restore_spans(glued, "看{0}和") == "看https://a.de/b和"


def test_pieces_contain_spans_in_order():
    segment = Segment(" ", "Click {0}Save{1}, then {2}", spans=("<b>", "</b>", "{x}"))
    pieces = split_at_spans(segment, None)
    assert [(piece.before, piece.text) for piece, _ in pieces] == [
        (" ", "Click"), (" ", "<b>"), ("", "Save"), ("", "</b>"), ("", ", then"), (" ", "{x}"),
    ]  # fmt: skip
    assert [start for _, start in split_at_spans(segment, "Auf <b>Si")][:3] == ["Auf", None, "Si"]
    other = split_at_spans(segment, "Mit {x}")
    assert (other[0][0].text, other[0][0].copied) == ("Mit {x}", True)
    assert [piece.text for piece, _ in other[1:]] == ["Click", "<b>", "Save", "</b>", ", then"]


@pytest.mark.skipif("native" not in ENGINES, reason="needs the native engine")
def test_generated_sentences_keep_all_spans(native):
    from benchmarks.robustness import protected_spans

    total, kept, whole, lost = protected_spans.measure(native, 240, protect=True)
    assert kept == total and not lost and sum(whole.values()) == 240
    assert len(total) > 12
