"""XML: texts with elements of any names, as programs send them to a translator.

A scanner splits the source into tags and text. What is no complete element is copied at its place, so XML that is not
well-formed loses nothing either. An element with text beside it, or inside such an element, is part of a text;
all others separate texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from heedful.text.documents.document import Document, Part
from heedful.text.documents.html_format import read_html
from heedful.text.documents.markup import SPACES, MarkupOptions, TagReader, Token, match_tags

_NAME = r"[A-Za-z_:\u00c0-\U000effff][^\s/<>=&;\"']*+"
_TOKEN = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>"
    rf"""|<(?P<slash>/?)(?P<name>{_NAME})(?:[^<>"']|"[^"<]*"|'[^'<]*')*?(?P<empty>/?)>"""
    rf"|(?P<entity>&(?!(?:lt|gt|amp|quot|apos);){_NAME};)",
    re.DOTALL,
)
_REFERENCE = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(\d{1,7})|#x([0-9A-Fa-f]{1,6}));")
_CHARACTERS = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}


def read_xml(source: str, options: MarkupOptions | None = None) -> Document:
    """Read an XML document or fragment."""
    return _Reader(source, options or MarkupOptions()).document()


class _Reader(TagReader):
    def __init__(self, source: str, options: MarkupOptions) -> None:
        super().__init__(source)
        self.options = options

    def unescape(self, text: str) -> str:
        """A text with its character references replaced. Other entities are marks."""
        return _REFERENCE.sub(_character, text)

    def tag_parts(self, token: Token) -> list[Part]:
        """Attributes are not translated."""
        return []

    def tokens(self) -> Iterator[Token]:
        """The tokens of the source: of elements that separate texts, both tags are blocks."""
        tokens = list(self._scan())
        partner = match_tags(tokens)
        inline = self._inline(tokens, partner)
        kept_until = -1
        for index, token in enumerate(tokens):
            if index < kept_until:
                yield replace(token, kind="text" if token.kind == "text" else "point", is_kept=token.kind == "text")
            elif token.kind in ("start", "end") and index not in partner:
                yield replace(token, kind="point")
            elif token.kind == "start" and token.name in self.options.ignore_tags:
                kept_until = partner[index]
                if index in inline:
                    yield replace(token, is_kept=True)
                else:
                    yield replace(token, kind="block", name="")
            elif token.kind in ("start", "end", "point") and index not in inline:
                yield Token("block", token.start, token.end)
            else:
                yield token

    def _scan(self) -> Iterator[Token]:
        """Tags and text, as they are written."""
        position = 0
        for match in _TOKEN.finditer(self.source):
            if match.start() > position:
                yield Token("text", position, match.start())
            position = match.end()
            if not match["name"] or match["empty"]:
                kind = "point"
            else:
                kind = "end" if match["slash"] else "start"
            yield Token(kind, match.start(), match.end(), match["name"] or "")
        if position < len(self.source):
            yield Token("text", position, len(self.source))

    def _inline(self, tokens: Sequence[Token], partner: dict[int, int]) -> set[int]:
        """The indices of the tags that are inside a text."""
        has_text: set[int] = set()
        for index, parent in self._parents(tokens, partner):
            token = tokens[index]
            is_entity = token.kind == "point" and self.source.startswith("&", token.start)
            if is_entity or (token.kind == "text" and self.source[token.start : token.end].strip(SPACES)):
                has_text.add(parent)
        inline: set[int] = set()
        for index, parent in self._parents(tokens, partner):
            name = tokens[index].name
            if name in self.options.splitting_tags:
                continue
            beside_text = parent in has_text or parent in inline or not self.options.detects_outline
            if beside_text or name in self.options.non_splitting_tags:
                inline |= {index, partner.get(index, index)}
        return inline

    def _parents(self, tokens: Sequence[Token], partner: dict[int, int]) -> Iterator[tuple[int, int]]:
        """Each token except end tags, with the start tag of the element around it, or -1."""
        around = [-1]
        for index, token in enumerate(tokens):
            if token.kind == "end" and index in partner:
                around.pop()
                continue
            yield index, around[-1]
            if token.kind == "start" and index in partner:
                around.append(index)


def _character(match: re.Match[str]) -> str:
    """The character that a reference stands for; the reference itself if it is none that XML allows."""
    name, decimal, hexadecimal = match.groups()
    if name:
        return _CHARACTERS[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    is_allowed = code in (9, 10, 13) or 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or 0x10000 <= code < 0x110000
    return chr(code) if is_allowed else match[0]


def read_markup(source: str, format: Literal["html", "xml"], options: MarkupOptions) -> Document:
    """Read HTML or XML."""
    return read_html(source, options) if format == "html" else read_xml(source, options)
