"""Small untrained models, for tests of everything around a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from heedful.build_model import build_model
from heedful.config import Config, CorpusConfig, DataConfig, ModelConfig, TokenizerConfig
from heedful.interop.export import repack
from heedful.model_dir import save_model
from heedful.text.tokenizer import train_tokenizer


def save_three_languages(
    folder: Path, lines: Sequence[str], *, vocab_size: int, licence: str | None = None, **details: Any
) -> None:
    """Save a model in the subfolder `full`, and a compact one in `en-de-zh`; the tokenizer is trained on the lines."""
    corpora = tuple(
        CorpusConfig("a", "b", source_language="en", target_language=code, both_directions=True)
        for code in ("de", "zh")
    )
    config = Config(name="Three languages", licence=licence, data=DataConfig(train=corpora))
    save_untrained(
        folder / "full", lines, config, vocab_size=vocab_size, tags=("de", "en", "zh"), max_length=64, details=details
    )
    repack(folder / "full", folder / "en-de-zh", compact=True)


def save_untrained(
    directory: Path,
    lines: Sequence[str],
    config: Config,
    *,
    vocab_size: int,
    tags: tuple[str, ...] = (),
    max_length: int = 128,
    details: dict[str, Any],
) -> None:
    """Save a very small model with its initial weights; the tokenizer is trained on the lines."""
    settings = TokenizerConfig(vocab_size=vocab_size)
    tokenizer = train_tokenizer(zip(lines, lines, strict=True), settings, tags=tags)
    size = tokenizer.source_vocab_size
    model = ModelConfig(
        source_vocab_size=size, target_vocab_size=size, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1,
        num_decoder_layers=1, max_length=max_length,
    )  # fmt: skip
    torch.manual_seed(1)
    whole = replace(config, model=model)
    save_model(directory, weights=build_model(model), config=whole, tokenizer=tokenizer, details=details)
