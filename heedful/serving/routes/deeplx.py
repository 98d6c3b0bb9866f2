"""The HTTP interface of DeepLX: `POST /translate` with `text` and `target_lang`."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from heedful.serving.access import given_key
from heedful.serving.endpoints import ErrorStyle, RouteContext, markup_format, respond
from heedful.serving.languages import DETECT, deepl_source_code
from heedful.serving.requests import Parameters
from heedful.serving.service import TextRequest

STYLE = ErrorStyle(
    lambda status, message: {"code": status, "message": message}, missing_key=401, wrong_key=401, quota_exceeded=456
)
NUM_ALTERNATIVES = 3
"""Alternatives of a short text, as DeepLX gives them."""
SHORT_TEXT = 200
"""Characters up to which a text has alternatives: they cost time, and few people choose among long texts."""


class DeepLX:
    """The handler; `/translate` is routed by `LibreTranslate`, which has the same path."""

    def __init__(self, context: RouteContext) -> None:
        self.context, self.service, self.settings = context, context.service, context.settings

    async def respond(self, request: Request, parameters: Parameters) -> Response:
        """The response to these parameters, also for errors."""
        return await respond(STYLE, self.translate(request, parameters))

    async def translate(self, request: Request, parameters: Parameters) -> Response:
        """Translate a text."""
        client = await self.context.access.identify(request, given_key(request, parameters))
        text = parameters.required_text("text")
        self.context.check_texts([text], "text")
        source = self.context.source(parameters, "source_lang")
        target = self.context.target(parameters, "target_lang")
        num_alternatives = min(NUM_ALTERNATIVES, self.settings.max_alternatives) if len(text) <= SHORT_TEXT else 0
        (result,) = await self.context.translate(
            request,
            client,
            [TextRequest(text, source, target, format=markup_format(parameters), num_best=1 + num_alternatives)],
        )
        return JSONResponse(
            {
                "code": 200,
                "id": secrets.randbelow(10**10),
                "data": result.text,
                "alternatives": [other.text for other in result.alternatives],
                "source_lang": deepl_source_code(result.source or DETECT),
                "target_lang": parameters.required_text("target_lang").upper(),
                "method": "Free",
            }
        )
