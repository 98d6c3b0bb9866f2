"""Translating documents with the bundled model."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from heedful.decoding.document_translation import document_languages
from heedful.decoding.translator import Translator
from heedful.errors import DecodingError

PAGE = """<!DOCTYPE html>
<html lang="en"><head><title>The train station</title></head>
<body><p class="x">Where is the <b>train station</b>?</p>
<p translate="no">Team Support</p>
<p>I bought a <a href="/car"><i>red</i> car</a> yesterday.<img src="c.png" alt="A red car"></p>
<pre>do not touch</pre></body></html>
"""


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load()


@pytest.mark.parametrize("target", ["de", "zh"])
def test_translate_html_page(translator: Translator, target: str) -> None:
    found = translator.translate_document(PAGE, "html", target_language=target)
    assert isinstance(found, str)
    tags = re.compile(r"<[^>]*>")

    def plain(page: str) -> list[str]:
        return sorted(re.sub(r' (alt|lang)="[^"]*"', "", tag) for tag in tags.findall(page))

    assert plain(found) == plain(PAGE)
    assert f'<html lang="{target}">' in found
    assert '<p translate="no">Team Support</p>' in found and "<pre>do not touch</pre>" in found
    expected = translator.translate(["The train station", "A red car"], target_language=target)
    assert f"<title>{expected[0].text}</title>" in found and f'alt="{expected[1].text}"' in found


def test_document_text_equals_plain_translation(translator: Translator) -> None:
    found = translator.translate_document(PAGE, "html", target_language="de")
    assert isinstance(found, str)
    sentences = ["Where is the train station?", "I bought a red car yesterday."]
    shown = " ".join(re.sub(r"<[^>]*>", "", found).split())
    for translation in translator.translate(sentences, target_language="de"):
        assert translation.text in shown


def test_language_is_detected_once_per_document(translator: Translator) -> None:
    texts = ["Willkommen auf unserer Seite, wir freuen uns auf Ihren Besuch.", "Team Support", "Name"]
    choice = document_languages(translator.directions, texts, source_language=None, target_language=None)
    assert (choice.source, choice.target) == ("de", "en")
    with pytest.raises(DecodingError, match="no target language"):
        translator.translate_document("Where is the train station?\n", "markdown")


def test_translate_document_bytes_in_batches_with_progress(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.decoding.document_translation.BATCH_SIZE", 2)
    seen: list[tuple[int, int]] = []
    source = b'{"a": "Good morning!", "b": ["Good night!", "Thank you!"]}\n'
    tell: Callable[[int, int], None] = lambda done, total: seen.append((done, total))  # noqa: E731
    found = translator.translate_document(source, "json", target_language="de", progress=tell, beam_size=1)
    assert isinstance(found, bytes) and found.endswith(b"}\n") and b"Good" not in found
    assert seen == [(2, 3), (3, 3)]


def test_settings_reach_the_search(translator: Translator) -> None:
    with pytest.raises(Exception, match="beam_sizes"):
        translator.translate_document("Some words", "text", target_language="de", beam_sizes=3)
