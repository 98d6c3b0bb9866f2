"""OpenAI's HTTP interface: a language pair is a model, and the last message of the user is the text to translate."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from heedful.serving.access import Client, given_key
from heedful.serving.endpoints import ErrorStyle, RouteContext, endpoint, while_connected
from heedful.serving.languages import DETECT
from heedful.serving.requests import Parameters, RequestError, refuse
from heedful.serving.service import BadRequest, DeadlinePassed, EngineFailed, Overloaded, TextRequest, TextResult

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
MAX_MESSAGES = 1000
STARTED = int(time.time())


def _error_body(status: int, message: str) -> dict[str, Any]:
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": CODES.get(status)}}


STYLE = ErrorStyle(_error_body, missing_key=401, wrong_key=401, quota_exceeded=429)


def routes(context: RouteContext) -> list[BaseRoute]:
    """The routes of this interface."""
    handlers = OpenAI(context)
    return [
        Route("/v1/models", endpoint(STYLE, handlers.list_models), methods=["GET"]),
        Route("/v1/models/{model}", endpoint(STYLE, handlers.get_model), methods=["GET"]),
        Route("/v1/chat/completions", endpoint(STYLE, handlers.complete), methods=["POST"]),
    ]


class OpenAI:
    """The handlers."""

    def __init__(self, context: RouteContext) -> None:
        self.context, self.service, self.settings = context, context.service, context.settings

    async def list_models(self, request: Request) -> Response:
        """The language pairs."""
        await self._read(request)
        return JSONResponse({"object": "list", "data": [_describe(model) for model in self._models()]})

    async def get_model(self, request: Request) -> Response:
        """A language pair."""
        await self._read(request)
        source, target = self._languages(request.path_params["model"])
        return JSONResponse(_describe(f"{source or DETECT}-{target}"))

    async def complete(self, request: Request) -> Response:
        """Translate the last message of the user."""
        parameters, client = await self._read(request)
        model = parameters.required_text("model")
        source, target = self._languages(model)
        text = _last_user_text(parameters.values.get("messages"))
        limit = 1 + self.settings.max_alternatives
        num_best = parameters.integer("n", default=1, minimum=1, maximum=limit)
        wanted = TextRequest(text, source, target, num_best=num_best)
        if parameters.boolean("stream"):
            events = self._events(wanted, client, model, with_usage=_include_usage(parameters))
            return await self._stream(request, wanted, events)
        self.context.check_texts([text], "messages")
        (result,) = await self.context.translate(request, client, [wanted])
        choices = [result.text, *(other.text for other in result.alternatives)][:num_best]
        return JSONResponse(
            {
                **_completion(model, "chat.completion"),
                "choices": [
                    {
                        "index": index,
                        "message": {"role": "assistant", "content": choice, "refusal": None},
                        "logprobs": None,
                        "finish_reason": "stop",
                    }
                    for index, choice in enumerate(choices)
                ],
                "usage": _usage([result]),
            }
        )

    async def _stream(self, request: Request, wanted: TextRequest, events: AsyncGenerator[str, None]) -> Response:
        """A response of events, once there is the first: what is wrong with a request has its own status."""
        if wanted.num_best > 1:
            refuse("n: must be 1 with stream.")
        if len(wanted.text) > self.settings.max_stream_characters:
            refuse(f"messages: a text of over {self.settings.max_stream_characters:,} characters.")
        first = await while_connected(request, _next(events))
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(_chain(first, events), media_type="text/event-stream", headers=headers)

    async def _events(
        self, wanted: TextRequest, client: Client, model: str, *, with_usage: bool
    ) -> AsyncGenerator[str, None]:
        """The server-sent events of a streamed translation, a sentence each."""
        common = _completion(model, "chat.completion.chunk")
        results: list[TextResult] = []

        def chunk(delta: Mapping[str, str], finish_reason: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
            return _event({**common, "choices": [choice], **({"usage": None} if with_usage else {})})

        stream: Any = self.service.stream(wanted, client=client.name)
        async with self.context.access.charge(client, len(wanted.text)), aclosing(stream):
            try:
                async for result in stream:
                    role = {} if results else {"role": "assistant"}
                    results.append(result)
                    yield chunk({**role, "content": result.text})
            except (BadRequest, DeadlinePassed, EngineFailed, Overloaded) as error:
                if not results:
                    raise
                yield _event(_error_body(503, f"{error}."))
                return
        yield chunk({}, "stop")
        if with_usage:
            yield _event({**common, "choices": [], "usage": _usage(results)})
        yield "data: [DONE]\n\n"

    def _models(self) -> list[str]:
        pairs = [f"{pair.source}-{pair.target}" for pair in self.service.directions() if pair.source and pair.target]
        return [*dict.fromkeys(pairs), *(f"{DETECT}-{target}" for target in self.service.targets())]

    def _languages(self, model: str) -> tuple[str | None, str]:
        """The languages of a model id: a source (or auto), a dash and a target."""
        for place, character in enumerate(model):
            if character != "-":
                continue
            source, target = model[:place], model[place + 1 :]
            try:
                found = self.service.language_code(target, role="target")
                if source == DETECT:
                    return None, found
                return self.service.language_code(source, role="source"), found
            except BadRequest:
                continue
        listed = ", ".join(self._models())
        raise RequestError(404, f"model: there is no such model; choose one of {listed}.")

    async def _read(self, request: Request) -> tuple[Parameters, Client]:
        parameters = await self.context.parameters(request)
        return parameters, await self.context.access.identify(request, given_key(request, parameters))


def _last_user_text(messages: Any) -> str:
    """The text of the user's last message. Other messages and all instructions are ignored."""
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_MESSAGES:
        refuse(f"messages: must be a list of 1 to {MAX_MESSAGES} messages.")
    for message in reversed(messages):
        if not isinstance(message, dict):
            refuse("messages: must be a list of objects with role and content.")
        if message.get("role") == "user":
            return Parameters({"content": _content(message.get("content"))}).text("content") or ""
    raise RequestError(400, "messages: there is no message with the role user.")


def _content(content: Any) -> Any:
    """The text of a message, which may be in parts."""
    if not isinstance(content, list):
        return content
    parts = [part.get("text") if isinstance(part, dict) else None for part in content]
    if not all(isinstance(part, str) for part in parts):
        refuse("messages: the content must be text.")
    return "".join(str(part) for part in parts)


def _include_usage(parameters: Parameters) -> bool:
    options = parameters.values.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _completion(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": model}


def _describe(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": STARTED, "owned_by": "heedful"}


def _usage(results: Sequence[TextResult]) -> dict[str, int]:
    source, target = (
        sum(result.num_source_tokens for result in results),
        sum(result.num_target_tokens for result in results),
    )
    return {"prompt_tokens": source, "completion_tokens": target, "total_tokens": source + target}


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


async def _next(events: AsyncGenerator[str, None]) -> str:
    return await anext(events)


async def _chain(first: str, events: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event
