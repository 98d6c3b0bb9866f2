"""Sizes that the decoding kernels and their plain forms share."""

from __future__ import annotations

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
    """Number of programs that the depth of a product is spread over; `join` adds up their sums."""
    return -(-depth // PART) if num_rows <= SPREAD_ROWS else 1


def chunk_size(vocabulary: int) -> int:
    """Tokens of a chunk of the vocabulary: a power of two."""
    return max(256, 1 << (-(-vocabulary // MAX_CHUNKS) - 1).bit_length())
