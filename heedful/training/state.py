"""The resume state: everything that makes a stopped run go on as if it had never stopped. Tensors and JSON, no pickle.

Each save is a directory `step-N` written under another name, flushed to disk and renamed; the two newest are kept, so
that a save that was cut short, or damaged later, costs at most the work since the one before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from heedful.errors import TrainingError

FORMAT_VERSION = 1
NUM_KEPT = 2
REPLACED = ".replaced"


@dataclass(frozen=True)
class TrainingState:
    """Named tensors (weights, moments, averages, random states) and plain values (position, counts, best so far)."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


def save_state(directory: Path, step: int, state: TrainingState) -> None:
    """Save a state as `directory/step-N`, complete or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    final, temporary = directory / f"step-{step:09d}", directory / f"incomplete-{step:09d}"
    replaced = directory / f"{final.name}{REPLACED}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    blob = save({name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()})
    write_durably(temporary / "tensors.safetensors", blob)
    described = {
        "format_version": FORMAT_VERSION,
        "sha256": hashlib.sha256(blob).hexdigest(),
        "values": state.values,
    }
    write_durably(temporary / "state.json", json.dumps(described).encode())
    if final.exists():  # never removed before the new one stands in its place
        shutil.rmtree(replaced, ignore_errors=True)
        final.rename(replaced)
    temporary.rename(final)
    flush_directory(directory)
    saved = saved_steps(directory)
    place = saved.index(final) + 1  # what stands after it was passed over as damaged, or the run would not be here
    for old in (*saved[: max(0, place - NUM_KEPT)], *saved[place:]):
        shutil.rmtree(old, ignore_errors=True)
    for leftover in directory.glob("incomplete-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def load_state(directory: Path, note: Callable[[str], None]) -> TrainingState | None:
    """The newest state that is whole; None if there is none. A damaged one is named and the one before it used."""
    saved = saved_steps(directory)
    for candidate in reversed(saved):
        try:
            return _read(candidate)
        except (OSError, ValueError, KeyError, TypeError) as error:
            note(f"{candidate} is damaged ({error}); trying the state before it.")
    if saved:
        raise TrainingError(f"{directory}: no saved state is readable; remove this directory to start anew.")
    return None


def saved_steps(directory: Path) -> list[Path]:
    """The saved states, oldest first; one that was replaced at its own step comes before its successor."""
    paths = [path for path in directory.glob("step-*") if path.is_dir()]
    return sorted(paths, key=lambda path: (path.name.removesuffix(REPLACED), not path.name.endswith(REPLACED)))


def _read(path: Path) -> TrainingState:
    described = json.loads((path / "state.json").read_bytes())
    if described["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version {described['format_version']}, this program reads {FORMAT_VERSION}")
    blob = (path / "tensors.safetensors").read_bytes()
    if hashlib.sha256(blob).hexdigest() != described["sha256"]:
        raise ValueError("the checksum does not match")
    return TrainingState(load(blob), described["values"])


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's random generators, which drive dropout."""
    states = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["random.cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random(tensors: dict[str, Tensor], device: torch.device) -> None:
    """Put the random generators back."""
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Wait until the disk has the directory's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
