"""Document translation: translate the prose of a file and keep its markup, code and layout.

    translate_document(b"<p>Hello <b>world</b></p>", "html", translate) == b"<p>Hallo <b>Welt</b></p>"

Each format has a module that reads it into a `Document`. To add a format, write such a reader and list it in `FORMATS`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

from heedful.errors import ConfigError, DocumentError, did_you_mean

if TYPE_CHECKING:
    from heedful.text.documents.document import Document, MarkedText
    from heedful.text.documents.gettext_format import Catalogue

Translate = Callable[["Sequence[MarkedText]"], "tuple[Sequence[MarkedText], str | None]"]
"""Translates all texts of a document, with their marks; also returns the target language, if known."""


FORMATS = {
    "text": "document.read_text",
    "html": "html_format.read_html",
    "markdown": "markdown_format.read_markdown",
    "srt": "subtitle_format.read_srt",
    "vtt": "subtitle_format.read_vtt",
    "po": "gettext_format.read_catalogue",
    "json": "json_format.read_json",
}
"""For each format, the module in this package and the function that reads it; modules are imported when needed."""
OFFICE_FORMATS = ("docx", "odt", "pptx")
"""Archives, which are read and written as bytes by `office_package`."""
ENDINGS = {
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".mkd": "markdown",
    ".srt": "srt",
    ".vtt": "vtt",
    ".po": "po",
    ".pot": "po",
    ".json": "json",
    ".arb": "json",
    ".docx": "docx",
    ".odt": "odt",
    ".pptx": "pptx",
}
COMPRESSED = (".gz", ".xz")
_BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_CHARSET = re.compile(
    rb"""<meta\b[^>]*\bcharset\s*=\s*["']?\s*([\w.:-]+)|<\?xml\b[^>]*\bencoding\s*=\s*["']([\w.:-]+)""", re.I
)


def format_of(name: str | None, wanted: str = "auto") -> str:
    """The format `wanted`, or for "auto" that of the file's ending; "text" for standard input and unknown endings."""
    if wanted != "auto":
        formats = (*FORMATS, *OFFICE_FORMATS)
        if wanted not in formats:
            choices = ", ".join(("auto", *formats))
            raise ConfigError(
                f"--format: there is no format {wanted!r}{did_you_mean(wanted, formats)}; choose one of {choices}."
            )
        return wanted
    endings = [ending.lower() for ending in PurePath(name or "").suffixes]
    while endings and endings[-1] in COMPRESSED:
        endings.pop()
    return ENDINGS.get(endings[-1], "text") if endings else "text"


def translate_document(
    document: str | bytes, format: str, translate: Translate, *, catalogue: Catalogue | None = None
) -> str | bytes:
    """Translate a document given as text or bytes, and return the same type; bytes keep their encoding.

    Office documents are always bytes. `translate` is called once, with all texts. `catalogue` has options for the
    format po.
    """
    if isinstance(document, bytes) and format in OFFICE_FORMATS:
        return _translate_office(document, format, translate)
    if isinstance(document, bytes):
        text, encoding, bom = _decode_document(document, format)
        written = _translate_text(text, format, translate, catalogue)
        errors = "xmlcharrefreplace" if format == "html" else "strict"
        return bom + written.encode("utf-8" if format == "po" and not bom else encoding, errors)
    bom_character = "\ufeff" * document.startswith("\ufeff")
    return bom_character + _translate_text(document.removeprefix("\ufeff"), format, translate, catalogue)


def read_document(source: str, format: str, catalogue: Catalogue | None = None) -> Document:
    """Read a document that is given as text."""
    if format in OFFICE_FORMATS:
        raise DocumentError(f"a document of the format {format} is given as bytes, not as text")
    module, function = FORMATS[format_of(None, format)].split(".")
    read = getattr(import_module(f"{__name__}.{module}"), function)
    return read(source, catalogue) if format == "po" and catalogue else read(source)


def _translate_text(source: str, format: str, translate: Translate, catalogue: Catalogue | None) -> str:
    document = read_document(source, format, catalogue)
    return document.write(*_translations(document.texts, translate))


def _translate_office(data: bytes, format: str, translate: Translate) -> bytes:
    from heedful.text.documents.office_package import OfficePackage

    package = OfficePackage(data, format)
    return package.write(*_translations(package.texts, translate))


def _translations(texts: Sequence[MarkedText], translate: Translate) -> tuple[Iterator[MarkedText], str | None]:
    translations, language = translate(texts)
    if len(translations) != len(texts):
        raise ValueError(f"{len(texts)} texts, but {len(translations)} translations")
    return iter(translations), language


def _decode_document(raw: bytes, format: str) -> tuple[str, str, bytes]:
    """The text of a file, its encoding, and its byte order mark."""
    for bom, encoding in _BOMS.items():
        if raw.startswith(bom):
            return _decode(raw[len(bom) :], encoding), encoding, bom
    encoding = "utf-8"
    if format == "html" and (declared := _CHARSET.search(raw, 0, 4096)):
        encoding = (declared[1] or declared[2]).decode()
    elif format == "po":
        from heedful.text.documents.gettext_format import declared_charset

        encoding = declared_charset(raw) or encoding
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise DocumentError(f"the declared encoding {encoding!r} is not supported; save the file as UTF-8") from None
    return _decode(raw, encoding), encoding, b""


def _decode(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        name = encoding.upper()
        raise DocumentError(f"this line is not {name}; convert the file to UTF-8 (see `iconv`)", line) from None
