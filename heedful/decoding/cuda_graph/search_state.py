"""The state of a search on the device, and the step of beam search over it, by the rules of `heedful.decoding.search`.

Every slot has a separate step counter and limits, so that a finished sentence is replaced while the others continue.
Beams do not copy keys and values: `ancestry` records which beam wrote each position of a beam's history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.decoding.cuda_graph.packed_weights import PackedWeights
from heedful.fused.kernels.sizes import NEAR_LIMIT, chunk_size, num_splits


class Capacity(NamedTuple):
    """The sizes for which a step is captured as a graph."""

    slots: int
    beams: int
    target: int
    """Tokens of a translation, its end token and one more."""
    source: int
    num_best: int

    @property
    def rows(self) -> int:
        """Rows of a step: slots times beams."""
        return self.slots * self.beams

    @property
    def record_width(self) -> int:
        """Numbers in the record of a sentence."""
        return self.record_width_after(self.target)

    def record_width_after(self, steps: int) -> int:
        """How many of them are used after this many steps."""
        return 4 * self.num_best + 3 * steps * self.beams


class BeamHistory(NamedTuple):
    """What self-attention needs to find the keys and values of earlier steps."""

    ancestry: Tensor
    """(rows, capacity): which beam of the sentence wrote each position of a row's history."""
    steps: Tensor
    """(slots,): positions written so far."""
    done: Tensor


class CrossAttentionCache(NamedTuple):
    """Keys and values of the encoder output, for cross-attention."""

    values: Tensor
    """(slots, capacity, layers · kv_width): keys and values of every layer."""
    limits: Tensor
    done: Tensor


class ChunkTopK(NamedTuple):
    """The largest logits of each row and chunk of the vocabulary, and what log-softmax needs."""

    largest: Tensor
    total: Tensor
    """Sum of exp(logit - largest)."""
    logits: Tensor
    """(rows, chunks, candidates): the largest logits of allowed tokens."""
    tokens: Tensor


@dataclass(frozen=True)
class SearchState:
    """All tensors of a search. Nothing is allocated while it runs."""

    capacity: Capacity
    caches: list[Tensor]
    """For each decoder layer (rows, target capacity, kv_width)."""
    cross_cache: Tensor
    """(slots, source capacity, layers · kv_width): keys and values of the encoder output for every decoder layer."""
    ancestry: Tensor
    steps: Tensor
    limits: Tensor
    """(slots, 4): maximum and minimum length of the translation, source length, prefix length."""
    forced: Tensor
    """(slots, target capacity): tokens of the prefix."""
    done: Tensor
    newest: Tensor
    scores: Tensor
    record: Tensor
    """(slots, record width): the n-best list as (score, length, parent, log-probability of the end), then
    (token, parent, log-probability) of every step and beam; floating-point numbers are stored as their bits."""
    transitions: Tensor
    """(states, vocabulary): the next state for each token; -1 if it is not allowed, and for the end, which is handled
    separately. The first states are those of `heedful.decoding.utf8_automaton`; the last `NEAR_LIMIT` stand for
    COMPLETE near the maximum length, with 0, 1, … tokens remaining after the next."""
    states: Tensor
    """(rows,): the state of each beam."""
    penalties: Tensor
    logits: Tensor
    chunks: ChunkTopK

    @property
    def num_states(self) -> int:
        """Number of states, without those near the maximum length."""
        return self.transitions.shape[0] - NEAR_LIMIT

    @property
    def history(self) -> BeamHistory:
        """The input of self-attention."""
        return BeamHistory(self.ancestry, self.steps, self.done)

    @property
    def cross_attention(self) -> CrossAttentionCache:
        """The input of cross-attention."""
        return CrossAttentionCache(self.cross_cache, self.limits, self.done)


class Activations(NamedTuple):
    """Buffers for the activations of a stack."""

    stream: Tensor
    """The residual stream, in float32."""
    x: Tensor
    """Input of the next matrix product."""
    qkv: Tensor
    queries: Tensor
    attended: Tensor
    inner: Tensor
    parts: Tensor
    """Partial sums of a matrix product, added up by `add_norm`."""

    def partial_sums(self, depth: int) -> Tensor:
        """The buffer for a matrix product of this depth: (parts, rows, d_model)."""
        count = num_splits(self.stream.shape[0], depth)
        return self.parts[: count * self.stream.numel()].view(count, *self.stream.shape)


def make_search_state(weights: PackedWeights, capacity: Capacity, transitions: Tensor) -> SearchState:
    """A search state in which all slots are free."""
    shape, like = weights.shape, weights.output
    device, layers = like.device, len(weights.decoder.layers)
    num_chunks, candidates = (
        -(-shape.vocabulary // chunk_size(shape.vocabulary)),
        2 * capacity.beams if capacity.beams > 1 else 1,
    )

    def integers(*size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, device=device)

    def numbers(*size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.float32, device=device)

    return SearchState(
        capacity=capacity,
        caches=[like.new_zeros(capacity.rows, capacity.target, shape.kv_width) for _ in range(layers)],
        cross_cache=like.new_zeros(capacity.slots, capacity.source, layers * shape.kv_width),
        ancestry=integers(capacity.rows, capacity.target),
        steps=integers(capacity.slots),
        limits=integers(capacity.slots, 4),
        forced=integers(capacity.slots, capacity.target),
        done=integers(capacity.slots) + 1,
        newest=integers(capacity.rows),
        scores=numbers(capacity.slots, capacity.beams),
        record=integers(capacity.slots, capacity.record_width),
        transitions=transitions,
        states=integers(capacity.rows),
        penalties=numbers(capacity.target + 1) + 1,
        logits=numbers(capacity.rows, shape.vocabulary),
        chunks=ChunkTopK(
            numbers(capacity.rows, num_chunks),
            numbers(capacity.rows, num_chunks),
            numbers(capacity.rows, num_chunks, candidates),
            integers(capacity.rows, num_chunks, candidates),
        ),
    )


def make_activations(weights: PackedWeights, num_rows: int) -> Activations:
    """Allocate the activations of a stack."""
    shape, like = weights.shape, weights.output
    max_splits = max(num_splits(num_rows, depth) for depth in (shape.d_ff, shape.num_heads * shape.value_dim))
    stream = torch.zeros(num_rows, shape.d_model, dtype=torch.float32, device=like.device)
    return Activations(
        stream=stream,
        x=like.new_zeros(num_rows, shape.d_model),
        qkv=like.new_zeros(num_rows, shape.qkv_width),
        queries=like.new_zeros(num_rows, shape.num_heads * shape.key_dim),
        attended=like.new_zeros(num_rows, shape.num_heads * shape.value_dim),
        inner=like.new_zeros(num_rows, shape.d_ff),
        parts=stream.new_zeros(max_splits * stream.numel()),
    )


def estimate_bytes(weights: PackedWeights, capacity: Capacity) -> int:
    """Approximate memory use of a search state with this capacity."""
    shape, layers = weights.shape, len(weights.decoder.layers)
    cache = (
        (capacity.rows * capacity.target + capacity.slots * capacity.source)
        * layers
        * shape.kv_width
        * weights.output.element_size()
    )
    return cache + capacity.rows * (4 * shape.vocabulary + 4 * capacity.target * 4 + 32 * shape.d_model)


def has_kernels(tensor: Tensor) -> bool:
    """Whether the device of this tensor has the kernels."""
    return tensor.is_cuda


def admit(slots: SearchState, numbers: Tensor, settings: Tensor, *, start: int) -> None:
    """Start new sentences in the slots with these numbers (-1: none), each with its row of limits."""
    if has_kernels(slots.steps):
        from heedful.fused.kernels import decode_topk

        decode_topk.admit(
            numbers, settings, slots.steps, slots.limits, slots.done, slots.newest, slots.scores, slots.record,
            slots.states, start=start, num_best=slots.capacity.num_best, num_states=slots.num_states,
        )  # fmt: skip
        return
    admitted = numbers[numbers >= 0].long()
    slots.limits[admitted] = settings.view(-1, 4)[numbers >= 0]
    slots.steps[admitted], slots.done[admitted] = 0, 0
    slots.newest.view(slots.capacity.slots, -1)[admitted] = start
    limits_left = slots.limits[admitted, 0] - 1
    first_states = torch.where(limits_left < NEAR_LIMIT, slots.num_states + limits_left.clamp(min=0), 0)
    slots.states.view(slots.capacity.slots, -1)[admitted] = first_states[:, None]
    slots.scores[admitted] = torch.tensor([0.0, *[-torch.inf] * (slots.capacity.beams - 1)])
    slots.record.view(torch.float32)[admitted, : 4 * slots.capacity.num_best : 4] = -torch.inf


def select_tokens(slots: SearchState, *, end: int) -> None:
    """Select the next token of every sentence that is not done."""
    if has_kernels(slots.steps):
        from heedful.fused.kernels import decode_topk

        decode_topk.select_tokens(
            slots.logits, *slots.chunks, slots.steps, slots.limits, slots.forced, slots.done, slots.newest,
            slots.scores, slots.ancestry, slots.record, slots.penalties, slots.transitions, slots.states,
            end=end, num_best=slots.capacity.num_best, num_states=slots.num_states,
        )  # fmt: skip
        return
    for slot in range(slots.capacity.slots):
        if not slots.done[slot]:
            select_reference(slots, slot, end)


def select_reference(slots: SearchState, slot: int, end: int) -> None:
    """Reference implementation of `select_tokens` for one sentence."""
    beams, step = slots.capacity.beams, int(slots.steps[slot])
    longest = int(slots.limits[slot, 0])
    live: list[tuple[float, int, int, float]] = []
    for number, (score, parent, token, log_prob) in enumerate(candidates(slots, slot, end)):
        if token != end and len(live) < beams:
            live.append((score, parent, token, log_prob))
        elif token == end and number < beams:
            add_finished(slots, slot, score / float(slots.penalties[step + 1]), parent, log_prob)
    live += [(-torch.inf, 0, 0, 0.0)] * (beams - len(live))
    scores, parents, tokens, log_probs = zip(*live, strict=True)
    record, numbers = slots.record[slot], slots.record.view(torch.float32)[slot]
    first = 4 * slots.capacity.num_best + 3 * step * beams
    step_slice = slice(first, first + 3 * beams)
    record[step_slice][0::3], record[step_slice][1::3] = torch.tensor(tokens), torch.tensor(parents)
    numbers[step_slice][2::3] = torch.tensor(log_probs)
    rows = slice(slot * beams, (slot + 1) * beams)
    if beams > 1:
        slots.ancestry[rows, :step] = slots.ancestry[rows][list(parents), :step]
        slots.ancestry[rows, step] = torch.tensor(parents, dtype=torch.int32)
    states, remaining = slots.states[rows].tolist(), longest - step - 2
    next_states = [next_state(slots, states[p], token, remaining) for p, token in zip(parents, tokens, strict=True)]
    slots.states[rows] = torch.tensor(next_states, dtype=torch.int32)
    slots.newest[rows] = torch.tensor(tokens, dtype=torch.int32)
    slots.scores[slot] = torch.tensor(scores)
    worst, best = numbers[4 * slots.capacity.num_best - 4], slots.scores[slot, 0]
    is_final = worst > -torch.inf if beams == 1 else best / slots.penalties[longest + 1] <= worst
    done = bool(is_final) or bool(best == -torch.inf) or step >= longest
    slots.done[slot], slots.steps[slot] = done, step if done else step + 1


def next_state(slots: SearchState, state: int, token: int, remaining: int) -> int:
    """The state after a token. After a token that is not allowed (in a prefix) it is the state after it from COMPLETE.

    `remaining`: number of tokens after the next one.
    """
    following = int(slots.transitions[state, token])
    following = following if following >= 0 else max(int(slots.transitions[0, token]), 0)
    return slots.num_states + max(remaining, 0) if following == 0 and remaining < NEAR_LIMIT else following


def candidates(slots: SearchState, slot: int, end: int) -> list[tuple[float, int, int, float]]:
    """The best 2N (score, beam, token, log-probability); of equal scores the earlier beam, then the lower token."""
    beams, step = slots.capacity.beams, int(slots.steps[slot])
    longest, shortest, _, prefix = slots.limits[slot].tolist()
    rows = slice(slot * beams, (slot + 1) * beams)
    top = slots.chunks.largest[rows].amax(dim=1)
    log_sum = (slots.chunks.total[rows] * (slots.chunks.largest[rows] - top[:, None]).exp()).sum(dim=1).log()
    free = prefix <= step < longest
    special = int(slots.forced[slot, step]) if step < min(prefix, longest) else end
    found: list[tuple[float, int, int, float]] = []
    for beam, alive in enumerate(slots.scores[slot]):
        row = slot * beams + beam
        tokens = slots.chunks.tokens[row].flatten().tolist() if free else []
        logits = slots.chunks.logits[row].flatten().tolist() if free else []
        inside = 0 < int(slots.states[row]) < slots.num_states
        if not free or (step >= shortest and not inside):
            tokens, logits = [*tokens, special], [*logits, float(slots.logits[row, special])]
        log_probs = (torch.tensor(logits) - top[beam]) - log_sum[beam]
        scores = (alive + log_probs).tolist()
        found += zip(scores, [beam] * len(tokens), tokens, log_probs.tolist(), strict=True)
    possible = [candidate for candidate in found if candidate[0] > -torch.inf]
    return sorted(possible, key=lambda one: (-one[0], one[1], one[2]))[: 2 * beams if beams > 1 else 1]


def add_finished(slots: SearchState, slot: int, score: float, parent: int, log_prob: float) -> None:
    """Insert a hypothesis that ends at this step into the n-best list, after equal scores, and drop the worst."""
    count = slots.capacity.num_best
    record, numbers = slots.record[slot, : 4 * count].view(count, 4), slots.record.view(torch.float32)[slot]
    finished = numbers[: 4 * count].view(count, 4)
    score = float(torch.tensor(score, dtype=torch.float32))
    position = int((finished[:, 0] >= score).sum())
    if position < count:
        record[position + 1 :] = record[position:-1].clone()
        finished[position, 0], finished[position, 3] = score, log_prob
        record[position, 1], record[position, 2] = int(slots.steps[slot]) + 1, parent
