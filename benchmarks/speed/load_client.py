"""Clients of a translation server, in a process of their own: each sends one sentence after another and waits for each.

Reads {"host", "port", "path", "clients", "seconds", "requests": [bodies]} as JSON from stdin and writes the results as
JSON to stdout: for every request its number in the list, the status, the milliseconds and the body of the answer.
Client n of N begins at another place in the list, so that no two send the same sentence at the same time. A client that
is refused waits as long as the Retry-After header says. With "spread", the clients begin during so many seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

BUFFER = 1 << 20


class Connection(asyncio.Protocol):
    """A connection that is kept open; `exchange` sends a request and returns status and body."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.retry_after = 0
        """Seconds to wait before the next request, as the last response says."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0 or self.answer is None:
            return
        head = bytes(self.received[:end]).lower()
        position = head.find(b"content-length:")
        size = int(head[position + 15 :].split(b"\r\n", 1)[0])
        if len(self.received) < end + 4 + size:
            return
        body = bytes(self.received[end + 4 : end + 4 + size])
        del self.received[: end + 4 + size]
        answer, self.answer = self.answer, None
        position = head.find(b"retry-after:")
        self.retry_after = 0 if position < 0 else int(head[position + 12 :].split(b"\r\n", 1)[0])
        answer.set_result((int(head[9:12]), body))
        if b"connection: close" in head and self.transport is not None:
            self.transport.close()
            self.transport = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError("the connection ended before the answer"))


async def client(plan: dict[str, Any], number: int, end: float, results: list[Any]) -> None:
    """Send requests until the time is over."""
    loop = asyncio.get_running_loop()
    requests, connection = plan["requests"], None
    index = number * len(requests) // plan["clients"]
    await asyncio.sleep(number / plan["clients"] * plan.get("spread", 0.0))
    while time.perf_counter() < end:
        body = requests[index].encode()
        head = (
            f"POST {plan['path']} HTTP/1.1\r\nHost: {plan['host']}:{plan['port']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        started = time.perf_counter()
        try:
            if connection is None or connection.transport is None:
                _, connection = await loop.create_connection(Connection, plan["host"], plan["port"])
            connection.answer = loop.create_future()
            connection.transport.write(head.encode() + body)
            status, answer = await connection.answer
        except OSError as error:
            status, answer, connection = 0, str(error).encode(), None
        milliseconds = (time.perf_counter() - started) * 1000
        results.append([index, status, milliseconds, answer.decode("utf-8", errors="replace")])
        index = (index + 1) % len(requests)
        if connection is not None and connection.retry_after:
            await asyncio.sleep(min(connection.retry_after, max(end - time.perf_counter(), 0)))


async def run(plan: dict[str, Any]) -> dict[str, Any]:
    """Run all clients."""
    results: list[Any] = []
    started = time.perf_counter()
    end = started + plan["seconds"]
    await asyncio.gather(*(client(plan, number, end, results) for number in range(plan["clients"])))
    return {"seconds": time.perf_counter() - started, "results": results}


if __name__ == "__main__":
    json.dump(asyncio.run(run(json.load(sys.stdin))), sys.stdout)
