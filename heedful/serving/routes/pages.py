"""The pages: the translation page at `/`, the page of `heedful see` with the served models at `/see/`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from heedful.backend_support import supports
from heedful.errors import ConfigError
from heedful.inspection.page_server import HEADERS, POLICY, ServedFile, accepts_gzip, matches
from heedful.inspection.static_site import PAGE, site_files, site_model
from heedful.interop.web import TRANSLATE, built_files
from heedful.model_dir.save_load import load_arrays, read_directions
from heedful.serving.endpoints import RouteContext
from heedful.serving.engine_pool import models_to_serve
from heedful.text.corpus import Direction
from heedful.text.documents import ENDINGS
from heedful.text.language_names import english_and_chinese_name

SEE = "/see/"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


def routes(context: RouteContext) -> list[BaseRoute]:
    """The routes of both pages."""
    pages = Pages(context)
    own = [Route("/", pages.own_file, methods=["GET"], include_in_schema=False)]
    own += [
        Route(f"/{name}", pages.own_file, methods=["GET"], include_in_schema=False)
        for name in pages.own_files
        if name != PAGE
    ]
    return [
        *own,
        Route("/page.json", pages.settings, methods=["GET"], include_in_schema=False),
        Route(SEE.rstrip("/"), pages.to_see, methods=["GET"], include_in_schema=False),
        Route(SEE + "{name:path}", pages.see_file, methods=["GET"], include_in_schema=False),
    ]


class Pages:
    """The handlers."""

    def __init__(self, context: RouteContext) -> None:
        self.context = context
        self.own_files = {
            name.removeprefix(f"{TRANSLATE}/"): ServedFile(file, Path(name).suffix)
            for name, file in built_files().items()
            if name.startswith(f"{TRANSLATE}/")
        }
        if PAGE not in self.own_files:
            raise ConfigError(
                f"heedful/web/{TRANSLATE}/ is missing; install heedful again, or run python web/build.py."
            )
        self._loading = asyncio.Lock()

    async def own_file(self, request: Request) -> Response:
        """A file of the translation page."""
        return send_file(request, self.own_files[request.url.path.rpartition("/")[2] or PAGE], PAGE_POLICY)

    async def settings(self, request: Request) -> Response:
        """What the translation page asks first: languages, limits, and whether requests need a key."""
        context, limits = self.context, self.context.settings
        directions = context.service.directions()
        codes = dict.fromkeys(code for pair in directions for code in (pair.source, pair.target) if code)
        described = {
            "directions": [[pair.source, pair.target] for pair in directions],
            "names": {code: english_and_chinese_name(code) for code in codes},
            "needs_key": await asyncio.to_thread(context.access.needs_key),
            "max_characters": limits.max_characters,
            "max_stream_characters": limits.max_stream_characters,
            "max_body_bytes": limits.max_body_bytes,
            "max_document_bytes": limits.max_document_bytes,
            "max_alternatives": limits.max_alternatives,
            "max_beam_size": limits.max_beam_size,
            "document_endings": [".txt", *ENDINGS],
            "see": await asyncio.to_thread(lambda: self.shown_directions),
        }
        return JSONResponse(described, headers={**HEADERS, "Cache-Control": "no-store"})

    async def to_see(self, request: Request) -> Response:
        """The page of `heedful see` has relative links, so its address ends with a slash."""
        return RedirectResponse(SEE.removeprefix("/"), HTTPStatus.PERMANENT_REDIRECT)

    async def see_file(self, request: Request) -> Response:
        """A file of the page of `heedful see`; its models are read when the page is first opened."""
        async with self._loading:
            files = await asyncio.to_thread(lambda: self.see_files)
        file = files.get(request.path_params["name"] or PAGE)
        if file is None:
            return JSONResponse({"error": "there is no such file"}, HTTPStatus.NOT_FOUND, HEADERS)
        return send_file(request, file, f"{POLICY} 'self'")

    @cached_property
    def shown_models(self) -> dict[str, Path]:
        """The served models that run in a page."""
        models = models_to_serve(self.context.settings.models)
        return {
            name: path
            for name, path in models
            if supports("native_engine", load_arrays(path, with_weights=False).config.model)
        }

    @cached_property
    def shown_directions(self) -> list[tuple[str | None, str | None, str]]:
        """The directions whose model, the first that has them, runs in a page, with the name of the model."""
        models: dict[Direction, str] = {}
        for name, path in models_to_serve(self.context.settings.models):
            models = dict.fromkeys(read_directions(path).known, name) | models
        return [(pair.source, pair.target, name) for pair, name in models.items() if name in self.shown_models]

    @cached_property
    def see_files(self) -> Mapping[str, ServedFile]:
        """The files of the page of `heedful see`; none if no served model runs in a page."""
        models = [site_model(path, name=name, kind="wasm") for name, path in self.shown_models.items()]
        files = site_files(models) if models else {}
        return {name: ServedFile(file, Path(name).suffix) for name, file in files.items()}


def send_file(request: Request, served: ServedFile, policy: str) -> Response:
    """A file with the headers of a page, compressed if the browser accepts it, or status 304 if the browser has it."""
    compressed = served.compressed if accepts_gzip(request.headers.get("accept-encoding", "")) else None
    tag = f'"{served.file.sha256[:32]}{"-gzip" if compressed else ""}"'
    headers: dict[str, Any] = {**HEADERS, "Content-Security-Policy": policy, "Cache-Control": "no-cache", "ETag": tag}
    if served.compressed:
        headers["Vary"] = "Accept-Encoding"
    if matches(request.headers.get("if-none-match", ""), tag):
        return Response(None, HTTPStatus.NOT_MODIFIED, headers)
    if compressed:
        headers["Content-Encoding"] = "gzip"
    content = compressed or served.file.content
    if isinstance(content, Path):
        return FileResponse(content, headers=headers, media_type=served.content_type)
    return Response(content, HTTPStatus.OK, headers | {"Content-Type": served.content_type})
