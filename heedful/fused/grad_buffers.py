"""Gradients of weights, collected while the backward pass runs, beside autograd.

What flows through the layers goes through autograd. What belongs to a weight is given here, so that several weights can
share one matrix product, the rows of an embedding are summed up once, however often the table was drawn from, and the
sums over all tokens, which biases and norms need, are finished together at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class _Sums:
    """Partial sums of one shape. From the second pass on they stand side by side, and one kernel finishes all."""

    def __init__(self) -> None:
        self.stacks: list[Tensor] = []
        self.owners: list[Sequence[Tensor]] = []
        self.num_places, self.last_time = 0, 1

    def room(self, owners: Sequence[Tensor], shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Where the sums for these weights go."""
        if len(self.owners) == self.num_places:
            more = 1 if self.stacks else self.last_time
            self.stacks.append(torch.empty(more, *shape, device=owners[0].device, dtype=dtype))
            self.num_places += more
        self.owners.append(owners)
        return self.stacks[-1][len(self.owners) - 1 - self.num_places]

    def finished(self) -> list[tuple[Sequence[Tensor], Tensor]]:
        """The sums of all weights that were given a place."""
        if not self.owners:
            return []
        self.last_time = len(self.owners)
        sums = torch.cat([summed(stack, self.owners[0][0].dtype) for stack in self.stacks])
        return list(zip(self.owners, sums[: len(self.owners)], strict=True))

    def forget(self) -> None:
        """Drop all."""
        self.stacks, self.owners, self.num_places = [], [], 0


class Gradients:
    """Takes gradients of weights during `backward`; `hand_over` then adds them to their owners' `grad`."""

    def __init__(self) -> None:
        self.given: dict[int, tuple[Tensor, Tensor]] = {}
        self.drawn: dict[int, tuple[Tensor, list[Tensor], list[Tensor]]] = {}
        self.passed: list[tuple[Tensor, Tensor, Tensor]] = []
        self.sums: dict[tuple[int, int], _Sums] = {}
        self.zeros: dict[tuple[torch.Size, torch.dtype, torch.device], Tensor] = {}
        self.rooms: dict[int, Tensor] = {}
        """By the `id` of a weight, where its gradient is wanted."""

    def give(self, owners: Sequence[Tensor], gradient: Tensor) -> None:
        """The gradient of some weights that stand behind each other in one matrix or vector."""
        for owner, part in zip(owners, gradient.split([owner.shape[0] for owner in owners]), strict=True):
            before = self.given.get(id(owner))
            new = part.view_as(owner)
            self.given[id(owner)] = (owner, new if before is None else before[1] + new)

    def give_product(self, owners: Sequence[Tensor], d_y: Tensor, x: Tensor) -> None:
        """The gradient of the matrices behind each other that made (…, M) of (…, N)."""
        d_y, x = d_y.flatten(0, -2), x.flatten(0, -2)
        rooms = [self.rooms[id(owner)] for owner in owners if id(owner) in self.rooms and id(owner) not in self.given]
        whole = lie_side_by_side(rooms) if len(rooms) == len(owners) else None
        self.give(owners, torch.mm(d_y.t(), x) if whole is None else torch.mm(d_y.t(), x, out=whole))

    def expect(self, owners: Sequence[Tensor], rooms: Sequence[Tensor]) -> None:
        """From now on write gradients of these weights into these tensors where that saves a copy."""
        self.rooms = {id(owner): room for owner, room in zip(owners, rooms, strict=True)}

    def give_rows(self, table: Tensor, tokens: Tensor, gradient: Tensor) -> None:
        """The gradient (…, D) of the rows that tokens (…) drew from a table."""
        _, all_tokens, parts = self.drawn.setdefault(id(table), (table, [], []))
        all_tokens.append(tokens.flatten())
        parts.append(gradient.flatten(0, -2))

    def partial(self, owners: Sequence[Tensor], programs: int) -> Tensor:
        """A place for the gradient of some vectors behind each other, as so many partial sums: (programs, width)."""
        shape = programs, sum(owner.numel() for owner in owners)
        dtype = torch.float32 if owners[0].is_cuda else owners[0].dtype
        return self.sums.setdefault(shape, _Sums()).room(owners, shape, dtype)

    def nothing(self, like: Tensor) -> Tensor:
        """A gradient of zero for a weight; where it is only copied from, one for all of a shape."""
        if id(like) not in self.rooms:
            return torch.zeros_like(like)  # clipping by a norm that is not finite would leave no zeros
        key = like.shape, like.dtype, like.device
        if key not in self.zeros:
            self.zeros[key] = torch.zeros_like(like)
        return self.zeros[key]

    def give_through(self, owner: Tensor, bias: Tensor, weight: Tensor) -> None:
        """The gradient of a vector that reaches every row as `weight` times it, to which `bias` is added there."""
        self.passed.append((owner, bias, weight))

    def hand_over(self) -> None:
        """Add everything to the owners' gradients."""
        for sums in self.sums.values():
            for owners, gradient in sums.finished():
                self.give(owners, gradient)
        if self.passed:
            vectors, biases, weights = zip(*self.passed, strict=True)
            rows = torch.stack([self.given[id(bias)][1] for bias in biases])
            through = rows[:, None] @ torch.stack([weight.detach() for weight in weights])
            for vector, gradient in zip(vectors, through.squeeze(1), strict=True):
                self.give([vector], gradient)
        for table, tokens, parts in self.drawn.values():
            self._add_rows(table, tokens, parts)
        for owner, gradient in self.given.values():
            owner.grad = gradient if owner.grad is None else owner.grad + gradient
        self.forget()

    def _add_rows(self, table: Tensor, tokens: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
        """Sum up the rows that were drawn from a table; on a GPU onto the gradient it has already, if any."""
        if not table.is_cuda:
            rows, drawn = torch.cat(list(parts)), torch.cat(list(tokens))
            self.give([table], torch.ops.aten.embedding_dense_backward(rows, drawn, table.shape[0], -1, False))
            return
        from heedful.fused.kernels import embedding_backward as kernel

        if id(table) not in self.given:
            self.given[id(table)] = table, torch.zeros_like(table)
        kernel.add_rows(self.given[id(table)][1], tokens, parts)

    def forget(self) -> None:
        """Drop what was given, also by a backward pass that did not come to its end."""
        self.given.clear()
        self.drawn.clear()
        self.passed.clear()
        for sums in self.sums.values():
            sums.forget()


def joined(weights: Sequence[Tensor]) -> Tensor:
    """Matrices or vectors behind each other; without a copy when they already lie so in memory."""
    whole = lie_side_by_side(weights)
    return torch.cat([one.detach() for one in weights]) if whole is None else whole


def lie_side_by_side(tensors: Sequence[Tensor]) -> Tensor | None:
    """Tensors that lie behind each other in memory as one; None where they do not."""
    first = tensors[0].detach()
    if len(tensors) == 1:
        return first
    memory, end = first.untyped_storage().data_ptr(), first.data_ptr()
    for tensor in tensors:
        is_next = tensor.data_ptr() == end and tensor.untyped_storage().data_ptr() == memory
        if not is_next or not tensor.is_contiguous():
            return None
        end += tensor.numel() * tensor.element_size()
    shape = (sum(tensor.shape[0] for tensor in tensors), *first.shape[1:])
    return first.as_strided(shape, first.stride())


def summed(partial: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum over the second of three dimensions, in this type."""
    if partial.is_cuda:
        from heedful.fused.kernels import row_reduce as kernel

        return kernel.summed(partial, dtype)
    return partial.sum(dim=1).to(dtype)
