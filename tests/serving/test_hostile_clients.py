"""Slow, endless, huge and malformed requests: they end, and others are served meanwhile."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heedful.serving.http_server import MAX_HEAD_BYTES
from tests.serving.running_server import RunningServer, running_server

POST = b"POST /api/v1/translate HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"text": "It is raining.", "source": "en", "target": "de"}).encode()
WHOLE = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    settings = {
        "header_seconds": 1.5,
        "body_seconds": 1.5,
        "response_seconds": 1.5,
        "keep_alive_seconds": 3,
        "max_connections": 60,
    }
    with running_server(tmp_path_factory.mktemp("server"), workers=1, **settings) as server:
        yield server


@pytest.fixture(autouse=True)
def others_are_served(server: RunningServer) -> Iterator[None]:
    """Around every test, another client translates; it must always succeed."""
    done, problems, count = threading.Event(), [], 0

    def translate() -> None:
        nonlocal count
        while count == 0 or not done.wait(0.05):
            answer = server.translate("It is raining.", source="en")
            count += 1
            if answer.status != 200:
                problems.append(answer)

    thread = threading.Thread(target=translate)
    thread.start()
    yield
    done.set()
    thread.join()
    assert problems == []
    assert count > 0
    assert server.metric("requests_total", '{route="/api/v1/translate",method="POST",status="500"}') == 0


def connect(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def drip(connection: socket.socket, data: bytes, pause: float) -> bytes:
    """Send a byte at a time until the server closes the connection; returns what it sent."""
    for index in range(len(data)):
        try:
            connection.sendall(data[index : index + 1])
        except OSError:
            break
        time.sleep(pause)
    return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def read_response(connection: socket.socket) -> bytes:
    """A response of the server's own interface, which ends with its JSON object."""
    received = b""
    while not received.endswith(b"}"):
        received += connection.recv(65536)
    return received


def status_of(received: bytes) -> int:
    return int(received.split()[1]) if received else 0


def memory(server: RunningServer) -> int:
    """Resident memory of the server process in megabytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) >> 10  # type: ignore[index]


def in_parallel(count: int, work: Callable[[], bytes]) -> list[bytes]:
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(work())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_slow_heads_are_cut_off(server: RunningServer) -> None:
    def attack() -> bytes:
        with connect(server) as connection:
            return drip(connection, POST + b"X-Long: " + b"a" * 1000, 0.1)

    assert in_parallel(20, attack) == [b""] * 20


def test_slow_heads_are_cut_off_on_kept_connections(server: RunningServer) -> None:
    with connect(server) as connection:
        connection.sendall(WHOLE)
        assert status_of(read_response(connection)) == 200
        assert drip(connection, POST + b"X-Long: " + b"a" * 1000, 0.1) == b""


def test_slow_bodies_are_cut_off(server: RunningServer) -> None:
    def attack() -> bytes:
        with connect(server) as connection:
            connection.sendall(POST + b"Content-Length: 10000\r\n\r\n")
            return drip(connection, b"{" * 1000, 0.1)

    assert in_parallel(20, attack) == [b""] * 20


def test_idle_connections_are_closed(server: RunningServer) -> None:
    with connect(server) as silent, connect(server) as kept:
        kept.sendall(WHOLE)
        assert status_of(read_response(kept)) == 200
        assert read_all(silent) == b""
        assert read_all(kept) == b""


def test_responses_that_nobody_reads_are_dropped(server: RunningServer) -> None:
    with connect(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: test\r\n\r\n" * 500)
        server.wait_until(lambda: server.metric("open_requests") > 1)
        server.wait_until(lambda: server.metric("open_requests") == 1)  # the one for the metrics
    assert server.metric("requests_total", '{route="/openapi.json",method="GET",status="200"}') < 500


def test_endless_chunks_are_refused(server: RunningServer) -> None:
    before = memory(server)

    def attack() -> bytes:
        with connect(server) as connection:
            connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            end = time.monotonic() + 10
            try:
                while time.monotonic() < end:
                    connection.sendall(chunk)
            except OSError:
                return b"closed"
            return b"still open"

    assert in_parallel(8, attack) == [b"closed"] * 8
    assert memory(server) < before + 50


def test_a_body_of_a_gigabyte_is_refused_before_it_is_read(server: RunningServer) -> None:
    before = memory(server)
    with connect(server) as connection:
        connection.sendall(POST + b"Content-Length: 1000000000\r\n\r\n" + b" " * 1000)
        assert status_of(connection.recv(65536)) == 413
    with connect(server) as connection:
        connection.sendall(POST + b"Content-Length: 1000000000\r\n\r\n")
        sent = 0
        try:
            while sent < 1_000_000_000:
                connection.sendall(b" " * 1_000_000)
                sent += 1_000_000
        except OSError:
            pass
    assert sent < 100_000_000
    assert memory(server) < before + 50


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n" + b"X: 1\r\n" * 100_000 + b"\r\n",
        b"GET /" + b"a" * (2 * MAX_HEAD_BYTES) + b" HTTP/1.1\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["headers", "path", "binary", "negative length", "two lengths", "chunk size", "tls"],
)
def test_malformed_requests_are_answered_or_closed(head: bytes, server: RunningServer) -> None:
    with connect(server) as connection:
        try:
            connection.sendall(head)
        except OSError:
            return
        assert status_of(read_all(connection)) in (0, 400, 431)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b'{"text": "\\ud800", "target": "de"}',
        b'{"text": 1e400, "target": "de"}',
        b'{"text": "a", "target": "de", "alternatives": ' + b"9" * 5000 + b"}",
        b'{"text": "a", "target": "de", "beam_size": -1}',
        b'{"text": "a", "target": "de", "beam_size": 9223372036854775808}',
        b'{"text": "a", "target": "de", "alternatives": NaN}',
        b'{"text": "' + b"a" * 6000 + b'", "target": "de"}',
        b'{"text": ' + json.dumps(["a"] * 51).encode() + b', "target": "de"}',
        b'{"text": {"a": 1}, "target": "de"}',
        b'{"text": "a", "target": "xx"}',
        b'{"text": "a", "source": "de", "target": "zh"}',
        b'{"text": "a", "source": "en", "target": "de", "prefix": "' + b"a" * 4000 + b'"}',
        b"\xff\xfe{",
        b"null",
        b"",
    ],
)
def test_bad_parameters_are_answered_400(body: bytes, server: RunningServer) -> None:
    answer = server.request("POST", "/api/v1/translate", body)
    assert answer.status == 400
    assert answer.json()["error"]["message"]


def test_pipelined_requests_are_answered_in_order(server: RunningServer) -> None:
    with connect(server) as connection:
        last = WHOLE.replace(b"Host: test", b"Host: test\r\nConnection: close")
        connection.sendall(WHOLE * 5 + last)
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200") == 6


def test_too_many_connections_are_closed_at_once(tmp_path: Path) -> None:
    with running_server(tmp_path, workers=1, max_connections=5) as server:
        held = [connect(server) for _ in range(5)]
        try:
            server.wait_until(lambda: is_closed(server))
        finally:
            for connection in held:
                connection.close()
        server.wait_until(lambda: not is_closed(server))


def is_closed(server: RunningServer) -> bool:
    """Whether the server closes a further connection."""
    with connect(server) as connection:
        try:
            connection.sendall(WHOLE)
            return not connection.recv(65536)
        except OSError:
            return True


def test_a_client_that_goes_away_costs_no_translation(tmp_path: Path) -> None:
    texts = json.dumps({"text": ["It is raining again in the old town. " * 60] * 50, "target": "de", "source": "en"})
    settings = {"workers": 1, "max_body_bytes": 1_000_000, "request_seconds": 60, "batch_tokens": 256}
    with running_server(tmp_path, **settings) as server:
        with connect(server) as connection:
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(texts) + texts.encode())
            server.wait_until(lambda: server.metric("queue_texts") > 0)
        server.wait_until(lambda: server.metric("texts_cancelled_total") > 30)
        assert server.metric("queue_texts") == 0
        assert server.translate("It is raining.", source="en").status == 200
