"""A twin of the model in bf16 that computes, while the weights in fp32 are the ones that learn."""

from __future__ import annotations

import copy

import torch
from torch import nn

ALIGNED = 64  # numbers: matrix products like to begin at round addresses


class Twin:
    """A copy of `model` in another type: `refresh` takes the weights over, `hand_over` gives its gradients back.

    All that flows between the layers then has this type too, half of the traffic of fp32. Gradients of several
    microbatches are summed in the type of the model.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.model = copy.deepcopy(model).to(dtype)
        lay_side_by_side(self.model)
        self.weights = [parameter.detach() for parameter in self.model.parameters()]
        self.parameters, self.learning = list(self.model.parameters()), list(model.parameters())

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights as they are now."""
        torch._foreach_copy_(self.weights, [parameter.detach() for parameter in self.learning])

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


@torch.no_grad()
def lay_side_by_side(model: nn.Module) -> None:
    """Put all matrices, then all vectors, into one stretch of memory in their order.

    Query, key and value of a layer then are one matrix for those who want it so, without a copy.
    """
    parameters = sorted(model.parameters(), key=lambda parameter: parameter.dim() < 2)
    sizes = [-(-parameter.numel() // ALIGNED) * ALIGNED for parameter in parameters]
    flat = parameters[0].new_empty(sum(sizes))
    for parameter, part in zip(parameters, flat.split(sizes), strict=True):
        part = part[: parameter.numel()].view_as(parameter)
        part.copy_(parameter)
        parameter.data = part
