"""The state of a search on the device: room for so many sentences, each with its beams, its past and its memory.

Every sentence has a slot, a step counter and limits of its own, so that finished ones leave and others enter while the
rest goes on. Beams copy no keys and values: `ancestry` tells which beam wrote each position of a beam's past.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.decoding.cuda_graph.decode_ops import BeamHistory, ChunkTopK, CrossAttentionCache
from heedful.decoding.cuda_graph.packed_weights import PackedWeights
from heedful.fused.kernels.decode_constants import NEAR_LIMIT, chunk_size, num_parts


class Capacity(NamedTuple):
    """How much fits in: what a recorded step is made for."""

    slots: int
    beams: int
    target: int
    """Tokens of a translation, its end and one more."""
    source: int
    num_best: int

    @property
    def rows(self) -> int:
        """Activations of a step: slots times beams."""
        return self.slots * self.beams

    @property
    def words(self) -> int:
        """Numbers in the record of a sentence."""
        return self.words_after(self.target)

    def words_after(self, steps: int) -> int:
        """How many of them are in use after so many steps."""
        return 4 * self.num_best + 3 * steps * self.beams


@dataclass(frozen=True)
class SearchState:
    """All tensors of a search. Nothing is allocated while it runs."""

    room: Capacity
    caches: list[Tensor]
    """Of every decoder layer (rows, target room, kept)."""
    memory: Tensor
    """(slots, source room, layers · kept): keys and values of the memory for every decoder layer."""
    ancestry: Tensor
    steps: Tensor
    limits: Tensor
    """(slots, 4): longest and shortest translation, source length, prefix length."""
    forced: Tensor
    """(slots, target room): tokens of the prefix."""
    done: Tensor
    newest: Tensor
    scores: Tensor
    record: Tensor
    """(slots, words): the n-best list as (score, length, parent, log-probability of the end) and of every step and beam
    (token, parent, log-probability); real numbers by their bits."""
    follows: Tensor
    """(states, vocabulary): the state after each token; -1 where it may not come (the end, which is looked at apart,
    too). The first states are those of `heedful.decoding.utf8_automaton`; the last `NEAR_LIMIT` stand for COMPLETE near
    the limit, with room for 0, 1, … tokens after the next."""
    states: Tensor
    """(rows,): where each beam is among them."""
    penalties: Tensor
    logits: Tensor
    chunks: ChunkTopK

    @property
    def num_states(self) -> int:
        """How many states there are, those near the limit left out."""
        return self.follows.shape[0] - NEAR_LIMIT

    @property
    def past(self) -> BeamHistory:
        """What self-attention needs."""
        return BeamHistory(self.ancestry, self.steps, self.done)

    @property
    def sources(self) -> CrossAttentionCache:
        """What cross-attention needs."""
        return CrossAttentionCache(self.memory, self.limits, self.done)


class Activations(NamedTuple):
    """What flows through a stack, for a number of rows."""

    stream: Tensor
    """The residual stream, in float32."""
    x: Tensor
    """What the next product takes."""
    joined: Tensor
    queries: Tensor
    attended: Tensor
    inner: Tensor
    parts: Tensor
    """Capacity for sums that `join` adds up."""

    def parts_of(self, depth: int) -> Tensor:
        """Where a product of this depth leaves its sums: (parts, rows, d_model)."""
        count = num_parts(self.stream.shape[0], depth)
        return self.parts[: count * self.stream.numel()].view(count, *self.stream.shape)


def make_search_state(weights: PackedWeights, room: Capacity, follows: Tensor) -> SearchState:
    """Empty slots: all done, none begun."""
    shape, like = weights.shape, weights.output
    device, layers = like.device, len(weights.decoder.layers)
    num_chunks, candidates = (
        -(-shape.vocabulary // chunk_size(shape.vocabulary)),
        2 * room.beams if room.beams > 1 else 1,
    )

    def integers(*size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, device=device)

    def numbers(*size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float32, device=device)

    return SearchState(
        room=room,
        caches=[like.new_zeros(room.rows, room.target, shape.kept) for _ in range(layers)],
        memory=like.new_zeros(room.slots, room.source, layers * shape.kept),
        ancestry=integers(room.rows, room.target),
        steps=integers(room.slots),
        limits=integers(room.slots, 4),
        forced=integers(room.slots, room.target),
        done=integers(room.slots) + 1,
        newest=integers(room.rows),
        scores=numbers(room.slots, room.beams),
        record=integers(room.slots, room.words),
        follows=follows,
        states=integers(room.rows),
        penalties=numbers(room.target + 1) + 1,
        logits=numbers(room.rows, shape.vocabulary),
        chunks=ChunkTopK(
            numbers(room.rows, num_chunks),
            numbers(room.rows, num_chunks),
            numbers(room.rows, num_chunks, candidates),
            integers(room.rows, num_chunks, candidates),
        ),
    )


def make_activations(weights: PackedWeights, num_rows: int) -> Activations:
    """Capacity for what flows through a stack."""
    shape, like = weights.shape, weights.output
    most = max(num_parts(num_rows, depth) for depth in (shape.d_ff, shape.num_heads * shape.value_dim))
    stream = torch.zeros(num_rows, shape.d_model, dtype=torch.float32, device=like.device)
    return Activations(
        stream=stream,
        x=like.new_zeros(num_rows, shape.d_model),
        joined=like.new_zeros(num_rows, shape.joined),
        queries=like.new_zeros(num_rows, shape.num_heads * shape.key_dim),
        attended=like.new_zeros(num_rows, shape.num_heads * shape.value_dim),
        inner=like.new_zeros(num_rows, shape.d_ff),
        parts=stream.new_zeros(most * stream.numel()),
    )


def estimate_bytes(weights: PackedWeights, room: Capacity) -> int:
    """CrossAttentionCache that such slots take, roughly."""
    shape, layers = weights.shape, len(weights.decoder.layers)
    kept = (room.rows * room.target + room.slots * room.source) * layers * shape.kept * weights.output.element_size()
    return kept + room.rows * (4 * shape.vocabulary + 4 * room.target * 4 + 32 * shape.d_model)
