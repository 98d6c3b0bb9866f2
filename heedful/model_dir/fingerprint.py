"""Checksums, search settings and languages of a model directory or an exported one, without reading the weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

from heedful.config import Config, DecodingConfig
from heedful.config_loading import from_mapping
from heedful.errors import ModelDirectoryError
from heedful.model_dir.files import CARD, locate, parse_json, sha256
from heedful.model_dir.registry import EXPORT_FORMAT, EXPORT_RECORD, EXPORT_VERSION
from heedful.model_dir.save_load import ModelArrays, load_arrays
from heedful.text.language_routing import Directions


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
