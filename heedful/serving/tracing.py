"""A trace span for each request, if the package opentelemetry-api is installed; what it exports is configured there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from starlette.types import Scope


class RequestSpan:
    """The span of one request; without OpenTelemetry it does nothing."""

    def __init__(self, method: str, span: Any = None) -> None:
        self.method, self.span = method, span

    def finish(self, route: str, status: int) -> None:
        """Record the route and the status of the response."""
        if self.span is not None:
            self.span.update_name(f"{self.method} {route}")
            self.span.set_attribute("http.route", route)
            self.span.set_attribute("http.response.status_code", status)


@contextmanager
def request_span(scope: Scope) -> Iterator[RequestSpan]:
    """The span of a request, within the trace that its `traceparent` header names."""
    if not is_available():
        yield RequestSpan(scope["method"])
        return
    propagate, trace = import_module("opentelemetry.propagate"), import_module("opentelemetry.trace")
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    tracer = trace.get_tracer("heedful")
    with tracer.start_as_current_span(
        scope["method"],
        context=propagate.extract(carrier),
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": scope["method"]},
        record_exception=False,
    ) as span:
        yield RequestSpan(scope["method"], span)


@cache
def is_available() -> bool:
    """Whether OpenTelemetry's interface is installed."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.trace") is not None
