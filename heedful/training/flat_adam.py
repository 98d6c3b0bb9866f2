"""Adam for a model with a twin, all weights as one long vector: the twin's gradients go in, both get new weights.

torch's fused Adam wants gradients in the type of the weights, and does not know the twin: that is a copy before it and
one after it. Here one kernel reads the gradients as they are and writes the twin's weights too. The moments are the
optimizer's own, laid side by side, so that saving, going on, and an update by torch itself work as ever.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from heedful.training.bf16_copy import Layout, Twin, lay_side_by_side


class FlatAdam:
    """Updates the weights of `twin.learning`, which the optimizer learns, and those of the twin."""

    def __init__(self, optimizer: torch.optim.AdamW, twin: Twin) -> None:
        layout, learning = Layout(twin.learning), twin.learning
        self.optimizer, self.twin = optimizer, twin
        self.weights = lay_side_by_side(learning)
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
    def keep_up(self) -> None:
        """Before an update: take over weights that were changed, or moved in memory, by anyone else."""
        for parameter, place in zip(self.twin.learning, self.places, strict=True):
            if parameter.data_ptr() != place.data_ptr():  # another step of the same model, or `model.to`
                place.copy_(parameter)
                parameter.data = place
                self.twin.seen = []
        self.twin.keep_up()

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


def can_be_flat(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is Adam alone, with one way for all weights."""
    return type(optimizer) is torch.optim.AdamW and [group["weight_decay"] for group in optimizer.param_groups] == [0.0]
