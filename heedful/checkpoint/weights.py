"""Weights on disk: which tensors a model stores, and their safetensors file. Nothing here can run code from a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import ModelDirectoryError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from heedful.build import Model
    from heedful.config import ModelConfig

MAX_HEADER = 100_000_000
SHOWN = 4


def read_header(path: Path, shown_as: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
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


def read_tensors(path: Path, shown_as: Path, header: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, Tensor]:
    """All tensors of the safetensors file whose header was read before, on the CPU."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ModelDirectoryError(f"{shown_as} is damaged: {error}; copy or save the model again.") from None
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != {
        n: shape for n, (_, shape) in header.items()
    }:
        raise ModelDirectoryError(f"{shown_as} changed while it was read; try again.")
    return tensors


def build(config: ModelConfig) -> Model:
    """The model of a configuration, without disturbing the random numbers of whoever asks for it."""
    import torch

    from heedful.build import build_model

    with torch.random.fork_rng(devices=[]):
        return build_model(config)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
