"""How many cores this process may use, and how the threads of torch wait on them."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux tells a container how much time of all cores it has: microseconds in a period, and the period."""


def usable_cores() -> int:
    """The cores that the system lets this process use, at most OMP_NUM_THREADS, at least one."""
    limits = [os.cpu_count() or 1, allowed_cores(), *quota(QUOTA)]
    wished = os.environ.get("OMP_NUM_THREADS", "")
    if wished.isdecimal():
        limits.append(int(wished))
    return max(1, min(limits))


WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What users set to say how the threads of OpenMP wait for each other."""


SPINS = "200"
"""How often GNU's OpenMP looks before a thread sleeps: some microseconds, as long as another needs for a small step."""


def suit_busy_machines(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let torch's threads sleep while they wait for each other, and be no more than the container's share of time.

    By default they spin for milliseconds, thousands of times a step. Where other programs want the cores too, the
    thread that is waited for then gets none. OpenMP reads this as torch is imported; what is set already stays.
    """
    if not any(name in environment for name in WAITING):
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
        environment["GOMP_SPINCOUNT"] = SPINS
    if "OMP_NUM_THREADS" not in environment and any(share < allowed_cores() for share in quota(QUOTA)):
        environment["OMP_NUM_THREADS"] = str(usable_cores())


def allowed_cores() -> int:
    """The cores on which the system may run this process."""
    if hasattr(os, "sched_getaffinity"):  # only Linux tells
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quota(path: Path) -> list[int]:
    """The cores that a container's share of time amounts to, rounded up; nothing where there is no limit."""
    try:
        share, period = map(int, path.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # ValueError: "max" is no limit
        return []
    return [-(-share // period)] if share > 0 and period > 0 else []
