"""From rows to sentences and back: recurrence and convolution cannot stop at a border inside a row.

The Transformer needs none of this: its mask lets several sentence pairs share one row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.shapes import Bool, Float, Int


@dataclass(frozen=True)
class Sentences:
    """The sentences of one side of packed rows, one each; `place` says where in them each token of the rows stands."""

    tokens: Int[Tensor, "M L"]
    mask: Bool[Tensor, "M L"]
    place: Int[Tensor, "B T"]
    is_real: Bool[Tensor, "B T"]

    def to_rows(self, values: Float[Tensor, "M L D"]) -> Float[Tensor, "B T D"]:
        """Values of sentences' tokens back in the layout of the rows; zeros on padding."""
        return values.flatten(0, 1)[self.place] * self.is_real[..., None]


def unpack_pair(
    source: Int[Tensor, "B S"],
    target: Int[Tensor, "B T"],
    source_segments: Int[Tensor, "B S"] | None,
    target_segments: Int[Tensor, "B T"] | None,
    source_positions: Int[Tensor, "B S"] | None,
    target_positions: Int[Tensor, "B T"] | None,
) -> tuple[Sentences, Sentences]:
    """Both sides of packed rows as sentences, line m of one belonging to line m of the other."""
    sides = []
    for tokens, segments, positions in (
        (source, source_segments, source_positions),
        (target, target_segments, target_positions),
    ):
        segments = torch.ones_like(tokens) if segments is None else segments
        counted = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        sides.append((tokens, segments, counted if positions is None else positions))
    most = max(1, *(int(segments.max()) for _, segments, _ in sides))
    exists = torch.zeros(source.shape[0], most, dtype=torch.bool, device=source.device)
    for _, segments, _ in sides:  # which pairs there are, row by row
        exists |= (segments[:, None, :] == torch.arange(1, most + 1, device=source.device)[:, None]).any(dim=2)
    line = (exists.flatten().cumsum(0) - 1).view_as(exists)
    return unpack(*sides[0], line=line), unpack(*sides[1], line=line)


def unpack(
    tokens: Int[Tensor, "B T"], segments: Int[Tensor, "B T"], positions: Int[Tensor, "B T"], *, line: Int[Tensor, "B K"]
) -> Sentences:
    """Give segment k of row b the line line[b, k - 1] for its own, from its left end on."""
    is_real = segments > 0
    length = int(positions[is_real].max()) + 1 if bool(is_real.any()) else 1
    place = line.gather(1, (segments - 1).clamp(min=0)) * length + positions
    place = torch.where(is_real, place, 0)
    flat = tokens.new_zeros(max(1, int(line[-1, -1]) + 1) * length)
    mask = torch.zeros_like(flat, dtype=torch.bool)
    flat[place[is_real]], mask[place[is_real]] = tokens[is_real], True
    return Sentences(flat.view(-1, length), mask.view(-1, length), place, is_real)
