"""DrawingML, the XML of .pptx: paragraphs of slides and their tables, of notes, diagrams and charts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from heedful.text.documents.document import Document, Part
from heedful.text.documents.docx_format import description_parts
from heedful.text.documents.office_text import Node, Object, Run, Words, escape_xml, paragraph, shifted
from heedful.text.documents.office_xml import Element

_NO_FORMAT = frozenset("lang altLang dirty err smtClean bmk".split())
"""Attributes of a run that do not change how it looks."""
_SPACE = re.compile(r"[ \t\r\n]")


def read_drawing(source: str, root: Element) -> Document:
    """Read the XML of a slide, of notes, of a diagram or of a chart."""
    return Document(source, list(_parts(source, root)))


def _parts(source: str, element: Element) -> Iterator[Part]:
    """The paragraphs in an element, and the descriptions of its images."""
    if element.name == "a:p":
        yield from _paragraph(source, element)
        return
    if element.name == "p:cNvPr":
        yield from description_parts(source, element)
    for child in element.elements:
        yield from _parts(source, child)


def _paragraph(source: str, element: Element) -> Iterator[Part]:
    inner = [child for child in element.elements if child.name not in ("a:pPr", "a:endParaRPr")]
    nodes: list[Node] = []
    for child in inner:
        properties = child.child("a:rPr")
        if child.name == "a:r":
            text = "".join(one.text() for one in child.elements if one.name == "a:t")
            if text:
                nodes.append(Words(_SPACE.sub(" ", text), _run(source, child, properties)))
            continue
        parts = [shifted(part, -child.start) for part in _parts(source, child)]
        document = Document(source[child.start : child.end], parts)
        shown = child.text("a:t", "m:t") if child.name != "a:br" else ""
        nodes.append(Object(document, shown=shown, role="break" if child.name == "a:br" else ""))
    if inner:
        found = paragraph(inner[0].start, inner[-1].end, nodes, escape_xml)
        if found is not None:
            yield found


def _run(source: str, element: Element, properties: Element | None) -> Run:
    opening = source[element.start : element.inner_start]
    prefix = opening[1 : opening.index(":") + 1] if ":" in opening.split(">")[0].split()[0] else ""
    format = ""
    if properties is not None:
        opening += source[properties.start : properties.end]
        kept = sorted((name, value) for name, value in properties.attributes.items() if name not in _NO_FORMAT)
        format = f"{kept}{source[properties.inner_start : properties.inner_end]}"
        format = "" if format == "[]" else format
    return Run(format, opening, f"</{prefix}r>", f"<{prefix}t>", f"</{prefix}t>")
