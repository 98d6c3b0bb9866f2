"""What the routes of all interfaces have in common: `RouteContext` and `endpoint`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from heedful.errors import HeedfulError
from heedful.serving.access import AccessControl, Client, MissingKey, QuotaExceeded, WrongKey
from heedful.serving.document_jobs import DocumentJobs
from heedful.serving.glossaries import GlossaryStore
from heedful.serving.languages import DETECT, OTHER_CODES
from heedful.serving.requests import Parameters, RequestError, read_parameters
from heedful.serving.service import (
    BadRequest,
    DeadlinePassed,
    EngineFailed,
    Overloaded,
    TextRequest,
    TextResult,
    TranslationService,
)
from heedful.serving.settings import ServerSettings

Handler = Callable[[Request], Awaitable[Response]]
Result = TypeVar("Result")


@dataclass(frozen=True)
class RouteContext:
    """What the routes work with."""

    service: TranslationService
    settings: ServerSettings
    access: AccessControl
    documents: DocumentJobs
    glossaries: GlossaryStore

    async def parameters(self, request: Request, *, documents: bool = False) -> Parameters:
        """The parameters of a request; with `documents`, also a file."""
        body, fields = self.settings.max_body_bytes, self.settings.max_fields
        if not documents:
            return await read_parameters(request, max_body_bytes=body, max_fields=fields)
        with self.documents.upload():
            size = self.settings.max_document_bytes
            return await read_parameters(request, max_body_bytes=body, max_fields=fields, max_document_bytes=size)

    def check_texts(self, texts: list[str], name: str) -> int:
        """The number of characters of texts; status 400 for too many texts or too long ones."""
        if len(texts) > self.settings.max_texts:
            raise RequestError(400, f"{name}: {len(texts)} texts are more than the limit of {self.settings.max_texts}.")
        longest = max(map(len, texts), default=0)
        if longest > self.settings.max_characters:
            raise RequestError(
                400, f"{name}: a text of {longest:,} characters is over the limit of {self.settings.max_characters:,}."
            )
        return sum(map(len, texts))

    def source(self, parameters: Parameters, name: str) -> str | None:
        """The models' code of the source language under a name; None: detect."""
        given = parameters.text(name)
        return None if not given or given.lower() == DETECT else self._language_code(given, name, "source")

    def target(self, parameters: Parameters, name: str) -> str:
        """The models' code of the target language under a name."""
        return self._language_code(parameters.required_text(name), name, "target")

    def _language_code(self, given: str, name: str, role: Literal["source", "target"]) -> str:
        try:
            return self.service.language_code(OTHER_CODES.get(given.lower(), given), role=role)
        except BadRequest as error:
            raise RequestError(400, f"{name}: {error.problem.removeprefix(f'{role} language: ')}") from None

    async def translate(self, request: Request, client: Client, texts: Sequence[TextRequest]) -> list[TextResult]:
        """Translate texts for a client, counting their characters, unless it goes away."""
        async with self.access.charge(client, sum(len(text.text) for text in texts)):
            return await while_connected(request, self.service.translate(texts, client=client.name))


def markup_format(parameters: Parameters) -> Literal["text", "html", "xml"]:
    """The format of texts as DeepL's parameter names it."""
    match parameters.choice("tag_handling", ("html", "xml"), ""):
        case "html":
            return "html"
        case "xml":
            return "xml"
        case _:
            return "text"


@dataclass(frozen=True)
class ErrorStyle:
    """How an interface reports errors."""

    body: Callable[[int, str], Any]
    """The JSON body for a status and a message."""
    missing_key: int = 403
    wrong_key: int = 403
    quota_exceeded: int = 403
    headers: Callable[[], dict[str, str]] = field(default=dict)
    """Headers of every response."""


class ClientGone(Exception):  # noqa: N818
    """The client closed the connection before its response."""


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client goes away; the body must have been read."""
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        watch.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def endpoint(style: ErrorStyle, handler: Handler) -> Handler:
    """A handler whose errors become responses."""

    async def handle(request: Request) -> Response:
        return await respond(style, handler(request))

    return handle


async def respond(style: ErrorStyle, work: Awaitable[Response]) -> Response:
    """The response of a handler, or that for its error."""
    try:
        response = await work
    except ClientGone:
        return Response(status_code=499)  # nobody sees it; logs and metrics do
    except (RequestError, HeedfulError, Overloaded, DeadlinePassed, EngineFailed) as error:
        status, message, retry_after = _status(style, error)
        headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        response = JSONResponse(style.body(status, message), status, headers)
    response.headers.update(style.headers())
    return response


def _status(style: ErrorStyle, error: Exception) -> tuple[int, str, float | None]:
    """Status, message, and seconds after which the client may try again."""
    match error:
        case MissingKey():
            return style.missing_key, error.message, None
        case WrongKey():
            return style.wrong_key, error.message, None
        case QuotaExceeded():
            return style.quota_exceeded, error.message, None
        case RequestError():
            return error.status, error.message, error.retry_after
        case Overloaded():
            return 429, f"{error}.", error.retry_after
        case DeadlinePassed() | EngineFailed():
            return 503, f"{error}.", 1.0
        case _:
            return 400, str(error), None
