"""Sizes that the decoding kernels share with their reference implementations, and limits of the GPU; without Triton."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

PRECISION = "tf32x3"
"""float32 products on tensor cores, each number as two TF32 numbers; loses about the last two bits."""
SPLIT_SIZE = 512
"""Length of a split along K of a matrix product; the partial sums of the splits are added up in order."""
SPLIT_K_ROWS = 64
"""Up to this many rows a matrix product uses split-K: one program for each split."""
MAX_CHUNKS = 16
"""Maximum number of chunks of the vocabulary for top-k."""
NEAR_LIMIT = 3
"""With fewer tokens than this remaining after the next, some UTF-8 characters can no longer be completed in bytes."""
QUERIES = 32
"""Queries in a tile of source self-attention."""


def num_splits(num_rows: int, depth: int) -> int:
    """Number of splits of a matrix product along K; `add_norm` adds up their partial sums."""
    return -(-depth // SPLIT_SIZE) if num_rows <= SPLIT_K_ROWS else 1


def chunk_size(vocabulary: int) -> int:
    """Number of tokens in a chunk of the vocabulary: a power of two."""
    return max(256, 1 << (-(-vocabulary // MAX_CHUNKS) - 1).bit_length())


@lru_cache
def num_multiprocessors(device: torch.device) -> int:
    """Number of multiprocessors."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@lru_cache
def shared_memory(device: torch.device) -> int:
    """Maximum shared memory of a program in bytes; consumer GPUs have less."""
    if device.type != "cuda":
        return 1 << 30
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


@lru_cache
def has_tma(device: torch.device) -> bool:
    """Whether the GPU has a tensor memory accelerator (TMA), which copies tiles to shared memory."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
