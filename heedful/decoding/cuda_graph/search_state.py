"""The state of a search on the device, and the step of beam search over it, by the rules of `heedful.decoding.beam`.

Every sentence has a slot, a step counter and limits of its own, so that finished sentences leave and others enter while
the rest continue. Beams copy no keys and values: `ancestry` says which beam wrote each position of a beam's history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.decoding.cuda_graph.packed_weights import PackedWeights
from heedful.fused.kernels.sizes import NEAR_LIMIT, chunk_size, num_parts


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


class BeamHistory(NamedTuple):
    """What self-attention finds of earlier steps."""

    ancestry: Tensor
    """(rows, capacity): which beam of the sentence wrote each position of a row's past."""
    steps: Tensor
    """(slots,): positions written so far."""
    done: Tensor


class CrossAttentionCache(NamedTuple):
    """What cross-attention finds of the sources."""

    values: Tensor
    """(slots, capacity, layers · kept): keys and values of every layer."""
    limits: Tensor
    done: Tensor


class ChunkTopK(NamedTuple):
    """Of every row and chunk of the vocabulary, what the choice needs."""

    largest: Tensor
    total: Tensor
    """Sum of exponentials of logits below the largest."""
    logits: Tensor
    """(rows, chunks, candidates): the greatest allowed."""
    tokens: Tensor


@dataclass(frozen=True)
class SearchState:
    """All tensors of a search. Nothing is allocated while it runs."""

    capacity: Capacity
    caches: list[Tensor]
    """Of every decoder layer (rows, target capacity, kept)."""
    memory: Tensor
    """(slots, source capacity, layers · kept): keys and values of the memory for every decoder layer."""
    ancestry: Tensor
    steps: Tensor
    limits: Tensor
    """(slots, 4): longest and shortest translation, source length, prefix length."""
    forced: Tensor
    """(slots, target capacity): tokens of the prefix."""
    done: Tensor
    newest: Tensor
    scores: Tensor
    record: Tensor
    """(slots, words): the n-best list as (score, length, parent, log-probability of the end) and of every step and beam
    (token, parent, log-probability); real numbers by their bits."""
    follows: Tensor
    """(states, vocabulary): the state after each token; -1 where it may not come (the end, which is looked at apart,
    too). The first states are those of `heedful.decoding.utf8_automaton`; the last `NEAR_LIMIT` stand for COMPLETE near
    the limit, with 0, 1, … tokens remaining after the next."""
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


def make_search_state(weights: PackedWeights, capacity: Capacity, follows: Tensor) -> SearchState:
    """Empty slots: all done, none begun."""
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
        caches=[like.new_zeros(capacity.rows, capacity.target, shape.kept) for _ in range(layers)],
        memory=like.new_zeros(capacity.slots, capacity.source, layers * shape.kept),
        ancestry=integers(capacity.rows, capacity.target),
        steps=integers(capacity.slots),
        limits=integers(capacity.slots, 4),
        forced=integers(capacity.slots, capacity.target),
        done=integers(capacity.slots) + 1,
        newest=integers(capacity.rows),
        scores=numbers(capacity.slots, capacity.beams),
        record=integers(capacity.slots, capacity.words),
        follows=follows,
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


def estimate_bytes(weights: PackedWeights, capacity: Capacity) -> int:
    """Approximate memory use of a search state with this capacity."""
    shape, layers = weights.shape, len(weights.decoder.layers)
    kept = (
        (capacity.rows * capacity.target + capacity.slots * capacity.source)
        * layers
        * shape.kept
        * weights.output.element_size()
    )
    return kept + capacity.rows * (4 * shape.vocabulary + 4 * capacity.target * 4 + 32 * shape.d_model)


def has_kernels(tensor: Tensor) -> bool:
    """Whether the kernels compute on what this tensor is on."""
    return tensor.is_cuda


def admit(slots: SearchState, numbers: Tensor, settings: Tensor, *, start: int) -> None:
    """Begin new sentences in the slots of these numbers (-1: none), each with its row of limits."""
    if has_kernels(slots.steps):
        from heedful.fused.kernels import decode_topk

        decode_topk.admit(
            numbers, settings, slots.steps, slots.limits, slots.done, slots.newest, slots.scores, slots.record,
            slots.states, start=start, num_best=slots.capacity.num_best, num_states=slots.num_states,
        )  # fmt: skip
        return
    chosen = numbers[numbers >= 0].long()
    slots.limits[chosen] = settings.view(-1, 4)[numbers >= 0]
    slots.steps[chosen], slots.done[chosen] = 0, 0
    slots.newest.view(slots.capacity.slots, -1)[chosen] = start
    limits_left = slots.limits[chosen, 0] - 1
    begun = torch.where(limits_left < NEAR_LIMIT, slots.num_states + limits_left.clamp(min=0), 0)
    slots.states.view(slots.capacity.slots, -1)[chosen] = begun[:, None]
    slots.scores[chosen] = torch.tensor([0.0, *[-torch.inf] * (slots.capacity.beams - 1)])
    slots.record.view(torch.float32)[chosen, : 4 * slots.capacity.num_best : 4] = -torch.inf


def choose(slots: SearchState, *, end: int) -> None:
    """Go one step on with every sentence that is not done."""
    if has_kernels(slots.steps):
        from heedful.fused.kernels import decode_topk

        decode_topk.choose(
            slots.logits, *slots.chunks, slots.steps, slots.limits, slots.forced, slots.done, slots.newest,
            slots.scores, slots.ancestry, slots.record, slots.penalties, slots.follows, slots.states,
            end=end, num_best=slots.capacity.num_best, num_states=slots.num_states,
        )  # fmt: skip
        return
    for slot in range(slots.capacity.slots):
        if not slots.done[slot]:
            select_reference(slots, slot, end)


def select_reference(slots: SearchState, slot: int, end: int) -> None:
    """One step of one sentence."""
    beams, step = slots.capacity.beams, int(slots.steps[slot])
    longest = int(slots.limits[slot, 0])
    live: list[tuple[float, int, int, float]] = []
    for number, (score, parent, token, log_prob) in enumerate(candidates(slots, slot, end)):
        if token != end and len(live) < beams:
            live.append((score, parent, token, log_prob))
        elif token == end and number < beams:
            finish(slots, slot, score / float(slots.penalties[step + 1]), parent, log_prob)
    live += [(-torch.inf, 0, 0, 0.0)] * (beams - len(live))
    scores, parents, tokens, log_probs = zip(*live, strict=True)
    record, numbers = slots.record[slot], slots.record.view(torch.float32)[slot]
    past = slice(4 * slots.capacity.num_best + 3 * step * beams, 4 * slots.capacity.num_best + 3 * (step + 1) * beams)
    record[past][0::3], record[past][1::3] = torch.tensor(tokens), torch.tensor(parents)
    numbers[past][2::3] = torch.tensor(log_probs)
    rows = slice(slot * beams, (slot + 1) * beams)
    if beams > 1:
        slots.ancestry[rows, :step] = slots.ancestry[rows][list(parents), :step]
        slots.ancestry[rows, step] = torch.tensor(parents, dtype=torch.int32)
    before, remaining = slots.states[rows].tolist(), longest - step - 2
    afterwards = [next_state(slots, before[p], token, remaining) for p, token in zip(parents, tokens, strict=True)]
    slots.states[rows] = torch.tensor(afterwards, dtype=torch.int32)
    slots.newest[rows] = torch.tensor(tokens, dtype=torch.int32)
    slots.scores[slot] = torch.tensor(scores)
    worst, best = numbers[4 * slots.capacity.num_best - 4], slots.scores[slot, 0]
    settled = worst > -torch.inf if beams == 1 else best / slots.penalties[longest + 1] <= worst
    done = bool(settled) or bool(best == -torch.inf) or step >= longest
    slots.done[slot], slots.steps[slot] = done, step if done else step + 1


def next_state(slots: SearchState, state: int, token: int, remaining: int) -> int:
    """The state after a token; one that may not come, as in a prefix, starts from COMPLETE.

    `remaining`: number of tokens after the next one.
    """
    after = int(slots.follows[state, token])
    after = after if after >= 0 else max(int(slots.follows[0, token]), 0)
    return slots.num_states + max(remaining, 0) if after == 0 and remaining < NEAR_LIMIT else after


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


def finish(slots: SearchState, slot: int, score: float, parent: int, log_prob: float) -> None:
    """Put a hypothesis that ends now into the n-best list, after those as good; the worst falls out."""
    count = slots.capacity.num_best
    record, numbers = slots.record[slot, : 4 * count].view(count, 4), slots.record.view(torch.float32)[slot]
    kept = numbers[: 4 * count].view(count, 4)
    score = float(torch.tensor(score, dtype=torch.float32))
    position = int((kept[:, 0] >= score).sum())
    if position < count:
        record[position + 1 :] = record[position:-1].clone()
        kept[position, 0], kept[position, 3] = score, log_prob
        record[position, 1], record[position, 2] = int(slots.steps[slot]) + 1, parent
