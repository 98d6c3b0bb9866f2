"""Translating a document: choose its languages once, translate its texts, place their inline tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heedful.decoding.translation import TOO_LONG, WARNINGS, Translation
from heedful.errors import DocumentError, TextError
from heedful.text.documents.document import MarkedText
from heedful.text.documents.tag_placement import Link, place_tags
from heedful.text.language_routing import Choice, Directions, LanguageEvidence

BATCH_SIZE = 256


def detect_document_language(directions: Directions, texts: Sequence[str]) -> str | None:
    """The language of most of a document; None if it cannot be detected."""
    evidence = LanguageEvidence(directions)
    evidence.read(texts)
    return evidence.language


def document_languages(
    directions: Directions,
    texts: Sequence[str],
    *,
    source_language: str | None,
    target_language: str | Mapping[str, str] | None,
) -> Choice:
    """The languages of a document: those given, else the language of most of its letters and its target."""
    source = directions.source_code(source_language) or detect_document_language(directions, texts)
    longest = max(texts, key=len, default="")
    return directions.choose(longest, source=source, target=directions.target_code(target_language))


def translate_texts(
    translate: Callable[..., list[Translation]],
    texts: Sequence[MarkedText],
    choice: Choice,
    *,
    progress: Callable[[int, int], None] | None = None,
    copied: list[str] | None = None,
    **settings: Any,
) -> list[MarkedText]:
    """Translate the texts of a document, with inline tags around the corresponding words.

    `translate`: `Translator.translate`. `copied` receives the texts that exceed the model's maximum length, which are
    copied unchanged.
    """
    translated: list[MarkedText] = []
    align = any(text.marks for text in texts)
    for start in range(0, len(texts), BATCH_SIZE):
        batch = texts[start : start + BATCH_SIZE]
        try:
            translations = translate(
                [text.text for text in batch],
                target_language=choice.target,
                source_language=choice.source,
                align=align,
                **settings,
            )
        except TextError as error:
            text = batch[error.number - 1].text
            raise DocumentError(f"the text {text[:60]!r} {error.problem}") from None
        pairs = list(zip(batch, translations, strict=True))
        if copied is not None:
            copied += [text.text for text, translation in pairs if TOO_LONG in translation.warnings]
        translated += [with_tags(text, translation.text, translation.word_alignment) for text, translation in pairs]
        if progress is not None:
            progress(len(translated), len(texts))
    return translated


def too_long_warning(texts: Sequence[str]) -> str:
    """The warning about texts that exceed the model's maximum length."""
    count = f"{len(texts):,} text{'s' * (len(texts) > 1)} ({texts[0][:60]!r}{', …' * (len(texts) > 1)})"
    return f"{count}: {WARNINGS[TOO_LONG]}"


def with_tags(content: MarkedText, translation: str, word_alignment: Sequence[Link] | None) -> MarkedText:
    """A translation with the tags of its source text and the source's white space at both ends."""
    text = content.text
    before = text[: len(text) - len(text.lstrip())]
    after = text[len(text.rstrip()) :] if text.strip() else ""
    links: list[Link] = [
        (source, (start + len(before), end + len(before))) for source, (start, end) in word_alignment or ()
    ]
    return place_tags(content, before + translation.strip() + after, links)
