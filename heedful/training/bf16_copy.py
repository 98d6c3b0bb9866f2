"""A twin of the model in bf16 that computes, while the weights in fp32 are the ones that learn."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

ALIGNED = 64  # numbers: matrix products like to begin at round addresses


class Twin:
    """A copy of `model` in another type: `refresh` takes the weights over, `hand_over` gives its gradients back.

    All that flows between the layers then has this type too, half of the traffic of fp32. Gradients of several
    microbatches are summed in the type of the model.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.model = copy.deepcopy(model).to(dtype)
        self.parameters, self.learning = list(self.model.parameters()), list(model.parameters())
        self.flat = lay_side_by_side(self.parameters)
        self.weights = [parameter.detach() for parameter in self.parameters]
        self.seen: list[int] = []

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights as they are now."""
        torch._foreach_copy_(self.weights, [parameter.detach() for parameter in self.learning])

    def keep_up(self) -> None:
        """Take over the weights if anyone but the kernels of our own changed them since the last call."""
        now = [parameter._version for parameter in self.learning]
        if now != self.seen:
            self.refresh()
            self.seen = now

    @torch.no_grad()
    def hand_over(self) -> None:
        """Add the twin's gradients to those of the model, and forget them."""
        fresh, summed, given = [], [], []
        for parameter, learning in zip(self.parameters, self.learning, strict=True):
            if parameter.grad is None:
                continue
            if learning.grad is None:
                learning.grad = torch.empty_like(learning)
                fresh.append((learning.grad, parameter.grad))
            else:
                summed.append(learning.grad)
                given.append(parameter.grad)
            parameter.grad = None
        if fresh:
            torch._foreach_copy_([to for to, _ in fresh], [grad for _, grad in fresh])
        if summed:
            torch._foreach_add_(summed, [grad.to(total.dtype) for grad, total in zip(given, summed, strict=True)])


def can_have_twin(model: nn.Module) -> bool:
    """Whether nothing but parameters makes the model: running statistics would have to be kept in step."""
    return not any(True for _ in model.buffers())


class Layout:
    """Where tensors stand in one stretch of memory: all matrices, then all vectors, each kind in its order.

    Query, key and value of a layer then are one matrix for those who want it so, without a copy.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.shapes, self.starts, self.size = [tensor.shape for tensor in tensors], [0] * len(tensors), 0
        for index in sorted(range(len(tensors)), key=lambda index: tensors[index].dim() < 2):
            self.starts[index] = self.size
            self.size += -(-tensors[index].numel() // ALIGNED) * ALIGNED

    def views(self, flat: Tensor) -> list[Tensor]:
        """The tensors that stand in it, in the order in which they were given."""
        places = zip(self.starts, self.shapes, strict=True)
        return [flat[start : start + shape.numel()].view(shape) for start, shape in places]


@torch.no_grad()
def lay_side_by_side(parameters: Sequence[Tensor]) -> Tensor:
    """Move parameters into one stretch of memory, which is returned; between them there are zeros."""
    layout = Layout(parameters)
    flat = parameters[0].new_zeros(layout.size)
    for parameter, place in zip(parameters, layout.views(flat), strict=True):
        place.copy_(parameter)
        parameter.data = place
    return flat
