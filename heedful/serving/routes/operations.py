"""Operations: `/livez`, `/readyz`, `/metrics`, and `POST /operations/reload`."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from heedful.errors import HeedfulError
from heedful.serving.endpoints import RouteContext
from heedful.serving.metrics import CONTENT_TYPE


def routes(context: RouteContext) -> list[BaseRoute]:
    """The routes of this interface."""
    service, token = context.service, context.settings.operations_token

    def has_token(request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        expected = (token or "").encode()
        return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), expected)

    async def live(request: Request) -> Response:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        """The engines translated something within the last ten seconds, and the server is not shutting down."""
        is_ready = service.is_ready()
        return JSONResponse({"status": "ready" if is_ready else "not ready"}, 200 if is_ready else 503)

    async def metrics(request: Request) -> Response:
        """All metrics in the text format of Prometheus."""
        if token is not None and not has_token(request):
            return JSONResponse({"error": "the operations token is missing or wrong"}, 403)
        return PlainTextResponse(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def reload(request: Request) -> Response:
        """Load the models again without interrupting requests."""
        if token is None or not has_token(request):
            return JSONResponse({"error": "the operations token is missing or wrong; see operations_token"}, 403)
        try:
            await service.reload()
        except HeedfulError as error:
            return JSONResponse({"error": f"the models stay as they were: {error}"}, 409)
        return JSONResponse({"status": "reloaded", "models": service.model_names()})

    return [
        Route("/livez", live, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        Route("/operations/reload", reload, methods=["POST"]),
    ]
