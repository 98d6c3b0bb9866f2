"""Gradients of weights, collected outside autograd during the backward pass.

Autograd carries the gradients of activations. Those of weights are added here, so that several weights share one matrix
product, the rows of an embedding are summed once for all lookups, and the sums over all tokens that biases and norms
need are completed together at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class _Sums:
    """Partial sums of one shape. From the second pass on they share a tensor, and one kernel completes all."""

    def __init__(self) -> None:
        self.stacks: list[Tensor] = []
        self.owners: list[Sequence[Tensor]] = []
        self.capacity, self.last_count = 0, 1

    def allocate(self, owners: Sequence[Tensor], shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """A buffer for the partial sums of these weights."""
        if len(self.owners) == self.capacity:
            more = 1 if self.stacks else self.last_count
            self.stacks.append(torch.empty(more, *shape, device=owners[0].device, dtype=dtype))
            self.capacity += more
        self.owners.append(owners)
        return self.stacks[-1][len(self.owners) - 1 - self.capacity]

    def finished(self) -> list[tuple[Sequence[Tensor], Tensor]]:
        """The sums of all weights that have a buffer."""
        if not self.owners:
            return []
        self.last_count = len(self.owners)
        sums = torch.cat([summed(stack, self.owners[0][0].dtype) for stack in self.stacks])
        return list(zip(self.owners, sums[: len(self.owners)], strict=True))

    def clear(self) -> None:
        """Drop all buffers."""
        self.stacks, self.owners, self.capacity = [], [], 0


class Gradients:
    """Collects gradients of weights during `backward`; `flush` then adds them to the weights' `grad`."""

    def __init__(self) -> None:
        self.collected: dict[int, tuple[Tensor, Tensor]] = {}
        self.lookups: dict[int, tuple[Tensor, list[Tensor], list[Tensor]]] = {}
        self.passed_through: list[tuple[Tensor, Tensor, Tensor]] = []
        self.sums: dict[tuple[int, int], _Sums] = {}
        self.shared_zeros: dict[tuple[torch.Size, torch.dtype, torch.device], Tensor] = {}
        self.buffers: dict[int, Tensor] = {}
        """The preferred gradient buffer of a weight, by its `id`."""

    def add(self, owners: Sequence[Tensor], gradient: Tensor) -> None:
        """Add the gradient of some weights that are concatenated into one matrix or vector."""
        for owner, part in zip(owners, gradient.split([owner.shape[0] for owner in owners]), strict=True):
            before = self.collected.get(id(owner))
            new = part.view_as(owner)
            self.collected[id(owner)] = (owner, new if before is None else before[1] + new)

    def add_product(self, owners: Sequence[Tensor], d_y: Tensor, x: Tensor) -> None:
        """Add d_yᵀ x, the gradient of the concatenated matrices in y = x Wᵀ."""
        d_y, x = d_y.flatten(0, -2), x.flatten(0, -2)
        buffers = [
            self.buffers[id(owner)] for owner in owners if id(owner) in self.buffers and id(owner) not in self.collected
        ]
        whole = as_one_tensor(buffers) if len(buffers) == len(owners) else None
        self.add(owners, torch.mm(d_y.t(), x) if whole is None else torch.mm(d_y.t(), x, out=whole))

    def set_buffers(self, owners: Sequence[Tensor], buffers: Sequence[Tensor]) -> None:
        """Write gradients of these weights into these tensors where that saves a copy."""
        self.buffers = {id(owner): buffer for owner, buffer in zip(owners, buffers, strict=True)}

    def add_rows(self, table: Tensor, tokens: Tensor, gradient: Tensor) -> None:
        """Add the gradient (…, D) of the rows that tokens (…) looked up in a table."""
        _, all_tokens, parts = self.lookups.setdefault(id(table), (table, [], []))
        all_tokens.append(tokens.flatten())
        parts.append(gradient.flatten(0, -2))

    def partial_sums(self, owners: Sequence[Tensor], programs: int) -> Tensor:
        """A buffer for partial sums of the gradient of some concatenated vectors: (programs, width)."""
        shape = programs, sum(owner.numel() for owner in owners)
        dtype = torch.float32 if owners[0].is_cuda else owners[0].dtype
        return self.sums.setdefault(shape, _Sums()).allocate(owners, shape, dtype)

    def zeros_like(self, like: Tensor) -> Tensor:
        """A gradient of zeros; where it is only copied from, one tensor is shared by all of a shape."""
        if id(like) not in self.buffers:
            return torch.zeros_like(like)  # clipping by a non-finite norm would change the zeros
        key = like.shape, like.dtype, like.device
        if key not in self.shared_zeros:
            self.shared_zeros[key] = torch.zeros_like(like)
        return self.shared_zeros[key]

    def add_through(self, owner: Tensor, bias: Tensor, weight: Tensor) -> None:
        """Add the gradient of a vector that is multiplied by `weight` where `bias` is added to every row."""
        self.passed_through.append((owner, bias, weight))

    def flush(self) -> None:
        """Add everything to the weights' `grad`."""
        for sums in self.sums.values():
            for owners, gradient in sums.finished():
                self.add(owners, gradient)
        if self.passed_through:
            vectors, biases, weights = zip(*self.passed_through, strict=True)
            rows = torch.stack([self.collected[id(bias)][1] for bias in biases])
            through = rows[:, None] @ torch.stack([weight.detach() for weight in weights])
            for vector, gradient in zip(vectors, through.squeeze(1), strict=True):
                self.add([vector], gradient)
        for table, tokens, parts in self.lookups.values():
            self._add_rows(table, tokens, parts)
        for owner, gradient in self.collected.values():
            owner.grad = gradient if owner.grad is None else owner.grad + gradient
        self.clear()

    def _add_rows(self, table: Tensor, tokens: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
        """Sum the rows looked up in a table; on a GPU onto its gradient so far, if any."""
        if not table.is_cuda:
            rows, indices = torch.cat(list(parts)), torch.cat(list(tokens))
            self.add([table], torch.ops.aten.embedding_dense_backward(rows, indices, table.shape[0], -1, False))
            return
        from heedful.fused.kernels import train_layers

        if id(table) not in self.collected:
            self.collected[id(table)] = table, torch.zeros_like(table)
        train_layers.embedding_add_rows(self.collected[id(table)][1], tokens, parts)

    def clear(self) -> None:
        """Drop everything, also after an interrupted backward pass."""
        self.collected.clear()
        self.lookups.clear()
        self.passed_through.clear()
        for sums in self.sums.values():
            sums.clear()


def concatenated(weights: Sequence[Tensor]) -> Tensor:
    """The concatenation of matrices or vectors; without a copy if they are adjacent in memory."""
    whole = as_one_tensor(weights)
    return torch.cat([one.detach() for one in weights]) if whole is None else whole


def as_one_tensor(tensors: Sequence[Tensor]) -> Tensor | None:
    """Tensors that are adjacent in memory as one view; None if they are not."""
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
        from heedful.fused.kernels import train_layers

        return train_layers.sum_partials(partial, dtype)
    return partial.sum(dim=1).to(dtype)
