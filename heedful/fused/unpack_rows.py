"""Packed rows taken apart again: groups of sentence pairs of similar length, which a CPU attends to one by one.

A row of 128 tokens holds some four sentences, so three quarters of its attention scores are masked: on a GPU no matter,
on a CPU time. The tokens of a group stand one after the other, without padding; only attention lays them out in a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class PackedRows(Protocol):
    """A batch of rows that hold several sentence pairs each."""

    @property
    def source(self) -> Tensor: ...
    @property
    def source_segments(self) -> Tensor: ...
    @property
    def source_positions(self) -> Tensor: ...
    @property
    def target_input(self) -> Tensor: ...
    @property
    def target_output(self) -> Tensor: ...
    @property
    def target_segments(self) -> Tensor: ...
    @property
    def target_positions(self) -> Tensor: ...


@dataclass(frozen=True)
class Grid:
    """Where the tokens of one side stand when each sentence has a line of its own, for each head.

    A token's vector is seen as `num_heads` short ones; `place` says where each goes in a grid of (sentence, head,
    position).
    """

    num_sentences: int
    num_heads: int
    width: int
    place: Tensor
    ended: Tensor
    """(sentence, position): the places without a token."""

    @classmethod
    def of(cls, lengths: Tensor, num_heads: int) -> Grid:
        """The grid of sentences of these lengths, whose tokens stand one after the other."""
        width = max(1, int(lengths.max()))
        here = torch.arange(width) < lengths[:, None]
        sentence, position = here.nonzero(as_tuple=True)
        place = ((sentence[:, None] * num_heads + torch.arange(num_heads)) * width + position[:, None]).flatten()
        return cls(lengths.numel(), num_heads, width, place, ~here)

    def laid_out(self, x: Tensor) -> Tensor:
        """(tokens, features) as (sentence · head, position, features of a head), with zeros behind a sentence's end."""
        head_dim = x.shape[-1] // self.num_heads
        grid = x.new_zeros(self.num_sentences * self.num_heads * self.width, head_dim)
        return grid.index_copy_(0, self.place, x.reshape(-1, head_dim)).view(-1, self.width, head_dim)

    def taken_back(self, grid: Tensor) -> Tensor:
        """A grid's tokens one after the other again: (tokens, features)."""
        head_dim = grid.shape[-1]
        return grid.reshape(-1, head_dim).index_select(0, self.place).view(-1, self.num_heads * head_dim)


@dataclass(frozen=True)
class Group:
    """Some sentence pairs: the tokens of all sources one after the other, and those of all targets."""

    source: Tensor
    source_positions: Tensor
    source_lengths: Tensor
    target_input: Tensor
    target_output: Tensor
    target_positions: Tensor
    target_lengths: Tensor


def groups_of(rows: PackedRows, num_groups: int) -> list[Group]:
    """The sentence pairs of packed rows, sorted by length, in at most so many groups of about as many tokens."""
    count = int(torch.maximum(rows.source_segments.max(), rows.target_segments.max())) + 1
    sources, targets = _Side.of(rows.source_segments, count), _Side.of(rows.target_segments, count)
    wanted = (targets.lengths > 0).nonzero().flatten()
    if not wanted.numel():
        return []
    longest = torch.maximum(sources.lengths, targets.lengths)[wanted]
    wanted = wanted[longest.argsort(stable=True)]
    ends = (sources.lengths + targets.lengths)[wanted].cumsum(0)
    number = (ends - 1) * num_groups // ends[-1]
    parts = [wanted[number == one] for one in range(num_groups)]
    return [_group(rows, sources, targets, part) for part in parts if part.numel()]


@dataclass(frozen=True)
class _Side:
    """Length of every sentence of one side, by row and segment number, and where it starts in the flat rows."""

    lengths: Tensor
    starts: Tensor

    @classmethod
    def of(cls, segments: Tensor, count: int) -> _Side:
        sentence = (segments + torch.arange(segments.shape[0])[:, None] * count).flatten()
        lengths = torch.bincount(sentence, minlength=segments.shape[0] * count)
        starts = lengths.new_zeros(lengths.numel())
        begins = torch.ones_like(sentence, dtype=torch.bool)
        begins[1:] = sentence[1:] != sentence[:-1]
        first = begins.nonzero().flatten()
        starts[sentence[first]] = first
        lengths.view(segments.shape[0], count)[:, 0] = 0  # segment 0 is padding
        return cls(lengths, starts)

    def tokens(self, wanted: Tensor) -> Tensor:
        """Where the tokens of these sentences stand in the flat rows."""
        lengths = self.lengths[wanted]
        before = lengths.cumsum(0) - lengths
        return torch.arange(int(lengths.sum())) + (self.starts[wanted] - before).repeat_interleave(lengths)


def _group(rows: PackedRows, sources: _Side, targets: _Side, wanted: Tensor) -> Group:
    source, target = sources.tokens(wanted), targets.tokens(wanted)
    return Group(
        source=rows.source.flatten()[source],
        source_positions=rows.source_positions.flatten()[source],
        source_lengths=sources.lengths[wanted],
        target_input=rows.target_input.flatten()[target],
        target_output=rows.target_output.flatten()[target],
        target_positions=rows.target_positions.flatten()[target],
        target_lengths=targets.lengths[wanted],
    )
