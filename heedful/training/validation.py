"""Validation: the loss on sentences that are not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.training.distributed import World
from heedful.training.loss import smoothed_cross_entropy


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
        together = rows or batch.num_rows
        for start in range(0, batch.num_rows, together):
            moved = batch.rows(start, min(start + together, batch.num_rows)).to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
                logits = model(*moved.inputs)
            loss = smoothed_cross_entropy(logits, moved.target_output, moved.target_segments, smoothing=0.0)
            losses.append(loss.loss_sum)
            del logits  # or the next part would need memory beside it
    sums = [math.fsum(loss.item() for loss in losses), float(num_tokens)]
    if world is not None and world.size > 1:
        sums = world.sum(torch.tensor(sums, dtype=torch.float64, device=device)).tolist()
    return sums[0] / max(1, sums[1])
