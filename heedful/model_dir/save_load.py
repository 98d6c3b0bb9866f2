"""Saving and loading a whole model: weights, configuration, tokenizer, and the card that describes them.

Checksums, search settings and languages are also read without the weights, of an exported directory too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from heedful.config import Config, DecodingConfig
from heedful.config_loading import from_mapping, to_mapping
from heedful.errors import ConfigError, HeedfulError, ModelDirectoryError, did_you_mean
from heedful.model_dir import files as model_files
from heedful.model_dir.checkpoints import list_checkpoints
from heedful.model_dir.files import (
    CARD,
    CONFIG,
    FORMAT,
    FORMAT_VERSION,
    INDEX,
    NEWEST_VERSION,
    SHORTLIST,
    ModelFiles,
    locate,
    parse_json,
    sha256,
    shard_bytes,
    shard_index,
    shard_names,
    split_into_shards,
)
from heedful.model_dir.registry import EXPORT_FORMAT, EXPORT_RECORD, EXPORT_VERSION
from heedful.model_dir.weights import (
    build,
    collect_tensors,
    dequantize_all,
    load_stored_weights,
    num_elements,
    read_headers,
    read_stored_weights,
    read_tensors,
    save_tensors,
    without_scales,
)
from heedful.text.language_routing import INITIAL_DIRECTIONS_KEY, Directions

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from heedful.build_model import Model
    from heedful.search_types import AttentionWeights
    from heedful.text.tokenizer import Tokenizer


Weights = TypeVar("Weights", "np.ndarray", "AttentionWeights")
KEY = "alignment"
"""Key in the details of config.json."""
REMEDY = "remove it, or choose it again with heedful.decoding.alignment_selection.record_alignment"


@dataclass(frozen=True)
class AlignmentSource:
    """The attention that alignments are read from."""

    layer: int
    """Of the decoder, from 0."""
    offset: int
    """0: the step that predicts a token attends to its source; 1: the step that reads it does."""
    head: int | None = None
    """From 0; None: the mean over all heads of the layer."""

    def rows(self, weights: Weights, num_tags: int) -> Weights:
        """Of the weights of all steps: the row of each target token, the columns of the source without special tokens.

        `weights`: one row a step, the first of which reads the start token and the last the last word.
        """
        last = len(weights) - 1
        return weights[self.offset : self.offset + last, num_tags:-1]

    def to_dict(self) -> dict[str, int | None]:
        """For config.json."""
        return {"layer": self.layer, "offset": self.offset, "head": self.head}


def default_source(num_layers: int) -> AlignmentSource:
    """Where alignments come from in a model without a record.

    The last layer of up to three, otherwise the last but one: the best in most models that were measured.
    """
    return AlignmentSource(layer=max(num_layers - (1 if num_layers <= 3 else 2), 0), offset=0)


def recorded_source(details: Mapping[str, Any], *, num_layers: int, num_heads: int) -> AlignmentSource | None:
    """The source recorded in the details of a model, or None."""
    record = details.get(KEY)
    if record is None:
        return None
    limits = {"layer": num_layers, "offset": 2, "head": num_heads}
    if not isinstance(record, Mapping) or not record.keys() <= limits.keys():
        raise ModelDirectoryError(
            f"config.json: details.{KEY}: expected {', '.join(limits)}, not {record!r}; {REMEDY}."
        )
    for name, limit in limits.items():
        value = record.get(name)
        if (name == "head" and value is None) or (type(value) is int and 0 <= value < limit):
            continue
        raise ModelDirectoryError(
            f"config.json: details.{KEY}.{name}: expected a number from 0 to {limit - 1}, not {value!r}; {REMEDY}."
        )
    return AlignmentSource(record["layer"], record["offset"], record.get("head"))


RECORD_KEYS = ("format", "format_version", "heedful_version", "config", "details")


@dataclass(frozen=True)
class LoadedModel:
    """A model with its configuration, tokenizer and details."""

    model: Model
    config: Config
    tokenizer: Tokenizer
    details: Mapping[str, Any]


@dataclass(frozen=True)
class ModelArrays:
    """The contents of a model directory without torch; shared weights appear once, floats are float32."""

    weights: Mapping[str, np.ndarray]
    config: Config
    tokenizer: Tokenizer
    details: Mapping[str, Any]


def save_model(
    directory: str | Path,
    *,
    weights: nn.Module | Mapping[str, Tensor],
    config: Config,
    tokenizer: Tokenizer,
    details: Mapping[str, Any] | None = None,
    scores: Sequence[Mapping[str, Any]] = (),
    dtype: torch.dtype | None = None,
) -> None:
    """Write a model directory atomically, or replace the model in an existing one.

    `weights` is a model or the state dict of one. `details` describes its training (see `heedful.model_card`),
    `scores` its results (`Score.to_dict`); both go into the card. Floats are stored as float32 by default.
    """
    import torch
    from safetensors.torch import save_file

    from heedful.build_model import num_parameters
    from heedful.model_card import model_card, versions

    model: nn.Module = unwrap_model(weights) if isinstance(weights, torch.nn.Module) else build(config.model)
    state = model.state_dict() if isinstance(weights, torch.nn.Module) else weights
    tensors = collect_tensors(model, state, dtype or torch.float32, f"{directory}: the model to save")
    check_vocabularies(config, tokenizer, str(directory))
    recorded = {
        "num_parameters": num_parameters(model),
        "versions": versions(),
        **plain_data(details or {}),
        "scores": plain_data(list(scores)),
    }

    size = sum(tensor.nbytes for tensor in tensors.values())
    card = model_card(config, {**recorded, "weights_size": size}, recorded["scores"])
    limit = shard_bytes(config.training.shard_mb)
    write_model(
        directory,
        tensors,
        save_file,
        config=config,
        tokenizer=tokenizer,
        details=recorded,
        card=card,
        shard_limit=limit,
    )


def write_model(
    directory: str | Path,
    tensors: Mapping[str, Any],
    save_file: Callable[..., None],
    *,
    config: Config,
    tokenizer: Tokenizer,
    details: Mapping[str, Any],
    card: str,
    shard_limit: int | None,
    extra: Mapping[str, bytes] | None = None,
) -> list[str]:
    """Write all files of a model directory atomically; `save_file` writes tensors of their kind.

    `extra`: further files of the format, by name. Returns the tensors that alone are larger than the limit; their files
    are larger too.
    """
    import shutil

    sizes = {name: int(tensor.nbytes) for name, tensor in tensors.items()}
    shards = split_into_shards(sizes, shard_limit)
    files = dict(zip(shard_names(len(shards)), shards, strict=True))
    is_plain = len(files) == 1 and not any("int8" in str(tensor.dtype) for tensor in tensors.values())
    version = FORMAT_VERSION if is_plain else NEWEST_VERSION

    def write(folder: Path) -> None:
        tokenizer.save(folder)
        record = dict(zip(RECORD_KEYS, (FORMAT, version, _version(), to_mapping(config), details), strict=True))
        (folder / CONFIG).write_text(model_files.to_json(record), encoding="utf-8")
        for name, members in files.items():
            save_tensors(save_file, {member: tensors[member] for member in members}, folder / name)
            shutil.copymode(folder / CONFIG, folder / name)  # safetensors makes files readable only by the owner
        if len(files) > 1:
            (folder / INDEX).write_text(model_files.to_json(shard_index(files, sizes)), encoding="utf-8")
        (folder / CARD).write_text(card, encoding="utf-8")
        for name, contents in (extra or {}).items():
            (folder / name).write_bytes(contents)

    model_files.replace_files(directory, write)
    return [name for name, size in sizes.items() if shard_limit is not None and size > shard_limit]


def save_details(directory: str | Path, more: Mapping[str, Any]) -> None:
    """Add details to a model directory, replacing those of the same names; all other files are unchanged."""
    import shutil

    files = model_files.locate(Path(directory))
    files.check_unexpected()
    files.check(name for name in files.entries if name != CARD)  # a damaged file must not get a new checksum
    record = files.read_json(CONFIG)
    record["details"] = {**read_record(files)[1], **plain_data(more)}

    def write(folder: Path) -> None:
        for name in files.entries:
            shutil.copy2(files.paths[name], folder / name)
        (folder / CONFIG).write_text(model_files.to_json(record), encoding="utf-8")

    model_files.replace_files(directory, write)


def load_model(
    directory: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> LoadedModel:
    """Verify a model directory and build the model in it, in evaluation mode."""
    return model_files.read_consistent(directory, lambda files: _load(files, device=device, dtype=dtype))


def load_arrays(directory: str | Path, *, with_weights: bool = True) -> ModelArrays:
    """Verify a model directory and read it without torch; `with_weights=False` skips the weights."""

    def read(files: ModelFiles) -> ModelArrays:
        unchecked = {CARD, SHORTLIST} if with_weights else {CARD, SHORTLIST, *files.weights}  # checked when read
        files.check(name for name in files.entries if name not in unchecked)
        config, details, _ = read_record(files)
        tokenizer = load_tokenizer(files)
        check_vocabularies(config, tokenizer, str(files.directory))
        weights = dequantize_all(read_stored_weights(files, config.model)) if with_weights else {}
        return ModelArrays(weights, config, tokenizer, details)

    return model_files.read_consistent(directory, read)


def load_weights(directory: str | Path) -> dict[str, Tensor]:
    """The verified tensors of a model directory, on the CPU: shared ones once, int8 as float32."""

    def read(files: ModelFiles) -> dict[str, Tensor]:
        files.check(files.weights)
        return read_tensors(files, read_headers(files, read_record(files)[0].model))

    return model_files.read_consistent(directory, read)


def verify(directory: str | Path) -> list[str]:
    """Check every file, the card included, against `checksums.json`; return their names."""

    def read(files: ModelFiles) -> list[str]:
        files.check(files.entries)
        read_headers(files, read_record(files)[0].model)
        return list(files.entries)

    return model_files.read_consistent(directory, read)


def describe(directory: str | Path) -> dict[str, Any]:
    """Describe a model directory without torch; only the headers of the weights are read."""

    def read(files: ModelFiles) -> dict[str, Any]:
        for name in files.entries:
            if name != CARD:
                files.check_size(name)
        config, details, version = read_record(files)
        header = without_scales(read_headers(files, config.model))
        dtypes = sorted({dtype for dtype, _ in header.values()})
        return {
            "directory": str(files.directory),
            "format_version": files.version,
            "heedful_version": version,
            "num_parameters": details.get("num_parameters", num_elements(header)),
            "num_tensors": len(header),
            "dtypes": dtypes,
            "compact": "I8" in dtypes,
            "weights_size": sum(files.entries[name].size for name in files.weights),
            "files": {name: dict(vars(entry)) for name, entry in files.entries.items()},
            "config": to_mapping(config),
            "details": details,
            "checkpoints": [checkpoint.step for checkpoint in list_checkpoints(files.directory)],
        }

    return model_files.read_consistent(directory, read)


def read_record(files: ModelFiles) -> tuple[Config, dict[str, Any], str]:
    """Configuration, details and heedful version from `config.json`; unknown keys are errors."""
    path = files.directory / CONFIG
    record = files.read_json(CONFIG)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ModelDirectoryError(f'{path} does not describe a heedful model (it lacks "format": "{FORMAT}").')
    model_files.check_version(path, record)
    for key in record:
        if key not in RECORD_KEYS:
            raise ModelDirectoryError(
                f"{path}: unknown key {key!r}{did_you_mean(key, RECORD_KEYS)}; {model_files.DEFAULT_REMEDY}."
            )
    for key in RECORD_KEYS:
        if key not in record:
            raise ModelDirectoryError(f"{path}: the key {key!r} is missing; {model_files.DEFAULT_REMEDY}.")
    check_details(record["details"], path)
    try:
        config = from_mapping(Config, record["config"])
    except ConfigError as error:
        raise ModelDirectoryError(f"{path}: config.{error}") from None
    return config, record["details"], str(record["heedful_version"])


def check_details(details: Any, path: Path) -> None:
    """Check the types of the `details` that heedful reads; other keys belong to the user."""
    if not isinstance(details, dict):
        raise ModelDirectoryError(f"{path}: details: expected named keys, found {details!r}.")
    data = details.get("data") or {}
    corpora = (data.get("corpora") or []) if isinstance(data, dict) else []
    training, lengths = details.get("training") or {}, details.get("lengths") or {}
    before = (training.get(INITIAL_DIRECTIONS_KEY) or []) if isinstance(training, dict) else []
    expected = {
        "data": isinstance(data, dict),
        "data.corpora": isinstance(corpora, list) and all(isinstance(corpus, dict) for corpus in corpora),
        "training": isinstance(training, dict),
        f"training.{INITIAL_DIRECTIONS_KEY}": isinstance(before, list)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in before),
        "lengths": isinstance(lengths, dict) and all(type(value) in (int, float) for value in lengths.values()),
        "scores": isinstance(scores := details.get("scores") or [], list)
        and all(isinstance(score, dict) for score in scores),
        "num_parameters": type(details.get("num_parameters", 0)) is int,
    }
    for name, is_right in expected.items():
        if not is_right:
            raise ModelDirectoryError(f"{path}: details.{name} has an unexpected type; {model_files.DEFAULT_REMEDY}.")


def require_language_model(directory: str | Path) -> None:
    """Raise `ConfigError` unless a model directory holds a language model."""
    if (Path(directory) / EXPORT_RECORD).is_file() or not _read_config(directory).model.is_language_model:
        raise ConfigError(
            f"{directory} is a translation model, not a language model; use `heedful translate -m {directory} …`, or "
            f"train a language model: heedful train --text FILE --model.architecture=decoder."
        )


def require_translation_model(config: Config, directory: str | Path) -> None:
    """Raise `ConfigError` if this is the configuration of a language model."""
    if config.model.is_language_model:
        raise ConfigError(
            f"{directory} is a language model (model.architecture={config.model.architecture}), which does not "
            f"translate; use `heedful generate -m {directory} …`."
        )


def _read_config(directory: str | Path) -> Config:
    return model_files.read_consistent(directory, lambda files: read_record(files)[0])


def check_vocabularies(config: Config, tokenizer: Tokenizer, where: str) -> None:
    """Check that the model has a row for every token id."""
    for side in ("source", "target"):
        ids = getattr(tokenizer, f"{side}_vocab_size")
        rows = getattr(config.model, f"{side}_vocab_size")
        if ids > rows:
            raise ModelDirectoryError(
                f"{where}: the tokenizer has {ids:,} {side} ids but the model only {rows:,} (model.{side}_vocab_size); "
                f"they do not belong together."
            )


def unwrap_model(model: nn.Module) -> nn.Module:
    """The model inside the wrappers of torch.compile and data parallelism."""
    for wrapper in ("_orig_mod", "module"):
        inner = getattr(model, wrapper, None)
        if inner is not None and len(list(model.children())) == 1:
            return unwrap_model(inner)
    return model


def plain_data(value: Any) -> Any:
    """Data that JSON can hold; non-finite numbers become null."""
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # numpy and torch scalars
        return plain_data(value.item())
    raise TypeError(f"details of a model are plain data, not {type(value).__name__}")


def _load(files: ModelFiles, *, device: torch.device | str, dtype: torch.dtype | None) -> LoadedModel:
    files.check(name for name in files.entries if name != CARD)
    config, details, _ = read_record(files)
    tokenizer = load_tokenizer(files)
    check_vocabularies(config, tokenizer, str(files.directory))
    header = read_headers(files, config.model)
    model = build(config.model)
    load_stored_weights(model, read_tensors(files, header), str(files.directory / files.weights[0]))
    return LoadedModel(model.to(device=device, dtype=dtype).eval(), config, tokenizer, details)


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a model directory."""
    from heedful.text.tokenizer import Tokenizer

    try:
        return Tokenizer.load(files.directory, paths=files.paths)
    except (HeedfulError, ValueError, OSError, RuntimeError, KeyError, TypeError) as error:
        raise ModelDirectoryError(f"{files.directory}: the tokenizer cannot be read: {error}") from error


def _version() -> str:
    from heedful import __version__

    return __version__


def identify_model(directory: str | Path) -> tuple[DecodingConfig, dict[str, str]]:
    """The saved search settings of a model (or an exported one), and the SHA-256 of each file."""
    place = Path(directory)
    if (place / EXPORT_RECORD).is_file():
        decoding = read_exported(place).config.decoding
        return decoding, dict(parse_json(place / EXPORT_RECORD, (place / EXPORT_RECORD).read_bytes())["files"])
    decoding = load_arrays(place, with_weights=False).config.decoding
    return decoding, {name: entry.sha256 for name, entry in locate(place).entries.items() if name != CARD}


def identify_weights(directory: str | Path) -> str:
    """The SHA-256 of the weights of a model directory; with shards, of all their checksums."""
    files = locate(Path(directory))
    checksums = [files.entries[name].sha256 for name in files.weights]
    return checksums[0] if len(checksums) == 1 else hashlib.sha256(" ".join(checksums).encode()).hexdigest()


def read_directions(directory: str | Path) -> Directions:
    """The trained directions of a model directory (or an exported one); the weights are not read."""
    place = Path(directory)
    contents = read_exported(place) if (place / EXPORT_RECORD).is_file() else load_arrays(place, with_weights=False)
    require_translation_model(contents.config, directory)
    return Directions.of(contents.config.data, contents.tokenizer.tags, contents.details)


def read_exported(directory: str | Path) -> ModelArrays:
    """The contents of an exported directory without weights, after verifying its checksums."""
    from heedful.text.tokenizer import Tokenizer

    place = Path(directory)
    record = parse_json(place / EXPORT_RECORD, (place / EXPORT_RECORD).read_bytes())
    if not isinstance(record, dict) or record.get("format") != EXPORT_FORMAT:
        raise ModelDirectoryError(
            f'{place / EXPORT_RECORD} does not describe an exported model; run "heedful export" again.'
        )
    if record.get("format_version") != EXPORT_VERSION:
        raise ModelDirectoryError(
            f"{place / EXPORT_RECORD}: made by another version of heedful; export the model again."
        )
    for name, expected in record["files"].items():
        if not (place / name).is_file() or sha256(place / name) != expected:
            raise ModelDirectoryError(f"{place / name}: missing or not what was exported; export the model again.")
    return ModelArrays({}, from_mapping(Config, record["config"]), Tokenizer.load(place), record["details"])
