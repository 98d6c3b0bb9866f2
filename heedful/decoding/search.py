"""Search, one token at a time: greedy search, sampling, beam search; and forced decoding of a given translation.

Sampling: a sample is a pure function of (seed, source, prefix, sample number). It does not depend on the batch or on
the device's random generator.

Beam search (section 6.1 of the paper): each step extends every live hypothesis by every token and keeps the best 2N
candidates, so that N remain live even if N of them end. Ended candidates among the first N join the finished
hypotheses, of which the best `num_best` are kept. The best N candidates that do not end are the next live hypotheses.

Stopping rule: a sentence is settled when no live hypothesis can enter its n-best list any more. The log_prob ≤ 0 of a
live hypothesis only decreases as it grows, and the length penalty never decreases, so its final score is at most
log_prob / penalty(maximum length). When that is no better than the worst of a full n-best list, the search stops. A
beam of one stops at its first end token, like greedy search. The rule considers one sentence only, so results do not
depend on the batch. With `batch_invariant`, settled sentences stay in the batch until all are settled, so that the
order of floating-point sums does not depend on the other sentences either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.constraints import Constraint, SpecialTokens, allowed_log_probs, make_constraints
from heedful.errors import DecodingError
from heedful.model.seq2seq import Seq2Seq
from heedful.model_dir.save_load import AlignmentSource, default_source
from heedful.search_types import Hypothesis, length_penalty
from heedful.tensor_types import Bool, Float, Int

ChooseTokens = Callable[[Tensor, int, Tensor], Tensor]
"""(log-probabilities (R, V), step, indices of the active sentences (b,)) -> next token of each row (R,)."""


@torch.inference_mode()
def decode_loop(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None,
    forbidden: Sequence[Sequence[int]] | None,
    constraint: Constraint | None,
    num_rows: int,
    choose: ChooseTokens,
) -> list[list[Hypothesis]]:
    """Extend `num_rows` independent hypotheses per sentence, one token per step, until all have ended.

    A sentence leaves the batch when its hypotheses have ended. With `config.batch_invariant` all stay until the last
    has ended, so that tensor shapes do not depend on the other sentences.
    """
    device, num_sentences, num_steps = source.device, source.shape[0], max(max_lengths) + 1
    constraints = make_constraints(
        config,
        special,
        max_lengths=max_lengths,
        prefix=prefix,
        forbidden=forbidden,
        constraint=constraint,
        device=device,
    )
    state = model.start(model.encode(source, source_mask), num_beams=num_rows, max_length=num_steps)

    tokens = torch.full((num_sentences, num_rows, num_steps), special.eos_id, device=device)
    token_log_probs = torch.zeros(num_sentences, num_rows, num_steps, device=device)
    ended = torch.zeros(num_sentences, num_rows, dtype=torch.bool, device=device)
    active = torch.arange(num_sentences, device=device)
    newest = torch.full((num_sentences * num_rows,), special.bos_id, device=device)
    for step in range(num_steps):
        output = model.step(newest, state)
        history = tokens[active, :, :step].flatten(0, 1)
        log_probs = allowed_log_probs(output.logits, history, constraints)
        newest = choose(log_probs, step, active)
        tokens[active, :, step] = newest.view(-1, num_rows)
        token_log_probs[active, :, step] = log_probs.gather(1, newest[:, None]).view(-1, num_rows)
        ended[active] |= (newest == special.eos_id).view(-1, num_rows)

        remaining = (~ended[active].all(dim=1)).nonzero()[:, 0]
        if len(remaining) == 0:
            break
        if not config.batch_invariant and len(remaining) < len(active):
            state.select(remaining)
            constraints, active = constraints.select(remaining), active[remaining]
            newest = newest.view(-1, num_rows)[remaining].flatten()

    return [
        [read_hypothesis(*row, limit, config, special) for row in zip(ids, values, strict=True)]
        for ids, values, limit in zip(tokens.tolist(), token_log_probs.tolist(), max_lengths, strict=True)
    ]


def read_hypothesis(
    tokens: list[int], token_log_probs: list[float], limit: int, config: DecodingConfig, special: SpecialTokens
) -> Hypothesis:
    """The hypothesis in one row: all tokens up to and including the first end token."""
    length = tokens.index(special.eos_id) + 1
    log_prob = sum(token_log_probs[:length])
    return Hypothesis(
        tokens=tokens[:length],
        token_log_probs=token_log_probs[:length],
        log_prob=log_prob,
        score=log_prob / length_penalty(float(length), config),
        finished=length <= limit,
    )


def greedy_search(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[Sequence[int]] | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """One hypothesis per sentence; ties go to the lowest token id."""
    return decode_loop(
        model,
        source,
        source_mask,
        config,
        special,
        max_lengths=max_lengths,
        prefix=prefix,
        forbidden=forbidden,
        constraint=constraint,
        num_rows=1,
        choose=choose_most_likely,
    )


def choose_most_likely(log_probs: Float[Tensor, "R V"], step: int, sentences: Int[Tensor, " b"]) -> Int[Tensor, " R"]:
    """The most likely token of each row."""
    return log_probs.argmax(dim=1)


def sample(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[Sequence[int]] | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """`num_best` samples per sentence, best score first; they may contain duplicates."""
    prefixes = prefix if prefix is not None else [[] for _ in max_lengths]
    identities = [
        [*source[b][source_mask[b]].tolist(), -1, *prefixes[b]]  # -1 separates source and prefix
        for b in range(source.shape[0])
    ]
    uniforms = torch.tensor(
        np.array([draw_uniforms(identity, max(max_lengths) + 1, config) for identity in identities]),
        dtype=torch.float32,
        device=source.device,
    )

    def choose(log_probs: Tensor, step: int, sentences: Tensor) -> Tensor:
        return draw(log_probs, uniforms[sentences, :, step].flatten(), config)

    found = decode_loop(
        model, source, source_mask, config, special,
        max_lengths=max_lengths, prefix=prefix, forbidden=forbidden, constraint=constraint,
        num_rows=config.num_best, choose=choose,
    )  # fmt: skip
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in found]


def draw_uniforms(identity: Sequence[int], num_steps: int, config: DecodingConfig) -> np.ndarray:
    """Uniform numbers in [0, 1) for each sample and step (N, T); depend only on the seed and the sentence."""
    digest = hashlib.blake2b(repr(list(identity)).encode(), digest_size=8).digest()
    sentence = int.from_bytes(digest, "big")
    streams = [np.random.default_rng([config.seed % 2**64, sentence, number]) for number in range(config.num_best)]
    return np.stack([stream.random(num_steps) for stream in streams])


def draw(log_probs: Float[Tensor, "R V"], uniforms: Float[Tensor, " R"], config: DecodingConfig) -> Int[Tensor, " R"]:
    """Inverse transform sampling: the token at which the cumulative probability exceeds the row's uniform number."""
    probs, token_ids = kept_distribution(log_probs, config)
    cumulative = probs.cumsum(dim=1)
    index = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    num_kept = (probs > 0).sum(dim=1, keepdim=True)  # rounding must not select a token that was cut
    return token_ids.gather(1, index.minimum(num_kept - 1).clamp(min=0))[
        :, 0
    ]  # clamp: rows that ended earlier keep none


def kept_distribution(
    log_probs: Float[Tensor, "R V"], config: DecodingConfig
) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"]]:
    """Probabilities after temperature, top-k and top-p, in this order, sorted descending, and their token ids.

    They are not renormalised after top-p.
    """
    ordered, token_ids = log_probs.sort(dim=1, descending=True, stable=True)
    if config.top_k:
        ordered, token_ids = ordered[:, : config.top_k], token_ids[:, : config.top_k]
    temperature = max(config.temperature, 1e-6)
    probs = torch.softmax((ordered - ordered[:, :1]) / temperature, dim=1)
    if config.top_p < 1:
        before = F.pad(probs.cumsum(dim=1)[:, :-1], (1, 0))
        probs = probs.masked_fill(before >= config.top_p, 0)
    return probs, token_ids


@dataclass(frozen=True)
class Beams:
    """N hypotheses of equal length for each of B sentences, best first; a score of -inf marks an empty entry."""

    tokens: Int[Tensor, "B N T"]
    token_log_probs: Float[Tensor, "B N T"]
    scores: Float[Tensor, "B N"]
    """The log-probability of live hypotheses; divided by the length penalty for finished ones."""

    def take(self, indices: Int[Tensor, "B K"]) -> Beams:
        """The hypotheses at these indices of each sentence."""
        along_tokens = indices[:, :, None].expand(-1, -1, self.tokens.shape[2])
        return Beams(
            self.tokens.gather(1, along_tokens),
            self.token_log_probs.gather(1, along_tokens),
            self.scores.gather(1, indices),
        )

    def append(
        self, tokens: Int[Tensor, "B N"], token_log_probs: Float[Tensor, "B N"], scores: Float[Tensor, "B N"]
    ) -> Beams:
        """The hypotheses extended by one token, with new scores."""
        return Beams(
            torch.cat([self.tokens, tokens[:, :, None]], dim=2),
            torch.cat([self.token_log_probs, token_log_probs[:, :, None]], dim=2),
            scores,
        )

    def select(self, sentences: Int[Tensor, " b"]) -> Beams:
        """A subset of the sentences."""
        return Beams(self.tokens[sentences], self.token_log_probs[sentences], self.scores[sentences])


@torch.inference_mode()
def beam_search(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[Sequence[int]] | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """The best `num_best` hypotheses of every sentence, or all if there are fewer."""
    device, num_sentences, num_beams = source.device, source.shape[0], config.beam_size
    constraints = make_constraints(
        config,
        special,
        max_lengths=max_lengths,
        prefix=prefix,
        forbidden=forbidden,
        constraint=constraint,
        device=device,
    )
    state = model.start(model.encode(source, source_mask), num_beams=num_beams, max_length=max(max_lengths) + 1)

    live = empty_beams(num_sentences, num_beams, device)
    live.scores[:, 0] = 0.0  # all rows start equal, so only the first is live
    finished = empty_beams(num_sentences, config.num_best, device)
    newest = torch.full((num_sentences * num_beams,), special.bos_id, device=device)
    results: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
    active = list(range(num_sentences))
    while active:
        if live.tokens.shape[2] > max(max_lengths):  # without NaN, every sentence is settled by now
            raise DecodingError("the model's log-probabilities are not numbers (NaN): its weights are damaged.")
        output = model.step(newest, state)
        log_probs = allowed_log_probs(output.logits, live.tokens.flatten(0, 1), constraints)
        candidates, parents = extend(live, log_probs.view(len(active), num_beams, -1))
        ends = candidates.tokens[:, :, -1] == special.eos_id
        finished = collect(finished, candidates, ends, config, special)
        survivors = ends.int().argsort(dim=1, stable=True)[:, :num_beams]
        live, parents = candidates.take(survivors), parents.gather(1, survivors)

        settled = is_settled(live, finished.scores[:, -1], constraints.max_lengths, config)
        newly_settled = [index for index in settled.nonzero()[:, 0].tolist() if not results[active[index]]]
        ended = finished.select(torch.tensor(newly_settled, dtype=torch.long, device=device))
        for index, found in zip(newly_settled, read_beams(ended), strict=True):
            sentence = active[index]
            results[sentence] = [read_hypothesis(*row, max_lengths[sentence], config, special) for row in found]
        keep = (~settled).nonzero()[:, 0]
        if len(keep) == 0:
            break
        if not config.batch_invariant and len(keep) < len(active):
            active = [active[index] for index in keep.tolist()]
            state.select(keep)
            live, finished, parents = live.select(keep), finished.select(keep), parents[keep]
            constraints = constraints.select(keep)
        first_rows = torch.arange(len(active), device=device)[:, None] * num_beams
        state.reorder((first_rows + parents).flatten())
        newest = live.tokens[:, :, -1].flatten()
    return results


def empty_beams(num_sentences: int, num_beams: int, device: torch.device) -> Beams:
    """Empty entries without tokens."""
    return Beams(
        torch.zeros(num_sentences, num_beams, 0, dtype=torch.long, device=device),
        torch.zeros(num_sentences, num_beams, 0, device=device),
        torch.full((num_sentences, num_beams), -torch.inf, device=device),
    )


def extend(live: Beams, log_probs: Float[Tensor, "B N V"]) -> tuple[Beams, Int[Tensor, "B K"]]:
    """The best 2N candidates of each sentence, one token longer, and the index of the hypothesis each extends."""
    num_beams, vocab_size = log_probs.shape[1:]
    log_prob = live.scores[:, :, None] + log_probs
    scores, indices = top_k(log_prob.flatten(1), 2 * num_beams)
    parents, tokens = indices // vocab_size, indices % vocab_size
    return live.take(parents).append(tokens, log_probs.flatten(1).gather(1, indices), scores), parents


def top_k(values: Float[Tensor, "B M"], count: int) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """The `count` largest values of each row in descending order; ties by index (earlier beam, lower token id)."""
    count = min(count, values.shape[1])
    kept, indices = values.topk(min(count + 1, values.shape[1]), dim=1)
    if kept.shape[1] > count:  # torch.topk breaks ties arbitrarily: a tie for the last entry needs a full sort
        tied = (kept[:, count - 1] == kept[:, count]) & kept[:, count].isfinite()
        if bool(tied.any()):
            kept, indices = values.sort(dim=1, descending=True, stable=True)
    kept, indices = kept[:, :count], indices[:, :count]
    indices, order = indices.sort(dim=1)
    kept, order = kept.gather(1, order).sort(dim=1, descending=True, stable=True)
    return kept, indices.gather(1, order)


def collect(
    finished: Beams, candidates: Beams, ends: Bool[Tensor, "B K"], config: DecodingConfig, special: SpecialTokens
) -> Beams:
    """Merge finished hypotheses with the candidates among the first N that end now."""
    length = candidates.tokens.shape[2]
    ending = ends & (torch.arange(ends.shape[1], device=ends.device) < config.beam_size)
    scores = torch.where(ending, candidates.scores / length_penalty(float(length), config), -torch.inf)
    merged = Beams(
        torch.cat([F.pad(finished.tokens, (0, 1), value=special.eos_id), candidates.tokens], dim=1),
        torch.cat([F.pad(finished.token_log_probs, (0, 1)), candidates.token_log_probs], dim=1),
        torch.cat([finished.scores, scores], dim=1),
    )
    order = merged.scores.argsort(dim=1, descending=True, stable=True)
    return merged.take(order[:, : config.num_best])


def is_settled(
    live: Beams, worst_finished: Float[Tensor, " B"], max_lengths: Int[Tensor, " B"], config: DecodingConfig
) -> Bool[Tensor, " B"]:
    """Which sentences meet the stopping rule described at the top of this file; also if nothing is live."""
    if config.beam_size == 1:
        return worst_finished.isfinite()
    max_penalty = length_penalty(max_lengths + 1.0, config)
    return live.scores[:, 0] / max_penalty <= worst_finished


def read_beams(beams: Beams) -> list[list[tuple[list[int], list[float]]]]:
    """(tokens, token log-probabilities) of all hypotheses, without empty entries."""
    table = zip(beams.tokens.tolist(), beams.token_log_probs.tolist(), beams.scores.tolist(), strict=True)
    return [
        [(tokens, log_probs) for tokens, log_probs, score in zip(*rows, strict=True) if score > -torch.inf]
        for rows in table
    ]


@dataclass(frozen=True)
class ForcedDecoding:
    """The model's scores for one given translation."""

    token_log_probs: list[float]
    """Log-probability of each token given those before it."""
    attention: Float[Tensor, "T L H S"] | None
    """With `need_weights`: cross-attention of the step that predicts each token, over the source without padding."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole translation."""
        return sum(self.token_log_probs)


@torch.inference_mode()
def force_decode(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    targets: Sequence[Sequence[int]],
    *,
    bos_id: int,
    need_weights: bool = False,
) -> list[ForcedDecoding]:
    """Decode with given targets (with end token, without start token) and return the model's scores."""
    device, num_steps = source.device, max(len(target) for target in targets)
    table = torch.tensor([[*target, *[bos_id] * (num_steps - len(target))] for target in targets], device=device)
    state = model.start(model.encode(source, source_mask), num_beams=1, max_length=num_steps)
    newest = torch.full((len(targets),), bos_id, device=device)
    token_log_probs, weights = [], []
    for step in range(num_steps):
        output = model.step(newest, state, need_weights=need_weights)
        newest = table[:, step]
        token_log_probs.append(torch.log_softmax(output.logits.float(), dim=-1).gather(1, newest[:, None])[:, 0])
        if need_weights:
            if output.attention is None:
                raise DecodingError("this model has no cross-attention; translate without alignment.")
            weights.append(output.attention.float().cpu())

    log_probs = torch.stack(token_log_probs, dim=1).tolist()
    return [
        ForcedDecoding(
            token_log_probs=log_probs[b][: len(target)],
            attention=torch.stack([step[b] for step in weights[: len(target)]])[..., source_mask[b].cpu()]
            if need_weights
            else None,
        )
        for b, target in enumerate(targets)
    ]


def alignment_weights(
    attention: Float[Tensor, "T L H S"], source: AlignmentSource | None = None
) -> Float[Tensor, "T S"]:
    """One weight per step and source token: of one head, or the mean over the heads of a layer.

    `source`: which layer and head; None: the default for the number of layers.
    """
    chosen = source or default_source(attention.shape[1])
    layer = attention[:, chosen.layer]
    return layer.mean(dim=1) if chosen.head is None else layer[:, chosen.head]
