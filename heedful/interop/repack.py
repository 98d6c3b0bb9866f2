"""A model directory written once more: compact (int8), or with its weights in files of another size. Without torch."""

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
from heedful.model_dir.files import CARD, CONFIG, TOKENIZER, Files, sha256
from heedful.model_dir.int8_weights import Rounded, round_matrices
from heedful.model_dir.numpy_reader import read_stored
from heedful.model_dir.save_load import load_tokenizer, read_record, write_model
from heedful.model_dir.shards import INDEX, shard_bytes
from heedful.text.tokenizer import Tokenizer


class Read(NamedTuple):
    """All that is in a model directory."""

    stored: Mapping[str, np.ndarray | Rounded]
    config: Config
    tokenizer: Tokenizer
    details: dict[str, Any]
    card: str | None
    """The card, if a person has edited it."""
    mark: str
    """The checksums of the weights."""
    more: dict[str, bytes]
    """What else belongs to the model."""


def export_own(
    model: str | Path, output: str | Path, *, compact: bool, shard_mb: float | None = None, overwrite: bool = False
) -> list[str]:
    """Write a model directory's model into another: in int8 if `compact`, in files of at most `shard_mb` MB.

    Returns the tensors that alone are larger than that, and so is their file. A card that people have edited goes
    along as it is; any other is written anew.
    """
    check_place(Path(model), Path(output), overwrite=overwrite)
    found = model_files.steady(model, _read)
    details = dict(found.details)
    tensors: dict[str, np.ndarray] = {}
    for name, one in found.stored.items():
        tensors |= {name: one.values, f"{name}_scale": one.scales} if isinstance(one, Rounded) else {name: one}
    if compact:
        require_support("native_engine", found.config.model)
        if not any(isinstance(one, Rounded) for one in found.stored.values()):
            details["compact"] = {"made_from": found.mark}
        tensors = round_matrices(tensors)
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
        more=found.more,
    )


def _read(files: Files) -> Read:
    files.check(name for name in files.entries if name != CARD)
    config, details, _ = read_record(files)
    card = None
    if (
        CARD in files.entries
        and os.path.isfile(files.paths[CARD])
        and sha256(files.paths[CARD]) != files.entries[CARD].sha256
    ):
        card = files.paths[CARD].read_text(encoding="utf-8")
    made_anew = {CONFIG, CARD, INDEX, *TOKENIZER, *files.weights}
    more = {name: files.paths[name].read_bytes() for name in files.entries if name not in made_anew}
    return Read(
        read_stored(files, config.model), config, load_tokenizer(files), details, card, files.weights_mark, more
    )


def check_place(model: Path, output: Path, *, overwrite: bool) -> None:
    """Refuse to write over the model itself, and over another only when told to."""
    if output.exists() and os.path.samefile(model, output):
        raise ConfigError(f"{output} is the model itself; choose another directory with -o.")
    if (output / CONFIG).exists() and not overwrite:
        raise ConfigError(f"{output} already holds a model; add --overwrite to replace it, or choose another with -o.")
    if output.exists() and not output.is_dir():
        raise ModelDirectoryError(f"{output} is not a directory; choose another with -o.")
