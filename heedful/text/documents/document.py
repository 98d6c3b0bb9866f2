"""A document: its source, and the parts of the source that contain text to translate.

A reader finds the parts. `Document.texts` lists the texts to translate, and `Document.write` inserts the translations.
Everything outside the parts is copied, and so is a part whose translation equals its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from heedful.text.protected_spans import remove_spans

Kind = Literal["pair", "point", "kept"]

_LETTERS = re.compile(r"[^\W\d_]")
_NAME = re.compile(r"[A-Za-z0-9]*_\w*|[a-z0-9]+[A-Z]\w*|\w+(?:[.:]\w+)+|[A-Za-z]*\d\w*")
"""Identifiers that are not protected spans: snake_case, camelCase, dotted.keys, versions."""


@dataclass(frozen=True)
class Mark:
    """A tag inside a text; it is not part of the text that is translated."""

    start: int
    end: int
    """The characters `text[start:end]` are inside the tag; `start` equals `end` for a point between characters."""
    opening: str | Document
    """Written before the characters: a tag, or a document for a tag with attributes to translate."""
    closing: str = ""
    """Written after the characters."""
    kind: Kind = "pair"
    """A "pair" encloses words and a "point" stands between words; for "kept", `opening` replaces the characters."""
    parent: int = -1
    """Index of the mark that encloses this one, or -1."""
    before: str = ""
    after: str = ""
    """Whitespace around a point."""

    @property
    def texts(self) -> list[MarkedText]:
        """The texts in the tag itself, such as the alternative text of an image."""
        return self.opening.texts if isinstance(self.opening, Document) else []


@dataclass(frozen=True)
class MarkedText:
    """A text to translate and the tags in it; a mark follows the mark that encloses it."""

    text: str
    marks: tuple[Mark, ...] = ()


class Part(Protocol):
    """A part of the source that translation may change."""

    @property
    def start(self) -> int:
        """Index of the first character."""

    @property
    def end(self) -> int:
        """Index after the last character."""

    @property
    def texts(self) -> list[MarkedText]:
        """The texts to translate in this part."""

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """What replaces `source` (the text of this part), given the translations of `texts`."""


@dataclass(frozen=True)
class Document:
    """The source of a document and its parts, in order and without overlap."""

    source: str
    parts: Sequence[Part] = ()

    @property
    def texts(self) -> list[MarkedText]:
        """All texts to translate."""
        return [text for part in self.parts for text in part.texts]

    def write(self, translations: Iterator[MarkedText], language: str | None) -> str:
        """The translated document, given the translations of `texts` in the same order."""
        pieces: list[str] = []
        position = 0
        for part in self.parts:
            pieces.append(self.source[position : part.start])
            pieces.append(part.write(self.source[part.start : part.end], translations, language))
            position = part.end
        return "".join([*pieces, self.source[position:]])


def escape_nothing(text: str) -> str:
    """For formats without special characters: the text itself."""
    return text


@dataclass(frozen=True)
class Prose:
    """A text with its tags."""

    start: int
    end: int
    content: MarkedText
    compose: Callable[[MarkedText], str] = field(default=lambda marked: compose(marked, escape_nothing))
    """Writes a text in the document's format."""

    @property
    def texts(self) -> list[MarkedText]:
        """The texts in the tags, then the text itself."""
        in_tags = [text for mark in self.content.marks for text in mark.texts]
        return [*in_tags, self.content] if is_prose(self.content) else in_tags

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The translation in the document's format; `source` if nothing has changed."""
        tags = [
            mark.opening.write(translations, language) if isinstance(mark.opening, Document) else mark.opening
            for mark in self.content.marks
        ]
        before = [m.opening.source if isinstance(m.opening, Document) else m.opening for m in self.content.marks]
        translation = next(translations) if is_prose(self.content) else self.content
        if translation == self.content and tags == before:
            return source
        marks = tuple(replace(mark, opening=tag) for mark, tag in zip(translation.marks, tags, strict=True))
        return self.compose(MarkedText(translation.text, marks))


@dataclass(frozen=True)
class Nested:
    """A document inside another, such as HTML in a JSON string."""

    start: int
    end: int
    document: Document
    encode: Callable[[str], str] = escape_nothing
    """Writes the inner document in the format of the outer one."""

    @property
    def texts(self) -> list[MarkedText]:
        """The texts of the inner document."""
        return self.document.texts

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The translated inner document; `source` if nothing has changed."""
        written = self.document.write(translations, language)
        return source if written == self.document.source else self.encode(written)


@dataclass(frozen=True)
class LanguageCode:
    """Where a document declares its language."""

    start: int
    end: int
    around: tuple[str, str] = ("", "")
    """Written before and after the code, such as quotes."""

    @property
    def texts(self) -> list[MarkedText]:
        """None."""
        return []

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The target language, if known."""
        return source if language is None else self.around[0] + language + self.around[1]


def is_prose(content: MarkedText) -> bool:
    """Whether a text has something to translate: words outside protected spans that are not a single identifier."""
    text = content.text
    for mark in reversed(content.marks):
        if mark.kind == "kept":
            text = text[: mark.start] + " " * (mark.end - mark.start) + text[mark.end :]
    rest = remove_spans(text).strip()
    if not _LETTERS.search(rest) or _NAME.fullmatch(rest):
        return False
    return len(rest) > 1 or not rest.isascii()


def as_code(text: str) -> str:
    """Kept text as the translator gets it: in backquotes, which protect it."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def compose(marked: MarkedText, escape: Callable[[str], str]) -> str:
    """Write a text: escape its characters and insert its nested tags."""
    children: dict[int, list[int]] = {}
    for number, mark in enumerate(marked.marks):
        children.setdefault(mark.parent, []).append(number)

    def inside(parent: int, start: int, end: int) -> str:
        pieces: list[str] = []
        position, glued = start, False
        for number in sorted(children.get(parent, ()), key=lambda n: (marked.marks[n].start, marked.marks[n].end, n)):
            mark = marked.marks[number]
            gap = marked.text[position : mark.start]
            gap = gap.lstrip() if glued else gap
            if mark.kind == "point":
                gap, glued = gap.rstrip() + mark.before, True
                pieces += [escape(gap), str(mark.opening), mark.after]
            else:
                glued = False
                within = "" if mark.kind == "kept" else inside(number, mark.start, mark.end)
                pieces += [escape(gap), str(mark.opening), within, mark.closing]
            position = max(position, mark.end)
        rest = marked.text[position:end]
        return "".join([*pieces, escape(rest.lstrip() if glued else rest)])

    return inside(-1, 0, len(marked.text))


def read_text(source: str) -> Document:
    """Read plain text: each line is a text to translate."""
    lines = re.finditer(r"[^\s](?:[^\r\n]*[^\s])?", source)
    return Document(source, [Prose(line.start(), line.end(), MarkedText(line.group())) for line in lines])
