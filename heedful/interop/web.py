"""Export to a folder for web pages: the native engine's weights, the tokenizer, and the engine in WebAssembly.

Any static file server can serve the folder. `index.html` in it is an example; `engine.js` is the interface.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from heedful.atomic_files import REPLACED, replace_directory
from heedful.backend_support import require_support
from heedful.errors import ConfigError
from heedful.model_dir.save_load import load_arrays
from heedful.native.convert import native_weights
from heedful.search_types import special_tokens
from heedful.text.language_routing import Directions

ENGINE = Path(__file__).resolve().parents[1] / "web"
ENGINE_FILES = ("engine.js", "worker.js", "engine.wasm", "tokenizer.wasm")
MANIFEST, WEIGHTS = "model.json", "weights.bin"
FORMAT_VERSION = 1


def export_web(model: str | Path, output: str | Path, *, overwrite: bool = False) -> Path:
    """Write the folder; an earlier export is replaced only with `overwrite`, any other folder never."""
    place = Path(output)
    check_place(place, overwrite=overwrite)
    arrays = load_arrays(model, with_weights=False)
    require_support("native_engine", arrays.config.model)
    weights = native_weights(model)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as folder:
        staging = Path(folder, "new")
        staging.mkdir()
        for name in ENGINE_FILES:
            shutil.copyfile(ENGINE / name, staging / name)
        shutil.copytree(ENGINE / "example", staging, dirs_exist_ok=True)
        shutil.copyfile(weights, staging / WEIGHTS)
        arrays.tokenizer.save(staging)
        (staging / "tokenizer.json").unlink()
        (staging / MANIFEST).write_text(
            json.dumps(manifest(model, arrays, staging), ensure_ascii=False, indent=1) + "\n"
        )
        replace_directory(staging, place)
    shutil.rmtree(place.with_name(place.name + REPLACED), ignore_errors=True)
    return place


def check_place(place: Path, *, overwrite: bool) -> None:
    """Raise `ConfigError` if `place` is not empty, unless it is such an export and `overwrite` is set."""
    if not os.path.lexists(place):
        return
    if not place.is_dir() or place.is_symlink():
        raise ConfigError(f"{place} is not a directory; choose another with -o.")
    if not any(place.iterdir()):
        return
    if not (place / MANIFEST).is_file() or not (place / "engine.wasm").is_file():
        raise ConfigError(f"{place} is not empty and not an export for web pages; choose another directory with -o.")
    if not overwrite:
        raise ConfigError(f"{place} has an exported model; add --overwrite to replace it, or choose another with -o.")


def manifest(model: str | Path, arrays: Any, folder: Path) -> dict[str, Any]:
    """What model.json says; web/engine/src/model.ts reads it."""
    tokenizer, config = arrays.tokenizer, arrays.config
    special = special_tokens(tokenizer)
    directions = Directions.of(config.data, tokenizer.tags, arrays.details)
    tokenizers = ["tokenizer.model"] if tokenizer.joint else ["source.model", "target.model"]
    return {
        "format_version": FORMAT_VERSION,
        "name": Path(model).name,
        "directions": [{"source": pair.source, "target": pair.target} for pair in directions.known],
        "tags": list(tokenizer.tags),
        "tag_ids": list(tokenizer.control_ids[: len(tokenizer.tags)]),
        "special": {
            "bos_id": special.bos_id,
            "eos_id": special.eos_id,
            "forbidden": sorted({special.pad_id, special.bos_id, *special.forbidden}),
            "byte_ids": list(special.byte_ids),
        },
        "decoding": {
            "beam_size": config.decoding.beam_size if config.decoding.method == "beam" else 1,
            "length_penalty": config.decoding.length_penalty,
            "length_penalty_alpha": config.decoding.length_penalty_alpha,
            "min_length": config.decoding.min_length,
            "no_repeat_ngram_size": config.decoding.no_repeat_ngram_size,
            "max_length": config.decoding.max_length,
            "max_extra_length": config.decoding.max_extra_length,
        },
        "weights": WEIGHTS,
        "tokenizers": tokenizers,
        "files": {
            name: {
                "bytes": (folder / name).stat().st_size,
                "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
            }
            for name in (WEIGHTS, *tokenizers)
        },
    }
