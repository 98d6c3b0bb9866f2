"""Averages of weights: of the last snapshots (section 6.1), and a moving one while training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]


def copy_weights(model: nn.Module) -> Weights:
    """The model's weights and buffers, copied."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def average_weights(all_weights: Iterable[Mapping[str, Tensor]]) -> Weights:
    """The mean of several sets of weights, summed in double precision; takes them one at a time."""
    sums: Weights = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for weights in all_weights:
        for name, tensor in weights.items():
            dtypes[name] = tensor.dtype
            sums[name] = sums[name] + tensor.double() if count else tensor.double()
        count += 1
    if not count:
        raise ValueError("there are no weights to average")
    return {name: (total / count).to(dtypes[name]) for name, total in sums.items()}


class MovingAverage:
    """Exponential moving average of the weights: average ← decay · average + (1 - decay) · weights, after each update.

    Early on the decay is smaller, (1 + n) / (10 + n), so that the first random weights are forgotten quickly.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.num_updates = decay, 0
        self.weights = copy_weights(model)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights after one more update."""
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        current = model.state_dict()
        torch._foreach_lerp_([self.weights[name] for name in current], list(current.values()), 1 - decay)
