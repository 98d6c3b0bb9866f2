"""Training in bf16 with fp32 master weights: a bf16 copy of the model computes, the master weights are updated.

`FlatAdam` updates both with one kernel over one flat vector of weights.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

ALIGNMENT = 64
"""Tensors start at multiples of this many numbers in a flat vector, which matrix products prefer."""


class LowPrecisionCopy:
    """A copy of `model` in another type. `refresh` copies the weights to it, `add_gradients` its gradients back.

    Activations between the layers have this type too, which halves the memory traffic of fp32. Gradients of several
    microbatches are summed in the type of the model.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.model = copy.deepcopy(model).to(dtype)
        self.parameters = list(self.model.parameters())
        self.master_parameters = list(model.parameters())
        self.flat = flatten_parameters(self.parameters)
        self.weights = [parameter.detach() for parameter in self.parameters]
        self.versions: list[int] = []

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the master weights."""
        torch._foreach_copy_(self.weights, [parameter.detach() for parameter in self.master_parameters])

    def refresh_if_changed(self) -> None:
        """Copy the master weights if anything but `FlatAdam` has changed them since the last call."""
        versions = [parameter._version for parameter in self.master_parameters]
        if versions != self.versions:
            self.refresh()
            self.versions = versions

    @torch.no_grad()
    def add_gradients(self) -> None:
        """Add the gradients of the copy to those of the master parameters, and clear them."""
        new: list[tuple[Tensor, Tensor]] = []
        existing: list[tuple[Tensor, Tensor]] = []
        for parameter, master in zip(self.parameters, self.master_parameters, strict=True):
            if parameter.grad is None:
                continue
            if master.grad is None:
                master.grad = torch.empty_like(master)
                new.append((master.grad, parameter.grad))
            else:
                existing.append((master.grad, parameter.grad))
            parameter.grad = None
        if new:
            torch._foreach_copy_([total for total, _ in new], [gradient for _, gradient in new])
        if existing:
            torch._foreach_add_(
                [total for total, _ in existing], [gradient.to(total.dtype) for total, gradient in existing]
            )


def has_no_buffers(model: nn.Module) -> bool:
    """Whether the model has parameters only: running statistics would have to be kept equal in both copies."""
    return not any(True for _ in model.buffers())


class FlatLayout:
    """Offsets of tensors in one flat vector: all matrices, then all vectors, each in their order.

    Query, key and value of a layer are therefore adjacent, and are one matrix without a copy.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.shapes = [tensor.shape for tensor in tensors]
        self.offsets = [0] * len(tensors)
        self.size = 0
        for index in sorted(range(len(tensors)), key=lambda index: tensors[index].dim() < 2):
            self.offsets[index] = self.size
            self.size += -(-tensors[index].numel() // ALIGNMENT) * ALIGNMENT

    def views(self, flat: Tensor) -> list[Tensor]:
        """Views of the tensors in a flat vector, in their original order."""
        slices = zip(self.offsets, self.shapes, strict=True)
        return [flat[offset : offset + shape.numel()].view(shape) for offset, shape in slices]


@torch.no_grad()
def flatten_parameters(parameters: Sequence[Tensor]) -> Tensor:
    """Move parameters into one flat vector, with zeros between them, and return it."""
    layout = FlatLayout(parameters)
    flat = parameters[0].new_zeros(layout.size)
    for parameter, view in zip(parameters, layout.views(flat), strict=True):
        view.copy_(parameter)
        parameter.data = view
    return flat


class FlatAdam:
    """Adam for a model with a low-precision copy, over one flat vector of all weights.

    torch's fused Adam needs gradients in the type of the weights and a copy of the weights afterwards. Here one kernel
    reads the gradients as they are and writes the copy too. The moments are those of `optimizer`, as views of flat
    vectors, so saving, resuming and updates by torch itself work as usual.
    """

    def __init__(self, optimizer: torch.optim.AdamW, low_precision: LowPrecisionCopy) -> None:
        masters = low_precision.master_parameters
        layout = FlatLayout(masters)
        self.optimizer, self.low_precision = optimizer, low_precision
        self.weights = flatten_parameters(masters)
        self.weight_views = layout.views(self.weights)
        self.moments = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        device = self.weights.device
        self.step_counts = torch.zeros(len(masters), device=device)
        self.betas = torch.tensor(optimizer.defaults["betas"], device=device, dtype=torch.float64)
        self.one = torch.ones((), device=device)
        self.gradient = torch.zeros_like(low_precision.flat)
        self.gradient_views = layout.views(self.gradient)
        views = (self.step_counts.unbind(), *map(layout.views, self.moments))
        for parameter, *parameter_views in zip(masters, *views, strict=True):
            state: dict[str, Any] = optimizer.state[parameter]
            for name, view in zip(("step", "exp_avg", "exp_avg_sq"), parameter_views, strict=True):
                if name in state:
                    view.copy_(state[name])
                state[name] = view

    @torch.no_grad()
    def sync_weights(self) -> None:
        """Before an update: copy weights that other code has changed, or moved in memory."""
        for parameter, view in zip(self.low_precision.master_parameters, self.weight_views, strict=True):
            if parameter.data_ptr() != view.data_ptr():  # another step of the same model, or `model.to`
                view.copy_(parameter)
                parameter.data = view
                self.low_precision.versions = []
        self.low_precision.refresh_if_changed()

    @torch.no_grad()
    def gather_gradients(self) -> Tensor:
        """The gradients of the copy as one flat vector; those that were not computed in place are copied."""
        parameters = self.low_precision.parameters
        gradients = [
            (view, parameter.grad)
            for view, parameter in zip(self.gradient_views, parameters, strict=True)
            if parameter.grad is not None
        ]
        elsewhere = [(view, gradient) for view, gradient in gradients if gradient.data_ptr() != view.data_ptr()]
        torch._foreach_copy_([view for view, _ in elsewhere], [gradient for _, gradient in elsewhere])
        for parameter in parameters:
            parameter.grad = None
        return self.gradient

    @torch.no_grad()
    def update(self, gradient: Tensor, skipped: Tensor, factor: Tensor | None) -> None:
        """One update by `factor` times the flat gradient, unless `skipped`."""
        settings = self.optimizer.defaults
        self.step_counts += ~skipped
        learning_rate = torch.as_tensor(self.optimizer.param_groups[0]["lr"], device=self.weights.device)
        corrections = (1 - self.betas ** self.step_counts[0]).float()
        factor = self.one if factor is None else factor
        if self.weights.is_cuda:
            from heedful.fused.kernels import adam as kernel

            kernel.update(
                self.weights,
                gradient,
                self.moments,
                self.low_precision.flat,
                learning_rate=learning_rate,
                corrections=corrections,
                factor=factor,
                skipped=skipped,
                betas=settings["betas"],
                epsilon=settings["eps"],
            )
        elif not skipped:
            (exp_avg, exp_avg_sq), (beta1, beta2) = self.moments, settings["betas"]
            gradient = gradient.to(exp_avg.dtype) * factor
            exp_avg.lerp_(gradient, 1 - beta1)
            exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            denominator = (exp_avg_sq / corrections[1]).sqrt() + settings["eps"]
            self.weights.sub_(learning_rate / corrections[0] * exp_avg / denominator)
            self.low_precision.flat.copy_(self.weights)


def supports_flat_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer is plain Adam without weight decay."""
    return type(optimizer) is torch.optim.AdamW and [group["weight_decay"] for group in optimizer.param_groups] == [0.0]
