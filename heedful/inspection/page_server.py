"""The web server of `heedful see`: the files of a site, and an interface to models that do not run in the page.

It sends only files of the site's table, to clients that address it by a name of this machine, and keeps no log.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from heedful.errors import ConfigError, HeedfulError
from heedful.extras import require
from heedful.inspection.static_site import PAGE, SiteModel, site_files
from heedful.interop.web import WebFile

if TYPE_CHECKING:
    from heedful.inspection.served_model import ServedModel

FIRST_PORT, NUM_PORTS = 8123, 100
MAX_BODY = 64 << 10
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
COMPRESSED = (".html", ".js", ".css", ".json", ".svg", ".wasm")
NOTEBOOKS = ("http://localhost:*", "http://127.0.0.1:*", "https://localhost:*", "vscode-webview:", "vscode-file:")
"""The pages that may show ours in a frame, if it is for a notebook."""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; worker-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors"
)
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class RequestError(Exception):
    """What is wrong with a request, and the status that it is answered with."""

    def __init__(self, status: HTTPStatus, problem: str) -> None:
        super().__init__(problem)
        self.status = status


@dataclass(frozen=True)
class ServedFile:
    """A file of the site as it is sent."""

    file: WebFile
    suffix: str

    @property
    def content_type(self) -> str:
        """The MIME type."""
        return TYPES.get(self.suffix, "application/octet-stream")

    @cached_property
    def compressed(self) -> bytes | None:
        """The contents for clients that accept gzip; None for files that do not become smaller."""
        if self.suffix not in COMPRESSED or not isinstance(self.file.content, bytes):
            return None
        return gzip.compress(self.file.content, mtime=0)


class PageServer(ThreadingHTTPServer):
    """Serves a site until it is closed. It listens from the start; `serve_forever` answers."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"

    def __init__(
        self,
        models: Sequence[SiteModel],
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        frame_ancestors: Sequence[str] = (),
    ) -> None:
        """Listen on `port`; None: the first free one from 8123. `frame_ancestors`: who may show the page in a frame."""
        self.files = {name: ServedFile(file, Path(name).suffix) for name, file in site_files(models).items()}
        self.served = served_models(models)
        self.policy = " ".join((POLICY, "'self'", *frame_ancestors))
        self.only_loopback = host in LOOPBACK
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for served in self.files.values():
            _ = served.compressed
        self._listen(host, port)

    def _listen(self, host: str, port: int | None) -> None:
        ports = range(FIRST_PORT, FIRST_PORT + NUM_PORTS) if port is None else [port]
        for number in ports:
            try:
                super().__init__((host, number), PageRequest)
                return
            except (OSError, OverflowError) as error:
                if port is None and getattr(error, "errno", None) == errno.EADDRINUSE:
                    continue
                raise ConfigError(_describe(error, host, number)) from None
        raise ConfigError(f"the ports {ports[0]} to {ports[-1]} are in use; choose another with --port.")

    def server_bind(self) -> None:
        """Bind without asking the name service for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def url(self, **state: str | None) -> str:
        """The address of the page with a state: text, to, model."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        fragment = urlencode({name: value for name, value in state.items() if value}, quote_via=quote, safe="")
        return f"http://{host}:{self.server_port}/{'#' + fragment if fragment else ''}"

    def start(self) -> threading.Thread:
        """Serve on a thread that ends with the process."""
        thread = threading.Thread(target=self.serve_forever, name="heedful see", daemon=True)
        thread.start()
        return thread

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that went away; other errors are reported as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def served_models(models: Sequence[SiteModel]) -> dict[str, ServedModel]:
    """The models that run on the server, by name. They need numpy and torch; the others need neither."""
    directories = {model.name: model.directory for model in models if model.kind == "server"}
    if not directories:
        return {}
    require(("numpy", "torch"))
    from heedful.inspection.served_model import ServedModel

    return {name: ServedModel(directory) for name, directory in directories.items()}


def _describe(error: Exception, host: str, port: int) -> str:
    """The message for an address that cannot be used."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"--port {port}: another program uses this port; choose another, or leave --port out."
    if number == errno.EACCES:
        return f"--port {port}: this port needs special rights; choose one above 1023, or leave --port out."
    if isinstance(error, OverflowError):
        return f"--port {port}: a port is a number from 0 to 65535."
    return f"--host {host}: {getattr(error, 'strerror', None) or error}; give an address of this machine."


class PageRequest(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True
    server: PageServer

    def do_GET(self) -> None:  # noqa: N802
        """Send a file."""
        self._answer(self._send_file)

    def do_HEAD(self) -> None:  # noqa: N802
        """Send the headers of a file."""
        self._answer(self._send_file)

    def do_POST(self) -> None:  # noqa: N802
        """Answer a request about a model on the server."""
        self._answer(self._call)

    def _answer(self, work: Callable[[], None]) -> None:
        self.ends = self.close_connection
        if self.command == "POST" or "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # until the body has been read
        try:
            self._check_host()
            work()
        except RequestError as error:
            self._send_error(error.status, str(error))

    def _check_host(self) -> None:
        """Refuse names of other machines, with which other sites could reach this server through their own name."""
        hosts = self.headers.get_all("Host") or []
        match = re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^:\[\]]+)(:\d*)?", hosts[0].strip()) if len(hosts) == 1 else None
        if match is None:
            self.close_connection = True
            raise RequestError(HTTPStatus.BAD_REQUEST, "the header Host is missing or malformed")
        if self.server.only_loopback and match[1].strip("[]").lower() not in LOOPBACK:
            raise RequestError(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to localhost only; see --host")

    @property
    def _path(self) -> str:
        return unquote(self.path.partition("#")[0].partition("?")[0]).removeprefix("/")

    def _send_file(self) -> None:
        served = self.server.files.get(self._path or PAGE)
        if served is None:
            raise RequestError(HTTPStatus.NOT_FOUND, "there is no such file")
        compressed = served.compressed if accepts_gzip(self.headers.get("Accept-Encoding", "")) else None
        tag = f'"{served.file.sha256[:32]}{"-gzip" if compressed else ""}"'
        headers = {"Cache-Control": "no-cache", "ETag": tag}
        if served.compressed:
            headers["Vary"] = "Accept-Encoding"
        if matches(self.headers.get("If-None-Match", ""), tag):
            self._send(HTTPStatus.NOT_MODIFIED, None, headers)
            return
        if compressed:
            headers["Content-Encoding"] = "gzip"
        headers["Content-Type"] = served.content_type
        self._send(HTTPStatus.OK, compressed or served.file.content, headers, size=served.file.size)

    def _call(self) -> None:
        match = re.fullmatch("api/([a-z]+)", self._path)
        if match is None:
            is_file = self._path in self.server.files or not self._path
            status = HTTPStatus.METHOD_NOT_ALLOWED if is_file else HTTPStatus.NOT_FOUND
            raise RequestError(status, "a file is read with GET" if is_file else "there is no such interface")
        request = self._read_request()
        name = request.pop("model", None)
        model = self.server.served.get(name) if isinstance(name, str) else None
        if model is None:
            known = ", ".join(self.server.served) or "none"
            raise RequestError(HTTPStatus.NOT_FOUND, f"this server runs no such model; it runs {known}")
        if match[1] not in model.calls:
            problem = f"there is no call {match[1]}; there are {', '.join(model.calls)}"
            raise RequestError(HTTPStatus.NOT_FOUND, problem)
        try:
            content_type, body = model.call(match[1], request)
        except HeedfulError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
        self._send(HTTPStatus.OK, body, {"Cache-Control": "no-store", "Content-Type": content_type})

    def _read_request(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the Content-Type of a request is application/json")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"\d{1,9}", length):
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "the header Content-Length is missing or malformed")
        if int(length) > MAX_BODY:
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MAX_BODY:,} bytes")
        data = self.rfile.read(int(length))
        self.close_connection = self.ends
        try:
            request = json.loads(data)
        except (ValueError, RecursionError):
            raise RequestError(HTTPStatus.BAD_REQUEST, "the request is not JSON") from None
        if not isinstance(request, dict):
            raise RequestError(HTTPStatus.BAD_REQUEST, "the request is not a JSON object")
        return request

    def _send(
        self, status: HTTPStatus, content: bytes | Path | None, headers: Mapping[str, str], *, size: int | None = None
    ) -> None:
        self.send_response_only(status)
        length = len(content) if isinstance(content, bytes) else size
        fixed = {**HEADERS, "Content-Security-Policy": self.server.policy}
        for name, value in {"Date": self.date_time_string(), **headers, **fixed}.items():
            self.send_header(name, value)
        if content is not None:
            self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD" or content is None:
            return
        if isinstance(content, bytes):
            self.wfile.write(content)
        else:
            with content.open("rb") as file:
                self.connection.sendfile(file, count=length)

    def _send_error(self, status: HTTPStatus, problem: str) -> None:
        allowed = {"Allow": "GET, HEAD"} if status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        headers = {"Cache-Control": "no-store", "Content-Type": "application/json", **allowed}
        self._send(status, json.dumps({"error": problem}).encode(), headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request, for the base class, and end the connection."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:  # what the base class says of unknown methods
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, f"there is no method {self.command}"
        self.close_connection = True
        self.request_version = self.protocol_version  # the base class sends no headers to HTTP/0.9
        self._send_error(status, message or status.phrase)

    def log_message(self, format: str, *args: object) -> None:
        """Keep no log."""


def accepts_gzip(header: str) -> bool:
    """Whether an Accept-Encoding header accepts gzip."""
    for part in header.lower().split(","):
        name, _, parameters = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return not re.fullmatch(r"q=0(\.0*)?", parameters.strip())
    return False


def matches(header: str, tag: str) -> bool:
    """Whether an If-None-Match header names the entity tag."""
    return any(part.strip().removeprefix("W/") in (tag, "*") for part in header.split(","))
