"""Averages of weights: of the last checkpoints (section 6.1), of model directories, and a moving average."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.model_dir import describe, load_model, load_weights, save_model
from heedful.training.distributed import to_local

Weights = dict[str, Tensor]


def copy_weights(model: nn.Module) -> Weights:
    """A copy of the model's weights and buffers; of a sharded model, this rank's rows."""
    return {name: to_local(tensor.detach()).clone() for name, tensor in model.state_dict().items()}


def average_weights(all_weights: Iterable[Mapping[str, Tensor]]) -> Weights:
    """The mean of several state dicts, summed in double precision; they are read one at a time."""
    sums: Weights = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for weights in all_weights:
        for name, tensor in weights.items():
            dtypes[name] = tensor.dtype
            sums[name] = sums[name] + tensor.double() if count else tensor.double()
        count += 1
    if not count:
        raise ValueError("no weights to average")
    return {name: (total / count).to(dtypes[name]) for name, total in sums.items()}


class MovingAverage:
    """Exponential moving average of the weights: average ← decay · average + (1 - decay) · weights, after each update.

    The first decays are smaller, (1 + n) / (10 + n), so that the initial weights are forgotten quickly.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.num_updates = 0
        self.weights = copy_weights(model)
        self._tensors = model.state_dict(keep_vars=True)  # building it in every step is slow

    @torch.no_grad()
    def update(self) -> None:
        """Add the model's weights after an update."""
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        averages = [self.weights[name] for name in self._tensors]
        torch._foreach_lerp_(averages, [to_local(tensor) for tensor in self._tensors.values()], 1 - decay)


def average_models(directories: Sequence[str | Path], output: str | Path) -> None:
    """Average the weights of models of one shape and one tokenizer into a new model directory."""
    if len(directories) < 2:
        raise ConfigError("average needs at least two model directories.")
    described = [describe(directory) for directory in directories]
    for one in described:
        if one["compact"]:
            raise ConfigError(
                f"{one['directory']}: a compact model's weights are rounded to int8 and cannot be averaged. Average "
                f"the full models and export the result: heedful export --to compact."
            )
    for other in described[1:]:
        for key, value in described[0]["config"]["model"].items():
            if other["config"]["model"][key] != value:
                raise ConfigError(
                    f"model.{key} is {value!r} in {directories[0]} and {other['config']['model'][key]!r} in "
                    f"{other['directory']}; only models of one shape can be averaged."
                )
        if _tokenizer_files(other) != _tokenizer_files(described[0]):
            raise ConfigError(
                f"{other['directory']}: has another tokenizer than {directories[0]}; their weights cannot be averaged."
            )
    first = load_model(directories[0])
    weights = average_weights(load_weights(directory) for directory in directories)
    details = {
        **first.details,
        "training": {**first.details.get("training", {}), "weights": f"average of {len(directories)} models"},
    }
    details.pop("scores", None)
    save_model(output, weights=weights, config=first.config, tokenizer=first.tokenizer, details=details)


def _tokenizer_files(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in described["files"].items() if name.endswith(".model")}
