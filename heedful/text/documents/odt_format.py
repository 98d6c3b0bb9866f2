"""OpenDocument text, the XML of .odt: paragraphs of the text, of tables, headers, footers, notes and text boxes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from heedful.text.documents.document import Document, MarkedText, Part, Prose
from heedful.text.documents.office_text import (
    Node,
    Object,
    Run,
    Words,
    Wrapper,
    escape_xml,
    joined_code,
    paragraph,
    shifted,
)
from heedful.text.documents.office_xml import Element

CODE_STYLES = frozenset("Source_20_Text Preformatted_20_Text Teletype User_20_Entry".split())
"""LibreOffice's styles for code; their text is not translated."""
_PARAGRAPHS = ("text:p", "text:h")
_WRAPPERS = ("text:a", "text:meta")
_KEPT = frozenset(("text:tracked-changes", "office:annotation", "office:scripts", "office:automatic-styles"))
_IGNORED = frozenset(("text:soft-page-break",))
_SHOWN = re.compile(
    r"text:(?:.*-(?:number|count|date|time|name|value|get|ref)|date|time|sequence|chapter|title|subject|expression"
    r"|placeholder|number|author.*|bibliography-mark|ruby|page-variable.*)\Z"
)
"""Fields: what they show is not translated."""
_NO_FORMAT = re.compile(r"officeooo:(?:paragraph-)?rsid|fo:(?:language|country|script)")
_SPACES = re.compile(r"[ \t\r\n]+")
_MANY_SPACES = re.compile(r" {2,}")


def read_opendocument(source: str, root: Element) -> Document:
    """Read content.xml, or styles.xml, which has headers and footers."""
    reader = _Reader(source, root)
    return Document(source, list(reader.parts(root)))


class _Reader:
    def __init__(self, source: str, root: Element) -> None:
        self.source = source
        self.formats: dict[str, tuple[str, str]] = {}
        """Of automatic styles: how they look, and the style that they change."""
        styles = root.child("office:automatic-styles")
        for style in styles.elements if styles is not None else []:
            looks = [
                f"{name}={value}"
                for one in style.elements
                for name, value in sorted(one.attributes.items())
                if not _NO_FORMAT.fullmatch(name)
            ]
            looks += [
                f"{one.name} {self.source[one.inner_start : one.inner_end]}" for one in style.elements if one.elements
            ]
            parent = style.attributes.get("style:parent-style-name", "")
            self.formats[style.attributes.get("style:name", "")] = (";".join(looks), parent)

    def parts(self, element: Element) -> Iterator[Part]:
        """The paragraphs in an element, and the descriptions of its images."""
        if element.name in _KEPT:
            return
        if element.name in _PARAGRAPHS:
            yield from self._paragraph(element)
            return
        if element.name in ("svg:title", "svg:desc") and element.text().strip():
            content = MarkedText(_SPACES.sub(" ", element.text()).strip())
            yield Prose(element.inner_start, element.inner_end, content, lambda m: escape_xml(m.text))
        for child in element.elements:
            yield from self.parts(child)

    def _paragraph(self, element: Element) -> Iterator[Part]:
        tag = self.source[element.start : element.inner_start]
        prefix = tag[1 : tag.index(":") + 1] if ":" in tag.split(">")[0].split()[0] else ""
        is_code = self._is_code(element)
        nodes = joined_code(_collapsed(list(self._nodes(element, _NO_RUN, is_code=is_code))))
        found = paragraph(element.inner_start, element.inner_end, nodes, _escape(prefix))
        if found is not None:
            yield found

    def _nodes(self, element: Element, run: Run, *, is_code: bool) -> Iterator[Node]:
        """The nodes of a paragraph, a span or a wrapper."""
        for child in element.children:
            if isinstance(child, str):
                if is_code:
                    yield Object(Document(run.opening + escape_xml(child) + run.closing), shown=child, role="code")
                else:
                    yield Words(_SPACES.sub(" ", child), run)
            elif child.name == "text:s":
                count = child.attributes.get("text:c", "1")
                spaces = _SPACE_OF_ELEMENT * min(int(count), 1000) if count.isascii() and count.isdigit() else ""
                yield Words(spaces, run)
            elif child.name in _IGNORED:
                continue
            elif child.name == "text:span":
                is_code_span = is_code or self._is_code(child)
                yield from self._nodes(child, self._inside(run, child), is_code=is_code_span)
            elif child.name in _WRAPPERS:
                nodes = joined_code(_collapsed(list(self._nodes(child, run, is_code=is_code))))
                yield self._wrapper(child, nodes)
            else:
                yield self._object(child)

    def _wrapper(self, element: Element, nodes: Sequence[Node]) -> Wrapper:
        opening = self.source[element.start : element.inner_start]
        return Wrapper(opening, self.source[element.inner_end : element.end], tuple(nodes))

    def _object(self, element: Element) -> Object:
        parts = [shifted(part, -element.start) for child in element.elements for part in self.parts(child)]
        if element.name in _KEPT:
            parts = []
        document = Document(self.source[element.start : element.end], parts)
        role = {"text:tab": "separator", "text:line-break": "break"}.get(element.name, "")
        shown = element.text() if _SHOWN.match(element.name) else ""
        return Object(document, shown=_SPACES.sub(" ", shown), role=role)

    def _inside(self, run: Run, span: Element) -> Run:
        """The run of words in a span."""
        style = span.attributes.get("text:style-name", "")
        looks, parent = self.formats.get(style, (style, ""))
        if not looks and not parent:
            return run
        return replace(
            run,
            format=f"{run.format}|{looks};{parent}",
            opening=run.opening + self.source[span.start : span.inner_start],
            closing=self.source[span.inner_end : span.end] + run.closing,
        )

    def _is_code(self, element: Element) -> bool:
        style = element.attributes.get("text:style-name", "")
        return style in CODE_STYLES or self.formats.get(style, ("", ""))[1] in CODE_STYLES


_NO_RUN = Run("", "", "")
_SPACE_OF_ELEMENT = "\uffff"
"""No character of XML; stands for a space that is written as an element, until the other spaces are collapsed."""


def _collapsed(nodes: list[Node]) -> list[Node]:
    """The nodes with spaces as OpenDocument shows them: one of several, and none at the beginning."""
    found: list[Node] = []
    is_spaced = True
    for node in nodes:
        if not isinstance(node, Words):
            is_spaced = is_spaced and not (isinstance(node, Object) and node.shown) and not isinstance(node, Wrapper)
            found.append(node)
            continue
        text = node.text.lstrip(" ") if is_spaced else node.text
        if text:
            is_spaced = text.endswith(" ")
            found.append(replace(node, text=text.replace(_SPACE_OF_ELEMENT, " ")))
    return found


def _escape(prefix: str) -> Callable[[str], str]:
    def escape(text: str) -> str:
        return _MANY_SPACES.sub(lambda spaces: f'<{prefix}s {prefix}c="{len(spaces[0])}"/>', escape_xml(text))

    return escape
