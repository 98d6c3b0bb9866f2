"""Validation: the loss on held-out pairs, how often there is time for it, and the best result so far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.training.distributed import World
from heedful.training.loss import smoothed_cross_entropy

MAX_TIME_SHARE = 0.1
"""Of a run, the share that validations may take unless `validate_every` says how many there are."""
TRAINING_COST = 3.0
"""The work of a token in training, forward and backward, where one in the forward pass alone is 1."""
DECODING_COST = {"cpu": 8.0}
"""The same for a token of a translation, which are made one after the other."""
DEFAULT_DECODING_COST = 50.0
"""On a GPU, which such small steps leave idle."""


@dataclass(frozen=True)
class ValidationWork:
    """What one validation does. It is counted, never measured: a run is the same on every machine and when resumed."""

    tokens: int = 0
    """Target tokens whose loss is computed."""
    translated: int = 0
    """Target tokens of the sentences that are translated for a score."""

    def affordable(self, updates: float, tokens_per_update: int, kind: str, num_ranks: int) -> float:
        """How many validations take `MAX_TIME_SHARE` of a run of that many updates on a kind of device."""
        decoded = DECODING_COST.get(kind, DEFAULT_DECODING_COST) * self.translated
        one = self.tokens + decoded * num_ranks  # only one rank translates; the others wait
        return MAX_TIME_SHARE * TRAINING_COST * tokens_per_update * updates / one if one else math.inf


@torch.no_grad()
def validate(
    model: nn.Module,
    batches: Iterator[Batch],
    device: torch.device,
    *,
    bf16: bool,
    world: World | None = None,
    rows: int | None = None,
) -> float:
    """Mean negative log-likelihood of a target token; of several ranks each takes its rows, and sums are added.

    At most `rows` rows at a time go through the model.
    """
    model.eval()
    losses: list[Tensor] = []
    num_tokens = 0
    for batch in batches:
        num_tokens += batch.num_tokens
        if device.type == "cpu" and (world is None or world.size == 1):  # elsewhere all batches have one shape
            used = int((batch.target_segments > 0).any(dim=1).sum())
            batch = batch.rows(0, max(1, used))
        together = rows or batch.num_rows
        for start in range(0, batch.num_rows, together):
            moved = batch.rows(start, min(start + together, batch.num_rows)).to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                logits = model(**moved.inputs)
            loss = smoothed_cross_entropy(logits, moved.target_output, moved.target_segments, smoothing=0.0)
            losses.append(loss.loss_sum)
            del logits  # or the next part would need memory beside it
    sums = [math.fsum(loss.item() for loss in losses), float(num_tokens)]
    if world is not None and world.size > 1:
        sums = world.all_reduce_sum(torch.tensor(sums, dtype=torch.float64, device=device)).tolist()
    return sums[0] / max(1, sums[1])


@dataclass
class Best:
    """The best validation so far, how many have passed since, and the numbers of the model that was published last."""

    value: float = math.inf
    step: int = 0
    since: int = 0
    published_loss: float | None = None
    published_bleu: float | None = None
    published_score_name: str = "BLEU"
    """What the number in `published_bleu` is."""
    published: float = math.inf
    """Their `value`."""
    published_step: int | None = None
    """After how many updates it stood."""
    start: float | None = None
    """The value of the model that the run went on from; None if it began from nothing."""

    @property
    def is_start(self) -> bool:
        """Whether the published model is the one that the run went on from, as it was."""
        return self.start is not None and self.published_step == 0
