"""A translator's work on a document: its language is decided once, its texts are translated, its tags are placed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heedful.decoding.translation import TOO_LONG, WARNINGS, Translation
from heedful.errors import DocumentError, TextError
from heedful.text.documents.document import MarkedText
from heedful.text.documents.tag_placement import Link, place_tags
from heedful.text.language_routing import Choice, Directions, LanguageEvidence

TEXTS_AT_ONCE = 256


def document_source(directions: Directions, texts: Sequence[str]) -> str | None:
    """The language that most of a document is in, as far as it can be detected."""
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
    """The languages of a document: the language that most of its letters are in, and where that goes."""
    source = directions.source_code(source_language) or document_source(directions, texts)
    longest = max(texts, key=len, default="")
    return directions.choose(longest, source=source, target=directions.target_code(target_language))


def translate_texts(
    translate: Callable[..., list[Translation]],
    texts: Sequence[MarkedText],
    choice: Choice,
    *,
    progress: Callable[[int, int], None] | None = None,
    left: list[str] | None = None,
    **settings: Any,
) -> list[MarkedText]:
    """The texts of a document in its target language, with their tags around the same words.

    `translate` is that of a `Translator`. `left` receives the texts that the model cannot take, which do not change.
    """
    translated: list[MarkedText] = []
    align = any(text.marks for text in texts)
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        portion = texts[start : start + TEXTS_AT_ONCE]
        try:
            found = translate(
                [text.text for text in portion],
                target_language=choice.target,
                source_language=choice.source,
                align=align,
                **settings,
            )
        except TextError as error:
            text = portion[error.number - 1].text
            raise DocumentError(f"the text {text[:60]!r} {error.problem}") from None
        if left is not None:
            left += [text.text for text, one in zip(portion, found, strict=True) if TOO_LONG in one.warnings]
        translated += [_placed(text, one) for text, one in zip(portion, found, strict=True)]
        if progress is not None:
            progress(len(translated), len(texts))
    return translated


def too_long(texts: Sequence[str]) -> str:
    """What a user is told about texts that the model cannot take."""
    count = f"{len(texts):,} text{'s' * (len(texts) > 1)} ({texts[0][:60]!r}{', …' * (len(texts) > 1)})"
    return f"{count}: {WARNINGS[TOO_LONG]}"


def _placed(content: MarkedText, translation: Translation) -> MarkedText:
    """A translation with the tags and, at its two ends, the white space of its text."""
    text = content.text
    before = text[: len(text) - len(text.lstrip())]
    after = text[len(text.rstrip()) :] if text.strip() else ""
    links: list[Link] = [
        (source, (start + len(before), end + len(before))) for source, (start, end) in translation.word_alignment or ()
    ]
    return place_tags(content, before + translation.text.strip() + after, links)
