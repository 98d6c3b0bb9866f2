"""Adam as in the paper (section 5.3), and its state as plain named tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.config import TrainingConfig
from heedful.training.distributed import local

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Adam (AdamW with no decay is Adam). Weight decay, when set, acts on the matrices of linear layers alone."""
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    decayed = [parameter for parameter in model.parameters() if config.weight_decay and id(parameter) in matrices]
    kept = {id(parameter) for parameter in decayed}
    others = [parameter for parameter in model.parameters() if id(parameter) not in kept]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],  # each group costs an update of its own
        lr=torch.zeros((), device=device) if on_gpu else 0.0,  # on the device, so that a recorded step sees it change
        betas=config.betas,
        eps=config.epsilon,
        fused=device.type in ("cpu", "cuda"),
        capturable=on_gpu,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate for the next update."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Adam's moments and step counts under the parameters' names, e.g. `exp_avg.encoder.norm.weight`; this rank's."""
    return {
        f"{moment}.{name}": local(optimizer.state[parameter][moment])
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
        for moment in MOMENTS
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put saved moments back."""
    for name, parameter in model.named_parameters():
        if f"step.{name}" not in tensors:
            continue
        moments = {moment: torch.empty_like(parameter, requires_grad=False) for moment in MOMENTS if moment != "step"}
        for moment, tensor in moments.items():
            local(tensor).copy_(tensors[f"{moment}.{name}"])
        steps = tensors[f"step.{name}"].to(parameter.device, copy=True)
        optimizer.state[parameter] = {**moments, "step": steps}
