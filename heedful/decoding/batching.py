"""Sentences of like length decoded together: as many as a number of tokens allows, or always as many.

The sums inside a matrix product may run in another order when its shape is another. So a sentence has the same bits
whatever is translated beside it only if the shapes of its batch depend on nothing but itself, and if its place there
does not count (`heedful.model.batch_invariance`): the rows of a product are shared out among threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.model.batch_invariance import ALIGNMENT
from heedful.search_types import MIN_COUNTED_TOKENS, longest_first
from heedful.tensor_types import Bool, Int

EVEN_SIZE, EVEN_WIDTH = 16, 16
"""Where mates must have no part: sentences in a batch, and the tokens that its width is a multiple of."""


def make_batches(lengths: Sequence[int], *, tokens_per_batch: int, rows_per_sentence: int) -> list[list[int]]:
    """Indices of the sentences of each batch, longest first; padding and beams count as tokens."""
    batches: list[list[int]] = []
    for index in longest_first(lengths):
        longest = max(lengths[batches[-1][0]], MIN_COUNTED_TOKENS) if batches else 0
        if batches and (len(batches[-1]) + 1) * longest * rows_per_sentence <= tokens_per_batch:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def make_even_batches(lengths: Sequence[int], *, tokens_per_batch: int, rows_per_sentence: int) -> list[list[int]]:
    """Indices of the sentences of each batch: always as many, or fewer where `even_width` of their length is large.

    Several are a multiple of `ALIGNMENT`: of 5 rows, some would have other bits where MKL divides them among threads.
    Where too few are left, the first of a batch stands there again, and its copies are computed for nothing.
    """
    by_width: dict[int, list[int]] = {}
    for index in longest_first(lengths):
        by_width.setdefault(even_width(lengths[index]), []).append(index)
    batches: list[list[int]] = []
    for width, members in by_width.items():
        size = min(EVEN_SIZE, tokens_per_batch // (width * rows_per_sentence)) // ALIGNMENT * ALIGNMENT or 1
        for start in range(0, len(members), size):
            batch = members[start : start + size]
            batches.append([*batch, *[batch[0]] * (size - len(batch))])
    return batches


def even_width(length: int) -> int:
    """The width that sentences of about this length are filled up to."""
    return -(-length // EVEN_WIDTH) * EVEN_WIDTH


def pad(
    sequences: Sequence[Sequence[int]], *, pad_id: int, device: torch.device, width: int = 0
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Sequences as one tensor, at least so wide, and where it is real."""
    width = max(width, *(len(sequence) for sequence in sequences))
    table = torch.tensor([[*sequence, *[pad_id] * (width - len(sequence))] for sequence in sequences], device=device)
    lengths = torch.tensor([len(sequence) for sequence in sequences], device=device)
    return table, torch.arange(width, device=device) < lengths[:, None]
