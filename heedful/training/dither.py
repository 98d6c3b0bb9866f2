"""Fine-tuning from int8 weights: dither before the first update, so that the int8 engines keep what is learned."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import nn

from heedful.model_dir.int8_weights import FLOAT_TABLES, dither
from heedful.training.distributed import local


@torch.no_grad()
def dither_rounded(model: nn.Module, seed: int) -> bool:
    """Dither the matrices that were int8, in place; whether there were any. Every rank draws the same numbers."""
    changed = False
    for name, parameter in model.named_parameters():
        if parameter.ndim != 2 or name.startswith(FLOAT_TABLES):
            continue
        rows = local(parameter)
        before = rows.float().cpu().numpy()
        after = dither(before, np.random.default_rng([seed, zlib.crc32(name.encode())]))
        if not np.array_equal(before, after):
            rows.copy_(torch.from_numpy(after))
            changed = True
    return changed
