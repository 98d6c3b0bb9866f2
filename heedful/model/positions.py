"""Positions (section 3.5): sinusoidal encodings, learned embeddings, or rotary ones on queries and keys."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.tensor_types import Float, Int


def sinusoidal_encoding(positions: Int[Tensor, "B T"], d_model: int) -> Float[Tensor, "B T D"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) the cosine; for any position, without a table."""
    angles = positions[..., None].float() * inverse_frequencies(d_model, positions.device)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def rotate(x: Float[Tensor, "B H T Dh"], positions: Int[Tensor, "B T"]) -> Float[Tensor, "B H T Dh"]:
    """Rotate each pair of features by an angle proportional to the position, so that q·k depends on the distance only.

    Rotary positions (Su et al., 2021) are newer than the paper; they replace the encoding added to the embeddings.
    """
    angles = positions[:, None, :, None].float() * inverse_frequencies(x.shape[-1], x.device)
    cos, sin = angles.cos(), angles.sin()
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    return rotated.type_as(x)


def shift_matrix(offset: int, d_model: int) -> Float[Tensor, "D D"]:
    """M_k with PE(pos + k) = M_k PE(pos) for every pos (section 3.5): it depends on the offset k only.

    Each pair (sin, cos) of frequency ω is rotated by the angle k·ω: sin(a + b) = sin a cos b + cos a sin b, and
    cos(a + b) = cos a cos b - sin a sin b. Column j is where the rotation takes unit vector j.
    """
    unit_vectors = torch.eye(d_model)[None, None]
    return rotate(unit_vectors, torch.full((1, d_model), -offset))[0, 0].T


def inverse_frequencies(width: int, device: torch.device) -> Float[Tensor, " half"]:
    """1 / 10000^(2i/width) for i = 0 … width/2 - 1: a geometric progression of wavelengths from 2π to 10000·2π."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=device) / width
    return torch.pow(10_000.0, -exponents)


class LearnedPositions(nn.Module):
    """One trained vector for each position (row E of the paper's Table 3)."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_length, d_model)

    def forward(self, positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return self.embedding(positions)


def position_ids(tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Positions 0, 1, 2, … for every row."""
    return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
