"""A small model directory for the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.build_model import build_model
from heedful.config import Config
from heedful.config_loading import from_mapping
from heedful.model_dir import save_model
from heedful.text.tokenizer import train_tokenizer


@pytest.fixture(scope="package")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained model."""
    torch.manual_seed(1)
    pairs = [(f"a b c d {n}", f"e f g h {n}") for n in range(50)]
    request = {"tokenizer": {"vocab_size": 280}, "model": {"d_model": 16, "d_ff": 32, "num_heads": 2}}
    sized: dict[str, Any] = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    config = from_mapping(Config, {**request, "model": {**request["model"], **sized}})
    tokenizer = train_tokenizer(pairs, config.tokenizer)
    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": tokenizer.target_vocab_size}
    config = from_mapping(
        Config,
        {**request, "model": {**request["model"], **sized, **sizes}, "decoding": {"max_length": 6, "min_length": 4}},
    )
    folder = tmp_path_factory.mktemp("paper") / "model"
    save_model(folder, weights=build_model(config.model), config=config, tokenizer=tokenizer)
    return folder
