"""How long it takes from the start of a run to its first update, and what the time goes to."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class FirstStep:
    """When the first update of this run of the program was done; the parts sum to the whole."""

    step: int
    """Its number: 1, or that after the state from which the run goes on."""
    seconds: float
    parts: dict[str, float]
    """Seconds of each part, in order; what was not needed is not there."""

    def __str__(self) -> str:
        parts = ", ".join(f"{name.replace('_', ' ')} {seconds:.1f}" for name, seconds in self.parts.items())
        return f"The first step was done after {self.seconds:.1f} s: {parts}."


class Stopwatch:
    """Divides the time until the first update into parts: each lasts until the next is entered."""

    def __init__(self, part: str) -> None:
        self._parts: dict[str, float] = {}
        self._part, self._since = part, time.perf_counter()
        self.first_step: FirstStep | None = None

    def enter(self, part: str) -> None:
        """One part is over, another begins; a part may be entered again."""
        now = time.perf_counter()
        self._parts[self._part] = self._parts.get(self._part, 0.0) + now - self._since
        self._part, self._since = part, now

    def stop(self, step: int) -> FirstStep:
        """The first update is done."""
        self.enter("")
        parts = {name.replace(" ", "_"): round(seconds, 3) for name, seconds in self._parts.items()}
        self.first_step = FirstStep(step, round(sum(parts.values()), 3), parts)
        return self.first_step
