"""The budget of a run and the learning rate schedule (section 5.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heedful.config import TrainingConfig

PAPER_WARMUP = 4000
WARMUP_SHARE = 0.1


@dataclass
class TrainingProgress:
    """Steps, epochs, tokens and time so far; saved in checkpoints."""

    steps: int = 0
    epochs: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Budget:
    """Limits of a run; it stops at the first that is reached."""

    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, config: TrainingConfig) -> Budget:
        """The budget that the configuration sets."""
        return cls(config.steps, config.epochs, config.tokens, config.minutes)

    def num_steps(self, steps_in_epoch: float, tokens_per_step: int) -> float | None:
        """The approximate number of steps; None if only the time is limited."""
        limits = [
            self.steps,
            self.epochs * steps_in_epoch if self.epochs else None,
            self.tokens / tokens_per_step if self.tokens else None,
        ]
        return min((float(number) for number in limits if number), default=None)

    def fraction_used(self, progress: TrainingProgress) -> float:
        """The used fraction of the budget: 0 at the start, 1 or more at the end."""
        fractions = [
            progress.steps / self.steps if self.steps else 0.0,
            progress.epochs / self.epochs if self.epochs else 0.0,
            progress.tokens / self.tokens if self.tokens else 0.0,
            progress.seconds / (60 * self.minutes) if self.minutes else 0.0,
        ]
        return max(fractions)


@dataclass
class Schedule:
    """The learning rate at each step. Unless the budget is in steps, `warmup_steps` is set during the warm-up."""

    config: TrainingConfig
    d_model: int
    warmup_steps: int | None = None
    warmup_progress: float | None = None
    """The fraction of the budget used when the warm-up ended; cosine and linear decay from there."""

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
        # The formula's peak. A warm-up shortened by the budget keeps the peak of the paper's 4,000 steps.
        warmup = self.config.warmup_steps or PAPER_WARMUP
        return (self.config.learning_rate_factor or 1.0) * self.d_model**-0.5 * warmup**-0.5

    def rate(self, step: int, progress: float) -> float:
        """The learning rate of step number `step` (from 1), when the fraction `progress` of the budget is used."""
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
