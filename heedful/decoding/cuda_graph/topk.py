"""From the best of each chunk of the vocabulary to the beams of the next step, by the rules of `decoding.beam`."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.decoding.cuda_graph import decode_ops
from heedful.decoding.cuda_graph.search_state import SearchState
from heedful.fused.kernels.decode_constants import NEAR_LIMIT


def admit(slots: SearchState, numbers: Tensor, settings: Tensor, *, start: int) -> None:
    """Begin new sentences in the slots of these numbers (-1: none), each with its row of limits."""
    if decode_ops.has_kernels(slots.steps):
        from heedful.fused.kernels import decode_topk

        decode_topk.admit(
            numbers, settings, slots.steps, slots.limits, slots.done, slots.newest, slots.scores, slots.record,
            slots.states, start=start, num_best=slots.room.num_best, num_states=slots.num_states,
        )  # fmt: skip
        return
    chosen = numbers[numbers >= 0].long()
    slots.limits[chosen] = settings.view(-1, 4)[numbers >= 0]
    slots.steps[chosen], slots.done[chosen] = 0, 0
    slots.newest.view(slots.room.slots, -1)[chosen] = start
    rooms = slots.limits[chosen, 0] - 1
    begun = torch.where(rooms < NEAR_LIMIT, slots.num_states + rooms.clamp(min=0), 0)
    slots.states.view(slots.room.slots, -1)[chosen] = begun[:, None]
    slots.scores[chosen] = torch.tensor([0.0, *[-torch.inf] * (slots.room.beams - 1)])
    slots.record.view(torch.float32)[chosen, : 4 * slots.room.num_best : 4] = -torch.inf


def choose(slots: SearchState, *, end: int) -> None:
    """Go one step on with every sentence that is not done."""
    if decode_ops.has_kernels(slots.steps):
        from heedful.fused.kernels import decode_topk

        decode_topk.choose(
            slots.logits, *slots.chunks, slots.steps, slots.limits, slots.forced, slots.done, slots.newest,
            slots.scores, slots.ancestry, slots.record, slots.penalties, slots.follows, slots.states,
            end=end, num_best=slots.room.num_best, num_states=slots.num_states,
        )  # fmt: skip
        return
    for slot in range(slots.room.slots):
        if not slots.done[slot]:
            select_reference(slots, slot, end)


def select_reference(slots: SearchState, slot: int, end: int) -> None:
    """One step of one sentence."""
    beams, step = slots.room.beams, int(slots.steps[slot])
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
    past = slice(4 * slots.room.num_best + 3 * step * beams, 4 * slots.room.num_best + 3 * (step + 1) * beams)
    record[past][0::3], record[past][1::3] = torch.tensor(tokens), torch.tensor(parents)
    numbers[past][2::3] = torch.tensor(log_probs)
    rows = slice(slot * beams, (slot + 1) * beams)
    if beams > 1:
        slots.ancestry[rows, :step] = slots.ancestry[rows][list(parents), :step]
        slots.ancestry[rows, step] = torch.tensor(parents, dtype=torch.int32)
    before, room = slots.states[rows].tolist(), longest - step - 2
    afterwards = [next_state(slots, before[p], token, room) for p, token in zip(parents, tokens, strict=True)]
    slots.states[rows] = torch.tensor(afterwards, dtype=torch.int32)
    slots.newest[rows] = torch.tensor(tokens, dtype=torch.int32)
    slots.scores[slot] = torch.tensor(scores)
    worst, best = numbers[4 * slots.room.num_best - 4], slots.scores[slot, 0]
    settled = worst > -torch.inf if beams == 1 else best / slots.penalties[longest + 1] <= worst
    done = bool(settled) or bool(best == -torch.inf) or step >= longest
    slots.done[slot], slots.steps[slot] = done, step if done else step + 1


def next_state(slots: SearchState, state: int, token: int, room: int) -> int:
    """The state after a token; one that may not come, as in a prefix, starts from COMPLETE.

    `room`: tokens after the next one.
    """
    after = int(slots.follows[state, token])
    after = after if after >= 0 else max(int(slots.follows[0, token]), 0)
    return slots.num_states + max(room, 0) if after == 0 and room < NEAR_LIMIT else after


def candidates(slots: SearchState, slot: int, end: int) -> list[tuple[float, int, int, float]]:
    """The best 2N (score, beam, token, log-probability); of equal scores the earlier beam, then the lower token."""
    beams, step = slots.room.beams, int(slots.steps[slot])
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
    count = slots.room.num_best
    record, numbers = slots.record[slot, : 4 * count].view(count, 4), slots.record.view(torch.float32)[slot]
    kept = numbers[: 4 * count].view(count, 4)
    score = float(torch.tensor(score, dtype=torch.float32))
    position = int((kept[:, 0] >= score).sum())
    if position < count:
        record[position + 1 :] = record[position:-1].clone()
        kept[position, 0], kept[position, 3] = score, log_prob
        record[position, 1], record[position, 2] = int(slots.steps[slot]) + 1, parent
