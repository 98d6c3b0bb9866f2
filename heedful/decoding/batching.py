"""Batching of sentences of similar length, up to a number of tokens or with fixed shapes.

The order of the sums in a matrix product may depend on its shape. For results to be bit-identical whatever else is in
the batch, the shape of a sentence's batch must depend on the sentence only, and its position in the batch must not
matter (`heedful.model.batch_invariance`), since the rows of a product are divided among threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.model.batch_invariance import ALIGNMENT
from heedful.search_types import MIN_COUNTED_TOKENS, longest_first
from heedful.tensor_types import Bool, Int

FIXED_BATCH_SIZE, WIDTH_MULTIPLE = 16, 16
"""For batch invariance: the number of sentences in a batch, and the multiple that its width is rounded up to."""


def make_batches(lengths: Sequence[int], *, tokens_per_batch: int, rows_per_sentence: int) -> list[list[int]]:
    """Sentence indices of each batch, longest first; padding and beams count as tokens."""
    batches: list[list[int]] = []
    for index in longest_first(lengths):
        longest = max(lengths[batches[-1][0]], MIN_COUNTED_TOKENS) if batches else 0
        if batches and (len(batches[-1]) + 1) * longest * rows_per_sentence <= tokens_per_batch:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def make_fixed_shape_batches(
    lengths: Sequence[int], *, tokens_per_batch: int, rows_per_sentence: int
) -> list[list[int]]:
    """Sentence indices of each batch, whose size depends on `padded_width` only.

    Sizes are multiples of `ALIGNMENT`: with 5 rows, for example, MKL's division among threads would change some bits.
    The last batch of each width is filled with copies of its first sentence, whose results are discarded.
    """
    by_width: dict[int, list[int]] = {}
    for index in longest_first(lengths):
        by_width.setdefault(padded_width(lengths[index]), []).append(index)
    batches: list[list[int]] = []
    for width, members in by_width.items():
        size = min(FIXED_BATCH_SIZE, tokens_per_batch // (width * rows_per_sentence)) // ALIGNMENT * ALIGNMENT or 1
        for start in range(0, len(members), size):
            batch = members[start : start + size]
            batches.append([*batch, *[batch[0]] * (size - len(batch))])
    return batches


def padded_width(length: int) -> int:
    """The width that sentences of this length are padded to."""
    return -(-length // WIDTH_MULTIPLE) * WIDTH_MULTIPLE


def pad(
    sequences: Sequence[Sequence[int]], *, pad_id: int, device: torch.device, width: int = 0
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Sequences as one padded tensor of at least this width, and the mask of real tokens."""
    width = max(width, *(len(sequence) for sequence in sequences))
    table = torch.tensor([[*sequence, *[pad_id] * (width - len(sequence))] for sequence in sequences], device=device)
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=device)
    return table, torch.arange(width, device=device) < lengths[:, None]
