"""Which model a directory holds: the checksums of all files that its translations depend on."""

from __future__ import annotations

import hashlib
from pathlib import Path

from heedful.config import DecodingConfig
from heedful.model_dir.ctranslate2_record import RECORD, read_exported
from heedful.model_dir.files import CARD, locate, parse_json
from heedful.model_dir.numpy_reader import load_arrays
from heedful.text.language_routing import Directions


def identify_model(directory: str | Path) -> tuple[DecodingConfig, dict[str, str]]:
    """The settings of the search that are saved with a model (or an exported one), and SHA-256 by file."""
    place = Path(directory)
    if (place / RECORD).is_file():
        decoding = read_exported(place).config.decoding
        return decoding, dict(parse_json(place / RECORD, (place / RECORD).read_bytes())["files"])
    decoding = load_arrays(place, with_weights=False).config.decoding
    return decoding, {name: entry.sha256 for name, entry in locate(place).entries.items() if name != CARD}


def identify_weights(directory: str | Path) -> str:
    """The SHA-256 of the file of weights of a model directory; where there are several, of all of theirs."""
    files = locate(Path(directory))
    sums = [files.entries[name].sha256 for name in files.weights]
    return sums[0] if len(sums) == 1 else hashlib.sha256(" ".join(sums).encode()).hexdigest()


def read_directions(directory: str | Path) -> Directions:
    """The directions that the model of a directory (or an exported one) has learned; its weights are not read."""
    place = Path(directory)
    read = read_exported(place) if (place / RECORD).is_file() else load_arrays(place, with_weights=False)
    return Directions.of(read.config.data, read.tokenizer.tags, read.details)
