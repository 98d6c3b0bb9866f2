"""A document as its source and the parts of it that hold prose; everything between them is never touched.

A reader finds the parts, `Document.texts` lists what is to translate, and `Document.write` puts the translations in
their places. A part whose translation equals its text comes out byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from heedful.text.protected_spans import without_spans

Kind = Literal["pair", "point", "kept"]

_LETTERS = re.compile(r"[^\W\d_]")
_NAME = re.compile(r"[A-Za-z0-9]*_\w*|[a-z0-9]+[A-Z]\w*|\w+(?:[.:]\w+)+|[A-Za-z]*\d\w*")
"""Names that programs use and that are no protected spans: snake_case, camelCase, dotted.keys, versions."""


@dataclass(frozen=True)
class Mark:
    """A tag inside a text, which is not part of the text that is translated."""

    start: int
    end: int
    """The characters of the text that stand in it; `start` equals `end` for a point between characters."""
    opening: str | Document
    """What is written before the characters: a tag, or one with attributes to translate."""
    closing: str = ""
    """What is written after them."""
    kind: Kind = "pair"
    """A pair stands around words, a point between words; of what is kept, `opening` replaces the characters."""
    parent: int = -1
    """The number of the mark that this one stands in, -1 for none."""
    before: str = ""
    after: str = ""
    """White space on either side of a point."""

    @property
    def texts(self) -> list[MarkedText]:
        """What is to translate in the tag itself, such as the text that stands for an image."""
        return self.opening.texts if isinstance(self.opening, Document) else []


@dataclass(frozen=True)
class MarkedText:
    """A text to translate and the tags in it: a mark comes after the one that it stands in."""

    text: str
    marks: tuple[Mark, ...] = ()


class Part(Protocol):
    """A stretch of a document's source that may change."""

    @property
    def start(self) -> int:
        """Its first character."""

    @property
    def end(self) -> int:
        """The character after its last."""

    @property
    def texts(self) -> list[MarkedText]:
        """What is to translate in it."""

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """What replaces `source`, its own stretch, given the translations of its texts."""


@dataclass(frozen=True)
class Document:
    """The source of a document and its parts, in order and apart from each other."""

    source: str
    parts: Sequence[Part] = ()

    @property
    def texts(self) -> list[MarkedText]:
        """All that is to translate."""
        return [text for part in self.parts for text in part.texts]

    def write(self, translations: Iterator[MarkedText], language: str | None) -> str:
        """The document in another language, given the translations of its texts in their order."""
        pieces: list[str] = []
        position = 0
        for part in self.parts:
            pieces.append(self.source[position : part.start])
            pieces.append(part.write(self.source[part.start : part.end], translations, language))
            position = part.end
        return "".join([*pieces, self.source[position:]])


def escape_nothing(text: str) -> str:
    """The text itself, where a format gives no character another meaning."""
    return text


@dataclass(frozen=True)
class Prose:
    """A text with its tags."""

    start: int
    end: int
    content: MarkedText
    compose: Callable[[MarkedText], str] = field(default=lambda marked: compose(marked, escape_nothing))
    """The source of a text in the document's format."""

    @property
    def texts(self) -> list[MarkedText]:
        """The text, and what is to translate in its tags."""
        within = [text for mark in self.content.marks for text in mark.texts]
        return [*within, self.content] if is_prose(self.content) else within

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The translation as source; `source` itself if nothing has changed."""
        tags = [
            mark.opening.write(translations, language) if isinstance(mark.opening, Document) else mark.opening
            for mark in self.content.marks
        ]
        before = [m.opening.source if isinstance(m.opening, Document) else m.opening for m in self.content.marks]
        found = next(translations) if is_prose(self.content) else self.content
        if found == self.content and tags == before:
            return source
        marks = tuple(replace(mark, opening=tag) for mark, tag in zip(found.marks, tags, strict=True))
        return self.compose(MarkedText(found.text, marks))


@dataclass(frozen=True)
class Nested:
    """A document inside another, such as HTML in a JSON string."""

    start: int
    end: int
    document: Document
    encode: Callable[[str], str] = escape_nothing
    """The inner document as source of the outer."""

    @property
    def texts(self) -> list[MarkedText]:
        """The texts of the inner document."""
        return self.document.texts

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The inner document in its place; `source` itself if nothing has changed."""
        written = self.document.write(translations, language)
        return source if written == self.document.source else self.encode(written)


@dataclass(frozen=True)
class LanguageCode:
    """The place where a document names its language."""

    start: int
    end: int
    around: tuple[str, str] = ("", "")
    """What stands before and after the code."""

    @property
    def texts(self) -> list[MarkedText]:
        """Nothing is to translate."""
        return []

    def write(self, source: str, translations: Iterator[MarkedText], language: str | None) -> str:
        """The target language, if it is known."""
        return source if language is None else self.around[0] + language + self.around[1]


def is_prose(content: MarkedText) -> bool:
    """Whether a text is worth translating: it has words outside protected spans, and is no name of a program."""
    text = content.text
    for mark in reversed(content.marks):
        if mark.kind == "kept":
            text = text[: mark.start] + " " * (mark.end - mark.start) + text[mark.end :]
    rest = without_spans(text).strip()
    if not _LETTERS.search(rest) or _NAME.fullmatch(rest):
        return False
    return len(rest) > 1 or not rest.isascii()


def as_code(text: str) -> str:
    """What is kept as the translator sees it: between backquotes, which protect it."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def compose(marked: MarkedText, escape: Callable[[str], str]) -> str:
    """The source of a text: its characters escaped, its tags around and between them, one inside the other."""
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
    """Plain text: each line is a text."""
    lines = re.finditer(r"[^\s](?:[^\r\n]*[^\s])?", source)
    return Document(source, [Prose(line.start(), line.end(), MarkedText(line.group())) for line in lines])
