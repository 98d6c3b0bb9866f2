"""The HTTP interface of LibreTranslate: `/translate`, `/detect`, `/languages`, files, what pages ask first."""

from __future__ import annotations

import asyncio
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from heedful.serving.access import Client, given_key
from heedful.serving.document_jobs import SUPPORTED_ENDINGS
from heedful.serving.endpoints import ClientGone, ErrorStyle, RouteContext, endpoint, while_connected
from heedful.serving.languages import display_name
from heedful.serving.requests import Parameters, RequestError
from heedful.serving.routes.deeplx import DeepLX
from heedful.serving.service import TextRequest, TextResult

STYLE = ErrorStyle(lambda status, message: {"error": message}, missing_key=400)
SHOWN_CODES = {"zh": "zh-Hans"}
"""How LibreTranslate shows a model's code. Both are listed, because some clients compare codes with this list."""


def routes(context: RouteContext) -> list[BaseRoute]:
    """The routes of this interface."""
    return LibreTranslate(context).routes()


class LibreTranslate:
    """The handlers."""

    def __init__(self, context: RouteContext) -> None:
        self.context, self.service, self.settings = context, context.service, context.settings
        self.deeplx = DeepLX(context)

    def routes(self) -> list[BaseRoute]:
        """The routes of these handlers."""
        return [
            Route("/translate", endpoint(STYLE, self.translate), methods=["POST"]),
            Route("/detect", endpoint(STYLE, self.detect), methods=["POST"]),
            Route("/languages", endpoint(STYLE, self.languages), methods=["GET", "POST"]),
            Route("/frontend/settings", endpoint(STYLE, self.frontend_settings), methods=["GET"]),
            Route("/translate_file", endpoint(STYLE, self.translate_file), methods=["POST"]),
            Route("/download_file/{name}", endpoint(STYLE, self.download_file), methods=["GET"]),
            Route("/suggest", endpoint(STYLE, self.suggest), methods=["POST"]),
            Route("/health", endpoint(STYLE, self.health), methods=["GET"]),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate one text or several. DeepLX has the same path: its parameters have other names."""
        parameters = await self.context.parameters(request)
        if "q" not in parameters and ("text" in parameters or "target_lang" in parameters):
            return await self.deeplx.respond(request, parameters)
        client = await self._client(request, parameters)
        texts, is_list = parameters.texts("q")
        self.context.check_texts(texts, "q")
        source, target = self._languages(parameters)
        format = parameters.choice("format", ("text", "html"), "text")
        maximum = self.settings.max_alternatives
        num_best = 1 + parameters.integer("alternatives", default=0, minimum=0, maximum=maximum)
        requests = [
            TextRequest(text, source, target, format="html" if format == "html" else "text", num_best=num_best)
            for text in texts
        ]
        results = await self.context.translate(request, client, requests)
        body: dict[str, Any] = {"translatedText": [result.text for result in results]}
        if source is None:
            body["detectedLanguage"] = [self._detected(result) for result in results]
        if num_best > 1:
            body["alternatives"] = [[other.text for other in result.alternatives] for result in results]
        return JSONResponse(body if is_list else {name: values[0] for name, values in body.items()})

    async def detect(self, request: Request) -> Response:
        """The languages that a text may be in."""
        parameters = await self.context.parameters(request)
        await self._client(request, parameters)
        if "q" not in parameters:
            raise RequestError(400, "q: this parameter is missing.")
        text = parameters.text("q") or ""
        self.context.check_texts([text], "q")
        (guesses,) = await while_connected(request, self.service.detect([text]))
        found = [{"confidence": _percent(guess.confidence), "language": _shown(guess.language)} for guess in guesses]
        return JSONResponse(found or [{"confidence": 0, "language": self._undetected()}])

    async def languages(self, request: Request) -> Response:
        """The languages, with the targets of each."""
        reader = request.headers.get("accept-language", "")
        return JSONResponse(
            [
                {
                    "code": code,
                    "name": display_name(source, reader),
                    "targets": [shown for target in self.service.targets(source) for shown in _all_codes(target)],
                }
                for source in self.service.sources()
                for code in _all_codes(source)
            ]
        )

    async def frontend_settings(self, request: Request) -> Response:
        """Limits and features, for pages."""
        reader = request.headers.get("accept-language", "")
        pair = self.service.directions()[0]
        codes = {"source": pair.source or "", "target": pair.target or ""}
        return JSONResponse(
            {
                "charLimit": self.settings.max_characters,
                "frontendTimeout": 500,
                "apiKeys": self.context.access.keys is not None,
                "keyRequired": await asyncio.to_thread(self.context.access.needs_key),
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": list(SUPPORTED_ENDINGS),
                "language": {
                    side: {"code": _shown(code), "name": display_name(code, reader)} for side, code in codes.items()
                },
            }
        )

    async def translate_file(self, request: Request) -> Response:
        """Translate a file and return the address of the result."""
        parameters = await self.context.parameters(request, documents=True)
        client = await self._client(request, parameters)
        if "file" not in parameters.files:
            raise RequestError(400, "file: this parameter is missing; send a multipart form.")
        source, target = self._languages(parameters)
        file = parameters.files["file"]
        job = self.context.documents.start(file.data, file.name or "file.txt", source, target, client=client)
        try:
            await while_connected(request, job.wait())
        except ClientGone:
            self.context.documents.forget(job)
            raise
        if job.error is not None:
            raise job.error
        url = f"{request.base_url}download_file/{job.id}-{job.key}{quote(PurePath(job.name).suffix)}"
        return JSONResponse({"translatedFileUrl": url})

    async def download_file(self, request: Request) -> Response:
        """The translation of a file."""
        id, _, key = request.path_params["name"].partition("-")
        job = self.context.documents.find(id, key.partition(".")[0])
        return Response(job.result, media_type="application/octet-stream", headers=attachment(job.name))

    async def suggest(self, request: Request) -> Response:
        """Refuse suggestions for better translations: this server does not collect texts."""
        raise RequestError(403, "suggestions are off on this server.")

    async def health(self, request: Request) -> Response:
        """Whether the server translates."""
        if not self.service.is_ready():
            raise RequestError(503, "the server is not ready.", retry_after=1)
        return JSONResponse({"status": "ok"})

    async def _client(self, request: Request, parameters: Parameters) -> Client:
        return await self.context.access.identify(request, given_key(request, parameters))

    def _languages(self, parameters: Parameters) -> tuple[str | None, str]:
        """The models' codes of the source (None: detect) and the target; both must be given."""
        parameters.required_text("source")
        return self.context.source(parameters, "source"), self.context.target(parameters, "target")

    def _detected(self, result: TextResult) -> dict[str, Any]:
        language = result.detected_source
        confidence = _percent(result.confidence) if language else 0
        return {"confidence": confidence, "language": _shown(language) if language else self._undetected()}

    def _undetected(self) -> str:
        """The language named for a text without words, with confidence 0."""
        sources = self.service.sources()
        return "en" if "en" in sources else _shown(sources[0])


def attachment(name: str) -> dict[str, str]:
    """The header that names a downloaded file."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='', errors='replace')}"}


def _shown(code: str) -> str:
    return SHOWN_CODES.get(code, code)


def _all_codes(code: str) -> list[str]:
    """The codes of a language in lists: as LibreTranslate shows it, and the model's own."""
    return list(dict.fromkeys((_shown(code), code)))


def _percent(confidence: float) -> int:
    return round(100 * confidence)
