"""How many operations a training run's matrix products take, counted on the model itself.

The model is built on the meta device, where shapes flow and nothing is computed, and torch's counter adds up the
products of one row, forward and backward, two operations for each multiply-add. Every row has the same width and every
step the same number of rows, so a run is that figure times rows times steps, with the few empty places of rows in it.
Norms, softmax, dropout, the optimizer, validation and decoding are left out; all these are small beside the products.
"""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from heedful.build_model import build_model
from heedful.config import Config, ModelConfig
from heedful.model.transformer import Transformer
from heedful.run_plan import rows_per_step


def row_flops(config: ModelConfig, width: int) -> int:
    """Operations of one row of `width` source and `width` target tokens: forward, and backward to every weight."""
    with torch.device("meta"):
        model = build_model(config).eval()
        row = torch.zeros(1, width, dtype=torch.long)
    assert isinstance(model, Transformer)
    model.use_attention("explicit")  # a fused kernel would hide its products from the counter
    with FlopCounterMode(display=False) as counter:
        model(row, row).sum().backward()
    return counter.get_total_flops()


def step_flops(config: Config) -> int:
    """Operations of one update."""
    width = config.data.row_width
    assert width is not None
    rows = rows_per_step(config, width)
    return row_flops(config.model, width) * rows * (2 if config.training.r_drop else 1)
