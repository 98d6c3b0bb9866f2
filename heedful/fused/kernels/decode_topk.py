"""From logits to the beams of the next step: the best of each chunk of the vocabulary, then one choice a sentence.

`chunk_best` reads the logits once and keeps, of every chunk, what log-softmax needs and the most likely tokens.
`choose` merges them by the rules of `heedful.decoding.beam`. Numbers are compared by keys: a score's bits, made to sort
like integers, above what breaks ties, so that one maximum finds the best and, of equals, the earliest.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.sizes import NEAR_LIMIT, chunk_size

ABSENT = tl.constexpr(-2139095041)
"""-inf as a key."""
LEAST = tl.constexpr(-0x7FFFFFFFFFFFFFFF)
"""Below every key."""
GROUP = 32
"""Neighbouring tokens that are first represented by the best of them."""
CHUNK_OF_WARP = 2048
"""Tokens for each warp: fewer warps wait less for each other."""
BLOCK = 128
"""Positions of the ancestry that are copied together."""


@triton.jit
def _key(value, place):
    """One integer that is greater for a greater value and, of equal values, for an earlier place; NaN is least."""
    value = tl.where(value == value, value + 0.0, float("-inf"))
    bits = value.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
def _value_of(key):
    ordered = (key >> 32).to(tl.int32)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _place_of(key):
    return 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def _chunk_best(
    logits, follows, states, largest, total, best_logits, best_tokens, vocabulary, chunks,
    CANDIDATES: tl.constexpr, PLACES: tl.constexpr, CHUNK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row, chunk = tl.program_id(0), tl.program_id(1)
    first = chunk * CHUNK
    token = first + tl.arange(0, CHUNK)
    there = token < vocabulary
    logits += row.to(tl.int64) * vocabulary
    follows += tl.load(states + row) * vocabulary
    x = tl.load(logits + token, mask=there, other=float("-inf"))
    may = tl.load(follows + token, mask=there, other=-1) >= 0
    top = tl.max(x, axis=0)
    place = row * chunks + chunk
    tl.store(largest + place, top)
    tl.store(total + place, tl.sum(tl.exp(x - tl.where(top == float("-inf"), 0.0, top)), axis=0))
    keys = _key(tl.where(may, x, float("-inf")), token)
    if CANDIDATES > 1:  # the best are in the groups with the best maxima: only these are searched repeatedly
        best_of_group = tl.max(tl.reshape(keys, (CHUNK // GROUP, GROUP)), axis=1)
        number, groups = tl.arange(0, PLACES), tl.zeros((PLACES,), dtype=tl.int32)
        for candidate in tl.static_range(CANDIDATES):
            best = tl.max(best_of_group, axis=0)
            groups = tl.where(number == candidate, (_place_of(best) - first) // GROUP, groups)
            best_of_group = tl.where(best_of_group == best, LEAST, best_of_group)
        some = first + tl.reshape(groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :], (PLACES * GROUP,))
        used = tl.reshape((number < CANDIDATES)[:, None] & (tl.arange(0, GROUP) >= 0)[None, :], (PLACES * GROUP,))
        again = used & (some < vocabulary)
        x = tl.load(logits + some, mask=again, other=float("-inf"))
        may = tl.load(follows + some, mask=again, other=-1) >= 0
        keys = tl.where(used, _key(tl.where(may, x, float("-inf")), some), LEAST)
    for candidate in tl.static_range(CANDIDATES):
        best = tl.max(keys, axis=0)
        tl.store(best_logits + place * CANDIDATES + candidate, _value_of(best))
        tl.store(best_tokens + place * CANDIDATES + candidate, _place_of(best))
        keys = tl.where(keys == best, LEAST, keys)


@triton.jit
def _softmax_sums(largest, total, first_row, chunks, BEAMS: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    """Largest logit and logarithm of the sum of exponentials, of every beam."""
    beam, chunk = tl.arange(0, B), tl.arange(0, C)
    there = (beam < BEAMS)[:, None] & (chunk < chunks)[None, :]
    at = (first_row + beam)[:, None] * chunks + chunk[None, :]
    tops = tl.load(largest + at, mask=there, other=float("-inf"))
    top = tl.max(tops, axis=1)
    top = tl.where(top == float("-inf"), 0.0, top)
    sums = tl.load(total + at, mask=there, other=0.0) * tl.exp(tops - top[:, None])
    return top, tl.log(tl.sum(sums, axis=1))


@triton.jit
def _candidate_keys(
    best_logits, best_tokens, scores, top, log_sum, first_row, chunks, vocabulary, free,
    BEAMS: tl.constexpr, CANDIDATES: tl.constexpr, B: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Keys of all candidates that the chunks offer; none where a token is forced."""
    beam, chunk, candidate = tl.arange(0, B), tl.arange(0, C), tl.arange(0, K)
    there = (beam < BEAMS)[:, None, None] & (chunk < chunks)[None, :, None] & (candidate < CANDIDATES)[None, None, :]
    at = ((first_row + beam)[:, None, None] * chunks + chunk[None, :, None]) * CANDIDATES + candidate[None, None, :]
    logit = tl.load(best_logits + at, mask=there & free, other=float("-inf"))
    token = tl.load(best_tokens + at, mask=there & free, other=0)
    log_prob = (logit - top[:, None, None]) - log_sum[:, None, None]
    keys = _key(scores[:, None, None] + log_prob, beam[:, None, None] * vocabulary + token)
    return tl.reshape(keys, (B * C * K,))


@triton.jit
def _insert(values, position, value, index):
    """`values` with a new one at `position`, those from there on one place later; the last falls out."""
    before = (index[:, None] - 1) == index[None, :]
    moved = tl.sum(tl.where(before, values[None, :], 0), axis=1).to(values.dtype)
    return tl.where(index < position, values, tl.where(index == position, value, moved))


@triton.jit
def _inherit_ancestry(
    ancestry, first_row, parents, step, capacity, BEAMS: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr
):
    """Update the ancestry: each beam takes its parent's earlier positions, and the parent as the newest."""
    beam = tl.arange(0, B)
    for first in range(0, step, BLOCK):
        position = first + tl.arange(0, BLOCK)
        there = (beam < BEAMS)[:, None] & (position < step)[None, :]
        writers = tl.load(ancestry + (first_row + parents)[:, None] * capacity + position[None, :], mask=there, other=0)
        tl.debug_barrier()
        tl.store(ancestry + (first_row + beam)[:, None] * capacity + position[None, :], writers, mask=there)
    tl.store(ancestry + (first_row + beam) * capacity + step, parents, mask=beam < BEAMS)


@triton.jit
def _special_token(steps, limits, forced, slot, capacity, end):
    """The token that a sentence must have next, of its prefix or its end; else the end, and whether it may have it."""
    step, longest = tl.load(steps + slot), tl.load(limits + slot * 4)
    shortest, prefix = tl.load(limits + slot * 4 + 1), tl.load(limits + slot * 4 + 3)
    in_prefix = (step < prefix) & (step < longest)
    free = (step >= prefix) & (step < longest)
    token = tl.where(in_prefix, tl.load(forced + slot * capacity + step, mask=in_prefix, other=0), end)
    return token, free, (free == 0) | (step >= shortest)


@triton.jit
def _may_end_here(states, at, there, free, num_states):
    """Whether a beam may end here: not inside a character, unless the end is forced."""
    state = tl.load(states + at, mask=there, other=0)
    return (free == 0) | (state == 0) | (state >= num_states)


@triton.jit
def _follow(
    states, follows, row, there, parent, token, left, vocabulary, num_states, NEAR_LIMIT: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    """Each beam's state from its parent's and its newest token: `next_state` of the CUDA graph search."""
    state = tl.load(states + row + parent)
    tl.debug_barrier()
    after = tl.load(follows + state * vocabulary + token).to(tl.int32)
    after = tl.where(after >= 0, after, tl.maximum(tl.load(follows + token).to(tl.int32), 0))
    capacity = left - 2  # tokens after the next one
    near = num_states + tl.maximum(capacity, 0)
    tl.store(states + row + tl.arange(0, B), tl.where((after == 0) & (capacity < NEAR_LIMIT), near, after), mask=there)


@triton.jit
def _log_prob_of(logits, row, parent, token, vocabulary, beam, top, log_sum):
    logit = tl.load(logits + (row + parent).to(tl.int64) * vocabulary + token)
    largest = tl.sum(tl.where(beam == parent, top, 0.0), axis=0)
    return (logit - largest) - tl.sum(tl.where(beam == parent, log_sum, 0.0), axis=0)


@triton.jit
def _is_finished(alive, longest, worst, penalties, BEAMS: tl.constexpr):
    """Whether nothing alive can still enter the n-best list: see `heedful.decoding.beam`."""
    if BEAMS == 1:
        finished = worst > float("-inf")
    else:
        finished = tl.max(alive, axis=0) / tl.load(penalties + longest + 1) <= worst
    return finished | (tl.max(alive, axis=0) == float("-inf"))


@triton.jit
def _choose(
    logits, largest, total, best_logits, best_tokens, steps, limits, forced, done, newest, scores, ancestry, record,
    penalties, follows, states, vocabulary, chunks, capacity, words, end, num_states,
    BEAMS: tl.constexpr, CANDIDATES: tl.constexpr, KEPT: tl.constexpr, NUM_BEST: tl.constexpr,
    B: tl.constexpr, C: tl.constexpr, K: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr, NEAR_LIMIT: tl.constexpr,
):  # fmt: skip
    slot, beam, index = tl.program_id(0), tl.arange(0, B), tl.arange(0, F)
    if tl.load(done + slot) != 0:
        return
    step, row, there = tl.load(steps + slot), slot * BEAMS, beam < BEAMS
    special, free, may = _special_token(steps, limits, forced, slot, capacity, end)
    alive = tl.load(scores + row + beam, mask=there, other=float("-inf"))
    top, log_sum = _softmax_sums(largest, total, row, chunks, BEAMS, B, C)
    keys = _candidate_keys(
        best_logits, best_tokens, alive, top, log_sum, row, chunks, vocabulary, free, BEAMS, CANDIDATES, B, C, K
    )  # fmt: skip
    special_at = logits + (row + beam).to(tl.int64) * vocabulary + special
    may_end = there & may & _may_end_here(states, row + beam, there, free, num_states)
    of_special = (tl.load(special_at, mask=may_end, other=float("-inf")) - top) - log_sum
    special_keys = _key(alive + of_special, beam * vocabulary + special)
    own, known = record + slot.to(tl.int64) * words, index < NUM_BEST
    done_score, done_length, done_parent, done_log_prob = _finished(own, index, known)
    live_score, live_log_prob = tl.full((B,), float("-inf"), dtype=tl.float32), tl.zeros((B,), dtype=tl.float32)
    live_token, live_parent = tl.zeros((B,), dtype=tl.int32), tl.zeros((B,), dtype=tl.int32)
    penalty = tl.load(penalties + step + 1)
    taken, longest = step * 0, tl.load(limits + slot * 4)
    for number in tl.static_range(KEPT):
        best = tl.maximum(tl.max(keys, axis=0), tl.max(special_keys, axis=0))
        keys = tl.where(keys == best, LEAST, keys)
        special_keys = tl.where(special_keys == best, LEAST, special_keys)
        score, exists = _value_of(best), (best >> 32) > ABSENT
        place = tl.where(exists, _place_of(best), 0)
        parent, token = place // vocabulary, place % vocabulary
        log_prob = _log_prob_of(logits, row, parent, token, vocabulary, beam, top, log_sum)
        ends = exists & (token == end)
        if number < BEAMS:
            final = score / penalty
            position = tl.where(ends, tl.sum(tl.where(done_score >= final, 1, 0), axis=0), F)
            done_score = _insert(done_score, position, final, index)
            done_length = _insert(done_length, position, step + 1, index)
            done_parent = _insert(done_parent, position, parent, index)
            done_log_prob = _insert(done_log_prob, position, log_prob.to(tl.int32, bitcast=True), index)
        goes_on = exists & (token != end)
        here = (beam == taken) & goes_on & there
        live_score, live_token = tl.where(here, score, live_score), tl.where(here, token, live_token)
        live_parent, live_log_prob = tl.where(here, parent, live_parent), tl.where(here, log_prob, live_log_prob)
        taken += tl.where(goes_on, 1, 0)
    _store_best(own, index, known, done_score.to(tl.int32, bitcast=True), done_length, done_parent, done_log_prob)
    past = NUM_BEST * 4 + (step * BEAMS + beam) * 3
    _store_step(own + past, there, live_token, live_parent, live_log_prob.to(tl.int32, bitcast=True))
    if BEAMS > 1:
        _inherit_ancestry(ancestry, row, live_parent, step, capacity, BEAMS, B, BLOCK)
    _follow(states, follows, row, there, live_parent, live_token, longest - step, vocabulary, num_states, NEAR_LIMIT, B)
    tl.store(newest + row + beam, live_token, mask=there)
    tl.store(scores + row + beam, live_score, mask=there)
    worst = tl.sum(tl.where(index == NUM_BEST - 1, done_score, 0.0), axis=0)
    finished = _is_finished(live_score, longest, worst, penalties, BEAMS) | (step >= longest)
    tl.store(steps + slot, tl.where(finished, step, step + 1))
    tl.store(done + slot, tl.where(finished, 1, 0))


@triton.jit
def _finished(own, index, known):
    """The n-best list so far: scores, lengths, parents, and the bits of the log-probabilities of the ends."""
    score = tl.load(own + index * 4, mask=known, other=0).to(tl.float32, bitcast=True)
    length = tl.load(own + index * 4 + 1, mask=known, other=0)
    parent = tl.load(own + index * 4 + 2, mask=known, other=0)
    return tl.where(known, score, float("-inf")), length, parent, tl.load(own + index * 4 + 3, mask=known, other=0)


@triton.jit
def _store_step(past, there, token, parent, log_prob):
    tl.store(past, token, mask=there)
    tl.store(past + 1, parent, mask=there)
    tl.store(past + 2, log_prob, mask=there)


@triton.jit
def _store_best(own, index, known, score, length, parent, log_prob):
    tl.store(own + index * 4, score, mask=known)
    tl.store(own + index * 4 + 1, length, mask=known)
    tl.store(own + index * 4 + 2, parent, mask=known)
    tl.store(own + index * 4 + 3, log_prob, mask=known)


@triton.jit
def _admit(
    slots, settings, steps, limits, done, newest, scores, record, states, words, start, num_states,
    BEAMS: tl.constexpr, NUM_BEST: tl.constexpr, B: tl.constexpr, F: tl.constexpr, NEAR_LIMIT: tl.constexpr,
):  # fmt: skip
    number, beam, index, four = tl.program_id(0), tl.arange(0, B), tl.arange(0, F), tl.arange(0, 4)
    slot = tl.load(slots + number)
    if slot < 0:
        return
    tl.store(limits + slot * 4 + four, tl.load(settings + number * 4 + four))
    tl.store(steps + slot, 0)
    tl.store(done + slot, 0)
    there = beam < BEAMS
    capacity = tl.load(settings + number * 4) - 1
    state = tl.where(capacity < NEAR_LIMIT, num_states + tl.maximum(capacity, 0), 0)
    tl.store(states + slot * BEAMS + beam, tl.zeros((B,), dtype=tl.int32) + state, mask=there)
    tl.store(newest + slot * BEAMS + beam, tl.zeros((B,), dtype=tl.int32) + start, mask=there)
    tl.store(scores + slot * BEAMS + beam, tl.where(beam == 0, 0.0, float("-inf")), mask=there)
    empty = tl.full((F,), float("-inf"), dtype=tl.float32).to(tl.int32, bitcast=True)
    tl.store(record + slot.to(tl.int64) * words + index * 4, empty, mask=index < NUM_BEST)


def chunk_best(
    logits: Tensor, follows: Tensor, states: Tensor, largest: Tensor, total: Tensor, best_logits: Tensor,
    best_tokens: Tensor,
) -> None:  # fmt: skip
    """Of every row and chunk: largest logit, sum of exponentials below it, and the likeliest tokens that may follow."""
    num_rows, vocabulary = logits.shape
    (_, chunks, candidates), chunk = best_logits.shape, chunk_size(vocabulary)
    _chunk_best[(num_rows, chunks)](
        logits, follows, states, largest, total, best_logits, best_tokens, vocabulary, chunks,
        CANDIDATES=candidates, PLACES=triton.next_power_of_2(candidates), CHUNK=chunk, GROUP=GROUP,
        num_warps=min(max(chunk // CHUNK_OF_WARP, 1), 16),
    )  # fmt: skip


def choose(
    logits: Tensor, largest: Tensor, total: Tensor, best_logits: Tensor, best_tokens: Tensor,
    steps: Tensor, limits: Tensor, forced: Tensor, done: Tensor, newest: Tensor, scores: Tensor,
    ancestry: Tensor, record: Tensor, penalties: Tensor, follows: Tensor, states: Tensor,
    *, end: int, num_best: int, num_states: int,
) -> None:  # fmt: skip
    """Advance every unfinished sentence by one step."""
    num_slots, beams = scores.shape
    _, chunks, candidates = best_logits.shape
    _choose[(num_slots,)](
        logits, largest, total, best_logits, best_tokens, steps, limits, forced, done, newest, scores, ancestry, record,
        penalties, follows, states, logits.shape[1], chunks, forced.shape[1], record.shape[1], end, num_states,
        BEAMS=beams, CANDIDATES=candidates, KEPT=2 * beams if beams > 1 else 1, NUM_BEST=num_best,
        B=triton.next_power_of_2(beams), C=triton.next_power_of_2(chunks), K=triton.next_power_of_2(candidates),
        F=triton.next_power_of_2(num_best), BLOCK=BLOCK, NEAR_LIMIT=NEAR_LIMIT, num_warps=1,
    )  # fmt: skip


def admit(
    slots: Tensor, settings: Tensor, steps: Tensor, limits: Tensor, done: Tensor, newest: Tensor, scores: Tensor,
    record: Tensor, states: Tensor, *, start: int, num_best: int, num_states: int,
) -> None:  # fmt: skip
    """Start new sentences in these slots (-1: none), each with its settings."""
    beams = scores.shape[1]
    _admit[(slots.shape[0],)](
        slots, settings, steps, limits, done, newest, scores, record, states, record.shape[1], start, num_states,
        BEAMS=beams, NUM_BEST=num_best, B=triton.next_power_of_2(beams), F=triton.next_power_of_2(num_best),
        NEAR_LIMIT=NEAR_LIMIT, num_warps=1,
    )  # fmt: skip
