"""Translation speed on a CPU: every system in a separate process, interleaved. See `translate_speed.py`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.speed.translate_cpu_models import make_models
from benchmarks.speed.translate_cpu_systems import TARGET, Peer, Task, all_peers, installed
from heedful.config import Config

TASKS = [Task(1, 1), Task(1, 4), Task(32, 1), Task(32, 4), Task(512, 1), Task(512, 4)]
QUIET = 0.2
"""Seconds between two rounds, until the threads of the previous system stop busy waiting."""
STARTS = 5
"""Number of timed process starts for the time to the first translation, after one warm-up."""
SHORT, LONG, VERY_LONG = 0.5, 2.0, 4.0
"""Limits in seconds of a call: below the first, each round begins with a warm-up call, since the caches hold data of
the previous system; above the second, a call is made twice, above the third once."""


class Chosen(NamedTuple):
    """The systems to compare."""

    systems: list[str]
    """Names as in `translate_cpu_systems.py`, or all."""
    threads: int
    bergamot: str | None
    """A Python interpreter with Bergamot, if not this one."""


class Limits(NamedTuple):
    """Time limits."""

    rounds: int
    seconds: float
    """Seconds of a round."""
    longest: float
    """Seconds of a call; longer tasks are skipped and listed on the page."""


@dataclass
class Worker:
    """The process of a system and its measurements."""

    peer: Peer
    process: subprocess.Popen[str]
    start_up: float = 0.0
    memory: int = 0
    seconds: dict[Task, list[float]] = field(default_factory=dict)
    skipped: dict[Task, str] = field(default_factory=dict)

    def ask(self, task: Task, *, seconds: float, warm: bool) -> dict[str, Any]:
        """Run one round: the seconds of its calls, or an error."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({**task._asdict(), "seconds": seconds, "warm": warm}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": "its process ended"}

    def median(self, task: Task) -> float:
        return statistics.median(self.seconds[task])

    def expected(self, task: Task) -> float:
        """Estimated seconds of a call, from a smaller batch or beam; 0 if unknown."""
        smaller = [one for one in self.seconds if one.beam == task.beam and 1 < one.batch < task.batch]
        if smaller:
            return self.median(max(smaller)) * task.batch / max(smaller).batch
        greedy = Task(task.batch, 1)
        return self.median(greedy) * 2.5 if greedy in self.seconds else 0.0


@contextmanager
def workers_of(folder: Path, peers: dict[str, Peer], threads: int, bergamot: str) -> Iterator[list[Worker]]:
    """Start a process for each system; those that fail to start are reported and skipped."""
    workers: list[Worker] = []
    try:
        for name, peer in peers.items():
            write_progress(f"opening {peer.title}")
            python = bergamot if name == "bergamot" else sys.executable
            script = Path(__file__).with_name("translate_cpu_systems.py")
            worker = start([python, str(script), name, str(folder), str(threads)], peer, threads)
            if worker is not None:
                workers.append(worker)
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


def start(command: list[str], peer: Peer, threads: int) -> Worker | None:
    """Start a system's process; returns it after its first translation, with its memory after a batch of 32."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise only our modules would be compiled at each start
    times: list[float] = []
    with tempfile.TemporaryFile("w+") as complaints:
        while True:
            begin = time.perf_counter()
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True, env=environment
            )
            assert process.stdout is not None
            line = process.stdout.readline()
            times.append(time.perf_counter() - begin)
            if not line or len(times) > STARTS:
                break
            process.kill()
            process.wait()
            time.sleep(QUIET)
        worker = Worker(peer, process, start_up=statistics.median(times[1:] or times))
        found = worker.ask(Task(32, 1), seconds=0, warm=False) if line else {}
        if "seconds" in found:
            worker.memory = found["memory"]
            return worker
        process.kill()
        process.wait()
        complaints.seek(0)
        write_progress(f"{peer.title} does not start: {found.get('error', '')} {complaints.read()[-500:]}")
        return None


def measure(workers: list[Worker], tasks: list[Task], limits: Limits) -> None:
    """Run every task with every system, interleaved."""
    for task in tasks:
        write_progress(f"{task}")
        present = [worker for worker in workers if fits(worker, task, limits)]
        for _ in range(limits.rounds):
            for worker in present:
                spent = worker.seconds.get(task, [])
                if task in worker.skipped or has_enough_calls(spent):
                    continue
                time.sleep(QUIET)
                warm = min(spent) < SHORT if spent else worker.expected(task) < LONG
                found = worker.ask(task, seconds=limits.seconds, warm=warm)
                if "error" in found:
                    worker.skipped[task] = found["error"]
                    continue
                worker.seconds.setdefault(task, []).extend(found["seconds"])


def has_enough_calls(spent: list[float]) -> bool:
    """Whether a task has enough calls: long calls are repeated less often."""
    return bool(spent) and (min(spent) > VERY_LONG or (min(spent) > LONG and len(spent) > 1))


def fits(worker: Worker, task: Task, limits: Limits) -> bool:
    """Whether a system runs a task; if not, the reason is recorded."""
    expected = worker.expected(task)
    if task.beam > worker.peer.most_beams:
        worker.skipped[task] = "it has no beam search"
    elif expected > limits.longest:
        worker.skipped[task] = f"a call would take about {expected:.0f} s"
    return task not in worker.skipped


def write_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")


# ---------------------------------------------------------------------- reporting


def ours(workers: list[Worker], peer: Peer) -> Worker | None:
    """The reference for a system: the native engine, with a shortlist if the system has one."""
    native = {worker.peer.listed: worker for worker in workers if worker.peer.family.startswith("Heedful native")}
    return native.get(peer.listed, native.get(False))


def table(workers: list[Worker], tasks: list[Task]) -> str:
    """One row per task and system; ratios last."""
    lines = [
        "| task | system | tokens/s | ms per call, median | 99th percentile | calls | first translation, s "
        "| memory, MiB | Heedful is |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for task in tasks:
        for worker in (worker for worker in workers if worker.seconds.get(task)):
            times, median = sorted(worker.seconds[task]), worker.median(task)
            slow = times[min(len(times) - 1, int(0.99 * len(times)))]
            lines.append(
                f"| {task} | {worker.peer.title} | {task.batch * TARGET / median:,.0f} | {median * 1e3:,.1f} "
                f"| {slow * 1e3:,.1f} | {len(times)} | {worker.start_up:.2f} | {worker.memory / 2**20:,.0f} "
                f"| {ratio(median, ours(workers, worker.peer), task)} |"
            )
    return "\n".join(lines)


def comparison(workers: list[Worker], tasks: list[Task]) -> str:
    """The speed-up over each family of systems at its best settings."""
    others = {worker.peer.family: worker.peer for worker in workers if ours(workers, worker.peer) is not worker}
    lines = [f"| task | {' | '.join(others)} |", "|---|" + "---:|" * len(others)]
    for task in tasks:
        cells = []
        for family, peer in others.items():
            best = min((w.median(task) for w in workers if w.peer.family == family and w.seconds.get(task)), default=0)
            cells.append(ratio(best, ours(workers, peer), task))
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ratio(seconds: float, ours: Worker | None, task: Task) -> str:
    return f"{seconds / ours.median(task):.2f}×" if seconds and ours and ours.seconds.get(task) else "–"


def left_out(workers: list[Worker], tasks: list[Task]) -> str:
    """Skipped measurements and reasons."""
    lines = []
    for task in tasks:
        reasons = [f"{worker.peer.title} ({worker.skipped[task]})" for worker in workers if task in worker.skipped]
        if reasons:
            lines.append(f"- {task}, not measured: {', '.join(reasons)}")
    return "\n".join(lines)


def read_all(folder: Path) -> None:
    """Read every file once, so that it is in the page cache."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        path.read_bytes()


def page(folder: Path, config: Config, tasks: list[Task], chosen: Chosen, limits: Limits) -> str:
    """Create the models, measure all requested systems that are installed, and return the page."""
    known, threads = all_peers(chosen.threads), chosen.threads
    if unknown := set(chosen.systems) - {*known, "all"}:
        raise SystemExit(f"unknown systems: {', '.join(sorted(unknown))}; choose from all, {', '.join(known)}")
    asked = {name: peer for name, peer in known.items() if name in chosen.systems or chosen.systems == ["all"]}
    peers = {name: peer for name, peer in asked.items() if installed(peer) or (name == "bergamot" and chosen.bergamot)}
    absent = [asked[name].title for name in asked if name not in peers]
    before = os.getloadavg()[0]
    make_models(folder, config, peers)
    read_all(folder)
    with workers_of(folder, peers, threads, chosen.bergamot or sys.executable) as workers:
        measure(workers, tasks, limits)
        summary = [
            f"- peers: {', '.join(packages())}\n- {threads} threads per system; load average {before:.1f} before\n"
            f"- {limits.rounds} rounds of {limits.seconds} s; two calls if one takes over {LONG:.0f} s, "
            f"one if it takes over {VERY_LONG:.0f} s",
            table(workers, tasks),
            "Speed-up of Heedful over the best setting of each system, with a shortlist if the other has a map:",
            comparison(workers, tasks),
            left_out(workers, tasks),
            f"Not installed: {'; '.join(absent)}." if absent else "",
        ]
    return "\n\n".join(part for part in summary if part)


def packages() -> Iterator[str]:
    """Versions of the installed systems."""
    for name in ("ctranslate2", "transformers", "openvino", "optimum-intel"):
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"
