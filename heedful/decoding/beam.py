"""Beam search: at each step keep the N most likely beginnings of every sentence (section 6.1 of the paper).

One step: every live hypothesis meets every token; of these candidates the best 2N are kept, so that N go on even if
all N end. Candidates among the first N that end join the finished ones, of which the best `num_best` are kept; the best
N that do not end live on.

A sentence is settled when nothing alive can still enter its n-best list. A live hypothesis has log_prob ≤ 0, which only
falls as it grows, while the length penalty never falls: whatever it becomes, its score is at most
log_prob / penalty(longest length allowed). Once that is no better than the worst of a full n-best list, going on
changes nothing. A beam of one stops at its first end: it is greedy search. Each sentence is settled by its own rule, so
its batch mates have no part in its result. It leaves the batch then if the search shall be fast, and otherwise stays
until all are settled, so that they have no part in the order of its sums either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.constraints import Rule, SpecialTokens, allowed_log_probs, make_constraints
from heedful.decoding.greedy import read_hypothesis
from heedful.errors import DecodingError
from heedful.model.seq2seq import Seq2Seq
from heedful.search_types import Hypothesis, length_penalty
from heedful.tensor_types import Bool, Float, Int


@dataclass(frozen=True)
class Beams:
    """N hypotheses of equal length for each of B sentences, best first; a score of -inf marks an empty place."""

    tokens: Int[Tensor, "B N T"]
    token_log_probs: Float[Tensor, "B N T"]
    scores: Float[Tensor, "B N"]
    """What ranks them: the log-probability while they live, divided by the length penalty when they are finished."""

    def take(self, places: Int[Tensor, "B K"]) -> Beams:
        """For every sentence the hypotheses at these places."""
        along_tokens = places[:, :, None].expand(-1, -1, self.tokens.shape[2])
        return Beams(
            self.tokens.gather(1, along_tokens),
            self.token_log_probs.gather(1, along_tokens),
            self.scores.gather(1, places),
        )

    def append(
        self, tokens: Int[Tensor, "B N"], token_log_probs: Float[Tensor, "B N"], scores: Float[Tensor, "B N"]
    ) -> Beams:
        """The same hypotheses, one token longer, with new scores."""
        return Beams(
            torch.cat([self.tokens, tokens[:, :, None]], dim=2),
            torch.cat([self.token_log_probs, token_log_probs[:, :, None]], dim=2),
            scores,
        )

    def select(self, sentences: Int[Tensor, " b"]) -> Beams:
        """Some of the sentences, with all their hypotheses."""
        return Beams(self.tokens[sentences], self.token_log_probs[sentences], self.scores[sentences])


@torch.inference_mode()
def search(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[Sequence[int]] | None = None,
    rule: Rule | None = None,
) -> list[list[Hypothesis]]:
    """The best `num_best` hypotheses of every sentence; fewer only where fewer exist."""
    device, num_sentences, num_beams = source.device, source.shape[0], config.beam_size
    constraints = make_constraints(
        config, special, max_lengths=max_lengths, prefix=prefix, forbidden=forbidden, rule=rule, device=device
    )
    state = model.start(model.encode(source, source_mask), num_beams=num_beams, max_length=max(max_lengths) + 1)

    live = empty_beams(num_sentences, num_beams, device)
    live.scores[:, 0] = 0.0  # all rows begin equal: one of them speaks for all
    finished = empty_beams(num_sentences, config.num_best, device)
    newest = torch.full((num_sentences * num_beams,), special.bos_id, device=device)
    results: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
    open_sentences = list(range(num_sentences))
    while open_sentences:
        if live.tokens.shape[2] > max(max_lengths):  # all numbers compare, so that by now every sentence is settled
            raise DecodingError("the model's log-probabilities are not numbers (NaN): its weights are damaged.")
        output = model.step(newest, state)
        log_probs = allowed_log_probs(output.logits, live.tokens.flatten(0, 1), constraints)
        candidates, parents = extend(live, log_probs.view(len(open_sentences), num_beams, -1))
        ends = candidates.tokens[:, :, -1] == special.eos_id
        finished = collect(finished, candidates, ends, config, special)
        going_on = ends.int().argsort(dim=1, stable=True)[:, :num_beams]
        live, parents = candidates.take(going_on), parents.gather(1, going_on)

        settled = is_settled(live, finished.scores[:, -1], constraints.max_lengths, config)
        newly = [index for index in settled.nonzero()[:, 0].tolist() if not results[open_sentences[index]]]
        ended = finished.select(torch.tensor(newly, dtype=torch.long, device=device))
        for index, found in zip(newly, read_beams(ended), strict=True):
            sentence = open_sentences[index]
            results[sentence] = [read_hypothesis(*row, max_lengths[sentence], config, special) for row in found]
        keep = (~settled).nonzero()[:, 0]
        if len(keep) == 0:
            break
        if not config.batch_invariant and len(keep) < len(open_sentences):
            open_sentences = [open_sentences[index] for index in keep.tolist()]
            state.select(keep)
            live, finished, parents = live.select(keep), finished.select(keep), parents[keep]
            constraints = constraints.select(keep)
        first_rows = torch.arange(len(open_sentences), device=device)[:, None] * num_beams
        state.reorder((first_rows + parents).flatten())
        newest = live.tokens[:, :, -1].flatten()
    return results


def empty_beams(num_sentences: int, num_beams: int, device: torch.device) -> Beams:
    """Places for hypotheses, all empty and without a token."""
    return Beams(
        torch.zeros(num_sentences, num_beams, 0, dtype=torch.long, device=device),
        torch.zeros(num_sentences, num_beams, 0, device=device),
        torch.full((num_sentences, num_beams), -torch.inf, device=device),
    )


def extend(live: Beams, log_probs: Float[Tensor, "B N V"]) -> tuple[Beams, Int[Tensor, "B K"]]:
    """The best 2N candidates of each sentence, one token longer, and the place that each came from."""
    num_beams, vocab_size = log_probs.shape[1:]
    log_prob = live.scores[:, :, None] + log_probs
    scores, places = best(log_prob.flatten(1), 2 * num_beams)
    parents, tokens = places // vocab_size, places % vocab_size
    return live.take(parents).append(tokens, log_probs.flatten(1).gather(1, places), scores), parents


def best(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """The `count` greatest of each row, greatest first; of equal ones the earliest (earlier beam, lower token id)."""
    count = min(count, values.shape[1])
    kept, places = values.topk(min(count + 1, values.shape[1]), dim=1)
    if kept.shape[1] > count:  # topk takes any of several equals: only a full sort settles a tie for the last place
        tied = (kept[:, count - 1] == kept[:, count]) & kept[:, count].isfinite()
        if bool(tied.any()):
            kept, places = values.sort(dim=1, descending=True, stable=True)
    kept, places = kept[:, :count], places[:, :count]
    places, order = places.sort(dim=1)
    kept, order = kept.gather(1, order).sort(dim=1, descending=True, stable=True)
    return kept, places.gather(1, order)


def collect(
    finished: Beams, candidates: Beams, ends: Bool[Tensor, "B K"], config: DecodingConfig, special: SpecialTokens
) -> Beams:
    """The best of those that were finished before and those that end now, among the first N candidates."""
    length = candidates.tokens.shape[2]
    ending = ends & (torch.arange(ends.shape[1], device=ends.device) < config.beam_size)
    scores = torch.where(ending, candidates.scores / length_penalty(float(length), config), -torch.inf)
    together = Beams(
        torch.cat([F.pad(finished.tokens, (0, 1), value=special.eos_id), candidates.tokens], dim=1),
        torch.cat([F.pad(finished.token_log_probs, (0, 1)), candidates.token_log_probs], dim=1),
        torch.cat([finished.scores, scores], dim=1),
    )
    order = together.scores.argsort(dim=1, descending=True, stable=True)
    return together.take(order[:, : config.num_best])


def is_settled(
    live: Beams, worst_finished: Float[Tensor, " B"], max_lengths: Int[Tensor, " B"], config: DecodingConfig
) -> Bool[Tensor, " B"]:
    """Which sentences can gain nothing more: see the top of this file. Without anything alive all is settled."""
    if config.beam_size == 1:
        return worst_finished.isfinite()
    most_favourable = length_penalty(max_lengths + 1.0, config)
    return live.scores[:, 0] / most_favourable <= worst_finished


def read_beams(beams: Beams) -> list[list[tuple[list[int], list[float]]]]:
    """Tokens and their log-probabilities of all hypotheses that exist, as plain lists."""
    table = zip(beams.tokens.tolist(), beams.token_log_probs.tolist(), beams.scores.tolist(), strict=True)
    return [
        [(tokens, log_probs) for tokens, log_probs, score in zip(*rows, strict=True) if score > -torch.inf]
        for rows in table
    ]
