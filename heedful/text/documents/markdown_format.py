"""Markdown: CommonMark with tables, strikethrough, footnotes and front matter; translations replace text in the source.

markdown-it-py finds the blocks and their lines. Its inline rules, wrapped to record the position of every token, split
the text of each block. A translation is parsed again and escaped only if it would be read differently.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heedful.errors import DocumentError
from heedful.text.documents.document import Document, Kind, Mark, MarkedText, Nested, Part, Prose, as_code, compose
from heedful.text.documents.html_format import KEPT, VOID, read_html
from heedful.text.documents.markup import NO_SPACE_BEFORE, SENTENCE_END, match_tags

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")
_CLOSING_SEQUENCE = re.compile(r"(?:^|[ \t]+)#+[ \t]*\Z")
_LABEL = re.compile(r"\[[ xX]\]\s+|\[![A-Za-z]+\][ \t]*\n")  # the box of a task, the type of a note
_BLOCK_START = re.compile(
    r"(?:#{1,6}|[-+*]|(?P<number>\d{1,9})[.)])(?:\s|\Z)|>|```|~~~|(?:=+|-+|\*{3,})\s*\Z|\[[^\]]+\]:|<[a-zA-Z!/?]"
)
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>&~]")
_HTML_NAME = re.compile(r"<(/?)([a-zA-Z][\w-]*)")
MAX_TAGS = 400
"""A text with more tags is copied."""
_DELIMITER_RULES = ("emphasis", "strikethrough")


@dataclass(frozen=True)
class _Event:
    """An inline token: characters, a tag, or something that is not translated."""

    kind: str
    """text, start, end, point or kept"""
    start: int
    end: int
    text: str = ""
    name: str = ""


def read_markdown(source: str) -> Document:
    """Read a Markdown document."""
    return _Reader(source).document()


class _Reader:
    def __init__(self, source: str) -> None:
        try:
            self.parser = make_parser()
        except ImportError:
            raise DocumentError.missing("markdown-it-py and mdit-py-plugins") from None
        self.source = source
        self.lines = [match.span() for match in _LINE.finditer(source)]
        self.environment: dict[str, Any] = {}
        self.cursors: dict[int, int] = {}

    def document(self) -> Document:
        parts: list[Part] = []
        kind = ""
        for token in self.parser.parse(self.source, self.environment):
            if token.type == "html_block":
                parts += self._html(token)
            elif token.type == "inline":
                part = self._block(token, kind)
                parts += [part] if part is not None else []
            kind = token.type
        parts.sort(key=lambda part: part.start)
        return Document(self.source, parts)

    def _line(self, number: int) -> str:
        return self.source[slice(*self.lines[number])].rstrip("\r\n")

    def _html(self, token: Any) -> list[Part]:
        first, last = token.map
        start, end = self.lines[first][0], self.lines[last - 1][1]
        raw = self.source[start:end]
        if raw.replace("\r\n", "\n").strip() != token.content.strip():
            return []  # in a list or quotation, whose prefixes the parser has removed
        return [Nested(start, end, read_html(raw))]

    def _block(self, token: Any, kind: str) -> Part | None:
        """A paragraph, heading or table cell; None if its text cannot be located in the source."""
        is_cell = kind in ("th_open", "td_open")
        spans = self._locate_cell(token) if is_cell else self._locate_lines(token, kind)
        if spans is None or not token.content:
            return None
        start, end = spans[0][0], spans[-1][1]
        label = _LABEL.match(token.content)
        begin = label.end() if label else 0
        pieces: list[Part] = []

        def write(marked: MarkedText) -> str:
            return _write(self.parser, marked, self.environment, is_cell=is_cell)

        for piece_start, piece_end in _pieces(self.parser, token.content, begin, self.environment):
            content = _inline(self.parser, token.content[piece_start:piece_end], self.environment)
            if content is None:
                return None
            pieces.append(Prose(piece_start, piece_end, content, write))
        events = _read_events(self.parser, token.content[begin:], self.environment)
        is_wrapped = any(event.name == "softbreak" for event in events)
        width = max(20, *(last - first for first, last in spans)) if is_wrapped else 0
        prefix = self.source[self.lines[token.map[0] + 1][0] : spans[1][0]] if len(spans) > 1 else ""
        newline = "\r\n" if "\r\n" in self.source[start:end] else "\n"

        def encode(text: str) -> str:
            if is_cell:
                return text.replace("|", "\\|")
            return _wrap(text, prefix, width, newline)

        return Nested(start, end, Document(token.content, pieces), encode)

    def _locate_lines(self, token: Any, kind: str) -> list[tuple[int, int]] | None:
        """Start and end of each line of a block's text."""
        spans = []
        texts = token.content.split("\n")
        first, last = token.map
        if len(texts) > last - first:
            return None
        for number, text in enumerate(texts, start=first):
            line = self._line(number)
            shown = text.strip(" \t")
            for end in (len(line.rstrip(" \t")), len(_CLOSING_SEQUENCE.sub("", line).rstrip(" \t"))):
                if kind == "heading_open" and end == len(line.rstrip(" \t")) and _CLOSING_SEQUENCE.search(line):
                    continue
                if line[:end].endswith(shown):
                    offset = self.lines[number][0] + end
                    spans.append((offset - len(shown), offset))
                    break
            else:
                return None
        return spans

    def _locate_cell(self, token: Any) -> list[tuple[int, int]] | None:
        """Start and end of a table cell; the cells of a row are located from left to right."""
        number = token.map[0]
        line = self._line(number)
        offset = self.lines[number][0]
        if number not in self.cursors:
            self.cursors[number] = line.index("|") + 1 if line.lstrip(" \t>").startswith("|") else 0
        begin = self.cursors[number]
        bar = re.compile(r"(?<!\\)(?:\\\\)*\|").search(line, begin)
        end = bar.end() - 1 if bar else len(line)
        self.cursors[number] = end + 1
        raw = line[begin:end]
        if raw.strip().replace("\\|", "|") != token.content:
            found = raw.find(token.content.replace("|", "\\|"))  # after the prefix of a list or quotation
            if found < 0:
                return None
            return [(offset + begin + found, offset + begin + found + len(token.content.replace("|", "\\|")))]
        start = begin + len(raw) - len(raw.lstrip())
        return [(offset + start, offset + start + len(raw.strip()))]


def make_parser() -> Any:
    """A parser that records the position of inline tokens in `token.meta["span"]`."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.footnote import footnote_plugin
    from mdit_py_plugins.front_matter import front_matter_plugin

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.use(footnote_plugin).use(front_matter_plugin)
    parser.disable(["footnote_tail", "footnote_inline", "text_join", "fragments_join", "inline"], True)
    names = parser.get_active_rules()["inline"]
    for name, rule in zip(names, parser.inline.ruler.getRules(""), strict=True):
        parser.inline.ruler.at(name, _recording(name, rule))
    return parser


def _recording(name: str, rule: Callable[[Any, bool], bool]) -> Callable[[Any, bool], bool]:
    """An inline rule that records the position of its tokens."""

    def recorded(state: Any, silent: bool) -> bool:  # noqa: FBT001  the parser calls it
        first, start = len(state.tokens), state.pos
        label_end = state.md.helpers.parseLinkLabel(state, start, True) if name == "link" and not silent else -1
        if not rule(state, silent):
            return False
        new = [] if silent else state.tokens[first:]
        if name in _DELIMITER_RULES:
            position = state.pos
            for token in reversed(new):
                if position > start:
                    token.meta["span"] = (position - len(token.content), position)
                    position -= len(token.content)
        elif name == "link" and new:
            opening = next(token for token in new if token.type == "link_open" and "span" not in token.meta)
            opening.meta["span"], new[-1].meta["span"] = (start, start + 1), (label_end, state.pos)
        elif name == "autolink" and new:
            new[-3].meta["span"] = (start, state.pos)
            new[-2].meta["span"] = new[-1].meta["span"] = (state.pos, state.pos)
        elif new and new[-1].meta.get("span") is None and name != "text":
            new[-1].meta["span"] = (start, state.pos)
        return True

    return recorded


def _pieces(parser: Any, content: str, begin: int, environment: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Split a block at hard line breaks after sentences; the breaks belong to no piece."""
    depth, start = 0, begin
    for event in _read_events(parser, content[begin:], environment):
        depth += (event.kind == "start") - (event.kind == "end")
        offset = begin + event.start
        if event.name == "break" and depth == 0 and offset > start and SENTENCE_END.search(content, start, offset):
            yield start, offset
            start = begin + event.end
    yield start, len(content)


def _read_events(parser: Any, content: str, environment: dict[str, Any]) -> list[_Event]:
    tokens: list[Any] = []
    parser.inline.parse(content, parser, environment, tokens)
    return list(_events(tokens, content))


def _inline(parser: Any, content: str, environment: dict[str, Any]) -> MarkedText | None:
    """The text of a block with its marks; None if the position of a token is unclear."""
    events = _read_events(parser, content, environment)
    position = 0
    if sum(event.kind != "text" for event in events) > MAX_TAGS:
        return None
    for event in events:
        if event.start < position or (event.kind == "start" and event.end <= event.start):
            return None
        position = event.end
    return _Builder(content, events).build()


def _events(tokens: Sequence[Any], content: str) -> Iterator[_Event]:
    position, skip = 0, 0
    for index, token in enumerate(tokens):
        start, end = token.meta.get("span", (position, position))
        if skip:
            skip -= 1
        elif token.type == "text" and "span" in token.meta and not token.content:
            position = end  # half of the asterisks of an adjacent token
        elif token.type in ("text", "text_special"):
            end = end if "span" in token.meta else position + len(token.content)
            yield _Event("text", max(start, position), end, token.content)
        elif token.type == "softbreak":
            yield _Event("text", start, end, " ", name="softbreak")
        elif token.type == "hardbreak":
            yield _Event("point", len(content[:start].rstrip(" ")), end, name="break")
        elif token.type == "code_inline":
            yield _Event("kept", start, end, as_code(token.content))
        elif token.type == "link_open" and token.markup == "autolink":
            skip = 2
            yield _Event("kept", start, end, tokens[index + 1].content)
        elif token.type == "html_inline":
            yield _html_event(token.content, start, end)
        elif token.nesting:
            start, end = _with_both_asterisks(tokens, index, start, end)
            kind = "start" if token.nesting > 0 else "end"
            yield _Event(kind, start, end, name=token.type.rsplit("_", 1)[0])
        else:
            yield _Event("point", start, end, name=token.type)
        position = max(position, end)


def _with_both_asterisks(tokens: Sequence[Any], index: int, start: int, end: int) -> tuple[int, int]:
    """The asterisks of strong text are in two tokens, one of which is empty."""
    if tokens[index].type == "strong_open":
        return start - 1, end
    if tokens[index].type == "strong_close":
        return start, end + 1
    return start, end


def _html_event(raw: str, start: int, end: int) -> _Event:
    match = _HTML_NAME.match(raw)
    name = match[2].lower() if match else ""
    if not match or name in VOID or raw.endswith("/>"):
        return _Event("point", start, end, name="html")
    return _Event("end" if match[1] else "start", start, end, name=f"<{name}")


class _Builder:
    def __init__(self, content: str, events: Sequence[_Event]) -> None:
        self.content = content
        self.events = events
        self.partner = match_tags(events)
        self.text = ""
        self.marks: list[Mark] = []
        self.open: list[int] = []

    def build(self) -> MarkedText:
        position = 0
        while position < len(self.events):
            event = self.events[position]
            closing = self.partner.get(position)
            if event.kind == "text":
                is_doubled = position and self.events[position - 1].kind == "point" and self.text[-1:] == " "
                self.text += event.text.lstrip(" ") if is_doubled else event.text
            elif event.kind == "kept":
                self._keep(event.start, event.end, event.text)
            elif event.kind == "start" and closing is not None and event.name[1:] in KEPT:
                shown = "".join(one.text for one in self.events[position:closing])
                self._keep(event.start, self.events[closing].end, as_code(shown))
                position = closing
            elif event.kind == "start" and closing is not None:
                self.marks.append(Mark(len(self.text), -1, self._source(event), parent=self._parent))
                self.open.append(len(self.marks) - 1)
            elif event.kind == "end" and closing is not None:
                number = self.open.pop()
                self.marks[number] = replace(
                    self.marks[number], end=len(self.text), closing=self._closing(event, closing)
                )
            else:
                self._point(event)
            position += 1
        return MarkedText(self.text, tuple(self.marks))

    @property
    def _parent(self) -> int:
        return self.open[-1] if self.open else -1

    def _source(self, event: _Event) -> str:
        return self.content[event.start : event.end]

    def _closing(self, event: _Event, opening: int) -> str:
        """The end of a tag; a link whose text is its label gets an explicit label, since the text changes."""
        raw = self._source(event)
        if event.name == "link" and raw in ("]", "][]"):
            return f"][{self.content[self.events[opening].end : event.start]}]"
        return raw

    def _keep(self, start: int, end: int, shown: str) -> None:
        offset = len(self.text)
        self.text += shown
        raw = self.content[start:end]
        kind: Kind = "kept" if shown else "point"
        self.marks.append(Mark(offset, len(self.text), raw, kind=kind, parent=self._parent))

    def _point(self, event: _Event) -> None:
        raw: str | Document = self._source(event)
        if event.name == "image":
            raw = _image(self._source(event))
        elif event.name == "html":
            raw = read_html(self._source(event))
        left, right = self.content[: event.start], self.content[event.end :]
        is_break = event.name == "break"
        before = "" if is_break else left[len(left.rstrip(" ")) :]
        after = "" if is_break else right[: len(right) - len(right.lstrip(" "))]
        offset = len(self.text.rstrip(" "))
        offset = max(offset, self.marks[self.open[-1]].start if self.open else 0)
        if before and not after and NO_SPACE_BEFORE.match(right):
            self.text = self.text.rstrip(" ")
        if is_break:
            self.text = f"{self.text.rstrip(' ')} " if self.text else ""
        self.marks.append(Mark(offset, offset, raw, kind="point", parent=self._parent, before=before, after=after))


def _image(raw: str) -> str | Document:
    """An image; a document if its alternative text can be translated."""
    match = re.match(r"!\[([^\[\]\\`*_<]+)\]\(", raw)
    if not match:
        return raw
    return Document(raw, [Prose(2, 2 + len(match[1]), MarkedText(match[1]), _escape_alternative)])


def _escape_alternative(marked: MarkedText) -> str:
    return re.sub(r"([\[\]\\])", r"\\\1", marked.text)


def _write(parser: Any, marked: MarkedText, environment: dict[str, Any], *, is_cell: bool) -> str:
    """Write a text with as few escaped characters as possible."""
    apart = replace(
        marked,
        marks=tuple(
            replace(mark, opening=f" {mark.opening}", closing=f"{mark.closing} ")
            if mark.kind == "pair" and str(mark.opening)[:1] in "*_~"
            else mark
            for mark in marked.marks
        ),
    )
    candidates = [compose(marked, str), compose(marked, _escape), compose(apart, _escape)]
    chosen = next((text for text in candidates if _reads_as(parser, text, marked, environment)), candidates[1])
    start = _BLOCK_START.match(chosen)
    if is_cell or start is None or (marked.marks and marked.marks[0].start == 0):
        return chosen
    if start["number"]:
        return chosen[: start.end("number")] + "\\" + chosen[start.end("number") :]
    return "\\" + chosen


def _reads_as(parser: Any, text: str, marked: MarkedText, environment: dict[str, Any]) -> bool:
    """Whether Markdown is parsed as this text with these tags."""
    parsed = _inline(parser, text, environment)
    if parsed is None:
        return False
    kinds = sorted((mark.kind, str(mark.opening).strip()) for mark in marked.marks)
    read = sorted(
        (m.kind, m.opening.source if isinstance(m.opening, Document) else m.opening.strip()) for m in parsed.marks
    )
    return kinds == read and _words(parsed) == _words(marked)


def _words(marked: MarkedText) -> list[str]:
    """The words of a text, without kept parts."""
    text = marked.text
    for mark in sorted(marked.marks, key=lambda one: -one.start):
        if mark.kind == "kept":
            text = text[: mark.start] + text[mark.end :]
    return "".join(text.split()).split()


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda match: "\\" + match.group(), text)


def _wrap(text: str, prefix: str, width: int, newline: str) -> str:
    """Wrap a text to a width (0: do not), unless a line would start a block."""
    lines: list[str] = []
    for piece in text.split("\n"):
        spaces = piece[len(piece.rstrip(" ")) :]
        wrapped = (
            textwrap.wrap(piece, width, break_long_words=False, break_on_hyphens=False)
            if width
            else [piece.rstrip(" ")]
        )
        if any(_BLOCK_START.match(line) for line in wrapped[1:]):
            wrapped = [piece.rstrip(" ")]
        lines += [*wrapped[:-1], (wrapped or [""])[-1] + spaces]
    return f"{newline}{prefix}".join(lines)
