"""The number of CPU cores that this process may use, and how OpenMP threads wait."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""The CPU limit of a container on Linux: microseconds of CPU time in a period, and the period."""


def usable_cores() -> int:
    """The number of cores that this process may use, limited by OMP_NUM_THREADS; at least one."""
    limits = [os.cpu_count() or 1, allowed_cores(), *container_limit(CGROUP_LIMIT)]
    num_threads = os.environ.get("OMP_NUM_THREADS", "")
    if num_threads.isdecimal():
        limits.append(int(num_threads))
    return max(1, min(limits))


WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""The environment variables that control how OpenMP threads wait."""


SPIN_COUNT = "200"
"""Spins before a thread of GNU OpenMP sleeps: a few microseconds, which small operations take."""


def configure_openmp(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let OpenMP threads sleep while they wait, and limit their number to the CPU limit of the container.

    By default they spin for milliseconds, thousands of times in a training step, and if other programs are running,
    they take the cores from the thread they wait for. Must be called before torch is imported, since OpenMP reads the
    variables then. Variables that are already set are not changed.
    """
    if not any(name in environment for name in WAIT_VARIABLES):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT
    if "OMP_NUM_THREADS" not in environment and any(limit < allowed_cores() for limit in container_limit(CGROUP_LIMIT)):
        environment["OMP_NUM_THREADS"] = str(usable_cores())


def allowed_cores() -> int:
    """The number of cores on which the operating system may run this process."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def container_limit(path: Path) -> list[int]:
    """The limit in `path` as a number of cores, rounded up; an empty list without a limit."""
    try:
        microseconds, period = map(int, path.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # ValueError: "max" means no limit
        return []
    return [-(-microseconds // period)] if microseconds > 0 and period > 0 else []
