"""What a translation may and must contain. Rules take log-probabilities and set those of forbidden tokens to -inf.

They are not renormalised: a hypothesis keeps the log-probability that the model gives it, whatever rules shaped it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.special_tokens import SpecialTokens as SpecialTokens
from heedful.errors import DecodingError
from heedful.shapes import Float, Int

FREE = -1  # in a table of forced tokens: nothing is forced here


@runtime_checkable
class Rule(Protocol):
    """A further rule over B sentences, whose rows stand one sentence after another, as many for each."""

    def apply(self, log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        """The log-probabilities with those of forbidden tokens at -inf; one token at least stays possible."""
        ...

    def select(self, sentences: Int[Tensor, " b"]) -> Rule:
        """The rule for some of the sentences."""
        ...


def forbid_tokens(log_probs: Float[Tensor, "R V"], token_ids: Int[Tensor, " K"]) -> Float[Tensor, "R V"]:
    """Forbid the same tokens in every row."""
    return log_probs.index_fill(1, token_ids, -torch.inf)


def forbid_repeats(log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"], ngram: int) -> Float[Tensor, "R V"]:
    """Forbid every token that would complete an n-gram which the row's history already holds."""
    length, context = history.shape[1], ngram - 1
    if length < ngram:
        return log_probs
    followers = history[:, context:]
    repeated = torch.ones_like(followers, dtype=torch.bool)
    for offset in range(context):  # does the history at this place agree with its own last n - 1 tokens?
        place, last = length - context + offset, slice(offset, offset + followers.shape[1])
        repeated &= history[:, last] == history[:, place, None]
    nothing = log_probs.shape[1]
    blocked = torch.zeros(log_probs.shape[0], nothing + 1, dtype=torch.bool, device=log_probs.device)
    blocked.scatter_(1, followers.masked_fill(~repeated, nothing), True)  # noqa: FBT003
    return log_probs.masked_fill(blocked[:, :nothing], -torch.inf)


def forbid_end(log_probs: Float[Tensor, "R V"], eos_id: int) -> Float[Tensor, "R V"]:
    """Forbid the end, except where nothing else is left."""
    without_end = log_probs.clone()
    without_end[:, eos_id] = -torch.inf
    return unless_stuck(without_end, log_probs)


def unless_stuck(stricter: Float[Tensor, "R V"], looser: Float[Tensor, "R V"]) -> Float[Tensor, "R V"]:
    """The stricter of two, except in rows where it leaves nothing possible."""
    stuck = torch.isneginf(stricter.amax(dim=1, keepdim=True))
    return torch.where(stuck, looser, stricter)


def force_tokens(
    log_probs: Float[Tensor, "R V"], allowed: Float[Tensor, "R V"], forced: Int[Tensor, " R"]
) -> Float[Tensor, "R V"]:
    """Rows with a forced token get it alone, with the model's own log-probability; FREE rows stay as they are."""
    token = forced.clamp(min=0)[:, None]
    alone = torch.full_like(log_probs, -torch.inf).scatter(1, token, log_probs.gather(1, token))
    return torch.where((forced == FREE)[:, None], allowed, alone)


@dataclass(frozen=True)
class Constraints:
    """All rules of one search over B sentences. Whatever they forbid, one token at least stays possible.

    `max_lengths` counts tokens without the end token: a hypothesis that has as many must end, at the price the model
    puts on it. So every hypothesis ends with the end token, and their scores compare.
    """

    special: SpecialTokens
    forbidden: Int[Tensor, " K"]
    min_length: int
    no_repeat_ngram: int
    max_lengths: Int[Tensor, " B"]
    shortest_limit: int
    prefix: Int[Tensor, "B P"]
    rule: Rule | None = None

    def apply(self, log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        """The log-probabilities of the next token after each row's history, forbidden ones at -inf."""
        allowed = forbid_tokens(log_probs, self.forbidden)
        if self.rule is not None:
            allowed = unless_stuck(self.rule.apply(allowed, history), allowed)  # a prefix may have broken the rule
        if self.no_repeat_ngram:
            allowed = unless_stuck(forbid_repeats(allowed, history, self.no_repeat_ngram), allowed)
        step = history.shape[1]
        if step < self.min_length:
            allowed = forbid_end(allowed, self.special.eos_id)
        if step < self.prefix.shape[1] or step >= self.shortest_limit:
            rows_per_sentence = log_probs.shape[0] // self.max_lengths.shape[0]
            allowed = force_tokens(log_probs, allowed, self.forced(step).repeat_interleave(rows_per_sentence))
        return allowed

    def forced(self, step: int) -> Int[Tensor, " B"]:
        """The token that each sentence must have at this step: of its prefix, the end at its limit, or FREE."""
        if step < self.prefix.shape[1]:
            token = self.prefix[:, step]
        else:
            token = torch.full_like(self.max_lengths, FREE)
        return torch.where(self.max_lengths <= step, self.special.eos_id, token)

    def select(self, sentences: Int[Tensor, " b"]) -> Constraints:
        """The rules for some of the sentences."""
        return dataclasses.replace(
            self,
            max_lengths=self.max_lengths[sentences],
            prefix=self.prefix[sentences],
            rule=self.rule.select(sentences) if self.rule is not None else None,
        )


def make_constraints(
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None,
    rule: Rule | None = None,
    device: torch.device,
) -> Constraints:
    """The rules that a configuration, one limit and forced beginning a sentence, and a further rule ask for."""
    beginnings = prefix if prefix is not None else [[] for _ in max_lengths]
    for number, (limit, beginning) in enumerate(zip(max_lengths, beginnings, strict=True), start=1):
        if len(beginning) > limit:
            raise DecodingError(
                f"the target prefix of sentence {number} has {len(beginning)} tokens, more than its longest allowed "
                f"translation ({limit}); shorten it or raise decoding.max_length."
            )
    width = max((len(beginning) for beginning in beginnings), default=0)
    table = [[*beginning, *[FREE] * (width - len(beginning))] for beginning in beginnings]
    return Constraints(
        special=special,
        forbidden=torch.tensor(sorted({special.pad_id, special.bos_id, *special.forbidden}), device=device),
        min_length=config.min_length,
        no_repeat_ngram=config.no_repeat_ngram,
        max_lengths=torch.tensor(list(max_lengths), device=device),
        shortest_limit=min(max_lengths),
        prefix=torch.tensor(table, dtype=torch.long, device=device).view(len(table), width),
        rule=rule,
    )


def allowed_log_probs(
    logits: Float[Tensor, "R V"], history: Int[Tensor, "R T"], constraints: Constraints
) -> Float[Tensor, "R V"]:
    """Log-softmax in float32, whatever the model computes in, with forbidden tokens at -inf."""
    return constraints.apply(torch.log_softmax(logits.float(), dim=-1), history)
