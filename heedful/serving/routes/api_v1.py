"""The server's own interface: `/api/v1/translate`, `/stream`, `/detect`, `/languages` and `/models`.

Parameters are JSON objects. Errors are {"error": {"status": …, "message": …}}.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from heedful.errors import HeedfulError
from heedful.serving.access import Client, given_key
from heedful.serving.endpoints import ErrorStyle, RouteContext, endpoint
from heedful.serving.glossaries import check_entries
from heedful.serving.languages import display_name
from heedful.serving.requests import Parameters, RequestError, refuse
from heedful.serving.service import DeadlinePassed, EngineFailed, Overloaded, TextRequest, TextResult, is_whole

STYLE = ErrorStyle(lambda status, message: {"error": {"status": status, "message": message}}, missing_key=401)
SPLITS = ("long", "always", "never")


def routes(context: RouteContext) -> list[BaseRoute]:
    """The routes of this interface."""
    interface = ApiV1(context)
    return [
        Route("/api/v1/translate", endpoint(STYLE, interface.translate), methods=["POST"]),
        Route("/api/v1/stream", endpoint(STYLE, interface.stream), methods=["POST"]),
        Route("/api/v1/detect", endpoint(STYLE, interface.detect), methods=["POST"]),
        Route("/api/v1/languages", endpoint(STYLE, interface.languages), methods=["GET"]),
        Route("/api/v1/models", endpoint(STYLE, interface.models), methods=["GET"]),
    ]


class ApiV1:
    """The handlers."""

    def __init__(self, context: RouteContext) -> None:
        self.context, self.service, self.settings = context, context.service, context.settings

    async def translate(self, request: Request) -> Response:
        """Translate `text`, one text or a list; the response has a result, or a list of them."""
        parameters = await self.context.parameters(request)
        client = await self._client(request, parameters)
        texts, is_list = parameters.texts("text")
        self.context.check_texts(texts, "text")
        one = self._text_request("", parameters)
        prefixes = self._prefixes(parameters, len(texts))
        requests = [replace(one, text=text, prefix=prefix) for text, prefix in zip(texts, prefixes, strict=True)]
        results = await self.context.translate(request, client, requests)
        bodies = [describe(result, one) for result in results]
        return JSONResponse({"translations": bodies} if is_list else bodies[0])

    async def stream(self, request: Request) -> Response:
        """Translate one long text; each sentence is a server-sent event as soon as it is translated."""
        parameters = await self.context.parameters(request)
        client = await self._client(request, parameters)
        text = parameters.text("text") or ""
        if len(text) > self.settings.max_stream_characters:
            limit = self.settings.max_stream_characters
            raise RequestError(400, f"text: {len(text):,} characters are over the limit of {limit:,}.")
        wanted = replace(self._text_request(text, parameters), prefix=parameters.text("prefix"))
        results = self.service.stream(wanted, client=client.name)
        async with self.context.access.charge(client, len(text)):
            first = await anext(results, None)  # what is wrong with the request has its own status
        body = self._events(wanted, first, results)
        return StreamingResponse(body, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _events(
        self, wanted: TextRequest, first: TextResult | None, results: AsyncIterator[TextResult]
    ) -> AsyncIterator[str]:
        """The events: `sentence` for each sentence, then `done`, or `error`."""
        count = 0
        try:
            if first is not None:
                count += 1
                yield event("sentence", describe(first, wanted))
                async for result in results:
                    count += 1
                    yield event("sentence", describe(result, wanted))
            yield event("done", {"sentences": count})
        except (HeedfulError, Overloaded, DeadlinePassed, EngineFailed) as error:
            yield event("error", STYLE.body(400 if isinstance(error, HeedfulError) else 503, str(error)))
        finally:
            await cast(Any, results).aclose()

    async def detect(self, request: Request) -> Response:
        """The languages that `text`, one text or a list, may be in."""
        parameters = await self.context.parameters(request)
        await self._client(request, parameters)
        texts, is_list = parameters.texts("text")
        self.context.check_texts(texts, "text")
        found = await self.service.detect(texts)
        bodies = [{"languages": [guess._asdict() for guess in guesses]} for guesses in found]
        return JSONResponse({"detections": bodies} if is_list else bodies[0])

    async def languages(self, request: Request) -> Response:
        """All source languages, and the target languages of each."""
        accepted = request.headers.get("accept-language", "")
        listed = [
            {"code": code, "name": display_name(code, accepted), "targets": self.service.targets(code)}
            for code in self.service.sources()
        ]
        return JSONResponse({"languages": listed})

    async def models(self, request: Request) -> Response:
        """All models, in the order in which they are asked for a direction."""
        return JSONResponse(self.service.pool.description)

    async def _client(self, request: Request, parameters: Parameters) -> Client:
        return await self.context.access.identify(request, given_key(request, parameters))

    def _prefixes(self, parameters: Parameters, count: int) -> list[str | None]:
        """The prefix of each of `count` translations: given once for all, or as a list."""
        if parameters.values.get("prefix") is None:
            return [None] * count
        prefixes, is_list = parameters.texts("prefix")
        if not is_list:
            return [prefixes[0]] * count
        if len(prefixes) != count:
            raise RequestError(400, f"prefix: {len(prefixes)} prefixes for {count} texts; give one for each.")
        return list(prefixes)

    def _text_request(self, text: str, parameters: Parameters) -> TextRequest:
        """The parameters of a translation, but its prefix."""
        limits = self.settings
        num_best = 1 + parameters.integer("alternatives", default=0, minimum=0, maximum=limits.max_alternatives)
        beam_size = parameters.integer("beam_size", default=0, minimum=0, maximum=limits.max_beam_size)
        return TextRequest(
            text=text,
            source=self.context.source(parameters, "source"),
            target=self.context.target(parameters, "target"),
            format=cast(Literal["text", "html", "xml"], parameters.choice("format", ("text", "html", "xml"), "text")),
            num_best=num_best,
            beam_size=beam_size or None,
            align=parameters.boolean("align"),
            glossary=_glossary(parameters.values.get("glossary")),
            split=cast(Literal["long", "always", "never"], parameters.choice("split", SPLITS, "long")),
        )


def _glossary(given: Any) -> tuple[tuple[str, str], ...]:
    """The terms and their translations of a JSON object."""
    if given is None:
        return ()
    if not isinstance(given, dict) or not all(isinstance(target, str) for target in given.values()):
        refuse("glossary: must be an object with a translation for each term.")
    entries = tuple(given.items())
    if not all(is_whole(term) for pair in entries for term in pair):
        refuse("glossary: contains half of a surrogate pair, which is not a character.")
    check_entries(entries, name="glossary")
    return entries


def describe(result: TextResult, request: TextRequest) -> dict[str, Any]:
    """A result as JSON."""
    body: dict[str, Any] = {
        "text": result.text,
        "source": result.source,
        "target": request.target,
        "score": result.score,
        "log_prob": result.log_prob,
    }
    if result.detected_source is not None:
        body["detected"] = {"language": result.detected_source, "confidence": result.confidence}
    if request.num_best > 1:
        body["alternatives"] = [asdict(alternative) for alternative in result.alternatives]
    if result.alignment is not None:
        body["alignment"] = [[list(source), list(target)] for source, target in result.alignment]
    if result.source_span is not None:
        body["source_span"] = list(result.source_span)
    if result.warnings:
        body["warnings"] = list(result.warnings)
    return body


def event(name: str, data: Any) -> str:
    """A server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
