"""Gradients of weights, collected while the backward pass runs, beside autograd.

What flows through the layers goes through autograd. What belongs to a weight is given here, so that several weights can
share one matrix product, and the rows of an embedding are summed up once, however often the table was drawn from.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Gradients:
    """Takes gradients of weights during `backward`; `hand_over` then adds them to their owners' `grad`."""

    def __init__(self) -> None:
        self.given: dict[int, tuple[Tensor, Tensor]] = {}
        self.drawn: dict[int, tuple[Tensor, list[Tensor], list[Tensor]]] = {}

    def give(self, owners: Sequence[Tensor], gradient: Tensor) -> None:
        """The gradient of some weights that stand behind each other in one matrix or vector."""
        for owner, part in zip(owners, gradient.split([owner.shape[0] for owner in owners]), strict=True):
            before = self.given.get(id(owner))
            new = part.view_as(owner)
            self.given[id(owner)] = (owner, new if before is None else before[1] + new)

    def give_rows(self, table: Tensor, tokens: Tensor, gradient: Tensor) -> None:
        """The gradient (…, D) of the rows that tokens (…) drew from a table."""
        _, all_tokens, parts = self.drawn.setdefault(id(table), (table, [], []))
        all_tokens.append(tokens.flatten())
        parts.append(gradient.flatten(0, -2))

    def hand_over(self) -> None:
        """Add everything to the owners' gradients."""
        for table, tokens, parts in self.drawn.values():
            rows = torch.ops.aten.embedding_dense_backward(
                torch.cat(parts), torch.cat(tokens), table.shape[0], -1, False
            )
            self.give([table], rows)
        for owner, gradient in self.given.values():
            owner.grad = gradient if owner.grad is None else owner.grad + gradient
        self.given.clear()
        self.drawn.clear()


def joined(weights: Sequence[Tensor]) -> Tensor:
    """Matrices or vectors behind each other; without a copy when they already lie so in memory."""
    first = weights[0].detach()
    if len(weights) == 1:
        return first
    memory, end = first.untyped_storage().data_ptr(), first.data_ptr()
    for weight in weights:
        is_next = weight.data_ptr() == end and weight.untyped_storage().data_ptr() == memory
        if not is_next or not weight.is_contiguous():
            return torch.cat([one.detach() for one in weights])
        end += weight.numel() * weight.element_size()
    shape = (sum(weight.shape[0] for weight in weights), *first.shape[1:])
    return first.as_strided(shape, first.stride())


def summed(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum over the first dimension, as one long row of this type."""
    if partial.is_cuda:
        from heedful.model.kernels import partial_sums as kernel

        return kernel.summed(partial, dtype)
    return partial.sum(dim=0).to(dtype).flatten()
