"""A whole model read without torch: its weights as numpy arrays, with configuration and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Config, ModelConfig
from heedful.errors import ModelDirectoryError
from heedful.model_dir import files as model_files
from heedful.model_dir.files import CARD, SHORTLIST, Files
from heedful.model_dir.int8_weights import Rounded, joined, restored
from heedful.model_dir.save_load import check_vocabularies, load_tokenizer, read_record
from heedful.model_dir.weights import read_header, read_headers

if TYPE_CHECKING:
    import numpy as np

    from heedful.text.tokenizer import Tokenizer

STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I8": "<i1"}
STORED |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1"}


@dataclass(frozen=True)
class ModelArrays:
    """What a model directory holds, as plain data; shared weights stand once, real numbers are float32."""

    weights: Mapping[str, np.ndarray]
    config: Config
    tokenizer: Tokenizer
    details: Mapping[str, Any]


def load_arrays(directory: str | Path, *, with_weights: bool = True) -> ModelArrays:
    """Verify a model directory and read it, without torch; of the rest alone, if it is asked for without weights."""

    def read(files: Files) -> ModelArrays:
        left = {CARD, SHORTLIST} if with_weights else {CARD, SHORTLIST, *files.weights}  # checked by who reads them
        files.check(name for name in files.entries if name not in left)
        config, details, _ = read_record(files)
        tokenizer = load_tokenizer(files)
        check_vocabularies(config, tokenizer, str(files.directory))
        weights = restored(read_stored(files, config.model)) if with_weights else {}
        return ModelArrays(weights, config, tokenizer, details)

    return model_files.steady(directory, read)


def read_stored(files: Files, config: ModelConfig) -> dict[str, np.ndarray | Rounded]:
    """All weights as they are stored: real numbers, or int8 with its scales."""
    read_headers(files, config)
    tensors: dict[str, np.ndarray] = {}
    for name in files.weights:
        tensors |= read_weights(files.paths[name], files.directory / name)
    return joined(tensors, str(files.directory))


def read_weights(path: Path, shown_as: Path) -> dict[str, np.ndarray]:
    """All tensors of a safetensors file; `shown_as` is for the messages."""
    import numpy as np

    header = read_header(path, shown_as)
    with open(path, "rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        numbers = np.frombuffer(file.read(), dtype=np.uint8)
    arrays = {}
    for name, (stored, shape, begin, end) in header.items():
        if end > len(numbers) or stored not in STORED:
            raise ModelDirectoryError(f"{shown_as}: the tensor {name} ({stored}) cannot be read.")
        values = numbers[begin:end].view(STORED[stored]).reshape(shape)
        if stored == "BF16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = values.astype(np.float32) if values.dtype.kind == "f" else values
    return arrays
