"""Weights on disk: which tensors a model stores, and their safetensors file. Nothing here can run code from a file."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.errors import ModelDirectoryError
from heedful.model_dir.files import Files
from heedful.model_dir.int8_weights import KEPT, SCALE, joined, restored, without_scales
from heedful.model_dir.shards import INDEX
from heedful.model_dir.weight_shapes import stored_names, weight_shapes

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from heedful.build_model import Model
    from heedful.config import ModelConfig

MAX_HEADER = 4_000_000  # bytes; that of a model with 256 layers has about one million
SHOWN = 4
Header = dict[str, tuple[str, tuple[int, ...]]]
"""Type and shape of tensors by their names."""
ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1, "I16": 2, "U16": 2}
ITEM_BYTES |= {"I32": 4, "U32": 4, "I64": 8, "U64": 8}
FLOATS = ("F64", "F32", "F16", "BF16")
MOST_DIMENSIONS = 8


class HeaderEntry(NamedTuple):
    """One tensor of a safetensors file: where it begins and ends behind the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @classmethod
    def read(cls, entry: Any) -> HeaderEntry:
        """Check the types of an entry; a ValueError or KeyError says that it is none."""
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, *offsets]
        if dtype not in ITEM_BYTES or len(offsets) != 2 or len(shape) > MOST_DIMENSIONS:
            raise ValueError
        if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers):
            raise ValueError
        return cls(dtype, tuple(shape), *offsets)

    @property
    def num_bytes(self) -> int:
        """What numbers of this type and shape take."""
        return ITEM_BYTES[self.dtype] * math.prod(self.shape)


def read_headers(files: Files, config: ModelConfig) -> Header:
    """Type and shape of each stored tensor, from all files of the weights, checked before any of them is loaded.

    Every tensor lies inside its file and overlaps no other, the index of the shards agrees with the files, and names,
    types and shapes are those that the configuration asks for. Both engines read weights only after this check.
    """
    found: Header = {}
    shards: dict[str, str] = {}
    for name in files.weights:
        header = read_header(files.paths[name], files.directory / name)
        if twice := found.keys() & header.keys():
            raise ModelDirectoryError(f"{files.directory / name} holds {min(twice)}, which another file holds too.")
        found |= {tensor: (entry.dtype, entry.shape) for tensor, entry in header.items()}
        shards |= dict.fromkeys(header, name)
    if INDEX in files.entries:
        index = files.read_json(INDEX)
        if not isinstance(index, dict) or index.get("weight_map") != shards:
            raise ModelDirectoryError(f"{files.directory / INDEX} lists other tensors than the files hold.")
    where = str(files.directory / files.weights[0])
    compare_shapes(weight_shapes(config), {name: shape for name, (_, shape) in without_scales(found).items()}, where)
    check_types(found, where)
    return found


def check_types(header: Header, where: str) -> None:
    """Weights are real numbers, or matrices of int8 with a float32 scale for each row."""
    for name, (dtype, shape) in header.items():
        if dtype == "I8":
            wanted: tuple[object, ...] = ("F32", shape[:1])
            if len(shape) != 2 or header.get(f"{name}{SCALE}") != wanted or name.startswith(KEPT):
                raise ModelDirectoryError(
                    f"{where}: {name} is int8 and has not one float32 scale for each of its rows."
                )
        elif dtype not in FLOATS:
            raise ModelDirectoryError(
                f"{where}: {name} has the type {dtype}; weights are one of {', '.join(FLOATS)}, I8."
            )


def read_header(path: Path, shown_as: Path) -> dict[str, HeaderEntry]:
    """The entries of a safetensors file, every bound checked, without torch. `shown_as` is for the messages."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if start[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            raise ModelDirectoryError(
                f"{shown_as} is a pickle of PyTorch, not a safetensors file; heedful never opens pickles."
            )
        size = os.fstat(file.fileno()).st_size
        if len(start) < 8 or length > size - 8:
            raise ModelDirectoryError(f"{shown_as} is not a safetensors file.")
        if length > MAX_HEADER:
            raise ModelDirectoryError(f"{shown_as}: its header has {length:,} bytes; {MAX_HEADER:,} are allowed.")
        text = file.read(length)
    try:
        plain = json.loads(text)
        plain.pop("__metadata__", None)
        entries = {str(name): HeaderEntry.read(entry) for name, entry in plain.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ModelDirectoryError(f"{shown_as} is not a safetensors file: its header cannot be read.") from None
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end or entry.end - entry.begin != entry.num_bytes:
            raise ModelDirectoryError(f"{shown_as} is damaged: {name} does not lie where its header says.")
        end = entry.end
    if end != size - 8 - length:
        raise ModelDirectoryError(
            f"{shown_as} is damaged: its tensors take {end:,} bytes and the file has {size - 8 - length:,}."
        )
    return entries


def num_numbers(header: Mapping[str, tuple[str, tuple[int, ...]]]) -> int:
    """How many numbers the tensors of a header hold together."""
    return sum(math.prod(shape) for _, shape in header.values())


def check_shapes(model: nn.Module, found: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Compare tensors that are about to be stored or loaded with those the model has."""
    stored = set(stored_names(model).values())
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name in stored}
    compare_shapes(expected, found, where)


def compare_shapes(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], where: str) -> None:
    """The same names with the same shapes; an error names the first few that differ."""
    wrong = [name for name in expected if name in found and found[name] != expected[name]]
    problems = {
        "lacks": [name for name in expected if name not in found],
        "has unknown": [name for name in found if name not in expected],
        "has the wrong shape for": [f"{name} ({found[name]} instead of {expected[name]})" for name in wrong],
    }
    listed = [f"{what} {_some(names)}" for what, names in problems.items() if names]
    if listed:
        raise ModelDirectoryError(f"{where} does not fit its configuration: it {'; it '.join(listed)}.")


def collect(model: nn.Module, weights: Mapping[str, Tensor], dtype: torch.dtype, where: str) -> dict[str, Tensor]:
    """The tensors to store: on the CPU, real numbers as `dtype`, shared ones once."""
    aliases = stored_names(model)
    kept = {name: tensor for name, tensor in weights.items() if aliases.get(name, name) == name}
    check_shapes(model, {name: tuple(tensor.shape) for name, tensor in kept.items()}, where)
    tensors = {}
    for name, tensor in kept.items():
        tensor = tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        tensors[name] = tensor if whole else tensor.clone()
    return tensors


def read_tensors(files: Files, header: Header) -> dict[str, Tensor]:
    """All weights whose headers were read before, on the CPU; those kept in int8 as real numbers again."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for name in files.weights:
        try:
            tensors |= load_file(files.paths[name])
        except SafetensorError as error:
            shown_as = files.directory / name
            raise ModelDirectoryError(f"{shown_as} is damaged: {error}; copy or save the model again.") from None
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != {
        n: shape for n, (_, shape) in header.items()
    }:
        raise ModelDirectoryError(f"{files.directory}: the weights changed while they were read; try again.")
    if not any(dtype == "I8" for dtype, _ in header.values()):
        return tensors
    whole = joined({name: tensor.numpy() for name, tensor in tensors.items()}, str(files.directory))
    return {name: torch.from_numpy(array) for name, array in restored(whole).items()}


def save_tensors(save_file: Callable[..., None], tensors: Mapping[str, Any], path: Path) -> None:
    """Write a safetensors file; what the system refuses, such as a full disk, is an `OSError` that names the file."""
    from safetensors import SafetensorError

    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error


def put_stored(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Give a model on the CPU the weights of a model directory, of which shared ones are stored once."""
    check_shapes(model, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, where)
    model.load_state_dict({name: tensors[stored] for name, stored in stored_names(model).items()})


def build(config: ModelConfig) -> Model:
    """The model of a configuration, without disturbing the random numbers of whoever asks for it."""
    import torch

    from heedful.build_model import build_model

    with torch.random.fork_rng(devices=[]):
        return build_model(config)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
