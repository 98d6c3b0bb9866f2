"""The model at the start of training: built or loaded, moved to its device or sharded, dithered if it was int8."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from heedful.build_model import build_model
from heedful.config import Config, ModelConfig
from heedful.model_dir.weights import FLOAT_TABLES, dither, load_stored_weights
from heedful.training.distributed import World, gather_weights, is_sharded, rank_seed, to_local
from heedful.training.logging import Reporter


def set_up_model(
    config: Config, world: World, reporter: Reporter, weights: Mapping[str, Tensor] | None = None
) -> nn.Module:
    """The initial model, equal for any number of ranks, on this rank's device or sharded over the ranks.

    `weights` are those of a model directory, as stored; without them the weights are random.
    """
    training = config.training
    is_distributed = world.size > 1
    if training.fused_step and is_distributed:
        reporter.note("training.fused_step needs a single GPU; with several ranks the usual compiled step is used.")
    if training.sharding == "full" and not is_distributed:
        reporter.note("training.sharding=full needs several ranks; with one rank the model is not sharded.")
    torch.manual_seed(training.seed)
    model = build_model(config.model)
    if weights is not None:
        load_stored_weights(model, weights, f"training.init_from: {training.init_from}")
    if training.sharding == "full" and is_distributed:  # from the host: it may not fit on one device
        on_gpu = world.device.type == "cuda"
        world.fully_shard(model, compile_layers=on_gpu if training.compile is None else training.compile)
    else:
        model = model.to(world.device)
    if not world.is_rank0:
        torch.manual_seed(rank_seed(training.seed, world))
    return model


def gather_model(model: nn.Module, config: ModelConfig, world: World) -> nn.Module | None:
    """The model on rank 0, gathered into a copy if it is sharded; None on the other ranks."""
    if is_sharded(model):
        weights = gather_weights(model, world)
        if world.is_rank0:
            model = build_model(config).to(world.device)
            model.load_state_dict(weights)
    return model if world.is_rank0 else None


@torch.no_grad()
def dither_int8_weights(model: nn.Module, seed: int) -> bool:
    """Dither matrices that were stored as int8, in place; returns whether there were any.

    Without dither, the first updates would be lost when the weights are rounded to int8 again. All ranks draw the same
    numbers.
    """
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
