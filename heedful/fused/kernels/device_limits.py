"""Properties of the GPU that kernels are launched on."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch


@lru_cache
def num_multiprocessors(device: torch.device) -> int:
    """Multiprocessors: how many large programs run at a time."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@lru_cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may use for all its stages; consumer GPUs have less."""
    if device.type != "cuda":
        return 1 << 30
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


@lru_cache
def has_tma(device: torch.device) -> bool:
    """Whether the GPU has a tensor memory accelerator, which copies tiles through shared memory."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
