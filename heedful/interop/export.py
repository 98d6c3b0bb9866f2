"""Export a model: with int8 weights, with weight files of another size, or in the format of CTranslate2.

None of these needs torch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful import __version__
from heedful.atomic_files import REPLACED, fsync_path, replace_directory
from heedful.backend_support import require_support
from heedful.config import Config
from heedful.config_loading import to_mapping
from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.model_card import model_card
from heedful.model_dir import files as model_files
from heedful.model_dir.ctranslate2_format import VOCABULARY_MAP, ctranslate2_files
from heedful.model_dir.files import CARD, CONFIG, INDEX, TOKENIZER, ModelFiles, sha256, shard_bytes, to_json
from heedful.model_dir.registry import EXPORT_FORMAT, EXPORT_RECORD, EXPORT_VERSION
from heedful.model_dir.save_load import ModelArrays, load_arrays, load_tokenizer, read_record, write_model
from heedful.model_dir.shortlist import read_shortlist
from heedful.model_dir.weights import Int8Matrix, quantize_matrices, read_stored_weights
from heedful.text.tokenizer import Tokenizer

README = """\
# A translation model for CTranslate2

Converted from a Heedful model with `heedful export --to ctranslate2 --quantization {quantization}`.

```python
import ctranslate2
import sentencepiece

translator = ctranslate2.Translator("{name}")
source = sentencepiece.SentencePieceProcessor("{name}/{source}")
target = sentencepiece.SentencePieceProcessor("{name}/{target}")
{pieces}
result = translator.translate_batch([pieces], beam_size=4, patience=4, length_penalty=0.6, max_input_length=0)[0]
print(target.decode(result.hypotheses[0]))
```

`heedful translate -m {name}` can also use this directory; it splits long texts and ranks hypotheses as Heedful does.
"""
SHORTLIST_README = """
`vmap.txt` is the model's shortlist: with `use_vmap=True`, `translate_batch` considers only likely translations of the
words in the batch, which is faster.
"""


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


def export_ctranslate2(
    model: str | Path, output: str | Path, *, quantization: str = "float32", overwrite: bool = False
) -> Path:
    """Convert a model directory to CTranslate2's format, atomically and without torch.

    Model options that CTranslate2 does not support raise `ConfigError`. An existing export is replaced only with
    `overwrite`; any other directory that is not empty is never replaced.
    """
    place = Path(output)
    with lock_directory(place.with_name(f".{place.name}.lock")):  # the directory itself is replaced
        return _export(model, place, quantization, overwrite=overwrite)


def _export(model: str | Path, place: Path, quantization: str, *, overwrite: bool) -> Path:
    check_export_directory(place, overwrite=overwrite)
    arrays = load_arrays(model)
    files = ctranslate2_files(arrays, quantization, read_shortlist(model))
    staging = place.with_name(f".{place.name}.writing")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        for name, contents in files.items():
            (staging / name).write_bytes(contents)
        arrays.tokenizer.save(staging)
        names = sorted(os.listdir(staging))
        readme = make_readme(arrays, place.name, quantization) + (SHORTLIST_README if VOCABULARY_MAP in names else "")
        (staging / "README.md").write_text(readme, encoding="utf-8")
        record = {
            "format": EXPORT_FORMAT,
            "format_version": EXPORT_VERSION,
            "heedful_version": __version__,
            "quantization": quantization,
            "files": {name: sha256(staging / name) for name in names},
            "config": to_mapping(arrays.config),
            "details": dict(arrays.details),
        }
        (staging / EXPORT_RECORD).write_text(to_json(record), encoding="utf-8")
        for path in staging.iterdir():
            fsync_path(path)
        replace_directory(staging, place)
        shutil.rmtree(place.with_name(place.name + REPLACED), ignore_errors=True)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise ModelDirectoryError(f"{place}: cannot write the exported model: {error}.") from error
    return place


def check_export_directory(place: Path, *, overwrite: bool) -> None:
    """Raise `ConfigError` if `place` is not empty, unless it is an export and `overwrite` is set."""
    if not os.path.lexists(place):
        return
    if not place.is_dir() or place.is_symlink():
        raise ConfigError(f"{place} is not a directory; choose another with -o.")
    if not any(place.iterdir()):
        return
    if not (place / EXPORT_RECORD).is_file():
        raise ConfigError(f"{place} is not empty and not an exported model; choose another directory with -o.")
    if not overwrite:
        raise ConfigError(f"{place} has an exported model; add --overwrite to replace it, or choose another with -o.")


def make_readme(arrays: ModelArrays, name: str, quantization: str) -> str:
    """The README of the directory, with a snippet that uses the model."""
    joint, tags = arrays.tokenizer.joint, arrays.tokenizer.tags
    pieces = 'pieces = source.encode("A sentence.", out_type=str)'
    if tags:
        others = f", or one of {', '.join(f'<2{tag}>' for tag in tags[1:])}" if tags[1:] else ""
        pieces = (
            f'tag = "<2{tags[0]}>"  # the language to translate into{others}\n{pieces.replace("= ", "= [tag] + ", 1)}'
        )
    return README.format(
        name=name,
        quantization=quantization,
        source="tokenizer.model" if joint else "source.model",
        target="tokenizer.model" if joint else "target.model",
        pieces=pieces,
    )
