"""`build_app`: the ASGI application with all routes, and what is done for every request: metrics, log, trace, CORS."""

from __future__ import annotations

import time
from contextlib import ExitStack

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serving.access import AccessControl
from heedful.serving.document_jobs import DocumentJobs
from heedful.serving.endpoints import RouteContext
from heedful.serving.glossaries import GlossaryStore
from heedful.serving.json_log import log, log_exception
from heedful.serving.metrics import Metrics
from heedful.serving.routes import api_v1, deepl, libretranslate, openai, openapi, operations, pages
from heedful.serving.service import TranslationService
from heedful.serving.settings import ServerSettings
from heedful.serving.tracing import request_span

MAX_AGE = 86_400
"""Seconds for which browsers remember the answer to a CORS preflight."""
EXPOSED_HEADERS = ("Retry-After", "X-Trace-ID", "Content-Disposition")
QUIET_ROUTES = ("/livez", "/readyz", "/metrics", "/health")
"""Routes that are called all the time and not logged."""


def build_app(service: TranslationService, settings: ServerSettings) -> Starlette:
    """The application for a service; the service is started and stopped by the caller."""
    access = AccessControl(settings)
    context = RouteContext(
        service=service,
        settings=settings,
        access=access,
        documents=DocumentJobs(service, access),
        glossaries=GlossaryStore(settings.glossaries),
    )
    routes: list[BaseRoute] = []
    for interface in (operations, api_v1, libretranslate, deepl, openai, openapi, pages):
        routes += interface.routes(context)
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("*",),
        expose_headers=EXPOSED_HEADERS,
        max_age=MAX_AGE,
    )
    observed = Middleware(ObservedRequests, metrics=service.metrics, log_requests=settings.log_requests)
    return Starlette(routes=routes, middleware=[observed, cors], exception_handlers={HTTPException: describe_error})


async def describe_error(request: Request, error: Exception) -> Response:
    """The response for an unknown path or method; the different interfaces name the message differently."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "message": error.detail}, error.status_code, error.headers)


class ObservedRequests:
    """Counts, times, logs and traces each request; an exception that nothing expected becomes status 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, log_requests: bool) -> None:
        self.app, self.metrics, self.log_requests = app, metrics, log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        status = 0

        async def observed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.open_requests.add(1)
        with ExitStack() as stack:
            span = stack.enter_context(request_span(scope))
            try:
                await self.app(scope, receive, observed_send)
            except ClientDisconnect:
                status = status or 499
            except Exception as error:
                log_exception(error)
                if status:  # the response has begun
                    raise ConnectionAbortedError from None
                await JSONResponse({"error": "internal error"}, 500)(scope, receive, observed_send)
            finally:
                self.metrics.open_requests.add(-1)
                self._observe(scope, status, time.monotonic() - started)
                span.finish(route_of(scope), status)

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        route, method = route_of(scope), scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.add(labels=(route, method, str(status)))
        self.metrics.request_seconds.observe(seconds, (route,))
        if self.log_requests and route not in QUIET_ROUTES:
            log("request", method=method, route=route, status=status, seconds=round(seconds, 4))


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def route_of(scope: Scope) -> str:
    """The path of the route with the names of its parameters: never what the client wrote."""
    return getattr(scope.get("route"), "path", "other")
