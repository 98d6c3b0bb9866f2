"""HTML: an HTML5 parser finds the prose, and translations are inserted in the source.

`justhtml` builds the same tree as browsers, with the offset of every element and text in the source. A scanner splits
the source into tags and text. The text between two block-level tags is one text, and the inline tags in it are marks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import unescape
from typing import TYPE_CHECKING, Any, Protocol

from heedful.errors import DocumentError
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

if TYPE_CHECKING:
    from justhtml import JustHTML

INLINE = frozenset(
    """
    a abbr acronym b basefont bdi bdo big br cite code data del dfn em embed font i img input ins kbd label map mark
    math nobr object output q rp rt ruby s samp script small span strike strong style sub sup svg time tt u var wbr
    """.split()
)
VOID = frozenset("area base basefont bgsound br col embed hr img input link meta param source track wbr".split())
OPAQUE = frozenset("iframe math noembed noframes plaintext script style svg xmp".split())
"""Elements that are copied with their contents."""
KEPT = frozenset("code kbd pre samp textarea tt var".split()) | OPAQUE
"""Elements whose text is not translated."""
ATTRIBUTES = frozenset("alt title placeholder aria-label aria-description".split())
DESCRIPTIONS = frozenset("description og:title og:description twitter:title twitter:description".split())

MIN_LIST_BREAKS = 4
"""From this number of line breaks in a text, every line is a separate text."""
MAX_TOKENS = 150
"""A text with more tags and pieces of text is split."""

_ATTRIBUTE = r"""[\s/]*+=?[^\s/>=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?)?"""
_TOKEN = re.compile(
    rf"""<!--(?:-?>|.*?(?:--!?>|\Z))|<(?P<slash>/?)(?P<name>[A-Za-z][^\s/>]*+)(?:{_ATTRIBUTE})*+[\s/]*+(?P<last>>)"""
    r"|<[!?][^>]*+(?:>|\Z)|</[^A-Za-z][^>]*+(?:>|\Z)|</?[A-Za-z].*\Z",
    re.DOTALL,
)
_NAMED = re.compile(
    r"""[\s/]*+(?P<name>=?[^\s/>=]++)(?:\s*+=\s*+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|(?P<bare>[^\s>]++))?)?"""
)
SENTENCE_END = re.compile(r"[.!?:;。！？：；…][\"'”’»)\]）」』]*\s*\Z")
NO_SPACE_BEFORE = re.compile(r"[,.;:!?)\]。，；：！？）」』]")
SPACES = " \t\r\n\f"
_SPACE = re.compile(r"[ \t\r\n\f]+")
_WHOLE_DOCUMENT = re.compile(r"<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--")


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


def looks_like_html(text: str) -> bool:
    """Whether a string contains tags."""
    return bool(_TAG.search(text))


def read_html(source: str) -> Document:
    """Read an HTML document or fragment."""
    try:
        from justhtml import JustHTML
    except ImportError:
        raise DocumentError.missing("justhtml") from None
    is_fragment = not _WHOLE_DOCUMENT.search(source)
    parsed = JustHTML(source, sanitize=False, track_node_locations=True, scripting_enabled=False, fragment=is_fragment)
    return _Reader(source, parsed).document()


class _Reader:
    def __init__(self, source: str, parsed: JustHTML) -> None:
        self.source = source
        self.elements: dict[int, Any] = {}
        self.kept_tags: set[int] = set()
        """Offsets of tags whose attributes are not translated."""
        offsets: list[tuple[int, bool]] = []
        pending: list[tuple[Any, bool]] = [(parsed.root, False)]
        while pending:
            node, is_kept = pending.pop()
            if node.origin_offset is not None and node.name == "#text":
                offsets.append((node.origin_offset, is_kept))
            is_parent_kept, is_kept = is_kept, _is_kept(node, is_kept=is_kept)
            if node.origin_offset is not None and node.name != "#text":
                self.elements.setdefault(node.origin_offset, node)
                if is_parent_kept if node.name == "textarea" else is_kept:
                    self.kept_tags.add(node.origin_offset)
            content = getattr(node, "template_content", None)
            pending += [(child, is_kept) for child in (*(node.children or ()), *([content] if content else ()))]
        offsets.sort()
        self.offsets, self.kept = [offset for offset, _ in offsets], [is_kept for _, is_kept in offsets]

    def document(self) -> Document:
        parts: list[Part] = []
        run: list[Token] = []
        for token in [*self._tokens(), Token("block", len(self.source), len(self.source))]:
            if token.kind != "block":
                run.append(token)
                continue
            for piece in self._sentences(run):
                parts += self._text_parts(piece)
            run = []
            if token.name:
                parts += self._tag_parts(token)
        return Document(self.source, parts)

    # ---- tokens ------------------------------------------------------------------------------------------------------

    def _tokens(self) -> Iterator[Token]:
        source, position = self.source, 0
        while match := _TOKEN.search(source, position):
            if match.start() > position:
                yield self._text(position, match.start())
            position = match.end()
            name = (match["name"] or "").lower()
            if not match["last"]:
                kind = "point" if source.startswith("<!--", match.start()) else "block"
                yield Token(kind, match.start(), match.end())
            elif name in OPAQUE and not match["slash"]:
                position = self._end_of(name, match.end())
                yield Token("point" if name in INLINE else "block", match.start(), position)
            elif name in ("title", "textarea") and not match["slash"]:
                yield Token("block", match.start(), match.end(), name)
                closing = self._end_of(name, match.end(), inside=True)
                if closing > match.end():
                    yield replace(self._text(match.end(), closing), is_kept=name == "textarea")
                position = closing
            else:
                yield self._tag(match, name)
        if position < len(source):
            yield self._text(position, len(source))

    def _tag(self, match: re.Match[str], name: str) -> Token:
        start, end = match.span()
        if name not in INLINE:
            return Token("block", start, end, "" if match["slash"] else name)
        if match["slash"]:
            return Token("end", start, end, name)
        element = self.elements.get(start)
        is_kept = element is not None and _is_kept(element, is_kept=False)
        return Token("point" if name in VOID else "start", start, end, name, is_kept)

    def _text(self, start: int, end: int) -> Token:
        index = bisect_right(self.offsets, start) - 1
        return Token("text", start, end, is_kept=self.kept[index] if index >= 0 else False)

    def _end_of(self, name: str, position: int, *, inside: bool = False) -> int:
        """Where an element ends; with `inside`, where its contents end."""
        depth = 1
        for match in re.compile(rf"<(/?){name}(?=[\s/>])[^>]*>", re.IGNORECASE).finditer(self.source, position):
            nests = name in ("svg", "math") and not match[0].endswith("/>")
            depth += -1 if match[1] else int(nests)
            if depth == 0:
                return match.start() if inside else match.end()
        return len(self.source)

    # ---- texts -------------------------------------------------------------------------------------------------------

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
        leading = [part for token in tokens[:first] for part in self._tag_parts(token)]
        trailing = [part for token in tokens[last:] for part in self._tag_parts(token)]
        inner = tokens[first:last]
        return [*leading, *self._prose(inner), *trailing]

    def _is_edge(self, token: Token) -> bool:
        """Whether a token at the end of a text need not be part of it."""
        return token.kind == "point" or (
            token.kind == "text" and not self.source[token.start : token.end].strip(SPACES)
        )

    def _prose(self, tokens: list[Token]) -> list[Part]:
        if not any(token.kind == "text" and not token.is_kept for token in tokens):
            return [part for token in tokens for part in self._tag_parts(token)]
        start = tokens[0].start
        end = tokens[-1].end
        if tokens[0].kind == "text":
            start = tokens[0].end - len(self.source[tokens[0].start : tokens[0].end].lstrip(SPACES))
        if tokens[-1].kind == "text":
            end = tokens[-1].start + len(self.source[tokens[-1].start : tokens[-1].end].rstrip(SPACES))
        content = _MarkedTextBuilder(self, tokens).build()
        return [Prose(start, end, content, _compose)]

    def tag(self, token: Token) -> str | Document:
        """The source of a tag; a document if it has attributes to translate."""
        parts = self._tag_parts(token)
        source = self.source[token.start : token.end]
        if not parts:
            return source
        return Document(source, [_shift(part, -token.start) for part in parts])

    def _tag_parts(self, token: Token) -> list[Part]:
        """The attributes of a tag to translate, and the language attribute of the document."""
        element = self.elements.get(token.start) if token.name and token.kind != "end" else None
        if element is None or token.start in self.kept_tags:
            return []
        attributes = {name.lower(): value or "" for name, value in (element.attrs or {}).items()}
        wanted = set(ATTRIBUTES & set(attributes))
        if token.name == "meta" and _meta_name(attributes) in DESCRIPTIONS:
            wanted.add("content")
        if token.name in ("input", "button") and attributes.get("type", "").lower() in ("submit", "reset", "button"):
            wanted.add("value")
        wanted |= {"lang", "xml:lang"} & set(attributes) if token.name == "html" else set()
        return [self._attribute(name, span) for name, span in self._values(token) if name in wanted]

    def _values(self, token: Token) -> Iterator[tuple[str, tuple[int, int]]]:
        """The attributes of a tag, with start and end of their values including quotes."""
        position, seen = token.start + 1 + len(token.name), set()
        while match := _NAMED.match(self.source, position, token.end - 1):
            name = match["name"].lower()
            group = next((g for g in ("double", "single", "bare") if match[g]), None)
            if group and name not in seen:
                quote = group != "bare"
                yield name, (match.start(group) - quote, match.end(group) + quote)
            seen.add(name)
            position = match.end()

    def _attribute(self, name: str, span: tuple[int, int]) -> Part:
        start, end = span
        raw = self.source[start:end]
        quote = raw[0] if raw[0] in "\"'" else ""
        if name in ("lang", "xml:lang"):
            return LanguageCode(start, end, (quote, quote))
        text = unescape(raw[1:-1] if quote else raw)

        def write(marked: MarkedText) -> str:
            return f'"{_escape(marked.text).replace(chr(34), "&quot;")}"'

        return Prose(start, end, MarkedText(_SPACE.sub(" ", text).strip(SPACES)), write)


class _MarkedTextBuilder:
    """Builds a `MarkedText` from tokens."""

    def __init__(self, reader: _Reader, tokens: Sequence[Token]) -> None:
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
            self._append_kept(raw.strip(SPACES), as_code(_SPACE.sub(" ", unescape(raw)).strip(SPACES)))
            self.is_spaced = raw[-1] in SPACES
            return
        text = _SPACE.sub(" ", unescape(raw))
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
        shown = _SPACE.sub(" ", unescape(text)).strip()
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


def _is_kept(node: Any, *, is_kept: bool) -> bool:
    """Whether the text of an element is not translated; `is_kept`: that of its parent."""
    attributes = getattr(node, "attrs", None) or {}
    values = {name.lower(): (value or "").lower() for name, value in attributes.items()}
    if values.get("translate") == "no" or "notranslate" in values.get("class", "").split():
        return True
    if values.get("translate") in ("yes", "") and "translate" in values:
        return False
    return is_kept or node.name in KEPT


def _begins_line(text: str) -> bool:
    """Whether a text after a line break looks like a new sentence or item."""
    return text[0].isupper() or text[0].isdigit() or text[0] in "-–—•*"


def _meta_name(attributes: dict[str, str]) -> str:
    return (attributes.get("name") or attributes.get("property") or "").lower()


def _shift(part: Part, by: int) -> Part:
    assert isinstance(part, (Prose, LanguageCode, Nested))
    return replace(part, start=part.start + by, end=part.end + by)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\u00a0", "&nbsp;")


def _compose(marked: MarkedText) -> str:
    return compose(marked, _escape)
