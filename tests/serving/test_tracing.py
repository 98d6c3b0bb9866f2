"""Spans of requests with OpenTelemetry's own package, and nothing without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message

from heedful.serving import tracing
from heedful.serving.app import ObservedRequests
from heedful.serving.metrics import Metrics

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def call(path: str, headers: list[tuple[bytes, bytes]]) -> list[Message]:
    """The messages with which the application answers."""

    async def greet(request: Request) -> Response:
        if request.path_params["name"] == "nobody":
            raise ValueError("a secret text")
        return PlainTextResponse("hello")

    middleware = [Middleware(ObservedRequests, metrics=Metrics(), log_requests=False)]
    app = Starlette(routes=[Route("/greet/{name}", greet)], middleware=middleware)
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": b""}
    asyncio.run(app({**scope, "http_version": "1.1", "root_path": "", "scheme": "http"}, receive, send))
    return sent


def test_a_request_is_a_span_of_the_trace_that_its_header_names(spans: InMemorySpanExporter) -> None:
    spans.clear()
    assert call("/greet/world", [(b"traceparent", PARENT.encode())])[0]["status"] == 200
    (span,) = spans.get_finished_spans()
    assert span.name == "GET /greet/{name}"
    assert span.kind is trace.SpanKind.SERVER
    assert dict(span.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/greet/{name}",
        "http.response.status_code": 200,
    }
    assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]


def test_a_failed_request_is_a_span_without_the_message_of_its_error(
    spans: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]
) -> None:
    spans.clear()
    assert call("/greet/nobody", [])[0]["status"] == 500
    (span,) = spans.get_finished_spans()
    assert (span.attributes or {})["http.response.status_code"] == 500
    assert "secret" not in span.to_json() + capsys.readouterr().err


def test_without_the_package_requests_are_answered_as_usual(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans.clear()
    monkeypatch.setattr(tracing, "is_available", lambda: False)
    assert call("/greet/world", [])[0]["status"] == 200
    assert spans.get_finished_spans() == ()
