"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux tells a container how much time of all cores it has: microseconds in a period, and the period."""


def usable_cores() -> int:
    """The cores that the system lets this process use, at most OMP_NUM_THREADS, at least one."""
    limits = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):  # only Linux tells
        limits.append(len(os.sched_getaffinity(0)))
    limits += quota(QUOTA)
    wished = os.environ.get("OMP_NUM_THREADS", "")
    if wished.isdecimal():
        limits.append(int(wished))
    return max(1, min(limits))


def quota(path: Path) -> list[int]:
    """The cores that a container's share of time amounts to, rounded up; nothing where there is no limit."""
    try:
        share, period = map(int, path.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # ValueError: "max" is no limit
        return []
    return [-(-share // period)] if share > 0 and period > 0 else []
