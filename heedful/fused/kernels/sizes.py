"""Sizes that the decoding kernels share with their plain forms, and limits of the GPU; imports no Triton."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

PRECISION = "tf32x3"
"""float32 on tensor cores: each number as two of TF32, which loses about the last two bits."""
PART = 512
"""Numbers along the depth of a matrix product that are summed before the parts are added up."""
SPREAD_ROWS = 64
"""Up to this many rows the parts of a product are spread over programs."""
MAX_CHUNKS = 16
"""Most chunks of the vocabulary whose best tokens are found separately."""
NEAR_LIMIT = 3
"""With fewer tokens left than this after the next, not every character can be started byte by byte."""
QUERIES = 32
"""Queries in a tile of source self-attention."""


def num_parts(num_rows: int, depth: int) -> int:
    """Number of programs that the depth of a product is spread over; `add_norm` adds up their sums."""
    return -(-depth // PART) if num_rows <= SPREAD_ROWS else 1


def chunk_size(vocabulary: int) -> int:
    """Tokens of a chunk of the vocabulary: a power of two."""
    return max(256, 1 << (-(-vocabulary // MAX_CHUNKS) - 1).bit_length())


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
