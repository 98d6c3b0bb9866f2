"""Rewrite a model directory without torch: with int8 weights, or with weight files of another size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful.backend_support import require_support
from heedful.config import Config
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.model_card import model_card
from heedful.model_dir import files as model_files
from heedful.model_dir.files import CARD, CONFIG, INDEX, TOKENIZER, ModelFiles, sha256, shard_bytes
from heedful.model_dir.save_load import load_tokenizer, read_record, write_model
from heedful.model_dir.weights import Int8Matrix, quantize_matrices, read_stored_weights
from heedful.text.tokenizer import Tokenizer


class ModelContents(NamedTuple):
    """The contents of a model directory."""

    stored: Mapping[str, np.ndarray | Int8Matrix]
    config: Config
    tokenizer: Tokenizer
    details: dict[str, Any]
    card: str | None
    """The model card, if it was edited by hand."""
    weights_checksum: str
    """The combined checksum of the weight files."""
    extra: dict[str, bytes]
    """Other files of the model."""


def repack(
    model: str | Path, output: str | Path, *, compact: bool, shard_mb: float | None = None, overwrite: bool = False
) -> list[str]:
    """Copy a model directory: with int8 weights if `compact`, in weight files of at most `shard_mb` MB.

    Returns the tensors that are larger than `shard_mb`, whose files exceed it. A model card that was edited by hand is
    copied; any other is regenerated.
    """
    check_output(Path(model), Path(output), overwrite=overwrite)
    contents = model_files.read_consistent(model, _read)
    details = dict(contents.details)
    tensors: dict[str, np.ndarray] = {}
    for name, one in contents.stored.items():
        tensors |= {name: one.values, f"{name}_scale": one.scales} if isinstance(one, Int8Matrix) else {name: one}
    if compact:
        require_support("native_engine", contents.config.model)
        if not any(isinstance(one, Int8Matrix) for one in contents.stored.values()):
            details["compact"] = {"made_from": contents.weights_checksum}
        tensors = quantize_matrices(tensors)
    size = sum(tensor.nbytes for tensor in tensors.values())
    card = model_card(contents.config, {**details, "weights_size": size}, details.get("scores") or [])
    from safetensors.numpy import save_file

    return write_model(
        output,
        tensors,
        save_file,
        config=contents.config,
        tokenizer=contents.tokenizer,
        details=details,
        card=contents.card or card,
        shard_limit=shard_bytes(shard_mb),
        extra=contents.extra,
    )


def _read(files: ModelFiles) -> ModelContents:
    files.check(name for name in files.entries if name != CARD)
    config, details, _ = read_record(files)
    card = None
    if (
        CARD in files.entries
        and os.path.isfile(files.paths[CARD])
        and sha256(files.paths[CARD]) != files.entries[CARD].sha256
    ):
        card = files.paths[CARD].read_text(encoding="utf-8")
    rewritten = {CONFIG, CARD, INDEX, *TOKENIZER, *files.weights}
    extra = {name: files.paths[name].read_bytes() for name in files.entries if name not in rewritten}
    return ModelContents(
        read_stored_weights(files, config.model),
        config,
        load_tokenizer(files),
        details,
        card,
        files.weights_checksum,
        extra,
    )


def check_output(model: Path, output: Path, *, overwrite: bool) -> None:
    """Raise an error if the output is the model itself, or another model without `overwrite`."""
    if output.exists() and os.path.samefile(model, output):
        raise ConfigError(f"{output} is the model itself; choose another directory with -o.")
    if (output / CONFIG).exists() and not overwrite:
        raise ConfigError(f"{output} already has a model; add --overwrite to replace it, or choose another with -o.")
    if output.exists() and not output.is_dir():
        raise ModelDirectoryError(f"{output} is not a directory; choose another with -o.")
