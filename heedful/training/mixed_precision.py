"""Training in bf16 with fp32 master weights: the bf16 copy that computes, and Adam over one flat vector of weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

ALIGNED = 64  # numbers: matrix products like to begin at round addresses


class LowPrecisionCopy:
    """A copy of `model` in another type: `refresh` takes the weights over, `hand_over` gives its gradients back.

    All that flows between the layers then has this type too, half of the traffic of fp32. Gradients of several
    microbatches are summed in the type of the model.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.model = copy.deepcopy(model).to(dtype)
        self.parameters, self.learning = list(self.model.parameters()), list(model.parameters())
        self.flat = flatten_parameters(self.parameters)
        self.weights = [parameter.detach() for parameter in self.parameters]
        self.seen: list[int] = []

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights as they are now."""
        torch._foreach_copy_(self.weights, [parameter.detach() for parameter in self.learning])

    def sync_weights(self) -> None:
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


def has_no_buffers(model: nn.Module) -> bool:
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
def flatten_parameters(parameters: Sequence[Tensor]) -> Tensor:
    """Move parameters into one stretch of memory, which is returned; between them there are zeros."""
    layout = Layout(parameters)
    flat = parameters[0].new_zeros(layout.size)
    for parameter, place in zip(parameters, layout.views(flat), strict=True):
        place.copy_(parameter)
        parameter.data = place
    return flat


class FlatAdam:
    """Updates the weights of `twin.learning`, which the optimizer learns, and those of the twin."""

    def __init__(self, optimizer: torch.optim.AdamW, twin: LowPrecisionCopy) -> None:
        layout, learning = Layout(twin.learning), twin.learning
        self.optimizer, self.twin = optimizer, twin
        self.weights = flatten_parameters(learning)
        self.places = layout.views(self.weights)
        self.moments = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        device = self.weights.device
        self.counts = torch.zeros(len(learning), device=device)
        self.betas = torch.tensor(optimizer.defaults["betas"], device=device, dtype=torch.float64)
        self.one = torch.ones((), device=device)
        self.gradient = torch.zeros_like(twin.flat)
        self.rooms = layout.views(self.gradient)
        views = (self.counts.unbind(), *map(layout.views, self.moments))
        for parameter, *own in zip(learning, *views, strict=True):
            known: dict[str, Any] = optimizer.state[parameter]
            for name, view in zip(("step", "exp_avg", "exp_avg_sq"), own, strict=True):
                if name in known:
                    view.copy_(known[name])
                known[name] = view

    @torch.no_grad()
    def sync_weights(self) -> None:
        """Before an update: take over weights that were changed, or moved in memory, by anyone else."""
        for parameter, place in zip(self.twin.learning, self.places, strict=True):
            if parameter.data_ptr() != place.data_ptr():  # another step of the same model, or `model.to`
                place.copy_(parameter)
                parameter.data = place
                self.twin.seen = []
        self.twin.sync_weights()

    @torch.no_grad()
    def gather(self) -> Tensor:
        """The twin's gradients side by side, as the weights lie; those that were not made there are copied."""
        parameters = self.twin.parameters
        given = [(room, one.grad) for room, one in zip(self.rooms, parameters, strict=True) if one.grad is not None]
        elsewhere = [(room, grad) for room, grad in given if grad.data_ptr() != room.data_ptr()]
        torch._foreach_copy_([room for room, _ in elsewhere], [grad for _, grad in elsewhere])
        for parameter in parameters:
            parameter.grad = None
        return self.gradient

    @torch.no_grad()
    def update(self, gradient: Tensor, skipped: Tensor, factor: Tensor | None) -> None:
        """One update by `factor` times the gradient, laid side by side as the weights are, unless `skipped`."""
        settings = self.optimizer.defaults
        self.counts += ~skipped
        rate = torch.as_tensor(self.optimizer.param_groups[0]["lr"], device=self.weights.device)
        corrections = (1 - self.betas ** self.counts[0]).float()
        factor = self.one if factor is None else factor
        if self.weights.is_cuda:
            from heedful.fused.kernels import adam as kernel

            kernel.update(
                self.weights,
                gradient,
                self.moments,
                self.twin.flat,
                learning_rate=rate,
                corrections=corrections,
                factor=factor,
                skipped=skipped,
                betas=settings["betas"],
                epsilon=settings["eps"],
            )
        elif not skipped:
            (first, second), (beta1, beta2) = self.moments, settings["betas"]
            gradient = gradient.to(first.dtype) * factor
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            down = (second / corrections[1]).sqrt() + settings["eps"]
            self.weights.sub_(rate / corrections[0] * first / down)
            self.twin.flat.copy_(self.weights)


def supports_flat_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is Adam alone, with one way for all weights."""
    return type(optimizer) is torch.optim.AdamW and [group["weight_decay"] for group in optimizer.param_groups] == [0.0]
