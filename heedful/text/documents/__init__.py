"""Documents in, documents out: the prose of a file is translated, its markup, code and layout stay.

    translate_document(b"<p>Hello <b>world</b></p>", "html", translate) == b"<p>Hallo <b>Welt</b></p>"

One module reads one format into a `Document`. A new format is such a reader and a line in `FORMATS`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

from heedful.did_you_mean import did_you_mean
from heedful.errors import ConfigError, DocumentError

if TYPE_CHECKING:
    from heedful.text.documents.document import Document, MarkedText
    from heedful.text.documents.gettext_format import Catalogue

Translate = Callable[["Sequence[MarkedText]"], "tuple[Sequence[MarkedText], str | None]"]
"""Translates all texts of a document; the translations have the marks of their texts. With the target language."""


FORMATS = {
    "text": "document.read_text",
    "html": "html_format.read_html",
    "markdown": "markdown_format.read_markdown",
    "srt": "subtitle_format.read_subtitles",
    "vtt": "subtitle_format.read_vtt",
    "po": "gettext_format.read_catalogue",
    "json": "json_format.read_json",
}
"""Each format, and the module here with the function that reads it; a module is imported when it is needed."""
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
}
COMPRESSED = (".gz", ".xz")
_BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_CHARSET = re.compile(
    rb"""<meta\b[^>]*\bcharset\s*=\s*["']?\s*([\w.:-]+)|<\?xml\b[^>]*\bencoding\s*=\s*["']([\w.:-]+)""", re.I
)


def format_of(name: str | None, wanted: str = "auto") -> str:
    """The format of a file: the one that is named, or by its ending; "text" for standard input and unknown endings."""
    if wanted != "auto":
        if wanted not in FORMATS:
            choices = ", ".join(("auto", *FORMATS))
            raise ConfigError(
                f"--format: there is no format {wanted!r}{did_you_mean(wanted, FORMATS)}; choose one of {choices}."
            )
        return wanted
    endings = [ending.lower() for ending in PurePath(name or "").suffixes]
    while endings and endings[-1] in COMPRESSED:
        endings.pop()
    return ENDINGS.get(endings[-1], "text") if endings else "text"


def translate_document(
    document: str | bytes, format: str, translate: Translate, *, catalogue: Catalogue | None = None
) -> str | bytes:
    """A document in another language, of the type that was given: bytes keep their encoding.

    `translate` is called once, with all texts. `catalogue` says how a catalogue of the format po is filled.
    """
    if isinstance(document, bytes):
        text, encoding, bom = _decoded(document, format)
        written = _translated(text, format, translate, catalogue)
        errors = "xmlcharrefreplace" if format == "html" else "strict"
        return bom + written.encode("utf-8" if format == "po" and not bom else encoding, errors)
    bom_character = "\ufeff" * document.startswith("\ufeff")
    return bom_character + _translated(document.removeprefix("\ufeff"), format, translate, catalogue)


def read_document(source: str, format: str, catalogue: Catalogue | None = None) -> Document:
    """The prose of a document."""
    module, function = FORMATS[format_of(None, format)].split(".")
    read = getattr(import_module(f"{__name__}.{module}"), function)
    return read(source, catalogue) if format == "po" and catalogue else read(source)


def _translated(source: str, format: str, translate: Translate, catalogue: Catalogue | None) -> str:
    document = read_document(source, format, catalogue)
    texts = document.texts
    translations, language = translate(texts)
    if len(translations) != len(texts):
        raise ValueError(f"{len(texts)} texts have {len(translations)} translations")
    return document.write(iter(translations), language)


def _decoded(raw: bytes, format: str) -> tuple[str, str, bytes]:
    """The text of a file, its encoding, and the mark at its beginning that tells the encoding."""
    for bom, encoding in _BOMS.items():
        if raw.startswith(bom):
            return _decode(raw[len(bom) :], encoding), encoding, bom
    encoding = "utf-8"
    if format == "html" and (found := _CHARSET.search(raw, 0, 4096)):
        encoding = (found[1] or found[2]).decode()
    elif format == "po":
        from heedful.text.documents.gettext_format import declared_charset

        encoding = declared_charset(raw) or encoding
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise DocumentError(f"its declared encoding {encoding!r} is not known; save it as UTF-8") from None
    return _decode(raw, encoding), encoding, b""


def _decode(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        name = encoding.upper()
        raise DocumentError(f"this line is not {name}; convert the file to UTF-8 (see `iconv`)", line) from None
