"""From logits to the beams of the next step: top-k in each chunk of the vocabulary, then a merge for each sentence.

`chunk_top_k` reads the logits once and keeps, for each chunk, the terms of log-softmax and the k most likely tokens.
`select_tokens` merges them by the rules of `heedful.decoding.search`. Scores are compared by 64-bit sort keys: the bits
of the score, mapped to integers of the same order, above the index. One maximum then finds the best candidate, and the
earliest among equal scores.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from heedful.fused.kernels.sizes import NEAR_LIMIT, chunk_size

NEG_INF_KEY = tl.constexpr(-2139095041)
"""The score bits of the sort key of -inf."""
MIN_KEY = tl.constexpr(-0x7FFFFFFFFFFFFFFF)
"""Below every sort key."""
GROUP = 32
"""Adjacent tokens that share one maximum in the first pass of the top-k search."""
TOKENS_PER_WARP = 2048
"""Tokens per warp: fewer warps spend less time in synchronisation."""
ANCESTRY_BLOCK = 128
"""Positions of the ancestry that are copied at a time."""


@triton.jit
def _sort_key(value, index):
    """An integer that sorts by value and, among equal values, puts the lower index first; NaN sorts as -inf."""
    value = tl.where(value == value, value + 0.0, float("-inf"))
    bits = value.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - index).to(tl.int64)


@triton.jit
def _value_of_key(key):
    ordered = (key >> 32).to(tl.int32)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _index_of_key(key):
    return 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def _chunk_top_k(
    logits, transitions, states, max_logits, exp_sums, best_logits, best_tokens, vocabulary, chunks,
    CANDIDATES: tl.constexpr, PADDED: tl.constexpr, CHUNK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row, chunk = tl.program_id(0), tl.program_id(1)
    first_token = chunk * CHUNK
    token = first_token + tl.arange(0, CHUNK)
    mask = token < vocabulary
    logits += row.to(tl.int64) * vocabulary
    transitions += tl.load(states + row) * vocabulary
    values = tl.load(logits + token, mask=mask, other=float("-inf"))
    allowed = tl.load(transitions + token, mask=mask, other=-1) >= 0
    max_logit = tl.max(values, axis=0)
    row_chunk = row * chunks + chunk
    tl.store(max_logits + row_chunk, max_logit)
    tl.store(
        exp_sums + row_chunk, tl.sum(tl.exp(values - tl.where(max_logit == float("-inf"), 0.0, max_logit)), axis=0)
    )
    keys = _sort_key(tl.where(allowed, values, float("-inf")), token)
    if CANDIDATES > 1:  # the top k are in the k groups with the largest maxima: search only these
        group_keys = tl.max(tl.reshape(keys, (CHUNK // GROUP, GROUP)), axis=1)
        candidate_index, groups = tl.arange(0, PADDED), tl.zeros((PADDED,), dtype=tl.int32)
        for candidate in tl.static_range(CANDIDATES):
            best = tl.max(group_keys, axis=0)
            groups = tl.where(candidate_index == candidate, (_index_of_key(best) - first_token) // GROUP, groups)
            group_keys = tl.where(group_keys == best, MIN_KEY, group_keys)
        group_tokens = first_token + tl.reshape(
            groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :], (PADDED * GROUP,)
        )
        group_mask = tl.reshape(
            (candidate_index < CANDIDATES)[:, None] & (tl.arange(0, GROUP) >= 0)[None, :], (PADDED * GROUP,)
        )
        reload = group_mask & (group_tokens < vocabulary)
        values = tl.load(logits + group_tokens, mask=reload, other=float("-inf"))
        allowed = tl.load(transitions + group_tokens, mask=reload, other=-1) >= 0
        keys = tl.where(group_mask, _sort_key(tl.where(allowed, values, float("-inf")), group_tokens), MIN_KEY)
    for candidate in tl.static_range(CANDIDATES):
        best = tl.max(keys, axis=0)
        tl.store(best_logits + row_chunk * CANDIDATES + candidate, _value_of_key(best))
        tl.store(best_tokens + row_chunk * CANDIDATES + candidate, _index_of_key(best))
        keys = tl.where(keys == best, MIN_KEY, keys)


@triton.jit
def _softmax_sums(max_logits, exp_sums, first_row, chunks, BEAMS: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    """Maximum logit and log of the sum of exponentials of each beam."""
    beam, chunk = tl.arange(0, B), tl.arange(0, C)
    mask = (beam < BEAMS)[:, None] & (chunk < chunks)[None, :]
    offsets = (first_row + beam)[:, None] * chunks + chunk[None, :]
    chunk_max = tl.load(max_logits + offsets, mask=mask, other=float("-inf"))
    max_logit = tl.max(chunk_max, axis=1)
    max_logit = tl.where(max_logit == float("-inf"), 0.0, max_logit)
    chunk_sums = tl.load(exp_sums + offsets, mask=mask, other=0.0) * tl.exp(chunk_max - max_logit[:, None])
    return max_logit, tl.log(tl.sum(chunk_sums, axis=1))


@triton.jit
def _candidate_keys(
    best_logits, best_tokens, scores, max_logit, log_sum, first_row, chunks, vocabulary, free,
    BEAMS: tl.constexpr, CANDIDATES: tl.constexpr, B: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Sort keys of all candidates of the chunks; no candidates if a token is forced."""
    beam, chunk, candidate = tl.arange(0, B), tl.arange(0, C), tl.arange(0, K)
    mask = (beam < BEAMS)[:, None, None] & (chunk < chunks)[None, :, None] & (candidate < CANDIDATES)[None, None, :]
    offsets = ((first_row + beam)[:, None, None] * chunks + chunk[None, :, None]) * CANDIDATES + candidate[
        None, None, :
    ]
    logit = tl.load(best_logits + offsets, mask=mask & free, other=float("-inf"))
    token = tl.load(best_tokens + offsets, mask=mask & free, other=0)
    log_prob = (logit - max_logit[:, None, None]) - log_sum[:, None, None]
    keys = _sort_key(scores[:, None, None] + log_prob, beam[:, None, None] * vocabulary + token)
    return tl.reshape(keys, (B * C * K,))


@triton.jit
def _insert_at(values, position, value, index):
    """Insert `value` at `position`, shift the following values by one and drop the last."""
    is_previous = (index[:, None] - 1) == index[None, :]
    shifted = tl.sum(tl.where(is_previous, values[None, :], 0), axis=1).to(values.dtype)
    return tl.where(index < position, values, tl.where(index == position, value, shifted))


@triton.jit
def _inherit_ancestry(
    ancestry, first_row, parents, step, capacity, BEAMS: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr
):
    """Update the ancestry: each beam copies the history of its parent and appends the parent."""
    beam = tl.arange(0, B)
    for block_start in range(0, step, BLOCK):
        position = block_start + tl.arange(0, BLOCK)
        mask = (beam < BEAMS)[:, None] & (position < step)[None, :]
        writers = tl.load(ancestry + (first_row + parents)[:, None] * capacity + position[None, :], mask=mask, other=0)
        tl.debug_barrier()
        tl.store(ancestry + (first_row + beam)[:, None] * capacity + position[None, :], writers, mask=mask)
    tl.store(ancestry + (first_row + beam) * capacity + step, parents, mask=beam < BEAMS)


@triton.jit
def _special_token(steps, limits, forced, slot, capacity, end):
    """The forced token (prefix, or end at the maximum length), else the end token; whether the step is free; whether
    the token is allowed."""
    step, max_length = tl.load(steps + slot), tl.load(limits + slot * 4)
    min_length, prefix_length = tl.load(limits + slot * 4 + 1), tl.load(limits + slot * 4 + 3)
    in_prefix = (step < prefix_length) & (step < max_length)
    free = (step >= prefix_length) & (step < max_length)
    token = tl.where(in_prefix, tl.load(forced + slot * capacity + step, mask=in_prefix, other=0), end)
    return token, free, (free == 0) | (step >= min_length)


@triton.jit
def _may_end(states, offsets, mask, free, num_states):
    """Whether a beam may end: not inside a UTF-8 character, unless the end is forced."""
    state = tl.load(states + offsets, mask=mask, other=0)
    return (free == 0) | (state == 0) | (state >= num_states)


@triton.jit
def _update_states(
    states, transitions, row, mask, parent, token, remaining, vocabulary, num_states, NEAR_LIMIT: tl.constexpr,
    B: tl.constexpr
):  # fmt: skip
    """The state of each beam from the state of its parent and the newest token: `next_state` of the reference."""
    state = tl.load(states + row + parent)
    tl.debug_barrier()
    following = tl.load(transitions + state * vocabulary + token).to(tl.int32)
    following = tl.where(following >= 0, following, tl.maximum(tl.load(transitions + token).to(tl.int32), 0))
    remaining_after = remaining - 2  # tokens after the next one
    near_limit = num_states + tl.maximum(remaining_after, 0)
    tl.store(
        states + row + tl.arange(0, B),
        tl.where((following == 0) & (remaining_after < NEAR_LIMIT), near_limit, following),
        mask=mask,
    )


@triton.jit
def _token_log_prob(logits, row, parent, token, vocabulary, beam, max_logits, log_sums):
    logit = tl.load(logits + (row + parent).to(tl.int64) * vocabulary + token)
    max_logit = tl.sum(tl.where(beam == parent, max_logits, 0.0), axis=0)
    return (logit - max_logit) - tl.sum(tl.where(beam == parent, log_sums, 0.0), axis=0)


@triton.jit
def _is_finished(live_scores, max_length, worst_score, penalties, BEAMS: tl.constexpr):
    """Whether no live beam can still enter the n-best list: see `heedful.decoding.search`."""
    if BEAMS == 1:
        finished = worst_score > float("-inf")
    else:
        finished = tl.max(live_scores, axis=0) / tl.load(penalties + max_length + 1) <= worst_score
    return finished | (tl.max(live_scores, axis=0) == float("-inf"))


@triton.jit
def _select_tokens(
    logits, max_logits, exp_sums, best_logits, best_tokens, steps, limits, forced, done, newest, scores, ancestry,
    record, penalties, transitions, states, vocab, chunks, capacity, record_width, end, num_states,
    BEAMS: tl.constexpr, CANDIDATES: tl.constexpr, NUM_KEPT: tl.constexpr, NUM_BEST: tl.constexpr,
    B: tl.constexpr, C: tl.constexpr, K: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr, NEAR_LIMIT: tl.constexpr,
):  # fmt: skip
    slot, beam, index = tl.program_id(0), tl.arange(0, B), tl.arange(0, F)
    if tl.load(done + slot) != 0:
        return
    step, row, is_beam = tl.load(steps + slot), slot * BEAMS, beam < BEAMS
    special_token, free, special_allowed = _special_token(steps, limits, forced, slot, capacity, end)
    beam_scores = tl.load(scores + row + beam, mask=is_beam, other=float("-inf"))
    max_logit, log_sum = _softmax_sums(max_logits, exp_sums, row, chunks, BEAMS, B, C)
    keys = _candidate_keys(
        best_logits, best_tokens, beam_scores, max_logit, log_sum, row, chunks, vocab, free, BEAMS, CANDIDATES, B, C, K
    )  # fmt: skip
    special_pointers = logits + (row + beam).to(tl.int64) * vocab + special_token
    special_mask = is_beam & special_allowed & _may_end(states, row + beam, is_beam, free, num_states)
    special_log_prob = (tl.load(special_pointers, mask=special_mask, other=float("-inf")) - max_logit) - log_sum
    special_keys = _sort_key(beam_scores + special_log_prob, beam * vocab + special_token)
    entry, known = record + slot.to(tl.int64) * record_width, index < NUM_BEST
    best_score, best_length, best_parent, best_log_prob = _load_best(entry, index, known)
    live_score, live_log_prob = tl.full((B,), float("-inf"), dtype=tl.float32), tl.zeros((B,), dtype=tl.float32)
    live_token, live_parent = tl.zeros((B,), dtype=tl.int32), tl.zeros((B,), dtype=tl.int32)
    penalty, num_live, max_length = tl.load(penalties + step + 1), step * 0, tl.load(limits + slot * 4)
    for rank in tl.static_range(NUM_KEPT):
        best_key = tl.maximum(tl.max(keys, axis=0), tl.max(special_keys, axis=0))
        keys = tl.where(keys == best_key, MIN_KEY, keys)
        special_keys = tl.where(special_keys == best_key, MIN_KEY, special_keys)
        score, exists = _value_of_key(best_key), (best_key >> 32) > NEG_INF_KEY
        candidate = tl.where(exists, _index_of_key(best_key), 0)
        parent, token = candidate // vocab, candidate % vocab
        log_prob = _token_log_prob(logits, row, parent, token, vocab, beam, max_logit, log_sum)
        is_end = exists & (token == end)
        if rank < BEAMS:
            final_score = score / penalty
            position = tl.where(is_end, tl.sum(tl.where(best_score >= final_score, 1, 0), axis=0), F)
            best_score = _insert_at(best_score, position, final_score, index)
            best_length = _insert_at(best_length, position, step + 1, index)
            best_parent = _insert_at(best_parent, position, parent, index)
            best_log_prob = _insert_at(best_log_prob, position, log_prob.to(tl.int32, bitcast=True), index)
        continues = exists & (token != end)
        chosen = (beam == num_live) & continues & is_beam
        live_score, live_token = tl.where(chosen, score, live_score), tl.where(chosen, token, live_token)
        live_parent, live_log_prob = tl.where(chosen, parent, live_parent), tl.where(chosen, log_prob, live_log_prob)
        num_live += tl.where(continues, 1, 0)
    _store_best(entry, index, known, best_score.to(tl.int32, bitcast=True), best_length, best_parent, best_log_prob)
    step_offset = NUM_BEST * 4 + (step * BEAMS + beam) * 3
    _store_step(entry + step_offset, is_beam, live_token, live_parent, live_log_prob.to(tl.int32, bitcast=True))
    if BEAMS > 1:
        _inherit_ancestry(ancestry, row, live_parent, step, capacity, BEAMS, B, BLOCK)
    _update_states(
        states, transitions, row, is_beam, live_parent, live_token, max_length - step, vocab, num_states, NEAR_LIMIT, B
    )  # fmt: skip
    tl.store(newest + row + beam, live_token, mask=is_beam)
    tl.store(scores + row + beam, live_score, mask=is_beam)
    worst_score = tl.sum(tl.where(index == NUM_BEST - 1, best_score, 0.0), axis=0)
    finished = _is_finished(live_score, max_length, worst_score, penalties, BEAMS) | (step >= max_length)
    tl.store(steps + slot, tl.where(finished, step, step + 1))
    tl.store(done + slot, tl.where(finished, 1, 0))


@triton.jit
def _load_best(entry, index, known):
    """Load the n-best list: scores, lengths, parents, and the bits of the log-probabilities of the end tokens."""
    score = tl.load(entry + index * 4, mask=known, other=0).to(tl.float32, bitcast=True)
    length = tl.load(entry + index * 4 + 1, mask=known, other=0)
    parent = tl.load(entry + index * 4 + 2, mask=known, other=0)
    log_prob = tl.load(entry + index * 4 + 3, mask=known, other=0)
    return tl.where(known, score, float("-inf")), length, parent, log_prob


@triton.jit
def _store_step(pointers, mask, token, parent, log_prob):
    tl.store(pointers, token, mask=mask)
    tl.store(pointers + 1, parent, mask=mask)
    tl.store(pointers + 2, log_prob, mask=mask)


@triton.jit
def _store_best(entry, index, known, score, length, parent, log_prob):
    tl.store(entry + index * 4, score, mask=known)
    tl.store(entry + index * 4 + 1, length, mask=known)
    tl.store(entry + index * 4 + 2, parent, mask=known)
    tl.store(entry + index * 4 + 3, log_prob, mask=known)


@triton.jit
def _admit(
    slots, settings, steps, limits, done, newest, scores, record, states, record_width, start, num_states,
    BEAMS: tl.constexpr, NUM_BEST: tl.constexpr, B: tl.constexpr, F: tl.constexpr, NEAR_LIMIT: tl.constexpr,
):  # fmt: skip
    request, beam, index, limit_index = tl.program_id(0), tl.arange(0, B), tl.arange(0, F), tl.arange(0, 4)
    slot = tl.load(slots + request)
    if slot < 0:
        return
    tl.store(limits + slot * 4 + limit_index, tl.load(settings + request * 4 + limit_index))
    tl.store(steps + slot, 0)
    tl.store(done + slot, 0)
    mask = beam < BEAMS
    remaining = tl.load(settings + request * 4) - 1
    state = tl.where(remaining < NEAR_LIMIT, num_states + tl.maximum(remaining, 0), 0)
    tl.store(states + slot * BEAMS + beam, tl.zeros((B,), dtype=tl.int32) + state, mask=mask)
    tl.store(newest + slot * BEAMS + beam, tl.zeros((B,), dtype=tl.int32) + start, mask=mask)
    tl.store(scores + slot * BEAMS + beam, tl.where(beam == 0, 0.0, float("-inf")), mask=mask)
    empty = tl.full((F,), float("-inf"), dtype=tl.float32).to(tl.int32, bitcast=True)
    tl.store(record + slot.to(tl.int64) * record_width + index * 4, empty, mask=index < NUM_BEST)


def chunk_top_k(
    logits: Tensor, transitions: Tensor, states: Tensor, max_logits: Tensor, exp_sums: Tensor, best_logits: Tensor,
    best_tokens: Tensor,
) -> None:  # fmt: skip
    """For each row and chunk: maximum logit, sum of exponentials relative to it, and the most likely allowed tokens."""
    num_rows, vocabulary = logits.shape
    (_, chunks, candidates), chunk = best_logits.shape, chunk_size(vocabulary)
    _chunk_top_k[(num_rows, chunks)](
        logits, transitions, states, max_logits, exp_sums, best_logits, best_tokens, vocabulary, chunks,
        CANDIDATES=candidates, PADDED=triton.next_power_of_2(candidates), CHUNK=chunk, GROUP=GROUP,
        num_warps=min(max(chunk // TOKENS_PER_WARP, 1), 16),
    )  # fmt: skip


def select_tokens(
    logits: Tensor, max_logits: Tensor, exp_sums: Tensor, best_logits: Tensor, best_tokens: Tensor,
    steps: Tensor, limits: Tensor, forced: Tensor, done: Tensor, newest: Tensor, scores: Tensor,
    ancestry: Tensor, record: Tensor, penalties: Tensor, transitions: Tensor, states: Tensor,
    *, end: int, num_best: int, num_states: int,
) -> None:  # fmt: skip
    """Advance every unfinished sentence by one step."""
    num_slots, beams = scores.shape
    _, chunks, candidates = best_logits.shape
    _select_tokens[(num_slots,)](
        logits, max_logits, exp_sums, best_logits, best_tokens, steps, limits, forced, done, newest, scores, ancestry,
        record,
        penalties, transitions, states, logits.shape[1], chunks, forced.shape[1], record.shape[1], end, num_states,
        BEAMS=beams, CANDIDATES=candidates, NUM_KEPT=2 * beams if beams > 1 else 1, NUM_BEST=num_best,
        B=triton.next_power_of_2(beams), C=triton.next_power_of_2(chunks), K=triton.next_power_of_2(candidates),
        F=triton.next_power_of_2(num_best), BLOCK=ANCESTRY_BLOCK, NEAR_LIMIT=NEAR_LIMIT, num_warps=1,
    )  # fmt: skip


def admit(
    slots: Tensor, settings: Tensor, steps: Tensor, limits: Tensor, done: Tensor, newest: Tensor, scores: Tensor,
    record: Tensor, states: Tensor, *, start: int, num_best: int, num_states: int,
) -> None:  # fmt: skip
    """Start new sentences in these slots (-1: none), each with its row of limits."""
    beams = scores.shape[1]
    _admit[(slots.shape[0],)](
        slots, settings, steps, limits, done, newest, scores, record, states, record.shape[1], start, num_states,
        BEAMS=beams, NUM_BEST=num_best, B=triton.next_power_of_2(beams), F=triton.next_power_of_2(num_best),
        NEAR_LIMIT=NEAR_LIMIT, num_warps=1,
    )  # fmt: skip
