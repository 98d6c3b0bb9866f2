"""Sentences of like length decoded together, as many as a number of tokens allows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.shapes import Bool, Int

LEAST_COUNTED = 16
"""Shorter sentences count as this many tokens: each row also costs logits over the whole vocabulary."""


def make_batches(lengths: Sequence[int], *, tokens_per_batch: int, rows_per_sentence: int) -> list[list[int]]:
    """Indices of the sentences of each batch, longest first; padding and beams count as tokens."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        longest = max(lengths[batches[-1][0]], LEAST_COUNTED) if batches else 0
        if batches and (len(batches[-1]) + 1) * longest * rows_per_sentence <= tokens_per_batch:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def pad(
    sequences: Sequence[Sequence[int]], *, pad_id: int, device: torch.device
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Sequences as one tensor, and where it is real."""
    width = max(len(sequence) for sequence in sequences)
    table = torch.tensor([[*sequence, *[pad_id] * (width - len(sequence))] for sequence in sequences], device=device)
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=device)
    return table, torch.arange(width, device=device) < lengths[:, None]
