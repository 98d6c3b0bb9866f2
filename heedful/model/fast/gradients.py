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
        self.passed: list[tuple[Tensor, Tensor, Tensor]] = []

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

    def give_through(self, owner: Tensor, bias: Tensor, weight: Tensor) -> None:
        """The gradient of a vector that reaches every row as `weight` times it, to which `bias` is added there."""
        self.passed.append((owner, bias, weight))

    def hand_over(self) -> None:
        """Add everything to the owners' gradients."""
        for owner, bias, weight in self.passed:
            self.give([owner], self.given[id(bias)][1] @ weight.detach())
        for table, tokens, parts in self.drawn.values():
            rows = torch.ops.aten.embedding_dense_backward(
                torch.cat(parts), torch.cat(tokens), table.shape[0], -1, False
            )
            self.give([table], rows)
        for owner, gradient in self.given.values():
            owner.grad = gradient if owner.grad is None else owner.grad + gradient
        self.forget()

    def forget(self) -> None:
        """Drop what was given, also by a backward pass that did not come to its end."""
        self.given.clear()
        self.drawn.clear()
        self.passed.clear()


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


def column_sums(x: Tensor) -> Tensor:
    """Sum over the rows of (rows, columns), in the type of x."""
    if x.is_cuda:
        from heedful.model.kernels import partial_sums as kernel

        return kernel.summed(kernel.column_sums(x), x.dtype)
    return x.sum(dim=0)
