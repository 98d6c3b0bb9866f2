"""Muon (Jordan et al., 2024) beside Adam: the matrices inside the layers move along their orthogonalised momentum.

    m ← 0.95 · m + 0.05 · g;   W ← W - rate · 0.2 · √max(rows, columns) · orthogonal(0.95 · m + 0.05 · g)

The scale (Liu et al., 2025) gives such an update the size that Adam's usually have, so that one learning rate suits
both. Embeddings, the output matrix, norms and biases are learned by Adam.

torch has an optimizer of this name. Ours takes the learning rate and the flag to skip an update from the device, as a
recorded step needs, and orthogonalises all matrices of one shape together instead of one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.tensor_types import Float

MOMENTUM = 0.95
COEFFICIENTS, NUM_ITERATIONS = (3.4445, -4.7750, 2.0315), 5
"""Of the polynomial that brings singular values near 1, steep where they are small, and how often it is applied."""
SIZE_OF_ADAM = 0.2
SMALLEST_NORM = 1e-7


class Muon(torch.optim.AdamW):
    """Adam for the parameters of its groups, Muon for `matrices`; their learning rate is that of the first group."""

    def __init__(self, groups: Sequence[dict[str, Any]], *, matrices: Sequence[Tensor], decay: float, **adam: Any):
        super().__init__(groups, **adam)
        self.decay = decay
        self.stacks: dict[torch.Size, list[Tensor]] = {}
        for matrix in matrices:
            self.stacks.setdefault(matrix.shape, []).append(matrix)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update everything, unless `found_inf` is set; nothing waits for the device."""
        loss = super().step(closure)
        found_inf = getattr(self, "found_inf", None)
        for stack in self.stacks.values():
            gradients = {matrix: matrix.grad for matrix in stack if matrix.grad is not None}
            if gradients:
                self._update(list(gradients), torch.stack(list(gradients.values())), found_inf)
        return loss

    def _update(self, matrices: list[Tensor], gradient: Float[Tensor, "M R C"], found_inf: Tensor | None) -> None:
        """Update matrices of one shape."""
        rate = self.param_groups[0]["lr"] * (1.0 if found_inf is None else 1 - found_inf)
        stored = [self._momentum(matrix) for matrix in matrices]
        momentum = torch.stack(stored)
        if found_inf is not None:  # a momentum that meets itself stays what it is, and finite
            gradient = torch.where(found_inf > 0, momentum, gradient)
        momentum.lerp_(gradient, 1 - MOMENTUM)
        torch._foreach_copy_(stored, momentum.unbind())
        dtype = torch.bfloat16 if momentum.is_cuda else momentum.dtype
        direction = orthogonalised(gradient.lerp_(momentum, MOMENTUM).to(dtype))
        if self.decay:
            torch._foreach_mul_(matrices, 1 - rate * self.decay)
        size = torch.as_tensor(rate * SIZE_OF_ADAM * math.sqrt(max(matrices[0].shape))).type_as(momentum)
        torch._foreach_sub_(matrices, (size.view(1, 1, 1) * direction).unbind())  # with axes, so not rounded to bf16

    def _momentum(self, matrix: Tensor) -> Tensor:
        """The momentum of one matrix, at first zero."""
        state = self.state[matrix]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum: Tensor = state["momentum"]
        return momentum


def orthogonalised(matrices: Float[Tensor, "M R C"]) -> Float[Tensor, "M R C"]:
    """Each matrix U·S·Vᵀ as nearly U·Vᵀ, all together, by Newton and Schulz's iteration on X = matrix / norm:

    X ← a·X + (b·A + c·A²)·X  with  A = X·Xᵀ
    """
    linear, cubic, quintic = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices  # A is the smaller of the two squares
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(NUM_ITERATIONS):
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=cubic, alpha=quintic)
        x = torch.baddbmm(x, polynomial, x, beta=linear)
    return x.mT if is_tall else x


def layer_matrices(model: nn.Module) -> list[Tensor]:
    """The weights of all linear layers inside a Transformer's encoder and decoder layers."""
    layers = [module for module in model.modules() if isinstance(module, (EncoderLayer, DecoderLayer))]
    if not layers:
        raise ConfigError("training.optimizer=muon learns the layers of a Transformer; use adam for other models.")
    return [module.weight for layer in layers for module in layer.modules() if isinstance(module, nn.Linear)]
