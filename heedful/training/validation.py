"""Validation: the loss on held-out pairs, how often it is computed, and the best result so far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.data.packing import Batch
from heedful.training.distributed import World
from heedful.training.loss import smoothed_cross_entropy

MAX_TIME_SHARE = 0.1
"""Maximum fraction of a run for validations, unless `validate_every` is set."""
TRAINING_COST = 3.0
"""Cost of a token in training, forward and backward, relative to a token in the forward pass."""
DECODING_COST = {"cpu": 8.0}
"""The same for a token of a translation, by type of device; tokens are generated one after the other."""
DEFAULT_DECODING_COST = 50.0
"""On a GPU, which such small steps hardly use."""


@dataclass(frozen=True)
class ValidationWork:
    """The work of one validation. It is counted, not measured, so that a run is the same on every machine."""

    num_tokens: int = 0
    """Target tokens whose loss is computed."""
    num_translated: int = 0
    """Target tokens of the sentences that are translated for BLEU."""

    def max_validations(self, num_steps: float, tokens_per_step: int, device_type: str, num_ranks: int) -> float:
        """How many validations take `MAX_TIME_SHARE` of a run of that many steps."""
        decoding = DECODING_COST.get(device_type, DEFAULT_DECODING_COST) * self.num_translated
        cost = self.num_tokens + decoding * num_ranks  # only rank 0 translates; the others wait
        return MAX_TIME_SHARE * TRAINING_COST * tokens_per_step * num_steps / cost if cost else math.inf


@torch.no_grad()
def validate(
    model: nn.Module,
    batches: Iterator[Batch],
    device: torch.device,
    *,
    bf16: bool,
    world: World | None = None,
    max_rows: int | None = None,
) -> float:
    """Mean negative log-likelihood of a target token. Each rank computes its rows, and the sums are added.

    At most `max_rows` rows at a time go through the model.
    """
    model.eval()
    losses: list[Tensor] = []
    num_tokens = 0
    for batch in batches:
        num_tokens += batch.num_tokens
        if device.type == "cpu" and (world is None or world.size == 1):  # elsewhere all batches have one shape
            num_used = int((batch.target_segments > 0).any(dim=1).sum())
            batch = batch.rows(0, max(1, num_used))
        rows_per_pass = max_rows or batch.num_rows
        for start in range(0, batch.num_rows, rows_per_pass):
            part = batch.rows(start, min(start + rows_per_pass, batch.num_rows)).to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                logits = model(**part.inputs)
            loss = smoothed_cross_entropy(logits, part.target_output, part.target_segments, smoothing=0.0)
            losses.append(loss.loss_sum)
            del logits  # free its memory before the next part
    sums = [math.fsum(loss.item() for loss in losses), float(num_tokens)]
    if world is not None and world.size > 1:
        sums = world.all_reduce_sum(torch.tensor(sums, dtype=torch.float64, device=device)).tolist()
    return sums[0] / max(1, sums[1])


@dataclass(frozen=True)
class PerplexityReport:
    """How the loss of a model on valid is reported as a perplexity."""

    name: str = "perplexity"
    """Also in the summary of the run, for a language model."""
    tokens_per_character: float | None = None
    """Of valid, where each line ends with a line break; None: no perplexity of a character is reported."""
    is_summarised: bool = False
    """Whether the model card states the perplexity."""

    def of_character(self, loss: float) -> float | None:
        """The perplexity of a character for this loss of a token: both are of the same text."""
        share = self.tokens_per_character
        return None if share is None else math.exp(min(loss * share, 50.0))

    def summary(self, loss: float | None) -> dict[str, float | None]:
        """The perplexities for the model card."""
        if loss is None or not self.is_summarised:
            return {}
        name = f"valid_{self.name.replace(' ', '_')}"
        return {name: math.exp(min(loss, 50.0)), "valid_character_perplexity": self.of_character(loss)}


@dataclass
class BestTracker:
    """The best validation so far, the number of validations since, and the results of the published model."""

    value: float = math.inf
    """The value of `best_metric`; smaller is better."""
    step: int = 0
    num_since_best: int = 0
    published_loss: float | None = None
    published_bleu: float | None = None
    published_score_name: str = "BLEU"
    """The metric of `published_bleu`."""
    published_value: float = math.inf
    published_step: int | None = None
    initial_value: float | None = None
    """The value of the model of `training.init_from`; None if the run started from random weights."""

    @property
    def is_initial(self) -> bool:
        """Whether the published model is the one of `training.init_from`, unchanged."""
        return self.initial_value is not None and self.published_step == 0
