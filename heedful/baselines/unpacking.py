"""From rows to sentences and back: recurrence and convolution cannot stop at a border inside a row.

The Transformer needs none of this: its mask lets several sentence pairs share one row. All is computed on the device;
the host waits for it once a batch, to learn how many sentences there are and how long each is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.tensor_types import Bool, Float, Int


@dataclass(frozen=True)
class Sentences:
    """The sentences of one side of packed rows, one a line; `place` says where in them each token of the rows stands.

    `lengths` are known to the host. Of the target side they never grow from one line to the next.
    """

    tokens: Int[Tensor, "M L"]
    mask: Bool[Tensor, "M L"]
    lengths: list[int]
    place: Int[Tensor, "B T"]
    is_real: Bool[Tensor, "B T"]

    def to_rows(self, values: Float[Tensor, "M L D"]) -> Float[Tensor, "B T D"]:
        """Values of sentences' tokens back in the layout of the rows; zeros on padding."""
        found = values.flatten(0, 1).index_select(0, self.place.flatten()).unflatten(0, self.place.shape)
        return found * self.is_real[..., None]


def unpack_pair(
    source: Int[Tensor, "B S"],
    target: Int[Tensor, "B T"],
    source_segments: Int[Tensor, "B S"] | None,
    target_segments: Int[Tensor, "B T"] | None,
    source_positions: Int[Tensor, "B S"] | None,
    target_positions: Int[Tensor, "B T"] | None,
) -> tuple[Sentences, Sentences]:
    """Both sides of packed rows as sentences, line m of one belonging to line m of the other; long targets first."""
    sides = []
    for tokens, segments, positions in (
        (source, source_segments, source_positions),
        (target, target_segments, target_positions),
    ):
        segments = torch.ones_like(tokens) if segments is None else segments
        counted = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        sides.append((tokens, segments, counted if positions is None else positions))
    most = source.shape[1] + target.shape[1]  # of the pairs of a row each has a token on one side at least
    lengths = torch.stack([lengths_of(segments, positions, most) for _, segments, positions in sides])
    exists = (lengths > 0).any(dim=0)
    order = torch.where(exists, lengths[1] + 1, 0).argsort(descending=True, stable=True)
    line = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    ordered = lengths[:, order]
    known: Tensor = ordered.cpu()  # the only place where the host waits
    num_lines = max(1, int((known > 0).any(dim=0).sum()))
    parts = [
        unpack(
            *side,
            line=line.view(source.shape[0], most),
            device_lengths=ordered[i, :num_lines],
            lengths=known[i].tolist(),
        )
        for i, side in enumerate(sides)
    ]
    return parts[0], parts[1]


def lengths_of(segments: Int[Tensor, "B T"], positions: Int[Tensor, "B T"], most: int) -> Int[Tensor, " B*K"]:
    """How many tokens each segment of each row has, row after row; 0 for the numbers that a row does not use."""
    found = torch.zeros(segments.shape[0], most + 1, dtype=torch.long, device=segments.device)
    return found.scatter_reduce_(1, segments.long(), positions.long() + 1, "amax")[:, 1:].flatten()


def unpack(
    tokens: Int[Tensor, "B T"],
    segments: Int[Tensor, "B T"],
    positions: Int[Tensor, "B T"],
    *,
    line: Int[Tensor, "B K"],
    device_lengths: Int[Tensor, " M"],
    lengths: list[int],
) -> Sentences:
    """Give segment k of row b the line line[b, k - 1] for its own, from its left end on."""
    num_lines = device_lengths.shape[0]
    is_real, longest = segments > 0, max(1, *lengths)
    place = line.gather(1, (segments - 1).clamp(min=0)) * longest + positions
    beyond = num_lines * longest  # where padding goes, to be cut off
    flat = tokens.new_zeros(beyond + 1).scatter_(0, torch.where(is_real, place, beyond).flatten(), tokens.flatten())
    mask = torch.arange(longest, device=tokens.device) < device_lengths[:, None]
    place = torch.where(is_real, place, 0)
    return Sentences(flat[:beyond].view(num_lines, longest), mask, lengths[:num_lines], place, is_real)
