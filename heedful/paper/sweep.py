"""Run many training runs as worker processes, several in parallel, with a progress display.

Knows only directories and commands; the experiment defines the runs and reads their results.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.process_pool import start_module

if TYPE_CHECKING:
    from rich.console import RenderableType

    from heedful.console import Console

SECONDS_BETWEEN_LOOKS = 0.2
TAIL_LINES = 12
MAX_JOBS = 8


@dataclass(frozen=True)
class Job:
    """One run: its label, its directory, and the module that runs it."""

    label: str
    directory: Path
    module: str
    events: Path
    """The event log, one JSON object per line, with steps and losses."""
    log: Path
    """Output of the process."""


@dataclass(frozen=True)
class Ended:
    """A finished run: its exit code (negative: the signal that ended it) and its duration."""

    job: Job
    code: int
    seconds: float


@dataclass
class Sweep:
    """Run jobs in order, `num_parallel` in parallel; a signal stops all of them."""

    jobs: Sequence[Job]
    num_parallel: int
    console: Console
    num_before: int = 0
    """Number of runs finished earlier, included in the count."""
    stopped_by: str | None = None
    _running: dict[subprocess.Popen[bytes], tuple[Job, float]] = field(default_factory=dict)
    _signals: int = 0
    _passed_on: dict[subprocess.Popen[bytes], int] = field(default_factory=dict)

    def run(self, finished: Callable[[Ended, int], None]) -> None:
        """Run all jobs; `finished` is called for each finished run with its number. Stops on a signal."""
        waiting, number = list(self.jobs), self.num_before
        total = self.num_before + len(waiting)
        with self._watched_signals(), self._display(total) as show:
            try:
                while waiting or self._running:
                    while waiting and len(self._running) < self.num_parallel and self.stopped_by is None:
                        self._start(waiting.pop(0))
                    for ended in self._collect():
                        number += 1
                        if self.stopped_by is None:
                            finished(ended, number)
                    if self.stopped_by is not None:
                        waiting.clear()
                        self._pass_on()
                    show(number, [job for job, _ in self._running.values()])
                    time.sleep(SECONDS_BETWEEN_LOOKS)
            finally:
                for process in self._running:  # only after an error: workers never outlive the sweep
                    process.terminate()

    def _start(self, job: Job) -> None:
        threads = str(threads_per_job(self.num_parallel, os.environ.get("OMP_NUM_THREADS", "")))
        environment = {"OMP_NUM_THREADS": threads, "TORCHINDUCTOR_COMPILE_THREADS": threads}
        with job.log.open("ab") as log:  # a new session: Ctrl-C reaches it only through this process
            process = start_module(
                job.module,
                str(job.directory),
                environment=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running[process] = (job, time.monotonic())

    def _collect(self) -> Iterator[Ended]:
        for process in [one for one in self._running if one.poll() is not None]:
            job, began = self._running.pop(process)
            yield Ended(job, process.returncode, time.monotonic() - began)

    def _pass_on(self) -> None:
        for process in self._running:
            if self._passed_on.get(process, 0) < self._signals:
                self._passed_on[process] = self._signals
                process.send_signal(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    @contextmanager
    def _watched_signals(self) -> Iterator[None]:
        """Forward Ctrl-C and SIGTERM as SIGTERM, on which runs save and stop; a second signal kills them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: object) -> None:
            self._signals += 1
            self.stopped_by = signal.Signals(number).name

        earlier = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for kind, handler in earlier.items():
                signal.signal(kind, handler)

    @contextmanager
    def _display(self, total: int) -> Iterator[Callable[[int, Sequence[Job]], None]]:
        """On a terminal, a bar of finished runs with the remaining time, and a line for each active run."""
        if not self.console.is_terminal:
            yield lambda number, running: None
            return
        from rich.console import Group
        from rich.live import Live

        bar = self.console.progress("runs", "bar", "count", "remaining", "left", speed_estimate_period=24 * 3600)
        task = bar.add_task("", total=total, completed=self.num_before)
        with Live(bar, console=self.console.rich, transient=True, refresh_per_second=4) as live:

            def show(number: int, running: Sequence[Job]) -> None:
                bar.update(task, completed=number)
                live.update(Group(bar, progress_table(running)))

            yield show


def progress_table(jobs: Sequence[Job]) -> RenderableType:
    """A line for each run: its progress and loss."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for job in jobs:
        last = last_event(job.events)
        far = f"step {last['step']:,}  {min(1, last['progress']):.0%}" if last else "starting"
        table.add_row(job.label, far, f"loss {last['loss']:.3f}" if last and last["loss"] is not None else "")
    return table


def last_event(path: Path) -> dict[str, Any] | None:
    """The last training event of a log that may be being written."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "train":
            return event
    return None


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The end of a text file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(line for line in text.rstrip().split("\n")[-lines:])


def threads_per_job(num_parallel: int, limit: str) -> int:
    """CPU threads per run: an equal share of the cores, at most OMP_NUM_THREADS."""
    share = max(1, (os.cpu_count() or 1) // num_parallel)
    return min(share, max(1, int(limit))) if limit.isdigit() else share


def default_jobs(device_type: str) -> int:
    """Default number of parallel runs: on a GPU one per two cores, at most eight; on a CPU one."""
    return 1 if device_type == "cpu" else max(1, min(MAX_JOBS, (os.cpu_count() or 1) // 2))
