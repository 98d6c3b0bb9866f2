"""Which files hold the weights: one, or several no larger than asked for, with an index as Hugging Face writes it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heedful.errors import ConfigError, ModelDirectoryError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")
MOST = 99_999


def is_weights(name: str) -> bool:
    """Whether a file of this name holds weights."""
    return name == WEIGHTS or SHARD.fullmatch(name) is not None


def shard_names(count: int) -> list[str]:
    """The names of `count` files of weights; a single one is no shard."""
    if count > MOST:
        raise ConfigError(f"the weights would make {count:,} files; ask for larger shards (at most {MOST:,} files).")
    return [WEIGHTS] if count == 1 else [f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]


def shard_bytes(megabytes: float | None) -> int | None:
    """A size that was asked for in MB, in bytes; None: all weights go into one file."""
    return None if megabytes is None or math.isinf(megabytes) else max(1, int(megabytes * 1e6))


def divide(sizes: Mapping[str, int], limit: int | None) -> list[list[str]]:
    """Names of tensors file by file, in their order; each file within the limit, unless one tensor alone is larger."""
    files: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if limit is not None and files[-1] and filled + size > limit:
            files.append([])
            filled = 0
        files[-1].append(name)
        filled += size
    return files


def index_of(files: Mapping[str, Sequence[str]], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The index of shards: the size of all tensors together, and which file holds which tensor."""
    places = {tensor: name for name, tensors in files.items() for tensor in tensors}
    return {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(sorted(places.items()))}


def check_complete(names: Iterable[str], where: str) -> tuple[str, ...]:
    """The files of weights among `names`, in order: the only one, or all shards of one set and their index."""
    listed = set(names)
    found = sorted(name for name in listed if is_weights(name))
    if not found:
        raise ModelDirectoryError(f"{where} does not name {WEIGHTS}, nor shards of it.")
    if found != shard_names(len(found)) or (INDEX in listed) != (found[0] != WEIGHTS):
        raise ModelDirectoryError(
            f"{where} names {', '.join(found[:3])}, which are not all files of one set of weights with their index; "
            f"copy the whole directory again, or save the model again."
        )
    return tuple(found)
