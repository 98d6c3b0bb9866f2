"""What kernels must know of the GPU that they run on."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch


@lru_cache
def units(device: torch.device) -> int:
    """Its processors: how many large programs run at a time."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@lru_cache
def shared_memory(device: torch.device) -> int:
    """Bytes at a program's hand, which its stages share; GPUs for games have less than those for computing."""
    if device.type != "cuda":
        return 1 << 30
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


@lru_cache
def copies_by_itself(device: torch.device) -> bool:
    """Whether an engine of its own copies tiles between memory and a program's hand, which takes room there."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
