"""How long to train and how fast: the budget, and the course of the learning rate (section 5.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heedful.config import TrainingConfig

PAPER_WARMUP = 4000
WARMUP_SHARE = 0.1


@dataclass
class Spent:
    """What a run has used up so far; saved with its state, so that a resumed run goes on counting."""

    steps: int = 0
    epochs: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Budget:
    """When to stop: whichever of the limits that are set is reached first."""

    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, config: TrainingConfig) -> Budget:
        """The budget that the configuration sets."""
        return cls(config.steps, config.epochs, config.tokens, config.minutes)

    def updates(self, steps_in_epoch: float, tokens_per_step: int) -> float | None:
        """About how many updates it is good for; None if it is in minutes alone."""
        found = [
            self.steps,
            self.epochs * steps_in_epoch if self.epochs else None,
            self.tokens / tokens_per_step if self.tokens else None,
        ]
        return min((float(number) for number in found if number), default=None)

    def progress(self, spent: Spent) -> float:
        """How much of the budget is used: 0 at the start, 1 or more at the end."""
        shares = [
            spent.steps / self.steps if self.steps else 0.0,
            spent.epochs / self.epochs if self.epochs else 0.0,
            spent.tokens / self.tokens if self.tokens else 0.0,
            spent.seconds / (60 * self.minutes) if self.minutes else 0.0,
        ]
        return max(shares)


@dataclass
class Schedule:
    """The learning rate at each step. `warmup_steps` may be found out on the way, when the budget is not in steps."""

    config: TrainingConfig
    d_model: int
    warmup_steps: int | None = None
    warmup_progress: float | None = None
    """How much of the budget was used when the warm-up ended; cosine and linear fall from there."""

    def __post_init__(self) -> None:
        if self.warmup_steps is None:
            self.warmup_steps = self.config.warmup_steps
        others = (self.config.epochs, self.config.tokens, self.config.minutes)
        if self.warmup_steps is None and self.config.steps is not None and not any(others):
            self.warmup_steps = max(1, min(PAPER_WARMUP, round(WARMUP_SHARE * self.config.steps)))
        if self.warmup_steps is not None and self.config.steps is not None and not any(others):
            self.warmup_progress = min(1.0, self.warmup_steps / self.config.steps)

    @property
    def peak(self) -> float:
        """The highest learning rate, reached at the end of the warm-up."""
        if self.config.learning_rate is not None:
            return self.config.learning_rate
        if self.config.schedule != "paper":
            return 5e-4
        # The formula's peak. A warm-up cut short by the budget keeps the peak of the paper's 4,000 steps.
        warmup = self.config.warmup_steps or PAPER_WARMUP
        return (self.config.learning_rate_factor or 1.0) * self.d_model**-0.5 * warmup**-0.5

    def rate(self, step: int, progress: float) -> float:
        """The learning rate of update number `step` (from 1), `progress` of the budget being used."""
        if self.warmup_steps is None and (step >= PAPER_WARMUP or progress >= WARMUP_SHARE):
            self.warmup_steps = max(1, step)
        if self.warmup_steps is None:
            return self.peak * max(step / PAPER_WARMUP, progress / WARMUP_SHARE, 1e-3)
        if step <= self.warmup_steps:
            return self.peak * step / self.warmup_steps
        if self.config.schedule in ("paper", "inverse_sqrt"):
            return self.peak * math.sqrt(self.warmup_steps / step)
        if self.config.schedule == "constant":
            return self.peak
        if self.warmup_progress is None:
            self.warmup_progress = progress
        remaining = max(0.0, 1.0 - progress) / max(1e-9, 1.0 - self.warmup_progress)
        if self.config.schedule == "cosine":
            remaining = 0.5 * (1 - math.cos(math.pi * remaining))
        return self.peak * (
            self.config.final_learning_rate_ratio + (1 - self.config.final_learning_rate_ratio) * remaining
        )
