"""WordprocessingML, the XML of .docx: paragraphs of the text, of tables, headers, footers, notes and text boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from heedful.text.documents.document import Document, Part, Prose
from heedful.text.documents.office_text import (
    Node,
    Object,
    Run,
    Words,
    Wrapper,
    attribute_prose,
    escape_xml,
    has_words,
    joined_code,
    paragraph,
    shifted,
)
from heedful.text.documents.office_xml import Element

CODE_STYLES = frozenset("HTMLCode HTMLKeyboard HTMLPreformatted HTMLSample SourceCode VerbatimChar".split())
"""Styles of characters and paragraphs that Word and Pandoc use for code; their text is not translated."""
_WRAPPERS = frozenset(
    "w:hyperlink w:ins w:moveTo w:smartTag w:customXml w:dir w:bdo w:sdt w:sdtContent w:fldSimple".split()
)
_IGNORED = frozenset(("w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen"))
"""What Word adds by itself; changed paragraphs do without."""
_NO_FORMAT = frozenset("w:lang w:noProof w:rsid".split())
"""Properties of a run that do not change how it looks."""
_KEPT = frozenset(("w:del", "w:moveFrom"))
"""Tracked deletions."""
_HYPERLINK = re.compile(r"\s*HYPERLINK\b")
_SPACE = re.compile(r"[ \t\r\n]")
_ATTRIBUTE = re.compile(r"""\s([\w:.-]+)\s*=\s*("[^"]*"|'[^']*')""")


def read_wordprocessing(source: str, root: Element) -> Document:
    """Read the XML of a document, header, footer, or of notes."""
    return Document(source, list(_parts(source, root)))


def _parts(source: str, element: Element) -> Iterator[Part]:
    """The paragraphs in an element, and the descriptions of its images."""
    if element.name in _KEPT:
        return
    if element.name == "w:p":
        yield from _Reader(source, element).parts()
        return
    if element.name in ("wp:docPr", "p:cNvPr"):
        yield from description_parts(source, element)
    for child in element.elements:
        yield from _parts(source, child)


def description_parts(source: str, element: Element) -> Iterator[Prose]:
    """The alternative text and the title of an image."""
    for match in _ATTRIBUTE.finditer(source, element.start, element.inner_start):
        if match[1] in ("descr", "title"):
            yield attribute_prose(*match.span(2), element.attributes[match[1]])


class _Reader:
    """Reads one paragraph."""

    def __init__(self, source: str, element: Element) -> None:
        self.source, self.element = source, element
        first = element.child("w:pPr")
        self.start = first.end if first is not None else element.inner_start
        self.children = [child for child in element.elements if child is not first]
        style = first.child("w:pStyle") if first is not None else None
        self.is_code = style is not None and style.attributes.get("w:val") in CODE_STYLES

    def parts(self) -> Iterator[Part]:
        """The paragraph, if it or its objects have texts."""
        if self.start == self.element.end:  # <w:p/>
            return
        found = paragraph(self.start, self.element.inner_end, self._nodes(self.children), escape_xml)
        if found is not None:
            yield found

    def _nodes(self, elements: Sequence[Element]) -> list[Node]:
        """The nodes of a paragraph or of a wrapper."""
        nodes: list[Node] = []
        fields: list[_Field] = []
        for element in elements:
            if element.name in _IGNORED:
                continue
            if element.name in _WRAPPERS:
                nodes.append(self._wrapper(element))
                continue
            if element.name != "w:r":
                nodes.append(self._object(element))
                continue
            for node, mark in self._run(element):
                nodes.append(node)
                if mark == "begin":
                    fields.append(_Field(len(nodes) - 1))
                elif fields and mark == "separate":
                    fields[-1].separator = len(nodes) - 1
                elif fields and mark == "end":
                    nodes = self._closed(nodes, fields.pop())
                elif fields and mark:
                    fields[-1].instruction += mark
        return joined_code(nodes)

    def _closed(self, nodes: list[Node], field: _Field) -> list[Node]:
        """The nodes with a field as one: a wrapper for a hyperlink, else an object."""
        inner = nodes[field.start :]
        if _HYPERLINK.match(field.instruction) and field.separator is not None:
            opening = nodes[field.start : field.separator + 1]
            shown = nodes[field.separator + 1 : -1]
            if has_words(shown):
                return [*nodes[: field.start], Wrapper(_written(opening), _written(inner[-1:]), tuple(shown))]
        result = nodes[field.separator + 1 : -1] if field.separator is not None else []
        return [*nodes[: field.start], Object(Document(_written(inner)), shown=_shown(result))]

    def _wrapper(self, element: Element) -> Node:
        """An element around runs; an object if it is a field other than a hyperlink."""
        if element.name == "w:fldSimple" and not _HYPERLINK.match(element.attributes.get("w:instr", "")):
            return self._object(element)
        inner = element
        if element.name == "w:sdt":
            inner = element.child("w:sdtContent") or element
        nodes = self._nodes([child for child in inner.elements if not child.name.endswith("Pr")])
        before = [child for child in inner.elements if child.name.endswith("Pr")]
        first = before[-1].end if before else inner.inner_start
        return Wrapper(self.source[element.start : first], self.source[inner.inner_end : element.end], tuple(nodes))

    def _object(self, element: Element, run: Run | None = None, role: str = "") -> Object:
        parts = [shifted(part, -element.start) for part in _parts(self.source, element)]
        document = Document(self.source[element.start : element.end], parts)
        is_shown = element.name in ("m:oMath", "w:fldSimple", "w:ruby")
        return Object(document, run, element.text("w:t", "m:t") if is_shown else "", role)

    def _run(self, element: Element) -> Iterator[tuple[Node, str]]:
        """The nodes of a run, each with the role that it has in a field."""
        run, is_hidden, is_code = self._format(element)
        for child in element.elements:
            if child.name in _IGNORED or child.name == "w:rPr":
                continue
            if child.name in ("w:t", "w:noBreakHyphen"):
                text = _text(child)
                if is_hidden or is_code:
                    document = Document(self.source[child.start : child.end])
                    yield Object(document, run, "" if is_hidden else text, "" if is_hidden else "code"), ""
                elif text:
                    yield Words(text, run), ""
            elif child.name in ("w:br", "w:cr"):
                is_line = child.attributes.get("w:type", "textWrapping") == "textWrapping"
                yield self._object(child, run, "break" if is_line else "separator"), ""
            elif child.name in ("w:tab", "w:ptab"):
                yield self._object(child, run, "separator"), ""
            else:
                mark = child.attributes.get("w:fldCharType", "") if child.name == "w:fldChar" else ""
                yield self._object(child, run), child.text() if child.name == "w:instrText" else mark

    def _format(self, element: Element) -> tuple[Run, bool, bool]:
        """The format of a run, whether it is hidden, and whether it is code."""
        tag = self.source[element.start : element.inner_start].rstrip("/>") + ">"
        prefix = tag[1 : tag.index(":") + 1] if ":" in tag.split()[0] else ""
        properties = element.child("w:rPr")
        kept = properties.elements if properties is not None else []
        formats = [self.source[one.start : one.end] for one in kept if one.name not in _NO_FORMAT]
        written = self.source[properties.start : properties.end] if properties is not None else ""
        run = Run(
            "".join(sorted(formats)),
            tag + written,
            f"</{prefix}r>",
            f'<{prefix}t xml:space="preserve">',
            f"</{prefix}t>",
        )
        style = next((one.attributes.get("w:val") for one in kept if one.name == "w:rStyle"), None)
        hidden = [one for one in kept if one.name in ("w:vanish", "w:webHidden")]
        is_hidden = any(one.attributes.get("w:val", "1") not in ("0", "false", "off") for one in hidden)
        return run, is_hidden, self.is_code or style in CODE_STYLES


class _Field:
    """A field whose end has not come yet."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.separator: int | None = None
        self.instruction = ""


def _text(element: Element) -> str:
    if element.name == "w:noBreakHyphen":
        return "\u2011"
    text = _SPACE.sub(" ", element.text())
    return text if element.attributes.get("http://www.w3.org/XML/1998/namespace:space") == "preserve" else text.strip()


def _written(nodes: Sequence[Node]) -> str:
    """Nodes as they are in the source, each in a run of its own."""
    pieces = []
    for node in nodes:
        if isinstance(node, Wrapper):
            pieces.append(node.opening + _written(node.nodes) + node.closing)
            continue
        content = node.content.source if isinstance(node, Object) else escape_xml(node.text)
        if isinstance(node, Words):
            content = node.run.text_opening + content + node.run.text_closing
        pieces.append(content if node.run is None else node.run.opening + content + node.run.closing)
    return "".join(pieces)


def _shown(nodes: Sequence[Node]) -> str:
    """The characters of nodes."""
    shown = [_shown(n.nodes) if isinstance(n, Wrapper) else n.text if isinstance(n, Words) else n.shown for n in nodes]
    return "".join(shown)
