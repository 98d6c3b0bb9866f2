"""`read_parameters`: the parameters of a request from its query string and from its form or JSON body.

Clients send the same parameter in any of these ways; the interfaces read them from one `Parameters`. Everything is
counted before it is parsed: bytes of the body, fields of a form. What a client can do wrong raises `RequestError`.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from pathlib import PurePath
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
CHARSETS = ("utf-8", "ascii", "iso8859-1", "cp1252", "gbk", "gb18030", "big5", "shift_jis", "euc_kr", "utf-16")
"""The charsets that bodies may declare, by Python's names."""
MULTIPART_OVERHEAD = 65_536
"""Bytes that the headers and fields of a multipart body may have besides its file."""
TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class RequestError(Exception):
    """A request that is answered with an HTTP error status."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


def refuse(message: str) -> NoReturn:
    """Raise the error for a parameter that cannot be used."""
    raise RequestError(400, message)


@dataclass(frozen=True)
class UploadedFile:
    """A file in a form."""

    name: str
    """Its last component, whatever the client's system; may be empty."""
    data: bytes


@dataclass(frozen=True)
class Parameters:
    """The parameters of a request, of any origin."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """JSON values, and for fields of forms and query strings a `Repeated` with all values of the name."""
    files: Mapping[str, UploadedFile] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, *names: str) -> str | None:
        """The text under the first of these names that is given; None if there is none."""
        name = next((name for name in names if name in self), names[0])
        value = self.values.get(name)
        if isinstance(value, Repeated):
            value = value[0]
        if value is None:
            return None
        if not isinstance(value, str):
            refuse(f"{name}: must be a text, not {_kind(value)}.")
        return _whole_text(name, value)

    def required_text(self, name: str) -> str:
        """A text that must be given and may not be empty."""
        return self.text(name) or refuse(f"{name}: this parameter is missing.")

    def texts(self, name: str) -> tuple[list[str], bool]:
        """One or several texts, and whether they were given as a list."""
        value = self.values.get(name)
        if value is None:
            refuse(f"{name}: this parameter is missing{self._json_hint()}.")
        if isinstance(value, str):
            return [_whole_text(name, value)], False
        if not isinstance(value, list):
            refuse(f"{name}: must be a text or a list of texts, not {_kind(value)}.")
        for text in value:
            if not isinstance(text, str):
                refuse(f"{name}: must be a list of texts, but contains {_kind(text)}.")
        return [_whole_text(name, text) for text in value], not isinstance(value, Repeated) or len(value) > 1

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names, also as texts with commas between the names."""
        if name not in self:
            return ()
        given, _ = self.texts(name)
        return tuple(one.strip() for text in given for one in text.split(",") if one.strip())

    def integer(self, name: str, *, default: int, minimum: int, maximum: int) -> int:
        """A whole number between two limits."""
        value = self._single(name)
        if value is None or value == "":
            return default
        if isinstance(value, str) and value.strip().removeprefix("-").isdecimal() and len(value) < 20:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(f"{name}: must be a whole number, not {_kind(value)}.")
        if not minimum <= value <= maximum:
            refuse(f"{name}: must be from {minimum} to {maximum}.")
        return value

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """A truth value: a JSON boolean, or 1, 0, true, false."""
        value = self._single(name)
        if value is None or value == "":
            return default
        written = str(value).lower() if isinstance(value, (bool, int, str)) else ""
        if written not in (*TRUE, *FALSE):
            refuse(f"{name}: must be true or false.")
        return written in TRUE

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of some words, in any case."""
        value = self._single(name)
        if value is None or value == "":
            return default
        written = str(value).lower() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        return written if written in choices else refuse(f"{name}: must be one of {', '.join(choices)}.")

    def _single(self, name: str) -> Any:
        value = self.values.get(name)
        return value[0] if isinstance(value, Repeated) else value

    def _json_hint(self) -> str:
        """What to do if a JSON body was sent as a form, as curl does by default."""
        is_json = any(name.lstrip().startswith("{") for name in self.values)
        return "; send JSON with the header Content-Type: application/json" if is_json else ""


class Repeated(list[str]):
    """The values of a form's field, in order; at least one."""


async def read_parameters(
    request: Request, *, max_body_bytes: int, max_fields: int, max_document_bytes: int | None = None
) -> Parameters:
    """Read the query string and the body, whatever the method. JSON and form win over the query string.

    `max_document_bytes`: limit for a body with a file; None: no files.
    """
    fields = _read_form(request.scope["query_string"].decode("latin-1"), "utf-8", max_fields)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(415, "compressed bodies are not accepted; send the body without Content-Encoding.")
    content_type, charset = _content_type(request.headers.get("content-type", ""))
    limit = max_body_bytes
    if content_type == MULTIPART and max_document_bytes is not None:
        limit = max_document_bytes + MULTIPART_OVERHEAD
    if _declared_length(request) > limit:
        raise _too_large(limit)
    chunks = _count(request.stream(), limit)
    if content_type == MULTIPART:
        return await _read_multipart(request, chunks, fields, max_fields, limit)
    body = b"".join([chunk async for chunk in chunks])
    if content_type == FORM:
        return Parameters(fields | _read_form(_decode(body, charset), charset, max_fields))
    if content_type in ("application/json", "text/json") or content_type.endswith("+json"):
        return Parameters(fields | _read_json(_decode(body, charset)))
    if body.strip():
        raise RequestError(
            415, "the type of the body is not supported; send application/json, or a form with its Content-Type."
        )
    return Parameters(fields)


async def _read_multipart(
    request: Request, chunks: AsyncGenerator[bytes, None], fields: dict[str, Any], max_fields: int, limit: int
) -> Parameters:
    parser = MultiPartParser(request.headers, chunks, max_files=1, max_fields=max_fields, max_part_size=limit)
    try:
        form = await parser.parse()
    except (MultiPartException, HTTPException, KeyError, UnicodeError, ValueError) as error:
        refuse(f"the multipart body cannot be read: {getattr(error, 'message', None) or type(error).__name__}.")
    files = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            files[name] = UploadedFile(_last_component(value.filename or ""), await value.read())
    await form.close()
    return Parameters(fields | _collect((n, v) for n, v in form.multi_items() if isinstance(v, str)), files)


def _read_form(body: str, charset: str, max_fields: int) -> dict[str, Any]:
    if body.count("&") >= max_fields:
        refuse(f"more than {max_fields} fields.")
    try:
        return _collect(parse_qsl(body, keep_blank_values=True, encoding=charset, errors="strict"))
    except (UnicodeError, ValueError):
        refuse(f"the fields are not valid {charset.upper()} text.")


def _collect(items: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Fields with the values of each name; browsers write line ends of forms as CRLF."""
    fields: dict[str, Repeated] = {}
    for name, value in items:
        fields.setdefault(name, Repeated()).append(value.replace("\r\n", "\n"))
    return dict(fields)


def _read_json(body: str) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        value = json.loads(body.removeprefix("\ufeff"), parse_constant=_refuse_constant)
    except RecursionError:
        refuse("the JSON body is nested too deeply.")
    except ValueError as error:
        place = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        refuse(f"the body is not valid JSON{place}.")
    if not isinstance(value, dict):
        refuse(f"the JSON body must be an object, not {_kind(value)}.")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and infinities are not JSON


def _content_type(header: str) -> tuple[str, str]:
    """The media type in lower case and the charset by Python's name."""
    message = Message()
    message["content-type"] = header if header.isascii() else ""
    media_type = message.get_content_type() if header.strip() else ""
    given = message.get_param("charset", "utf-8")
    written = given if isinstance(given, str) else "?"
    try:
        charset = codecs.lookup(written).name
    except (LookupError, ValueError):
        charset = ""
    if charset not in CHARSETS:
        refuse("the charset of the body is not supported; send UTF-8.")
    return media_type, charset


def _decode(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset)
    except UnicodeError:
        refuse(f"the body is not valid {charset.upper()} text.")


def _declared_length(request: Request) -> int:
    written = request.headers.get("content-length", "0")
    return int(written) if written.isdecimal() and len(written) < 20 else 0


async def _count(chunks: AsyncIterator[bytes], limit: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        yield chunk


def _too_large(limit: int) -> RequestError:
    return RequestError(413, f"the body is larger than {limit:,} bytes.")


def _last_component(name: str) -> str:
    """A file name without folders, of at most 255 characters; its ending is kept."""
    return PurePath(name.replace("\\", "/")).name[-255:]


def _whole_text(name: str, text: str) -> str:
    """A text that is valid Unicode: JSON can contain halves of surrogate pairs."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        refuse(f"{name}: contains half of a surrogate pair, which is not a character.")
    return text


def _kind(value: object) -> str:
    """What a JSON value is, for messages."""
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "null")
