"""Sizes that the kernels of decoding and their plain forms must agree on."""

from __future__ import annotations

PRECISION = "tf32x3"
"""How float32 is multiplied on tensor cores: each number as two of TF32, which loses about its last two bits."""
PART = 512
"""Numbers along the depth of a matrix product that are summed before they meet the rest."""
SPREAD_ROWS = 64
"""Up to so many rows the parts of a product are spread over programs."""
MOST_CHUNKS = 16
"""Chunks of the vocabulary whose best are found apart."""
NEAR_LIMIT = 3
"""With room for fewer tokens than this after the next, not every character can be begun byte by byte."""
QUERIES = 32
"""Queries of a source that attend together."""


def num_parts(num_rows: int, depth: int) -> int:
    """Over how many programs the depth of a product is spread, when `join` adds up what they leave."""
    return -(-depth // PART) if num_rows <= SPREAD_ROWS else 1


def chunk_size(vocabulary: int) -> int:
    """Tokens of a chunk of the vocabulary: a power of two."""
    return max(256, 1 << (-(-vocabulary // MOST_CHUNKS) - 1).bit_length())
