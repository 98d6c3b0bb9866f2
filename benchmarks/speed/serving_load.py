"""Latency and throughput of translation servers with 1, 8, 64 and 256 clients that send single sentences.

    python benchmarks/speed/serving_load.py TEXT > benchmarks/results/serving_load_DATE_cpu.md

TEXT has one English sentence on each line. In each round every system runs with each number of clients; the clients are
another process, and each sends a sentence as soon as the previous one is answered. Every answer is compared with what
the same server answered to this sentence alone: one that is missing, wrong or belongs to another sentence is counted.
Under overload, with more clients than the queue takes, refused requests must be answered at once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common.run_metadata import run_metadata  # noqa: E402

CLIENTS = (1, 8, 64, 256)
WARM_UP = 2.0
OVERLOAD = {"max_queued_texts": "32", "max_queued_texts_per_client": "32"}
OVERLOAD_CLIENTS = 320
"""Ten times what the queue holds."""


@dataclass(frozen=True)
class System:
    """A server to measure."""

    name: str
    start: Callable[..., Iterator[int]]
    """A context manager that starts it with settings and yields its port."""
    path: str
    body: Callable[[str], dict[str, Any]]
    """The request for a sentence."""
    read: Callable[[Any], str]
    """The translation in a response."""


@contextmanager
def heedful_process(*arguments: str, **settings: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`heedful serve` with the bundled models: the process and its port."""
    variables = {f"HEEDFUL_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "heedful", "serve", "--port", "0", *arguments]
    environment = {**os.environ, **variables, "HEEDFUL_LOG_REQUESTS": "false"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    assert process.stdout is not None
    try:
        line = ""
        while "Try it" not in line:
            line = process.stdout.readline()
        found = re.search(r":(\d+)/", line)
        assert found
        yield process, int(found[1])
    finally:
        process.terminate()
        process.wait()


@contextmanager
def heedful(*arguments: str, **settings: str) -> Iterator[int]:
    """`heedful serve`: its port."""
    with heedful_process(*arguments, **settings) as (_, port):
        yield port


def heedful_with(*arguments: str) -> Callable[..., Any]:
    """`heedful` with these arguments."""
    return lambda **settings: heedful(*arguments, **settings)


def libretranslate_body(sentence: str) -> dict[str, Any]:
    return {"q": sentence, "source": "en", "target": "de"}


def libretranslate_text(answer: Any) -> str:
    return str(answer["translatedText"])


def heedful_system(name: str, *arguments: str) -> System:
    return System(name, heedful_with(*arguments), "/translate", libretranslate_body, libretranslate_text)


SYSTEMS = {
    "heedful": heedful_system("heedful"),
    "heedful --workers 1": heedful_system("heedful --workers 1", "--workers", "1"),
    "heedful --workers 2": heedful_system("heedful --workers 2", "--workers", "2"),
}
"""Another server needs an entry here; those that speak LibreTranslate's interface have the same body and answer."""


@dataclass
class Measured:
    """The requests of one system with one number of clients."""

    milliseconds: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    """Translations a second of each round."""
    statuses: dict[int, int] = field(default_factory=dict)
    wrong: int = 0
    refused_milliseconds: list[float] = field(default_factory=list)

    def add(self, found: dict[str, Any], expected: Sequence[str], read: Callable[[Any], str]) -> None:
        """Count the results of a round."""
        good = 0
        for index, status, milliseconds, body in found["results"]:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status == 200:
                good += 1
                self.milliseconds.append(milliseconds)
                self.wrong += bool(expected) and read(json.loads(body)) != expected[index]
            elif status == 429:
                self.refused_milliseconds.append(milliseconds)
        self.rates.append(good / found["seconds"])


def send(
    system: System, port: int, sentences: Sequence[str], clients: int, seconds: float, *, spread: float = 0.0
) -> dict[str, Any]:
    """Run clients in another process; they begin during `spread` seconds."""
    plan = {
        "host": "127.0.0.1",
        "port": port,
        "path": system.path,
        "clients": clients,
        "seconds": seconds,
        "spread": spread,
        "requests": [json.dumps(system.body(sentence)) for sentence in sentences],
    }
    script = ROOT / "benchmarks" / "speed" / "load_client.py"
    done = subprocess.run(
        [sys.executable, str(script)], input=json.dumps(plan), capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def translate_alone(system: System, port: int, sentences: Sequence[str]) -> list[str]:
    """The translation of each sentence, sent by a single client."""
    expected: dict[int, str] = {}
    while len(expected) < len(sentences):
        rest = [index for index in range(len(sentences)) if index not in expected]
        found = send(system, port, [sentences[index] for index in rest], 1, 5.0)
        for index, status, _, body in found["results"]:
            assert status == 200, body
            expected[rest[index]] = system.read(json.loads(body))
    return [expected[index] for index in range(len(sentences))]


def measure(
    systems: Sequence[System], sentences: Sequence[str], clients: Sequence[int], rounds: int, seconds: float
) -> dict[tuple[str, int], Measured]:
    """All systems, interleaved."""
    measured: dict[tuple[str, int], Measured] = {}
    expected: dict[str, list[str]] = {}
    for number in range(rounds):
        for system in systems:
            with system.start() as port:
                if system.name not in expected:
                    expected[system.name] = translate_alone(system, port, sentences)
                send(system, port, sentences, 8, WARM_UP)
                for count in clients:
                    found = send(system, port, sentences, count, seconds)
                    measured.setdefault((system.name, count), Measured()).add(found, expected[system.name], system.read)
                    print(f"round {number + 1}: {system.name}, {count} clients", file=sys.stderr)
    return measured


def measure_overload(sentences: Sequence[str], seconds: float) -> tuple[Measured, float]:
    """heedful with ten times the clients that its queue holds; and the seconds until it answers normally again."""
    system, measured = SYSTEMS["heedful"], Measured()
    with system.start(**OVERLOAD) as port:
        send(system, port, sentences, 8, WARM_UP)
        measured.add(send(system, port, sentences, OVERLOAD_CLIENTS, seconds, spread=1.0), [], system.read)
        started = time.perf_counter()
        while {status for _, status, *_ in send(system, port, sentences, 1, 0.1)["results"]} != {200}:
            pass
        return measured, time.perf_counter() - started


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile of some values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def report(measured: dict[tuple[str, int], Measured]) -> str:
    """The table of all systems."""
    lines = [
        "| system | clients | translations/s, median (range) | p50, ms | p95 | p99 | requests | failed | wrong |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (name, clients), one in sorted(measured.items(), key=lambda item: item[0][1]):
        rates = f"{statistics.median(one.rates):.0f} ({min(one.rates):.0f} – {max(one.rates):.0f})"
        latencies = " | ".join(f"{quantile(one.milliseconds, share):.0f}" for share in (0.5, 0.95, 0.99))
        total = sum(one.statuses.values())
        failed = total - one.statuses.get(200, 0)
        lines.append(f"| {name} | {clients} | {rates} | {latencies} | {total} | {failed} | {one.wrong} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--systems", nargs="*", choices=list(SYSTEMS), default=["heedful"])
    parser.add_argument("--clients", nargs="*", type=int, default=list(CLIENTS))
    options = parser.parse_args()
    sentences = [line.strip() for line in options.text.read_text(encoding="utf-8").splitlines() if line.strip()]
    sentences = sentences[: options.sentences]
    load_before = os.getloadavg()[0]
    measured = measure(
        [SYSTEMS[name] for name in options.systems], sentences, options.clients, options.rounds, options.seconds
    )
    overload, recovery = measure_overload(sentences, options.seconds)
    print(f"# A translation server under load, {time.strftime('%Y-%m-%d')}\n")
    words = statistics.mean(len(sentence.split()) for sentence in sentences)
    print(
        f"Single sentences of {words:.0f} words on average, English to German, on loopback; {options.rounds} rounds.\n"
    )
    print(report(measured))
    refused, accepted = overload.refused_milliseconds, overload.milliseconds
    print(
        f"\nOverload, {OVERLOAD_CLIENTS} clients and a queue for {OVERLOAD['max_queued_texts']} texts: "
        f"{len(accepted)} requests translated (p99 {quantile(accepted, 0.99):.0f} ms), {len(refused)} answered 429 "
        f"(p50 {quantile(refused, 0.5):.0f} ms, p99 {quantile(refused, 0.99):.0f} ms), "
        f"{sum(overload.statuses.values()) - len(accepted) - len(refused)} otherwise; the next requests were "
        f"translated after {recovery:.1f} s.\n"
    )
    print(f"The clients ran on the same cores. Load average of the machine before: {load_before:.1f}.\n")
    print(run_metadata(), end="")


if __name__ == "__main__":
    main()
