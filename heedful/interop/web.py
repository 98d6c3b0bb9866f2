"""Models for web pages: the native engine's weights, the tokenizer, and model.json, which describes both.

`export_web` writes a model with the engine in WebAssembly and an example page into a folder that any static file server
can serve; `engine.js` is the interface. `heedful see` takes the files of its models from here too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heedful.atomic_files import REPLACED, replace_directory
from heedful.backend_support import require_support
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model_dir.save_load import (
    AlignmentSource,
    ModelArrays,
    default_source,
    load_arrays,
    recorded_source,
    require_translation_model,
)
from heedful.model_dir.weights import weight_shapes
from heedful.native.convert import native_weights
from heedful.search_types import special_tokens
from heedful.text.language_names import english_and_chinese_name
from heedful.text.language_routing import Directions

BUILT = Path(__file__).resolve().parents[1] / "web"
EXAMPLE, TRANSLATE = "example", "translate"
"""Folders of heedful/web/ with the example page, and with the page of `heedful serve`."""
ENGINE_FILES = ("engine.js", "worker.js", "engine.wasm", "engine_threads.wasm", "tokenizer.wasm")
MANIFEST, WEIGHTS = "model.json", "weights.bin"
FORMAT_VERSION = 1
BUFFERS = ("running_mean", "running_variance")
"""Stored tensors of a BatchNorm that are not parameters."""
SHOWN_OPTIONS = (
    "architecture", "d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers", "norm_placement",
    "norm", "norm_epsilon", "positions", "activation", "attention_scoring", "self_attention", "cross_attention",
    "attention_window", "tying", "bias", "cell", "kernel_size", "source_vocab_size", "target_vocab_size", "max_length",
)  # fmt: skip
"""The options of the model that the page draws."""


@dataclass(frozen=True)
class WebFile:
    """A file for a browser: its contents, or the path of a large one."""

    content: bytes | Path

    @cached_property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    @cached_property
    def sha256(self) -> str:
        """The checksum."""
        if isinstance(self.content, bytes):
            return hashlib.sha256(self.content).hexdigest()
        with self.content.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write(self, path: Path) -> None:
        """Write the contents to a new file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(self.content, bytes):
            path.write_bytes(self.content)
        else:
            shutil.copyfile(self.content, path)


def export_web(model: str | Path, output: str | Path, *, overwrite: bool = False) -> Path:
    """Write the folder; an earlier export is replaced only with `overwrite`, any other folder never."""
    place = Path(output)
    check_place(place, overwrite=overwrite)
    files = built_files()
    example = {name.removeprefix(f"{EXAMPLE}/"): file for name, file in files.items() if name.startswith(f"{EXAMPLE}/")}
    write_folder({**{name: files[name] for name in ENGINE_FILES}, **example, **model_files(model)}, place)
    return place


def check_place(place: Path, *, overwrite: bool) -> None:
    """Raise `ConfigError` if `place` is not empty, unless it is such an export and `overwrite` is set."""
    if is_empty_or_missing(place, "-o"):
        return
    if not (place / MANIFEST).is_file() or not (place / "engine.wasm").is_file():
        raise ConfigError(f"{place} is not empty and not an export for web pages; choose another directory with -o.")
    if not overwrite:
        raise ConfigError(f"{place} has an exported model; add --overwrite to replace it, or choose another with -o.")


def is_empty_or_missing(place: Path, flag: str) -> bool:
    """Whether a folder can be written without replacing anything; `ConfigError` for what is not a folder."""
    if not os.path.lexists(place):
        return True
    if not place.is_dir() or place.is_symlink():
        raise ConfigError(f"{place} is not a directory; choose another with {flag}.")
    return not any(place.iterdir())


def write_folder(files: Mapping[str, WebFile], place: Path) -> None:
    """Write the files into a new folder, and then put it in the place of `place`."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as folder:
        staging = Path(folder, "new")
        staging.mkdir()
        for name, file in files.items():
            file.write(staging / name)
        replace_directory(staging, place)
    shutil.rmtree(place.with_name(place.name + REPLACED), ignore_errors=True)


def built_files() -> dict[str, WebFile]:
    """What web/build.py built: the engine, the page and the example page, by path."""
    files = {
        path.relative_to(BUILT).as_posix(): WebFile(path.read_bytes())
        for path in sorted(BUILT.rglob("*"))
        if path.is_file()
    }
    missing = [name for name in (*ENGINE_FILES, f"{EXAMPLE}/index.html") if name not in files]
    if missing:
        raise ConfigError(f"{BUILT} lacks {', '.join(missing)}; install heedful again, or run python web/build.py.")
    return files


def model_files(model: str | Path, name: str | None = None) -> dict[str, WebFile]:
    """Every file of a model that runs in a page; model.json gives it `name`, by default that of the directory."""
    arrays = load_arrays(model, with_weights=False)
    require_translation_model(arrays.config, model)
    require_support("native_engine", arrays.config.model)
    with tempfile.TemporaryDirectory() as folder:
        arrays.tokenizer.save(folder)
        tokenizers = {path.name: WebFile(path.read_bytes()) for path in sorted(Path(folder).glob("*.model"))}
    files = {WEIGHTS: WebFile(native_weights(model)), **tokenizers}
    described = {
        **manifest(model, arrays, name),
        "weights": WEIGHTS,
        "tokenizers": list(tokenizers),
        "files": {name: {"bytes": file.size, "sha256": file.sha256} for name, file in files.items()},
    }
    return {MANIFEST: json_file(described), **files}


def manifest_of_served_model(model: str | Path, name: str | None = None) -> WebFile:
    """model.json of a model that a server runs: without weights and tokenizers."""
    arrays = load_arrays(model, with_weights=False)
    require_translation_model(arrays.config, model)
    return json_file({**manifest(model, arrays, name), "weights": "", "tokenizers": [], "files": {}})


def json_file(plain: Any) -> WebFile:
    """A JSON file."""
    return WebFile((json.dumps(plain, ensure_ascii=False, indent=1) + "\n").encode())


def manifest(model: str | Path, arrays: ModelArrays, name: str | None) -> dict[str, Any]:
    """What model.json says of a model apart from its files; web/engine/src/model.ts reads it."""
    tokenizer, config = arrays.tokenizer, arrays.config
    special = special_tokens(tokenizer)
    directions = Directions.of(config.data, tokenizer.tags, arrays.details)
    codes = dict.fromkeys(code for pair in directions.known for code in (pair.source, pair.target) if code)
    return {
        "format_version": FORMAT_VERSION,
        "name": name or Path(os.path.abspath(model)).name,
        "title": config.name or "",
        "directions": [{"source": pair.source, "target": pair.target} for pair in directions.known],
        "languages": {code: names for code in codes if (names := english_and_chinese_name(code))},
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
        "alignment": alignment_source(arrays).to_dict(),
        "model": describe_architecture(config.model),
    }


def alignment_source(arrays: ModelArrays) -> AlignmentSource:
    """The attention that alignments are read from: the recorded one, or the default for the number of layers."""
    num_layers, num_heads = arrays.config.model.num_decoder_layers, arrays.config.model.num_heads
    recorded = recorded_source(arrays.details, num_layers=num_layers, num_heads=num_heads)
    return recorded or default_source(num_layers)


def describe_architecture(config: ModelConfig) -> dict[str, Any]:
    """The options of a model, and the number of parameters of each part, such as `encoder.layers.0.self_attention`."""
    parameters = Counter[str]()
    for name, shape in weight_shapes(config).items():
        if not name.endswith(BUFFERS):
            parameters[part_of(name)] += math.prod(shape)
    return {
        **{name: getattr(config, name) for name in SHOWN_OPTIONS},
        "head_dim": config.attention_head_dim,
        "key_dim": config.attention_key_dim,
        "final_norm": config.has_final_norm,
        "num_parameters": parameters.total(),
        "parameters": dict(parameters),
    }


def part_of(weight: str) -> str:
    """The part of the model that a weight belongs to: a sublayer or norm of a layer, a norm, an embedding."""
    parts = weight.split(".")
    length = 4 if parts[1:2] == ["layers"] else 2 if parts[0] in ("encoder", "decoder", "attention", "tables") else 1
    return ".".join(parts[: min(length, max(len(parts) - 1, 1))])
