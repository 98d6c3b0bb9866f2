"""Weights on disk: which tensors a model stores, and their safetensors file. Nothing here can run code from a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.checkpoint.compact import joined, restored
from heedful.checkpoint.directory import Files
from heedful.checkpoint.shards import INDEX
from heedful.errors import ModelDirectoryError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from heedful.build import Model
    from heedful.config import ModelConfig

MAX_HEADER = 100_000_000
SHOWN = 4
Header = dict[str, tuple[str, tuple[int, ...]]]
"""Type and shape of tensors by their names."""


def read_headers(files: Files) -> Header:
    """Type and shape of each stored tensor, out of all files of the weights; their index must tell the same."""
    found: Header = {}
    places: dict[str, str] = {}
    for name in files.weights:
        header = read_header(files.paths[name], files.directory / name)
        if twice := found.keys() & header.keys():
            raise ModelDirectoryError(f"{files.directory / name} holds {min(twice)}, which another file holds too.")
        found |= header
        places |= dict.fromkeys(header, name)
    if INDEX in files.entries:
        index = files.read_json(INDEX)
        if not isinstance(index, dict) or index.get("weight_map") != places:
            raise ModelDirectoryError(f"{files.directory / INDEX} tells of other tensors than the files hold.")
    return found


def read_header(path: Path, shown_as: Path) -> Header:
    """Type and shape of each tensor in a safetensors file, read without torch. `shown_as` is for the messages."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if start[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            raise ModelDirectoryError(
                f"{shown_as} is a pickle of PyTorch, not a safetensors file; heedful never opens pickles."
            )
        if len(start) < 8 or length > min(MAX_HEADER, path.stat().st_size - 8):
            raise ModelDirectoryError(f"{shown_as} is not a safetensors file.")
        text = file.read(length)
    try:
        plain = json.loads(text)
        plain.pop("__metadata__", None)
        return {name: (str(entry["dtype"]), tuple(map(int, entry["shape"]))) for name, entry in plain.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ModelDirectoryError(f"{shown_as} is not a safetensors file: its header cannot be read.") from None


def num_numbers(header: Mapping[str, tuple[str, tuple[int, ...]]]) -> int:
    """How many numbers the tensors of a header hold together."""
    return sum(math.prod(shape) for _, shape in header.values())


def stored_names(model: nn.Module) -> dict[str, str]:
    """For each name in the state dict the name it is stored under: its own, or that of the tensor it shares."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in model.state_dict(keep_vars=True).items()}


def check_shapes(model: nn.Module, found: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Compare tensors that are about to be stored or loaded with those the model has."""
    stored = set(stored_names(model).values())
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name in stored}
    wrong = [name for name in expected if name in found and found[name] != expected[name]]
    problems = {
        "lacks": [name for name in expected if name not in found],
        "has unknown": [name for name in found if name not in expected],
        "has the wrong shape for": [f"{name} ({found[name]} instead of {expected[name]})" for name in wrong],
    }
    told = [f"{what} {_some(names)}" for what, names in problems.items() if names]
    if told:
        raise ModelDirectoryError(f"{where} does not fit its configuration: it {'; it '.join(told)}.")


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


def put_stored(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Give a model on the CPU the weights of a model directory, of which shared ones are stored once."""
    check_shapes(model, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, where)
    model.load_state_dict({name: tensors[stored] for name, stored in stored_names(model).items()})


def build(config: ModelConfig) -> Model:
    """The model of a configuration, without disturbing the random numbers of whoever asks for it."""
    import torch

    from heedful.build import build_model

    with torch.random.fork_rng(devices=[]):
        return build_model(config)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
