"""A real `heedful serve` process for the tests, and clients on real sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.process_pool import module_environment

SENTENCES = [
    "The children were playing in the garden when it suddenly began to rain.",
    "Where did you put the keys that I left on the kitchen table?",
    "She has lived in a small village near the sea for many years.",
    "It is raining again.",
    "Please send the contract back to us before Friday.",
    "Could you tell me what time the museum opens on Sundays?",
    "The train from Hamburg was two hours late.",
    "I have never seen such a beautiful picture.",
    "A man is riding a bicycle through the old town.",
    "We will meet again in September.",
]
LONG_WAIT = 60.0


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RunningServer:
    """A server process and its port."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path, token: str) -> None:
        self.process, self.port, self.log_file, self.token = process, port, log, token

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, timeout: float = 60
    ) -> Answer:
        """Send one request on its own connection; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            sent = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, path, data, {**sent, **(headers or {})})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def translate(self, text: str | Sequence[str], target: str = "de", **parameters: Any) -> Answer:
        """Translate with the server's own interface."""
        return self.request("POST", "/api/v1/translate", {"text": text, "target": target, **parameters})

    def metric(self, name: str, labels: str = "") -> float:
        """The value of a metric."""
        text = self.get("/metrics", headers={"Authorization": f"Bearer {self.token}"}).body.decode()
        found = re.search(rf"^heedful_{name}{re.escape(labels)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def engine_ids(self) -> list[int]:
        """The process ids of the engines."""
        return [
            int(one) for one in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def log(self) -> str:
        return self.log_file.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; fail if it does not come true."""
        end = time.monotonic() + LONG_WAIT
        while not condition():
            assert time.monotonic() < end, "this did not happen"
            time.sleep(0.02)

    def is_ready(self) -> bool:
        return self.get("/readyz").status == 200


@contextmanager
def running_server(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[RunningServer]:
    """Start a server with these settings and end it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEEDFUL_")}
    variables = {f"HEEDFUL_{name.upper()}": str(value) for name, value in {"port": 0, **settings}.items()}
    log = folder / "server.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "heedful", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**inherited, "PYTHONPATH": module_environment()["PYTHONPATH"], **variables, **(environment or {})},
        )
    try:
        assert process.stdout is not None
        banner = ""
        while "Try it" not in banner:
            line = process.stdout.readline()
            assert line, f"the server did not start: {log.read_text()}"
            banner += line
        found = re.search(r"http://\S+?:(\d+)/", banner)
        assert found
        yield RunningServer(process, int(found[1]), log, settings.get("operations_token", ""))
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Connection:
    """An asyncio client connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: Any) -> Answer:
        """Send JSON and read the answer."""
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        self.writer.write(f"{head}\r\n\r\n".encode() + data)
        await self.writer.drain()
        return await self.read()

    async def read(self) -> Answer:
        """Read one response with a length."""
        assert self.reader is not None
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return Answer(int(lines[0].split()[1]), headers, body)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    async def closed(self) -> None:
        """Close the connection and wait for its end."""
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.close()
            await writer.wait_closed()


class Load:
    """Clients that translate sentences one after another until `stop`, and everything they received."""

    def __init__(self, port: int, num_clients: int) -> None:
        self.port, self.num_clients = port, num_clients
        self.results: list[tuple[str, int, str]] = []
        """The sentence, the status and the translation of each request."""
        self.refused = 0
        """Connections that the server did not accept."""
        self.lost: list[str] = []
        """Requests on accepted connections that were not answered."""
        self.stopped = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._client(number)) for number in range(self.num_clients)]

    async def stop(self) -> None:
        self.stopped = True
        await asyncio.gather(*self._tasks)

    async def wait_for(self, count: int) -> None:
        """Wait until this many more requests were answered."""
        wanted = len(self.results) + count
        async with asyncio.timeout(LONG_WAIT):
            while len(self.results) < wanted:
                await asyncio.sleep(0.01)

    async def _client(self, number: int) -> None:
        connection, position = Connection(self.port), number
        while not self.stopped:
            sentence = SENTENCES[position % len(SENTENCES)]
            position += 1
            is_new = connection.writer is None or connection.writer.is_closing()
            if is_new:
                try:
                    connection.reader, connection.writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    self.refused += 1
                    return
            try:
                answer = await connection.post("/api/v1/translate", {"text": sentence, "source": "en", "target": "de"})
            except (OSError, asyncio.IncompleteReadError) as error:
                self.lost.append(f"{type(error).__name__} on a {'new' if is_new else 'kept'} connection")
                connection.close()
                return
            translated = answer.json()["text"] if answer.status == 200 else answer.body.decode()
            self.results.append((sentence, answer.status, translated))
        connection.close()
