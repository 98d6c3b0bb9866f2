"""Adam as in the paper (section 5.3), or Muon beside it, and their state as plain named tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from heedful.config import TrainingConfig
from heedful.training.distributed import local
from heedful.training.muon import Muon, layer_matrices

MOMENTS = ("exp_avg", "exp_avg_sq", "momentum", "step")
"""Adam's two means and its count of steps; of a matrix that Muon learns, the momentum alone."""


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Adam (AdamW with no decay is Adam), for the matrices inside the layers Muon if so configured.

    Weight decay, when set, acts on the matrices of linear layers alone.
    """
    for_muon = layer_matrices(model) if config.optimizer == "muon" else []
    taken = {id(matrix) for matrix in for_muon}
    for_adam = [parameter for parameter in model.parameters() if id(parameter) not in taken]
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    decayed = [parameter for parameter in for_adam if config.weight_decay and id(parameter) in matrices]
    kept = {id(parameter) for parameter in decayed}
    others = [parameter for parameter in for_adam if id(parameter) not in kept]
    wanted = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    groups = [group for group in wanted if group["params"]]  # each group costs an update of its own
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    settings: dict[str, Any] = {
        "lr": torch.zeros((), device=device) if on_gpu else 0.0,  # there, so that a recorded step sees it change
        "betas": config.betas,
        "eps": config.epsilon,
        "fused": device.type in ("cpu", "cuda"),
        "capturable": on_gpu,
    }
    if config.optimizer == "muon":
        return Muon(groups, matrices=for_muon, decay=config.weight_decay, **settings)
    return torch.optim.AdamW(groups, **settings)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate for the next update."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Moments and step counts under the parameters' names, e.g. `exp_avg.encoder.norm.weight`; this rank's."""
    return {
        f"{moment}.{name}": local(optimizer.state[parameter][moment])
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in MOMENTS
        if moment in optimizer.state[parameter]
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put saved moments back."""
    for name, parameter in model.named_parameters():
        saved = {moment: tensors[f"{moment}.{name}"] for moment in MOMENTS if f"{moment}.{name}" in tensors}
        for moment, tensor in saved.items():
            if moment in optimizer.state[parameter]:
                local(optimizer.state[parameter][moment]).copy_(tensor)
            elif moment == "step":
                optimizer.state[parameter][moment] = tensor.to(parameter.device, copy=True)
            else:
                optimizer.state[parameter][moment] = torch.empty_like(parameter, requires_grad=False)
                local(optimizer.state[parameter][moment]).copy_(tensor)
