"""Training of small models inside an experiment, and means with intervals over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from heedful.build_model import Model
from heedful.data.batch import Batch
from heedful.errors import ConfigError
from heedful.training.loss import smoothed_cross_entropy

T_QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5 % quantiles of Student's t distribution by degrees of freedom."""

Observe = Callable[[int, Model, float], None]
"""Called after each backward pass with the step, the model with its gradients, and the loss of a token."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and half the width of its 95 % interval (None for a single seed)."""

    mean: float
    half_width: float | None

    def text(self, digits: int) -> str:
        """Such as `0.93 ± 0.02`."""
        mean = f"{self.mean:.{digits}f}"
        return mean if self.half_width is None else f"{mean} ± {self.half_width:.{digits}f}"


def estimate(values: Sequence[float]) -> Estimate:
    """The mean with a t interval; at most ten values."""
    count = len(values)
    if count == 1:
        return Estimate(values[0], None)
    half = T_QUANTILES[count - 1] * statistics.stdev(values) / math.sqrt(count)
    return Estimate(statistics.fmean(values), half)


def check_seeds(num_seeds: int) -> None:
    """Refuse a number of seeds for which there is no interval."""
    if not 1 <= num_seeds <= len(T_QUANTILES) + 1:
        raise ConfigError(f"--seeds must be from 1 to {len(T_QUANTILES) + 1}, not {num_seeds}.")


def check_steps(steps: int) -> None:
    """Refuse a number of updates below 1."""
    if steps < 1:
        raise ConfigError(f"--steps must be at least 1, not {steps}.")


def learning_rate_at(step: int, steps: int, peak: float) -> float:
    """Linear warm-up over a tenth of the steps, then a cosine to zero."""
    warmup = max(1, steps // 10)
    if step <= warmup:
        return peak * step / warmup
    return 0.5 * peak * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def train_small_model(
    model: Model,
    batches: Iterable[Batch],
    *,
    steps: int,
    learning_rate: float,
    label_smoothing: float = 0.0,
    observe: Observe = lambda step, model, loss: None,
) -> None:
    """Train on the first `steps` batches with Adam; leaves the model in evaluation mode."""
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    model.train()
    for step, batch in zip(range(1, steps + 1), batches, strict=False):
        optimizer.param_groups[0]["lr"] = learning_rate_at(step, steps, learning_rate)
        optimizer.zero_grad()
        logits = model(**batch.inputs)
        loss_sum, num_tokens = smoothed_cross_entropy(
            logits, batch.target_output, batch.target_segments, smoothing=label_smoothing
        )
        loss = loss_sum / num_tokens
        loss.backward()
        observe(step, model, loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()


def group_runs(runs: Iterable[Mapping[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Runs that agree in these keys, in the order of their first appearance."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(run[key] for key in keys), []).append(run)
    return groups
