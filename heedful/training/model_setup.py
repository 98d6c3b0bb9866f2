"""Where the model stands while it trains: whole on one device, whole on each rank's, or divided among the ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from heedful.build_model import build_model
from heedful.config import Config, ModelConfig
from heedful.model_dir.weights import put_stored
from heedful.training.distributed import World, is_divided, own_seed, whole_weights
from heedful.training.logging import Reporter


def place_model(
    config: Config, world: World, reporter: Reporter, weights: Mapping[str, Tensor] | None = None
) -> nn.Module:
    """The model as it begins, the same for any number of ranks: whole on this rank's device, or its share of it.

    `weights` are those of a finished model, as it stores them; without them the model is new.
    """
    training, several = config.training, world.size > 1
    if training.fused_step and several:
        reporter.note("training.fused_step is made for one GPU; with several ranks the usual compiled step is used.")
    if training.sharding == "full" and not several:
        reporter.note("training.sharding=full divides the model among several ranks; this one holds all of it.")
    torch.manual_seed(training.seed)
    model = build_model(config.model)
    if weights is not None:
        put_stored(model, weights, f"training.init_from: {training.init_from}")
    if training.sharding == "full" and several:  # layer by layer from the host, so that it is never whole on a device
        on_gpu = world.device.type == "cuda"
        world.divide(model, compile_layers=on_gpu if training.compile is None else training.compile)
    else:
        model = model.to(world.device)
    if not world.is_first:
        torch.manual_seed(own_seed(training.seed, world))
    return model


def collect_model(model: nn.Module, config: ModelConfig, world: World) -> nn.Module | None:
    """The whole model on the first rank: itself, or a copy of what is divided; None on the others."""
    if is_divided(model):
        weights = whole_weights(model, world)
        if world.is_first:
            model = build_model(config).to(world.device)
            model.load_state_dict(weights)
    return model if world.is_first else None
