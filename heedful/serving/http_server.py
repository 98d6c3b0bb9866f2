"""The HTTP server: uvicorn with deadlines for receiving requests, and with a shutdown that finishes accepted work.

uvicorn itself waits without end for the rest of a request. `DeadlineProtocol` gives the head and the body of each
request a deadline, so that slow clients cannot hold connections open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from heedful.errors import HeedfulError
from heedful.serving.json_log import log, log_exception
from heedful.serving.service import TranslationService
from heedful.serving.settings import LOOPBACK, ServerSettings

MAX_HEAD_BYTES = 65_536
"""Size of the request line and headers; some clients send texts in the query string."""
MAX_DRAINED_BYTES = 262_144
"""Bytes of a body that are read after its response, so that the client sees the response."""
DRAIN_SECONDS = 1.0
"""Time between a response that came before the end of the body, and the end of the connection."""
LAST_REQUEST_SECONDS = 0.5
"""How long an idle connection stays open during shutdown, for a request that may be on its way."""


class DeadlineProtocol(H11Protocol):
    """One connection. Subclasses made by `protocol_class` have the settings."""

    settings: ServerSettings
    per_address: Counter[str]
    """Open connections of each address."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.phase = "idle"
        """What is being received: "idle" between requests, "head", "body", or "drain" for a body after its response."""
        self.deadline: asyncio.TimerHandle | None = None
        self.write_deadline: asyncio.TimerHandle | None = None
        self.drained = 0
        self.shutting_down = False
        self.address = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, unless there are too many."""
        super().connection_made(transport)
        settings = self.settings
        self.address = self.client[0] if self.client else ""
        self.per_address[self.address] += 1
        is_known = self.address in (*LOOPBACK, *settings.trusted_proxies)
        too_many = not is_known and self.per_address[self.address] > settings.max_connections_per_address
        if too_many or len(self.connections) > settings.max_connections:
            transport.abort()
            return
        self._enter("head")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._enter("idle")
        self._end_write_deadline()
        self.per_address[self.address] -= 1
        if self.per_address[self.address] <= 0:
            del self.per_address[self.address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        if self.phase == "drain":
            self.drained += len(data)
            if self.drained > MAX_DRAINED_BYTES:
                self.transport.pause_reading()
            return
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        """Continue with the next request of the connection."""
        super().on_response_complete()
        self._update()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP; nothing is sent after a response that has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """The client does not read: give it a deadline."""
        super().pause_writing()
        if self.write_deadline is None:
            self.write_deadline = self.loop.call_later(self.settings.response_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._end_write_deadline()
        super().resume_writing()

    def _end_write_deadline(self) -> None:
        if self.write_deadline is not None:
            self.write_deadline.cancel()
            self.write_deadline = None

    def shutdown(self) -> None:
        """Close the connection after the current request, or soon if there is none."""
        self.shutting_down = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(LAST_REQUEST_SECONDS, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            super().shutdown()

    def _update(self) -> None:
        """Set the deadline that the state of the connection needs."""
        if self.transport.is_closing():
            self._enter("idle")
            return
        receiving = self.conn.their_state
        if receiving is h11.SEND_BODY:
            self._enter("drain" if self.cycle.response_complete else "body")
        elif receiving is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self._enter("head")
        else:
            self._enter("idle")

    def _enter(self, phase: str) -> None:
        if phase == self.phase:
            return
        self.phase = phase
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None
        settings = self.settings
        seconds = {"head": settings.header_seconds, "body": settings.body_seconds, "drain": DRAIN_SECONDS}.get(phase)
        if seconds is not None:
            self.deadline = self.loop.call_later(seconds, self.transport.abort)


def protocol_class(settings: ServerSettings) -> type[DeadlineProtocol]:
    """The protocol of connections with these settings."""
    return type("Connection", (DeadlineProtocol,), {"settings": settings, "per_address": Counter()})


class Server(uvicorn.Server):
    """uvicorn's server with our signals: the first SIGTERM or SIGINT ends it gracefully, the second at once."""

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self.on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.should_exit:
            os._exit(128 + sig)  # the engine processes end with their pipes
        self.should_exit = True
        self.on_exit()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what was accepted; responses say that their connection ends."""
        self.server_state.default_headers.append((b"connection", b"close"))
        await super().shutdown(sockets)


async def run_server(
    service: TranslationService, app: ASGIApp, settings: ServerSettings, sockets: Sequence[socket.socket]
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP loads the models again. The service has been started."""
    for name in ("uvicorn.error", "asyncio"):  # their messages may quote what a client sent
        logging.getLogger(name).setLevel(logging.CRITICAL)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: log_exception(context.get("exception")))
    config = uvicorn.Config(
        app,
        http=protocol_class(settings),
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=True,
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=settings.keep_alive_seconds,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.shutdown_seconds,  # type: ignore[arg-type]
    )

    def begin_shutdown() -> None:
        service.begin_shutdown()
        log("shutting_down")

    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = asyncio.ensure_future(reload_quietly(service))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    await Server(config, begin_shutdown).serve(sockets=list(sockets))


async def reload_quietly(service: TranslationService) -> None:
    """Load the models again; the service logs what is wrong."""
    try:
        await service.reload()
    except HeedfulError:
        return
