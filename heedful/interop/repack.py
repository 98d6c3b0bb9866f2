"""Rewrite a model directory without torch: compact (int8), or with weights in files of another size."""

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
from heedful.model_dir.files import CARD, CONFIG, INDEX, TOKENIZER, Files, sha256, shard_bytes
from heedful.model_dir.int8_weights import Int8Matrix, quantize_matrices
from heedful.model_dir.save_load import load_tokenizer, read_record, write_model
from heedful.model_dir.weights import read_stored
from heedful.text.tokenizer import Tokenizer


class ModelContents(NamedTuple):
    """The contents of a model directory."""

    stored: Mapping[str, np.ndarray | Int8Matrix]
    config: Config
    tokenizer: Tokenizer
    details: dict[str, Any]
    card: str | None
    """The card, if a person has edited it."""
    weights_checksum: str
    """The checksums of the weights."""
    extra: dict[str, bytes]
    """Other files of the model."""


def export_own(
    model: str | Path, output: str | Path, *, compact: bool, shard_mb: float | None = None, overwrite: bool = False
) -> list[str]:
    """Write a model directory's model into another: in int8 if `compact`, in files of at most `shard_mb` MB.

    Returns the tensors that alone are larger than that; their files are larger too. A card that a person has edited is
    copied; any other is written again.
    """
    check_place(Path(model), Path(output), overwrite=overwrite)
    found = model_files.read_consistent(model, _read)
    details = dict(found.details)
    tensors: dict[str, np.ndarray] = {}
    for name, one in found.stored.items():
        tensors |= {name: one.values, f"{name}_scale": one.scales} if isinstance(one, Int8Matrix) else {name: one}
    if compact:
        require_support("native_engine", found.config.model)
        if not any(isinstance(one, Int8Matrix) for one in found.stored.values()):
            details["compact"] = {"made_from": found.weights_checksum}
        tensors = quantize_matrices(tensors)
    size = sum(tensor.nbytes for tensor in tensors.values())
    card = model_card(found.config, {**details, "weights_size": size}, details.get("scores") or [])
    from safetensors.numpy import save_file

    return write_model(
        output,
        tensors,
        save_file,
        config=found.config,
        tokenizer=found.tokenizer,
        details=details,
        card=found.card or card,
        shard_limit=shard_bytes(shard_mb),
        extra=found.extra,
    )


def _read(files: Files) -> ModelContents:
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
        read_stored(files, config.model), config, load_tokenizer(files), details, card, files.weights_checksum, extra
    )


def check_place(model: Path, output: Path, *, overwrite: bool) -> None:
    """Refuse to overwrite the model itself, and another model without `overwrite`."""
    if output.exists() and os.path.samefile(model, output):
        raise ConfigError(f"{output} is the model itself; choose another directory with -o.")
    if (output / CONFIG).exists() and not overwrite:
        raise ConfigError(f"{output} already holds a model; add --overwrite to replace it, or choose another with -o.")
    if output.exists() and not output.is_dir():
        raise ModelDirectoryError(f"{output} is not a directory; choose another with -o.")
