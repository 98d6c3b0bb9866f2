"""Deterministic translators for tests of document formats."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from heedful.text.documents import translate_document
from heedful.text.documents.document import MarkedText
from heedful.text.documents.gettext_format import Catalogue
from heedful.text.documents.tag_placement import Link, place_tags

Change = Callable[[MarkedText], MarkedText]


def copied(text: MarkedText) -> MarkedText:
    """The text itself."""
    return text


def capitals(text: MarkedText) -> MarkedText:
    """The text in capitals with its tags in place; kept text is unchanged."""
    return replace(text, text=text.text.upper()) if len(text.text.upper()) == len(text.text) else text


def turned_round(text: MarkedText) -> MarkedText:
    """The words in reverse order, with their alignment."""
    return rearranged(text, list(reversed(words_of(text))))


def shuffled(draws: random.Random) -> Change:
    """Words in random order, some omitted, with a fifth of the links missing and a tenth wrong."""

    def change(text: MarkedText) -> MarkedText:
        words = words_of(text)
        order = draws.sample(words, len(words) - draws.randint(0, len(words) // 2))
        return rearranged(text, order, draws)

    return change


def words_of(text: MarkedText) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text.text)]


def rearranged(text: MarkedText, order: Sequence[tuple[int, int]], draws: random.Random | None = None) -> MarkedText:
    written, links = "", list[Link]()
    for start, end in order:
        written += " " if written else ""
        place_of_word = len(written), len(written) + end - start
        written += text.text[start:end].upper()
        if draws is None or draws.random() < 0.7:
            links.append(((start, end), place_of_word))
        elif draws.random() < 0.3:
            links.append((draws.choice(order), place_of_word))
    return place_tags(text, written, links)


def translated(
    source: str | bytes, format: str, change: Change, language: str | None = None, catalogue: Catalogue | None = None
) -> str:
    """A document with all texts translated by `change`."""
    found = translate_document(
        source, format, lambda texts: ([change(text) for text in texts], language), catalogue=catalogue
    )
    assert isinstance(found, type(source))
    return found if isinstance(found, str) else found.decode()


def texts_of(source: str, format: str) -> list[str]:
    """The texts to translate."""
    seen: list[str] = []

    def look(texts: Sequence[MarkedText]) -> tuple[Sequence[MarkedText], None]:
        seen.extend(text.text for text in texts)
        return texts, None

    assert translate_document(source, format, look) == source
    return seen
