"""Synthetic tasks on digits (copy, reverse, sort): batches, a short training loop, and accuracy by length."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from heedful.build_model import Model, build_model
from heedful.config import DecodingConfig, ModelConfig, TrainingConfig
from heedful.config_loading import from_mapping
from heedful.data.packing import Batch
from heedful.decoding.constraints import SpecialTokens
from heedful.decoding.search import greedy_search
from heedful.errors import ConfigError
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.optimizer import Schedule
from heedful.training.step import TrainingStep

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


@contextmanager
def single_thread(device: torch.device) -> Iterator[None]:
    """Compute with one thread on a CPU: the operations of tiny models are too short to divide.

    Several threads wait for each other at every operation; on busy cores that took six times as long.
    """
    num_threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


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


PAD_ID, BOS_ID, EOS_ID, FIRST_DIGIT = 0, 1, 2, 3
VOCAB_SIZE = FIRST_DIGIT + 10
SPECIAL = SpecialTokens(bos_id=BOS_ID, eos_id=EOS_ID, pad_id=PAD_ID)

TASKS: dict[str, Callable[[Sequence[int]], list[int]]] = {
    "copy": lambda digits: list(digits),
    "reverse": lambda digits: list(reversed(digits)),
    "sort": sorted,
}
"""Name of a task -> the target of a source of digits."""

ReportProgress = Callable[[str, int, int | None], None]
"""(what is being trained, updates done since the last call, all updates)."""


@dataclass(frozen=True)
class SyntheticTraining:
    """How a small model is trained on a task. Everything depends on the seed alone."""

    task: str = "copy"
    steps: int = 500
    seed: int = 1
    min_length: int = 1
    max_length: int = 20
    length_spread: int = 3
    """The pairs of a batch differ in length by at most this."""
    pairs_per_batch: int = 32
    learning_rate: float = 2e-3


@dataclass
class TrainedModel:
    """A trained model and its training losses (nats per token), one for each update."""

    model: Model
    losses: list[float] = field(default_factory=list)


def small_config(**changes: Any) -> ModelConfig:
    """A Transformer of two layers with d_model 64 over digits, with the given fields changed."""
    defaults = {
        "source_vocab_size": VOCAB_SIZE,
        "target_vocab_size": VOCAB_SIZE,
        "d_model": 64,
        "d_ff": 128,
        "num_heads": 4,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "dropout": 0.0,
    }
    return from_mapping(ModelConfig, {**defaults, **changes})


def draw_digits(generator: random.Random, settings: SyntheticTraining) -> list[list[int]]:
    """The sources of one batch: digits, all of similar length."""
    longest = generator.randint(settings.min_length, settings.max_length)
    shortest = max(settings.min_length, longest - settings.length_spread)
    lengths = [generator.randint(shortest, longest) for _ in range(settings.pairs_per_batch)]
    return [[generator.randrange(10) for _ in range(length)] for length in lengths]


def make_batch(task: str, sources: Sequence[Sequence[int]]) -> Batch:
    """One pair per row, padded to the longest source, each side with its special tokens."""
    width = max(map(len, sources)) + 1
    targets = [TASKS[task](source) for source in sources]

    def rows(digits: Sequence[Sequence[int]], before: list[int], after: list[int]) -> Tensor:
        ids = [[*before, *(FIRST_DIGIT + digit for digit in row), *after] for row in digits]
        return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in ids])

    source = rows(sources, [], [EOS_ID])
    segments = (source != PAD_ID).long()
    positions = torch.arange(width).expand_as(source).contiguous()
    target_input, target_output = rows(targets, [BOS_ID], []), rows(targets, [], [EOS_ID])
    return Batch(source, segments, positions, target_input, target_output, segments, positions)


def train_on_task(
    config: ModelConfig,
    settings: SyntheticTraining,
    *,
    device: torch.device | None = None,
    report: ReportProgress | None = None,
    name: str = "",
) -> TrainedModel:
    """Train a new model; initial weights and data depend on the seed alone."""
    device = device or torch.device("cpu")
    torch.manual_seed(settings.seed)
    model = build_model(config).to(device)
    training = TrainingConfig(
        steps=settings.steps,
        warmup_steps=max(1, settings.steps // 6),
        learning_rate=settings.learning_rate,
        schedule="cosine",
        label_smoothing=0.0,
        clip_norm=1.0,
        compile=False,
        precision="fp32",
    )
    update, schedule = TrainingStep(model, training, device), Schedule(training, config.d_model)
    generator = random.Random(settings.seed)
    trained = TrainedModel(model)
    model.train()
    for step in range(1, settings.steps + 1):
        batch = make_batch(settings.task, draw_digits(generator, settings))
        result = update(batch, batch.num_tokens, schedule.rate(step, (step - 1) / settings.steps))
        trained.losses.append(result.loss_sum.item() / batch.num_tokens)
        if report is not None:
            report(name or settings.task, 1, settings.steps)
    model.eval()
    return trained


@dataclass(frozen=True)
class Accuracy:
    """Greedy search on sources of one length."""

    length: int
    exact: float
    """Share of outputs that are entirely correct."""
    tokens: float
    """Share of target tokens, including the end token, that are correct at their position."""


@torch.inference_mode()
def accuracy(
    model: Model, task: str, length: int, *, num_pairs: int = 100, seed: int = 0, device: torch.device | None = None
) -> Accuracy:
    """Translate new sources of one length by greedy search and compare with the correct targets."""
    generator = random.Random(f"{seed} {length}")
    sources = [[generator.randrange(10) for _ in range(length)] for _ in range(num_pairs)]
    batch = make_batch(task, sources).to(device or torch.device("cpu"))
    hypotheses = greedy_search(
        model,
        batch.source,
        batch.source_segments > 0,
        DecodingConfig(method="greedy"),
        SPECIAL,
        max_lengths=[length + 5] * num_pairs,
    )
    right_tokens = right_rows = 0
    for (best, *_), target in zip(hypotheses, batch.target_output.tolist(), strict=True):
        right_rows += best.tokens == target
        right_tokens += sum(ours == theirs for ours, theirs in zip(best.tokens, target, strict=False))
    return Accuracy(length, right_rows / num_pairs, right_tokens / (num_pairs * (length + 1)))


def token_loss(model: nn.Module, task: str, sources: Sequence[Sequence[int]]) -> float:
    """Mean negative log-likelihood of a target token (nats) under teacher forcing."""
    from heedful.training.loss import smoothed_cross_entropy

    batch = make_batch(task, sources)
    with torch.inference_mode():
        logits = model(**batch.inputs)
        loss = smoothed_cross_entropy(logits, batch.target_output, batch.target_segments, smoothing=0.0)
    return float(loss.loss_sum / loss.num_tokens)
