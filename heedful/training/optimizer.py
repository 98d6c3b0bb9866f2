"""Adam and the learning rate schedule as in the paper (section 5.3), Muon, and the budget of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from heedful.config import TrainingConfig
from heedful.errors import ConfigError
from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.tensor_types import Float
from heedful.training.distributed import to_local

MOMENTS = ("exp_avg", "exp_avg_sq", "momentum", "step")
"""Adam's two moments and step count, and the momentum of a matrix that Muon updates."""
PAPER_WARMUP = 4000
WARMUP_SHARE = 0.1


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Adam (AdamW without decay), or Muon for the matrices inside the layers and Adam for the rest.

    Weight decay applies to the matrices of linear layers only.
    """
    for_muon = layer_matrices(model) if config.optimizer == "muon" else []
    taken = {id(matrix) for matrix in for_muon}
    for_adam = [parameter for parameter in model.parameters() if id(parameter) not in taken]
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    decayed = [parameter for parameter in for_adam if config.weight_decay and id(parameter) in matrices]
    kept = {id(parameter) for parameter in decayed}
    others = [parameter for parameter in for_adam if id(parameter) not in kept]
    wanted = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    groups = [group for group in wanted if group["params"]]  # each group needs its own kernel launches
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    settings: dict[str, Any] = {
        "lr": torch.zeros((), device=device) if on_gpu else 0.0,  # a tensor: CUDA graphs read its value
        "betas": config.betas,
        "eps": config.epsilon,
        "fused": device.type in ("cpu", "cuda"),
        "capturable": on_gpu,
    }
    if config.optimizer == "muon":
        return Muon(groups, matrices=for_muon, decay=config.weight_decay, **settings)
    return torch.optim.AdamW(groups, **settings)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all groups."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """This rank's moments and step counts, by name, such as `exp_avg.encoder.norm.weight`."""
    return {
        f"{moment}.{name}": to_local(optimizer.state[parameter][moment])
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in MOMENTS
        if moment in optimizer.state[parameter]
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Restore saved moments and step counts."""
    for name, parameter in model.named_parameters():
        saved = {moment: tensors[f"{moment}.{name}"] for moment in MOMENTS if f"{moment}.{name}" in tensors}
        for moment, tensor in saved.items():
            if moment in optimizer.state[parameter]:
                to_local(optimizer.state[parameter][moment]).copy_(tensor)
            elif moment == "step":
                optimizer.state[parameter][moment] = tensor.to(parameter.device, copy=True)
            else:
                optimizer.state[parameter][moment] = torch.empty_like(parameter, requires_grad=False)
                to_local(optimizer.state[parameter][moment]).copy_(tensor)


MOMENTUM = 0.95
COEFFICIENTS, NUM_ITERATIONS = (3.4445, -4.7750, 2.0315), 5
"""Coefficients of the polynomial that moves singular values towards 1, and how often it is applied."""
ADAM_UPDATE_SIZE = 0.2
"""Typical root mean square of the numbers in an update of Adam."""
SMALLEST_NORM = 1e-7


class Muon(torch.optim.AdamW):
    """Muon (Jordan et al., 2024) for `matrices`, Adam for the groups; the learning rate is that of the first group.

        m ← 0.95 · m + 0.05 · g;   W ← W - rate · 0.2 · √max(rows, columns) · orthogonal(0.95 · m + 0.05 · g)

    The scale (Liu et al., 2025) gives updates the usual size of Adam's, so one learning rate suits both. Embeddings,
    the output matrix, norms and biases are updated by Adam.

    Unlike `torch.optim.Muon`, this one reads the learning rate and the flag to skip an update from the device, as CUDA
    graphs need, and orthogonalises all matrices of one shape together.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, matrices: Sequence[Tensor], decay: float, **adam: Any):
        super().__init__(groups, **adam)
        self.decay = decay
        self.stacks: dict[torch.Size, list[Tensor]] = {}
        for matrix in matrices:
            self.stacks.setdefault(matrix.shape, []).append(matrix)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters unless `found_inf` is set, without waiting for the device."""
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
        if found_inf is not None:  # a momentum averaged with itself stays finite and unchanged
            gradient = torch.where(found_inf > 0, momentum, gradient)
        momentum.lerp_(gradient, 1 - MOMENTUM)
        torch._foreach_copy_(stored, momentum.unbind())
        dtype = torch.bfloat16 if momentum.is_cuda else momentum.dtype
        direction = orthogonalise(gradient.lerp_(momentum, MOMENTUM).to(dtype))
        if self.decay:
            torch._foreach_mul_(matrices, 1 - rate * self.decay)
        size = torch.as_tensor(rate * ADAM_UPDATE_SIZE * math.sqrt(max(matrices[0].shape))).type_as(momentum)
        torch._foreach_sub_(matrices, (size.view(1, 1, 1) * direction).unbind())  # not a scalar, which would be bf16

    def _momentum(self, matrix: Tensor) -> Tensor:
        """The momentum of one matrix, initially zero."""
        state = self.state[matrix]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum: Tensor = state["momentum"]
        return momentum


def orthogonalise(matrices: Float[Tensor, "M R C"]) -> Float[Tensor, "M R C"]:
    """Approximately U·Vᵀ for each matrix U·S·Vᵀ, by the Newton-Schulz iteration on X = matrix / norm:

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
        raise ConfigError("training.optimizer=muon supports Transformers only; use adam for other models.")
    return [module.weight for layer in layers for module in layer.modules() if isinstance(module, nn.Linear)]


@dataclass
class TrainingProgress:
    """Steps, epochs, tokens and time so far; saved in checkpoints."""

    steps: int = 0
    epochs: float = 0.0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Budget:
    """Limits of a run; it stops at the first that is reached."""

    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, config: TrainingConfig) -> Budget:
        """The budget that the configuration sets."""
        return cls(config.steps, config.epochs, config.tokens, config.minutes)

    def num_steps(self, steps_in_epoch: float, tokens_per_step: int) -> float | None:
        """The approximate number of steps; None if only the time is limited."""
        limits = [
            self.steps,
            self.epochs * steps_in_epoch if self.epochs else None,
            self.tokens / tokens_per_step if self.tokens else None,
        ]
        return min((float(number) for number in limits if number), default=None)

    def fraction_used(self, progress: TrainingProgress) -> float:
        """The used fraction of the budget: 0 at the start, 1 or more at the end."""
        fractions = [
            progress.steps / self.steps if self.steps else 0.0,
            progress.epochs / self.epochs if self.epochs else 0.0,
            progress.tokens / self.tokens if self.tokens else 0.0,
            progress.seconds / (60 * self.minutes) if self.minutes else 0.0,
        ]
        return max(fractions)


@dataclass
class Schedule:
    """The learning rate at each step. Unless the budget is in steps, `warmup_steps` is set during the warm-up."""

    config: TrainingConfig
    d_model: int
    warmup_steps: int | None = None
    warmup_progress: float | None = None
    """The fraction of the budget used when the warm-up ended; cosine and linear decay from there."""

    def __post_init__(self) -> None:
        if self.warmup_steps is None:
            self.warmup_steps = self.config.warmup_steps
        others = (self.config.epochs, self.config.tokens, self.config.minutes)
        if self.warmup_steps is None and self.config.steps is not None and not any(others):
            self.warmup_steps = max(1, min(PAPER_WARMUP, round(WARMUP_SHARE * self.config.steps)))
        if self.warmup_steps is not None and self.config.steps is not None and not any(others):
            self.warmup_progress = min(1.0, self.warmup_steps / self.config.steps)

    @property
    def peak(self) -> float:
        """The highest learning rate, reached at the end of the warm-up."""
        if self.config.learning_rate is not None:
            return self.config.learning_rate
        if self.config.schedule != "paper":
            return 5e-4
        # The formula's peak. A warm-up shortened by the budget keeps the peak of the paper's 4,000 steps.
        warmup = self.config.warmup_steps or PAPER_WARMUP
        return (self.config.learning_rate_factor or 1.0) * self.d_model**-0.5 * warmup**-0.5

    def rate(self, step: int, progress: float) -> float:
        """The learning rate of step number `step` (from 1), when the fraction `progress` of the budget is used."""
        if self.warmup_steps is None and (step >= PAPER_WARMUP or progress >= WARMUP_SHARE):
            self.warmup_steps = max(1, step)
        if self.warmup_steps is None:
            return self.peak * max(step / PAPER_WARMUP, progress / WARMUP_SHARE, 1e-3)
        if step <= self.warmup_steps:
            return self.peak * step / self.warmup_steps
        if self.config.schedule in ("paper", "inverse_sqrt"):
            return self.peak * math.sqrt(self.warmup_steps / step)
        if self.config.schedule == "constant":
            return self.peak
        if self.warmup_progress is None:
            self.warmup_progress = progress
        remaining = max(0.0, 1.0 - progress) / max(1e-9, 1.0 - self.warmup_progress)
        if self.config.schedule == "cosine":
            remaining = 0.5 * (1 - math.cos(math.pi * remaining))
        return self.peak * (
            self.config.final_learning_rate_ratio + (1 - self.config.final_learning_rate_ratio) * remaining
        )
