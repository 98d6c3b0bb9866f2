"""The model at the start of training: built or loaded, moved to its device or sharded, dithered if it was int8."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from heedful.build_model import build_model
from heedful.config import Config, ModelConfig
from heedful.model_dir.int8_weights import FLOAT_TABLES, dither
from heedful.model_dir.weights import put_stored
from heedful.training.distributed import World, gather_weights, is_sharded, rank_seed, to_local
from heedful.training.logging import Reporter


def set_up_model(
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
        world.fully_shard(model, compile_layers=on_gpu if training.compile is None else training.compile)
    else:
        model = model.to(world.device)
    if not world.is_rank0:
        torch.manual_seed(rank_seed(training.seed, world))
    return model


def gather_model(model: nn.Module, config: ModelConfig, world: World) -> nn.Module | None:
    """The whole model on the first rank: itself, or a copy of what is divided; None on the others."""
    if is_sharded(model):
        weights = gather_weights(model, world)
        if world.is_rank0:
            model = build_model(config).to(world.device)
            model.load_state_dict(weights)
    return model if world.is_rank0 else None


@torch.no_grad()
def dither_int8_weights(model: nn.Module, seed: int) -> bool:
    """Dither the matrices that were int8, in place; whether there were any. Every rank draws the same numbers."""
    changed = False
    for name, parameter in model.named_parameters():
        if parameter.ndim != 2 or name.startswith(FLOAT_TABLES):
            continue
        rows = to_local(parameter)
        before = rows.float().cpu().numpy()
        after = dither(before, np.random.default_rng([seed, zlib.crc32(name.encode())]))
        if not np.array_equal(before, after):
            rows.copy_(torch.from_numpy(after))
            changed = True
    return changed
