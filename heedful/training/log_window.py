"""The updates between two lines of the log, counted on the device so that nothing waits for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heedful.training.step import StepResult


@dataclass
class Window:
    """What has happened since the last line of the log, on the device until it is asked for."""

    loss_sum: Tensor
    counted_tokens: Tensor
    skipped: Tensor
    skipped_in_a_row: Tensor
    gradient_norm: Tensor
    learning_rate: float = 0.0
    steps: int = 0
    tokens: int = 0
    began: float = field(default_factory=time.perf_counter)

    @classmethod
    def open(cls, device: torch.device, skipped_in_a_row: Tensor | None = None) -> Window:
        """An empty window; the count of skips in a row goes on from the one before."""
        loss_sum, skipped, in_a_row, norm = torch.zeros(4, device=device).unbind()
        counted = torch.zeros((), dtype=torch.int64, device=device)
        return cls(loss_sum, counted, skipped, in_a_row if skipped_in_a_row is None else skipped_in_a_row, norm)

    def add(self, result: StepResult, num_tokens: int, learning_rate: float) -> None:
        """Count one update in, without waiting for the device."""
        self.loss_sum += torch.where(result.skipped, 0.0, result.loss_sum)
        self.counted_tokens += torch.where(result.skipped, 0, num_tokens)
        self.skipped += result.skipped
        self.skipped_in_a_row = (self.skipped_in_a_row + 1) * result.skipped
        self.gradient_norm, self.learning_rate = result.gradient_norm, learning_rate
        self.tokens += num_tokens
        self.steps += 1

    def tensors(self) -> dict[str, Tensor]:
        """All but the clock, so that a resumed run writes the line that the unbroken one would have written."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
