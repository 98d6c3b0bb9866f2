"""XML files of office documents: a tree of elements that know their place in the source.

The parser of Python's library checks the file and resolves namespaces; a scanner finds where each tag is written, so
that everything that is not translated can be copied as it stands.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from heedful.errors import DocumentError

MAX_DEPTH = 100
"""Elements inside each other; a table in a table in a text box has about 30."""
MAX_ELEMENTS = 500_000
"""Elements of one file: about two thousand pages."""

_OFFICE = "http://schemas.openxmlformats.org/"
_STRICT = "http://purl.oclc.org/ooxml/"
_ODF = "urn:oasis:names:tc:opendocument:xmlns:"
_PREFIXES = {
    **{
        root + path: prefix
        for prefix, name in (("w", "wordprocessingml"), ("a", "drawingml"), ("p", "presentationml"))
        for root, path in ((_OFFICE, f"{name}/2006/main"), (_STRICT, f"{name}/main"))
    },
    _OFFICE + "drawingml/2006/wordprocessingDrawing": "wp",
    _STRICT + "drawingml/wordprocessingDrawing": "wp",
    _OFFICE + "officeDocument/2006/math": "m",
    _STRICT + "officeDocument/math": "m",
    **{
        _ODF + f"{path}:1.0": prefix
        for prefix, path in (
            ("text", "text"),
            ("office", "office"),
            ("style", "style"),
            ("draw", "drawing"),
            ("fo", "xsl-fo-compatible"),
            ("svg", "svg-compatible"),
            ("manifest", "manifest"),
        )
    },
    "http://openoffice.org/2009/office": "officeooo",
}
"""The usual prefix of each namespace that the readers know; files may use others."""
_TAG = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(?P<slash>/?)[^!?/<>\"'][^<>\"']*(?:(?:\"[^\"]*\"|'[^']*')[^<>\"']*)*>",
    re.DOTALL,
)
_ENCODING = re.compile(rb"""\A<\?xml[^>]*\bencoding\s*=\s*["']([\w.:-]+)""")


@dataclass(eq=False, slots=True)
class Element:
    """An element. Names have the usual prefix of their namespace, such as `w:p`."""

    name: str
    attributes: dict[str, str]
    start: int
    end: int
    """The element is `source[start:end]`."""
    inner_start: int
    inner_end: int
    """Its contents are `source[inner_start:inner_end]`."""
    children: list[Element | str] = field(default_factory=list)

    @property
    def elements(self) -> list[Element]:
        """The elements among the children."""
        return [child for child in self.children if isinstance(child, Element)]

    def child(self, name: str) -> Element | None:
        """The first child with a name."""
        return next((child for child in self.elements if child.name == name), None)

    def walk(self) -> Iterator[Element]:
        """This element and all elements in it, in the order of their start tags."""
        yield self
        for child in self.elements:
            yield from child.walk()

    def text(self, *names: str) -> str:
        """The characters in the elements with these names; without names, all characters."""
        if not names or self.name in names:
            own = [child if isinstance(child, str) else child.text() for child in self.children]
        else:
            own = [child.text(*names) for child in self.elements]
        return "".join(own)


def decode_xml(raw: bytes, name: str) -> tuple[str, str, bytes]:
    """The text of an XML file, its encoding and its byte order mark."""
    boms = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
    bom, encoding = next(((bom, encoding) for bom, encoding in boms if raw.startswith(bom)), (b"", "utf-8"))
    declared = _ENCODING.search(raw[:200])
    if not bom and declared and declared[1].lower() not in (b"utf-8", b"utf8", b"us-ascii"):
        raise DocumentError(f"{name}: its encoding is {declared[1].decode()}; save the file again, which gives UTF-8")
    try:
        return raw[len(bom) :].decode(encoding), encoding, bom
    except UnicodeDecodeError:
        raise DocumentError(f"{name}: it is not {encoding.upper()}; the file is damaged") from None


def parse_xml(source: str, name: str) -> Element:
    """The root element of an XML file; `name` is for errors."""
    builder = _TreeBuilder(source, name)
    parser = expat.ParserCreate("utf-8", " ")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.StartDoctypeDeclHandler = builder.refuse_doctype
    try:
        parser.Parse(source.encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as error:
        raise DocumentError(f"{name}: it is not well-formed XML ({error}); the file is damaged") from None
    return builder.root


class _TreeBuilder:
    def __init__(self, source: str, name: str) -> None:
        self.name = name
        self.tags = (match for match in _TAG.finditer(source) if match[0][1] not in "!?")
        self.stack: list[Element] = []
        self.empty: list[bool] = []
        self.count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Add an element at the next tag of the source."""
        if len(self.stack) >= MAX_DEPTH:
            raise DocumentError(f"{self.name}: it has more than {MAX_DEPTH} elements inside each other; simplify it")
        self.count += 1
        if self.count > MAX_ELEMENTS:
            raise DocumentError(f"{self.name}: it has more than {MAX_ELEMENTS:,} elements; split the document")
        tag = next(self.tags)
        named = {_prefixed(key): value for key, value in attributes.items()}
        element = Element(_prefixed(name), named, tag.start(), tag.end(), tag.end(), tag.end())
        if self.stack:
            self.stack[-1].children.append(element)
        else:
            self.root = element
        self.stack.append(element)
        self.empty.append(tag[0].endswith("/>"))

    def end(self, name: str) -> None:
        """Close the last element."""
        element = self.stack.pop()
        if not self.empty.pop():
            tag = next(self.tags)
            element.inner_end, element.end = tag.start(), tag.end()

    def characters(self, text: str) -> None:
        """Add text to the last element."""
        self.stack[-1].children.append(text)

    def refuse_doctype(self, *declaration: Any) -> None:
        """Office programs write none, and entities can be harmful."""
        raise DocumentError(f"{self.name}: it has a document type declaration, which office files may not have")


def _prefixed(name: str) -> str:
    namespace, separator, local = name.rpartition(" ")
    return f"{_PREFIXES.get(namespace, namespace)}:{local}" if separator else name
