"""HTML: an HTML5 parser finds the prose, and translations are inserted in the source.

`justhtml` builds the same tree as browsers, with the offset of every element and text in the source. A scanner splits
the source into tags and text; `markup` makes texts of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any

from heedful.errors import DocumentError
from heedful.text.documents.document import Document, LanguageCode, MarkedText, Part, Prose
from heedful.text.documents.markup import SPACE, SPACES, MarkupOptions, TagReader, Token, escape

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

_ATTRIBUTE = r"""[\s/]*+=?[^\s/>=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?)?"""
_TOKEN = re.compile(
    rf"""<!--(?:-?>|.*?(?:--!?>|\Z))|<(?P<slash>/?)(?P<name>[A-Za-z][^\s/>]*+)(?:{_ATTRIBUTE})*+[\s/]*+(?P<last>>)"""
    r"|<[!?][^>]*+(?:>|\Z)|</[^A-Za-z][^>]*+(?:>|\Z)|</?[A-Za-z].*\Z",
    re.DOTALL,
)
_NAMED = re.compile(
    r"""[\s/]*+(?P<name>=?[^\s/>=]++)(?:\s*+=\s*+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|(?P<bare>[^\s>]++))?)?"""
)
_WHOLE_DOCUMENT = re.compile(r"<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--")


def looks_like_html(text: str) -> bool:
    """Whether a string contains tags."""
    return bool(_TAG.search(text))


def read_html(source: str, options: MarkupOptions | None = None) -> Document:
    """Read an HTML document or fragment."""
    try:
        from justhtml import JustHTML
    except ImportError:
        raise DocumentError.missing("justhtml") from None
    is_fragment = not _WHOLE_DOCUMENT.search(source)
    parsed = JustHTML(source, sanitize=False, track_node_locations=True, scripting_enabled=False, fragment=is_fragment)
    return _Reader(source, parsed, options or MarkupOptions()).document()


class _Reader(TagReader):
    def __init__(self, source: str, parsed: JustHTML, options: MarkupOptions) -> None:
        super().__init__(source)
        self.inline = (INLINE | options.non_splitting_tags) - options.splitting_tags
        self.kept_elements = KEPT | options.ignore_tags
        self.elements: dict[int, Any] = {}
        self.kept_tags: set[int] = set()
        """Offsets of tags whose attributes are not translated."""
        offsets: list[tuple[int, bool]] = []
        pending: list[tuple[Any, bool]] = [(parsed.root, False)]
        while pending:
            node, is_kept = pending.pop()
            if node.origin_offset is not None and node.name == "#text":
                offsets.append((node.origin_offset, is_kept))
            is_parent_kept, is_kept = is_kept, self._is_kept(node, is_kept=is_kept)
            if node.origin_offset is not None and node.name != "#text":
                self.elements.setdefault(node.origin_offset, node)
                if is_parent_kept if node.name == "textarea" else is_kept:
                    self.kept_tags.add(node.origin_offset)
            content = getattr(node, "template_content", None)
            pending += [(child, is_kept) for child in (*(node.children or ()), *([content] if content else ()))]
        offsets.sort()
        self.offsets, self.kept = [offset for offset, _ in offsets], [is_kept for _, is_kept in offsets]

    def tokens(self) -> Iterator[Token]:
        """The tokens of the source."""
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
        if name not in self.inline:
            return Token("block", start, end, "" if match["slash"] else name)
        if match["slash"]:
            return Token("end", start, end, name)
        element = self.elements.get(start)
        is_kept = element is not None and self._is_kept(element, is_kept=False)
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

    def tag_parts(self, token: Token) -> list[Part]:
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

    def _is_kept(self, node: Any, *, is_kept: bool) -> bool:
        """Whether the text of an element is not translated; `is_kept`: that of its parent."""
        attributes = getattr(node, "attrs", None) or {}
        values = {name.lower(): (value or "").lower() for name, value in attributes.items()}
        if values.get("translate") == "no" or "notranslate" in values.get("class", "").split():
            return True
        if values.get("translate") in ("yes", "") and "translate" in values:
            return False
        return is_kept or node.name in self.kept_elements

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
            return f'"{escape(marked.text).replace(chr(34), "&quot;")}"'

        return Prose(start, end, MarkedText(SPACE.sub(" ", text).strip(SPACES)), write)


def _meta_name(attributes: dict[str, str]) -> str:
    return (attributes.get("name") or attributes.get("property") or "").lower()
