"""The pages: the translation page at `/`, the page of `heedful see` with the served models at `/see/`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from heedful.backend_support import supports
from heedful.errors import ConfigError, HeedfulError
from heedful.inspection.page_server import HEADERS, POLICY, ServedFile, accepts_gzip, matches
from heedful.inspection.static_site import PAGE, site_files, site_model
from heedful.interop.web import TRANSLATE, built_files
from heedful.model_dir.save_load import load_arrays
from heedful.serving.endpoints import RouteContext
from heedful.serving.engine_pool import models_to_serve
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
        self._see = SeePage([], {"models": []})

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
            "see": await asyncio.to_thread(lambda: self.see.directions),
        }
        return JSONResponse(described, headers={**HEADERS, "Cache-Control": "no-store"})

    async def to_see(self, request: Request) -> Response:
        """The page of `heedful see` has relative links, so its address ends with a slash."""
        return RedirectResponse(SEE.removeprefix("/"), HTTPStatus.PERMANENT_REDIRECT)

    async def see_file(self, request: Request) -> Response:
        """A file of the page of `heedful see`; its models are read when the page is first opened."""
        async with self._loading:
            files = await asyncio.to_thread(lambda: self.see.files)
        file = files.get(request.path_params["name"] or PAGE)
        if file is None:
            return JSONResponse({"error": "there is no such file"}, HTTPStatus.NOT_FOUND, HEADERS)
        return send_file(request, file, f"{POLICY} 'self'")

    @property
    def see(self) -> SeePage:
        """The page of `heedful see` for the models that are served now: they may have been loaded again."""
        description = self.context.service.pool.description
        if self._see.description is not description:
            self._see = SeePage(models_to_serve(self.context.settings.models), description)
        return self._see


class SeePage:
    """The page of `heedful see` for those served models that run in a browser."""

    def __init__(self, models: Sequence[tuple[str, Path]], description: dict[str, Any]) -> None:
        self.models, self.description = models, description

    @cached_property
    def shown(self) -> dict[str, Path]:
        """The models that run in a browser."""
        return {name: path for name, path in self.models if runs_in_page(path)}

    @cached_property
    def directions(self) -> list[tuple[str, str, str]]:
        """The directions, each with the model that translates it: the first that has it."""
        found: dict[tuple[str, str], str] = {}
        for model in self.description["models"]:
            for source, target in model["directions"]:
                found.setdefault((source, target), model["name"])
        return [(*pair, name) for pair, name in found.items() if name in self.shown]

    @cached_property
    def files(self) -> Mapping[str, ServedFile]:
        """All files, ready to be sent; none if no model runs in a browser."""
        models = [site_model(path, name=name, kind="wasm") for name, path in self.shown.items()]
        found = (
            {name: ServedFile(file, Path(name).suffix) for name, file in site_files(models).items()} if models else {}
        )
        for served in found.values():
            _ = served.compressed, served.file.sha256
        return found


def runs_in_page(model: Path) -> bool:
    """Whether the native engine can run a model; it cannot run exported ones."""
    try:
        return supports("native_engine", load_arrays(model, with_weights=False).config.model)
    except HeedfulError:
        return False


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
