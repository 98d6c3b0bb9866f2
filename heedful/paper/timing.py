"""Repeated timings that show whether other programs disturbed them.

Two signs: CPU time well below wall time, because the process waited for a processor, and repeats that disagree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

MIN_CPU_SHARE = 0.9
"""Below this ratio of CPU time to wall time, the machine counts as busy. On an idle one it is 1 per busy thread."""
MAX_EXPONENT_SPREAD = 0.2
"""Fitted exponents that differ by more than this between repeats are not reliable."""


@dataclass(frozen=True)
class Clock:
    """Functions that return the wall time and the CPU time of this process, in seconds."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class Timing:
    """The median time of a run, and CPU time divided by wall time over all runs."""

    seconds: float
    cpu_share: float


@dataclass
class CpuShare:
    """CPU time divided by wall time of a block; None until it ends."""

    value: float | None = None


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def time_runs(
    run: Callable[[], object], device: torch.device, *, min_seconds: float, clock: Clock | None = None
) -> Timing:
    """Time `run`: three warm-up runs, then at least five runs and at least `min_seconds` in total."""
    clock = clock or Clock()

    def timed() -> tuple[float, float]:
        synchronize(device)
        wall, cpu = clock.wall(), clock.cpu()
        run()
        synchronize(device)
        return clock.wall() - wall, clock.cpu() - cpu

    with torch.inference_mode():
        warm = min(timed()[0] for _ in range(3))
        runs: list[tuple[float, float]] = []
        while len(runs) < 5 or sum(wall for wall, _ in runs) < min(min_seconds, 100 * warm):
            runs.append(timed())
    walls = sorted(wall for wall, _ in runs)
    return Timing(walls[len(walls) // 2], sum(cpu for _, cpu in runs) / max(sum(walls), 1e-12))


@contextmanager
def measure_cpu_share(clock: Clock | None = None) -> Iterator[CpuShare]:
    """Measure CPU time divided by wall time inside the block."""
    clock, share = clock or Clock(), CpuShare()
    wall, cpu = clock.wall(), clock.cpu()
    try:
        yield share
    finally:
        share.value = (clock.cpu() - cpu) / max(clock.wall() - wall, 1e-12)


def is_busy(cpu_share: float | None) -> bool:
    """Whether other programs took the processor from timed work; None: unknown, as for work on a GPU."""
    return cpu_share is not None and cpu_share < MIN_CPU_SHARE


def spread(values: Sequence[float]) -> float:
    """The difference between the largest and the smallest value."""
    return max(values) - min(values)
