"""A model that was exported for CTranslate2: how it is known, and what it tells of itself without its weights."""

from __future__ import annotations

from pathlib import Path

from heedful.config import Config
from heedful.config_loading import from_mapping
from heedful.errors import ModelDirectoryError
from heedful.model_dir.files import parse_json, sha256
from heedful.model_dir.numpy_reader import ModelArrays

RECORD, RECORD_FORMAT, RECORD_VERSION = "heedful.json", "heedful-ctranslate2", 1
"""The file that makes an exported directory complete: our configuration, and the checksums of the other files."""


def read_exported(directory: str | Path) -> ModelArrays:
    """What an exported directory tells of its model, after comparing its files with their checksums; no weights."""
    from heedful.text.tokenizer import Tokenizer

    place = Path(directory)
    record = parse_json(place / RECORD, (place / RECORD).read_bytes())
    if not isinstance(record, dict) or record.get("format") != RECORD_FORMAT:
        raise ModelDirectoryError(f'{place / RECORD} does not describe an exported model; run "heedful export" again.')
    if record.get("format_version") != RECORD_VERSION:
        raise ModelDirectoryError(f"{place / RECORD}: made by another version of heedful; export the model again.")
    for name, expected in record["files"].items():
        if not (place / name).is_file() or sha256(place / name) != expected:
            raise ModelDirectoryError(f"{place / name}: missing or not what was exported; export the model again.")
    return ModelArrays({}, from_mapping(Config, record["config"]), Tokenizer.load(place), record["details"])
