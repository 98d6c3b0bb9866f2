"""Texts of documents with tags: what HTML and XML have in common.

A reader splits the source into tokens: tags and text. The text between two tags that separate texts is one text, and
the other tags in it are marks.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import unescape
from typing import Protocol

from heedful.text.documents.document import (
    Document,
    Kind,
    LanguageCode,
    Mark,
    MarkedText,
    Nested,
    Part,
    Prose,
    as_code,
    compose,
)

MIN_LIST_BREAKS = 4
"""From this number of line breaks in a text, every line is a separate text."""
MAX_TOKENS = 150
"""A text with more tags and pieces of text is split."""
SENTENCE_END = re.compile(r"[.!?:;。！？：；…][\"'”’»)\]）」』]*\s*\Z")
NO_SPACE_BEFORE = re.compile(r"[,.;:!?)\]。，；：！？）」』]")
SPACES = " \t\r\n\f"
SPACE = re.compile(r"[ \t\r\n\f]+")


@dataclass(frozen=True)
class MarkupOptions:
    """Which elements are treated otherwise than usual, by name."""

    ignore_tags: frozenset[str] = frozenset()
    """Elements that are copied unchanged."""
    splitting_tags: frozenset[str] = frozenset()
    """Elements that separate texts."""
    non_splitting_tags: frozenset[str] = frozenset()
    """Elements that are inside a text."""
    detects_outline: bool = True
    """In XML, whether other elements separate texts unless there is text beside them."""


@dataclass(frozen=True)
class Token:
    """A tag, a comment, an element or a piece of text, by its position in the source."""

    kind: str
    """start, end, point, text or block. A point is an empty tag or a comment; a block ends a text."""
    start: int
    end: int
    name: str = ""
    is_kept: bool = False
    """Text that is not translated, or a tag of such an element."""


class Tag(Protocol):
    """What `match_tags` needs to know of a tag."""

    @property
    def kind(self) -> str:
        """start or end; anything else is ignored."""

    @property
    def name(self) -> str:
        """The name of the element."""


class TagReader(ABC):
    """Makes texts of tokens."""

    def __init__(self, source: str) -> None:
        self.source = source

    def unescape(self, text: str) -> str:
        """A text with its character references replaced."""
        return unescape(text)

    @abstractmethod
    def tokens(self) -> Iterator[Token]:
        """The tokens of the source."""

    @abstractmethod
    def tag_parts(self, token: Token) -> list[Part]:
        """What is to be translated in a tag itself."""

    def document(self) -> Document:
        """The document of the source."""
        parts: list[Part] = []
        run: list[Token] = []
        for token in [*self.tokens(), Token("block", len(self.source), len(self.source))]:
            if token.kind != "block":
                run.append(token)
                continue
            for piece in self._sentences(run):
                parts += self._text_parts(piece)
            run = []
            if token.name:
                parts += self.tag_parts(token)
        return Document(self.source, parts)

    def _sentences(self, run: list[Token]) -> Iterator[list[Token]]:
        """Split inline tokens at line breaks that end a text, and where there are too many."""
        piece: list[Token] = []
        previous, breaks, depth = "", 0, 0
        cut: int | None = None
        in_list = sum(token.name == "br" for token in run) >= MIN_LIST_BREAKS
        for token in run:
            text = self.source[token.start : token.end].strip(SPACES) if token.kind == "text" else ""
            if text:
                if cut is not None and (breaks > 1 or in_list or SENTENCE_END.search(previous) or _begins_line(text)):
                    yield piece[:cut]
                    piece = piece[cut:]
                previous, breaks, cut = text, 0, None
            piece.append(token)
            depth = max(0, depth + (token.kind == "start") - (token.kind == "end"))
            if token.name == "br":
                breaks, cut = breaks + 1, len(piece) if depth == 0 else None
            elif len(piece) >= MAX_TOKENS and (depth == 0 or len(piece) >= 3 * MAX_TOKENS):
                yield piece
                piece, cut = [], None
        yield piece

    def _text_parts(self, tokens: list[Token]) -> list[Part]:
        """The parts of a text, and of the tags at its ends, which do not become marks."""
        partner = match_tags(tokens)
        first, last = 0, len(tokens)
        while first < last:
            if self._is_edge(tokens[first]) or (tokens[first].kind in ("start", "end") and first not in partner):
                first += 1
            elif self._is_edge(tokens[last - 1]) or (
                tokens[last - 1].kind in ("start", "end") and last - 1 not in partner
            ):
                last -= 1
            elif partner.get(first) == last - 1 and not tokens[first].is_kept:
                first, last = first + 1, last - 1
            else:
                break
        leading = [part for token in tokens[:first] for part in self.tag_parts(token)]
        trailing = [part for token in tokens[last:] for part in self.tag_parts(token)]
        inner = tokens[first:last]
        return [*leading, *self._prose(inner), *trailing]

    def _is_edge(self, token: Token) -> bool:
        """Whether a token at the end of a text need not be part of it."""
        return token.kind == "point" or (
            token.kind == "text" and not self.source[token.start : token.end].strip(SPACES)
        )

    def _prose(self, tokens: list[Token]) -> list[Part]:
        if not any(token.kind == "text" and not token.is_kept for token in tokens):
            return [part for token in tokens for part in self.tag_parts(token)]
        start = tokens[0].start
        end = tokens[-1].end
        if tokens[0].kind == "text":
            start = tokens[0].end - len(self.source[tokens[0].start : tokens[0].end].lstrip(SPACES))
        if tokens[-1].kind == "text":
            end = tokens[-1].start + len(self.source[tokens[-1].start : tokens[-1].end].rstrip(SPACES))
        content = MarkedTextBuilder(self, tokens).build()
        return [Prose(start, end, content, _compose)]

    def tag(self, token: Token) -> str | Document:
        """The source of a tag; a document if it has attributes to translate."""
        parts = self.tag_parts(token)
        source = self.source[token.start : token.end]
        if not parts:
            return source
        return Document(source, [shift(part, -token.start) for part in parts])


class MarkedTextBuilder:
    """Builds a `MarkedText` from tokens."""

    def __init__(self, reader: TagReader, tokens: Sequence[Token]) -> None:
        self.reader, self.tokens = reader, tokens
        self.partner = match_tags(tokens)
        self.text = ""
        self.marks: list[Mark] = []
        self.open: list[int] = []
        self.is_spaced = False
        """Whether whitespace is pending."""

    def build(self) -> MarkedText:
        position = 0
        while position < len(self.tokens):
            token = self.tokens[position]
            closing = self.partner.get(position)
            if token.kind == "start" and closing is not None and token.is_kept:
                self._keep(position, closing)
                position = closing
            elif token.kind == "text":
                self._read(token, position)
            elif token.kind == "start" and closing is not None:
                self._space()
                self.marks.append(Mark(len(self.text), -1, self.reader.tag(token), parent=self._parent))
                self.open.append(len(self.marks) - 1)
            elif token.kind == "end" and position in self.partner:
                number = self.open.pop()
                end = max(self.marks[number].start, len(self.text))
                tag = self.reader.source[token.start : token.end]
                self.marks[number] = replace(self.marks[number], end=end, closing=tag)
            else:
                self._point(token, position)
            position += 1
        return MarkedText(self.text, tuple(self.marks))

    @property
    def _parent(self) -> int:
        return self.open[-1] if self.open else -1

    def _space(self) -> None:
        if self.is_spaced and self.text and not self.text.endswith(" "):
            self.text += " "
        self.is_spaced = False

    def _read(self, token: Token, position: int) -> None:
        raw = self.reader.source[token.start : token.end]
        if token.is_kept and raw.strip(SPACES):
            self.is_spaced |= raw[0] in SPACES
            self._space()
            self._append_kept(raw.strip(SPACES), as_code(SPACE.sub(" ", self.reader.unescape(raw)).strip(SPACES)))
            self.is_spaced = raw[-1] in SPACES
            return
        text = SPACE.sub(" ", self.reader.unescape(raw))
        if text.startswith(" "):
            self.is_spaced = True
        if text.strip(" "):
            self._space()
            self.text += text.strip(" ")
            self.is_spaced = text.endswith(" ")

    def _keep(self, first: int, last: int) -> None:
        """Add an element that is not translated; its text is shown to the translator in backquotes."""
        self._space()
        source = self.reader.source
        text = "".join(source[t.start : t.end] for t in self.tokens[first : last + 1] if t.kind == "text")
        raw = source[self.tokens[first].start : self.tokens[last].end]
        shown = SPACE.sub(" ", self.reader.unescape(text)).strip()
        self._append_kept(raw, as_code(shown))

    def _append_kept(self, raw: str, shown: str) -> None:
        start = len(self.text)
        self.text += shown
        kind: Kind = "kept" if shown else "point"
        self.marks.append(Mark(start, len(self.text), raw, kind=kind, parent=self._parent))

    def _point(self, token: Token, position: int) -> None:
        """Add a tag between words, with the whitespace around it."""
        source = self.reader.source
        left = source[self.tokens[position - 1].start : token.start] if self._follows_text(position) else ""
        right = source[token.end : self._limit(position)]
        before = left[len(left.rstrip(SPACES)) :]
        after = right[: len(right) - len(right.lstrip(SPACES))]
        follows = right[len(after) :]
        if (before or after or token.name == "br") and (after or not NO_SPACE_BEFORE.match(follows)):
            self.is_spaced = True
            self._space()
        elif before:
            self.is_spaced = False
        offset = len(self.text.rstrip(" "))
        offset = max(offset, self.marks[self.open[-1]].start if self.open else 0)
        mark = Mark(
            offset, offset, self.reader.tag(token), kind="point", parent=self._parent, before=before, after=after
        )
        self.marks.append(mark)

    def _limit(self, position: int) -> int:
        """The end of the text after a token."""
        following = self.tokens[position + 1 : position + 2]
        return following[0].end if following and following[0].kind == "text" else self.tokens[position].end

    def _follows_text(self, position: int) -> bool:
        """Whether the previous token is text that is not only whitespace."""
        if position == 0 or self.tokens[position - 1].kind != "text":
            return False
        token = self.tokens[position - 1]
        return bool(self.reader.source[token.start : token.end].strip(SPACES))


def match_tags(tokens: Sequence[Tag]) -> dict[int, int]:
    """The index of the matching tag for each properly nested start and end tag."""
    partner: dict[int, int] = {}
    stack: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind == "start":
            stack.append(index)
        elif token.kind == "end":
            depth = next((d for d in range(len(stack) - 1, -1, -1) if tokens[stack[d]].name == token.name), None)
            if depth is not None:
                partner[stack[depth]], partner[index] = index, stack[depth]
                del stack[depth:]
    return partner


def _begins_line(text: str) -> bool:
    """Whether a text after a line break looks like a new sentence or item."""
    return text[0].isupper() or text[0].isdigit() or text[0] in "-–—•*"


def shift(part: Part, by: int) -> Part:
    """The part, this many characters later in the source."""
    assert isinstance(part, (Prose, LanguageCode, Nested))
    return replace(part, start=part.start + by, end=part.end + by)


def escape(text: str) -> str:
    """The text with what HTML and XML reserve as references."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\u00a0", "&nbsp;")


def _compose(marked: MarkedText) -> str:
    return compose(marked, escape)
