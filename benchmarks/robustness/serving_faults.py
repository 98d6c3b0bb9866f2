"""The server under hostile clients and faults: latency of the other clients, lost requests, seconds until it is back.

    python benchmarks/robustness/serving_faults.py TEXT > benchmarks/results/serving_faults_DATE_cpu.md

TEXT has one English sentence on each line. Eight clients send sentences, first undisturbed and then during each attack,
in turns; then engines are killed, the models are reloaded and the server is ended while clients send sentences. A
request is lost if it is not answered, or answered with another status than 200.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common.run_metadata import run_metadata  # noqa: E402
from benchmarks.speed.serving_load import SYSTEMS, heedful_process, quantile, send  # noqa: E402

SYSTEM = SYSTEMS["heedful"]
CLIENTS = 8
HEAD = b"POST /translate HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
CHUNK = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
Attack = Callable[[int, threading.Event], None]


def slow_heads(port: int, ended: threading.Event) -> None:
    """A hundred connections that send one byte of a head each second."""
    send_slowly(port, ended, HEAD + b"X-Long: " + b"a" * 10_000)


def slow_bodies(port: int, ended: threading.Event) -> None:
    """A hundred connections that send one byte of a body each second."""
    send_slowly(port, ended, b"{" * 10_000, first=HEAD + b"Content-Length: 10000\r\n\r\n")


def send_slowly(port: int, ended: threading.Event, data: bytes, first: bytes = b"") -> None:
    """Keep a hundred connections open; one that the server closes is opened again."""
    connections: list[tuple[socket.socket, int]] = []
    while not ended.wait(1.0):
        kept = []
        for connection, position in connections:
            try:
                connection.sendall(data[position : position + 1])
                kept.append((connection, position + 1))
            except OSError:
                connection.close()
        while len(kept) < 100:
            new = socket.create_connection(("127.0.0.1", port))
            new.sendall(first)
            kept.append((new, 0))
        connections = kept
    for connection, _ in connections:
        connection.close()


def endless_chunks(port: int, ended: threading.Event) -> None:
    """Ten times a second a body of chunks that does not end."""
    flood(port, ended, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", CHUNK)


def gigabytes(port: int, ended: threading.Event) -> None:
    """Ten times a second a body of a gigabyte."""
    flood(port, ended, HEAD + b"Content-Length: 1000000000\r\n\r\n", b" " * 0x10000)


def flood(port: int, ended: threading.Event, first: bytes, part: bytes) -> None:
    """Send parts until the server closes the connection, then begin again."""
    while not ended.wait(0.1):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            try:
                connection.sendall(first)
                while not ended.is_set():
                    connection.sendall(part)
            except OSError:
                pass


def bad_requests(port: int, ended: threading.Event) -> None:
    """A hundred times a second a request with deep JSON, half a surrogate pair, or a thousand fields too many."""
    bodies = [
        (b"application/json", b"[" * 100_000),
        (b"application/json", b'{"q": "\\ud800", "source": "en", "target": "de"}'),
        (b"application/x-www-form-urlencoded", b"&".join(b"q=%d" % number for number in range(20_000))),
    ]
    number = 0
    while not ended.wait(0.01):
        kind, body = bodies[number % 3]
        number += 1
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/translate", body, {"Content-Type": kind.decode()}, method="POST"
        )
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            error.close()


ATTACKS: dict[str, Attack] = {
    "slow heads, 100 connections": slow_heads,
    "slow bodies, 100 connections": slow_bodies,
    "endless chunks, 10 a second": endless_chunks,
    "bodies of 1 GB, 10 a second": gigabytes,
    "malformed requests, 100 a second": bad_requests,
}


@contextmanager
def attacked(attack: Attack | None, port: int) -> Iterator[None]:
    """Attack from another process."""
    if attack is None:
        yield
        return
    child = subprocess.Popen([sys.executable, __file__, "--attack", attack.__name__, str(port)])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def memory(process: int) -> int:
    """Resident memory in MB."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


def measure_attacks(sentences: Sequence[str], rounds: int, seconds: float) -> str:
    """A table with the latency of the other clients, undisturbed and during each attack."""
    attacks: dict[str, Attack | None] = {"none": None, **ATTACKS}
    latencies: dict[str, list[list[float]]] = {name: [] for name in attacks}
    lost, memories = dict.fromkeys(attacks, 0), dict.fromkeys(attacks, 0)
    with heedful_process() as (process, port):
        send(SYSTEM, port, sentences, CLIENTS, 2.0)
        for _ in range(rounds):
            for name, attack in attacks.items():
                with attacked(attack, port):
                    found = send(SYSTEM, port, sentences, CLIENTS, seconds)["results"]
                latencies[name].append([one[2] for one in found])
                lost[name] += sum(one[1] != 200 for one in found)
                memories[name] = max(memories[name], memory(process.pid))
    lines = ["| attack | p50 of the others, ms | p99 | lost | memory, MB |", "|---|---:|---:|---:|---:|"]
    for name, found in latencies.items():
        half, most = (statistics.median(quantile(one, share) for one in found) for share in (0.5, 0.99))
        lines.append(f"| {name} | {half:.0f} | {most:.0f} | {lost[name]} | {memories[name]} |")
    return "\n".join(lines)


def readiness(port: int) -> int:
    """The status of /readyz."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def seconds_until(port: int, status: int) -> float:
    """How long it takes until /readyz has a status."""
    started = time.perf_counter()
    while readiness(port) != status:
        time.sleep(0.005)
    return time.perf_counter() - started


@contextmanager
def under_load(sentences: Sequence[str], port: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Clients during the block; then `lost` and `answered` are known."""
    result: dict[str, Any] = {}
    load = threading.Thread(target=lambda: result.update(send(SYSTEM, port, sentences, CLIENTS, seconds)))
    load.start()
    time.sleep(1.0)
    yield result
    load.join()
    result["answered"] = sum(one[1] == 200 for one in result["results"])
    # a connection that is refused after the end of the server is no request
    result["lost"] = sum(one[1] != 200 and "Connect call failed" not in one[3] for one in result["results"])


def children(process: int) -> list[int]:
    """The ids of the engine processes."""
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()]


def measure_faults(sentences: Sequence[str], seconds: float) -> str:
    """A table with the faults."""
    lines = ["| fault | answered | lost | |", "|---|---:|---:|---|"]
    with heedful_process() as (process, port):
        with under_load(sentences, port, seconds) as load:
            times = []
            for _ in range(3):
                for victim in children(process.pid):
                    os.kill(victim, signal.SIGKILL)
                times.append((seconds_until(port, 503), seconds_until(port, 200)))
        gone, back = (max(one) for one in zip(*times, strict=True))
        note = f"not ready after {gone:.2f} s, ready again after another {back:.2f} s at most"
        lines.append(f"| all engines killed, 3 times | {load['answered']} | {load['lost']} | {note} |")
        with under_load(sentences, port, seconds) as load:
            for _ in range(3):
                before = set(children(process.pid))
                process.send_signal(signal.SIGHUP)
                while before & set(children(process.pid)):
                    time.sleep(0.02)
        lines.append(f"| models reloaded, 3 times | {load['answered']} | {load['lost']} | |")
        with under_load(sentences, port, seconds) as load:
            started = time.perf_counter()
            process.send_signal(signal.SIGTERM)
            code = process.wait()
            ended = time.perf_counter() - started
        lines.append(f"| SIGTERM | {load['answered']} | {load['lost']} | exit code {code} after {ended:.1f} s |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--attack", nargs=2, metavar=("NAME", "PORT"), help="attack a server and do nothing else")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    if options.attack:
        name, port = options.attack
        next(one for one in ATTACKS.values() if one.__name__ == name)(int(port), threading.Event())
        return
    if options.text is None:
        parser.error("name a text")
    lines = options.text.read_text(encoding="utf-8").splitlines()
    sentences = [line.strip() for line in lines if line.strip()][:200]
    load_before = os.getloadavg()[0]
    print(f"# Hostile clients and faults of a translation server, {time.strftime('%Y-%m-%d')}\n")
    print(f"{CLIENTS} clients send single sentences, English to German; medians of {options.rounds} rounds.\n")
    print(measure_attacks(sentences, options.rounds, options.seconds) + "\n")
    print(measure_faults(sentences, options.seconds) + "\n")
    print(f"Attackers and clients ran on the same cores. Load average of the machine before: {load_before:.1f}.\n")
    print(run_metadata(), end="")


if __name__ == "__main__":
    main()
