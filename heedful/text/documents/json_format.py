"""JSON localisation files: string values are translated; keys, numbers, order and layout are preserved.

The standard library validates the file, and changes are made in the source. Values with HTML tags are read as HTML. In
ICU messages with plural or select forms, each form is a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from heedful.errors import DocumentError
from heedful.text.documents.document import Document, MarkedText, Nested, Part, Prose
from heedful.text.documents.html_format import looks_like_html, read_html

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]')
_COLON = re.compile(r"\s*:")
_ICU_FORMS = re.compile(r"\{\s*[\w.]+\s*,\s*(?:plural|selectordinal|select)\s*,\s*(?:offset:\d+\s*)?")
_SELECTOR = re.compile(r"\s*(?:=\d+|[\w-]+)\s*\{")
_METADATA_PREFIXES = ("@", "$", "_comment", "//")
"""Prefixes of keys with metadata, such as "@title" in ARB files or "$schema"."""


def read_json(source: str) -> Document:
    """The string values of a JSON file."""
    try:
        json.loads(source)
    except json.JSONDecodeError as error:
        raise DocumentError(f"not valid JSON: {error.msg} (column {error.colno})", error.lineno) from None
    except RecursionError:
        raise DocumentError("the JSON is nested too deeply") from None
    return Document(source, list(_values(source)))


def _values(source: str) -> Iterator[Part]:
    """All string values, except those of metadata keys."""
    depth, skipped = 0, -1  # skipped: the depth of the metadata value that is being skipped
    is_metadata = False
    for match in _TOKEN.finditer(source):
        token = match.group()
        if token in "{[":
            skipped = depth if is_metadata and skipped < 0 else skipped
            is_metadata = False
            depth += 1
        elif token in "}]":
            depth -= 1
            skipped = -1 if depth <= skipped else skipped
        elif token == ",":
            is_metadata = False
        elif _COLON.match(source, match.end()):
            is_metadata = json.loads(token).startswith(_METADATA_PREFIXES)
        elif skipped < 0 and not is_metadata:
            yield from _value(token, match.start())


def _value(token: str, start: int) -> Iterator[Part]:
    text = json.loads(token)
    is_ascii = token.isascii() and "\\u" in token

    def encode(written: str) -> str:
        return json.dumps(written, ensure_ascii=is_ascii)

    document = read_message(text)
    if document.parts:
        yield Nested(start, start + len(token), document, encode)


def read_message(text: str) -> Document:
    """Read a message: HTML if it has tags, and each plural or select form as a text."""
    if _ICU_FORMS.search(text) and (parts := _forms(text, 0, len(text))) is not None:
        return Document(text, parts)
    return _plain(text, 0, len(text))


def _plain(text: str, start: int, end: int) -> Document:
    part = _part(text, start, end)
    return Document(text, [part] if part else [])


def _part(text: str, start: int, end: int) -> Part | None:
    raw = text[start:end]
    if not raw.strip():
        return None
    if looks_like_html(raw):
        return Nested(start, end, read_html(raw))
    begin = start + len(raw) - len(raw.lstrip())
    return Prose(begin, begin + len(raw.strip()), MarkedText(raw.strip()))


def _forms(text: str, start: int, end: int) -> list[Part] | None:
    """The texts around and in the forms of `{n, plural, one {…} other {…}}`; None if braces do not match."""
    parts: list[Part | None] = []
    position = start
    while match := _ICU_FORMS.search(text, position, end):
        parts.append(_part(text, position, match.start()))
        position = match.end()
        while selector := _SELECTOR.match(text, position, end):
            closing = _closing(text, selector.end(), end)
            if closing is None or (inner := _forms(text, selector.end(), closing)) is None:
                return None
            parts += inner
            position = closing + 1
        close = re.compile(r"\s*\}").match(text, position, end)
        if close is None:
            return None
        position = close.end()
    parts.append(_part(text, position, end))
    return [part for part in parts if part is not None]


def _closing(text: str, position: int, end: int) -> int | None:
    """The position of the brace that closes the one before `position`."""
    depth = 1
    for index in range(position, end):
        depth += (text[index] == "{") - (text[index] == "}")
        if depth == 0:
            return index
    return None
