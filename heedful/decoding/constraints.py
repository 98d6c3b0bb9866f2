"""Constraints on translations: they set the log-probabilities of forbidden tokens to -inf.

Probabilities are not renormalised, so a hypothesis keeps the log-probability that the model assigns to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.utf8_automaton import COMPLETE, NEEDED, NEXT
from heedful.errors import DecodingError
from heedful.search_types import SpecialTokens as SpecialTokens
from heedful.tensor_types import Bool, Float, Int

FREE = -1  # in a table of forced tokens: no forced token


@runtime_checkable
class Constraint(Protocol):
    """A constraint on B sentences with the same number of rows each, grouped by sentence."""

    def apply(self, log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        """The log-probabilities with forbidden tokens at -inf; at least one token must remain possible."""
        ...

    def select(self, sentences: Int[Tensor, " b"]) -> Constraint:
        """The constraint for a subset of the sentences."""
        ...


def forbid_tokens(log_probs: Float[Tensor, "R V"], token_ids: Int[Tensor, " K"]) -> Float[Tensor, "R V"]:
    """Forbid the same tokens in every row."""
    return log_probs.index_fill(1, token_ids, -torch.inf)


def forbid_repeats(log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"], ngram: int) -> Float[Tensor, "R V"]:
    """Forbid tokens that would repeat an n-gram of the row's history."""
    length, context = history.shape[1], ngram - 1
    if length < ngram:
        return log_probs
    followers = history[:, context:]
    repeated = torch.ones_like(followers, dtype=torch.bool)
    for offset in range(context):  # does the n-gram at this position start with the last n - 1 tokens?
        position, last = length - context + offset, slice(offset, offset + followers.shape[1])
        repeated &= history[:, last] == history[:, position, None]
    nothing = log_probs.shape[1]
    blocked = torch.zeros(log_probs.shape[0], nothing + 1, dtype=torch.bool, device=log_probs.device)
    blocked.scatter_(1, followers.masked_fill(~repeated, nothing), True)  # noqa: FBT003
    return log_probs.masked_fill(blocked[:, :nothing], -torch.inf)


def forbid_end(log_probs: Float[Tensor, "R V"], eos_id: int) -> Float[Tensor, "R V"]:
    """Forbid the end token, except in rows where nothing else is possible."""
    without_end = log_probs.clone()
    without_end[:, eos_id] = -torch.inf
    return if_possible(without_end, log_probs)


def if_possible(stricter: Float[Tensor, "R V"], looser: Float[Tensor, "R V"]) -> Float[Tensor, "R V"]:
    """`stricter`, except in rows where it leaves no token possible."""
    stuck = torch.isneginf(stricter.amax(dim=1, keepdim=True))
    return torch.where(stuck, looser, stricter)


def force_tokens(
    log_probs: Float[Tensor, "R V"], allowed: Float[Tensor, "R V"], forced: Int[Tensor, " R"]
) -> Float[Tensor, "R V"]:
    """Allow only the forced token, with its log-probability from the model; FREE rows are unchanged."""
    token = forced.clamp(min=0)[:, None]
    alone = torch.full_like(log_probs, -torch.inf).scatter(1, token, log_probs.gather(1, token))
    return torch.where((forced == FREE)[:, None], allowed, alone)


@dataclass(frozen=True)
class Utf8Constraint:
    """Byte tokens must form valid UTF-8: the automaton of `heedful.decoding.utf8_automaton` for all rows."""

    byte_ids: Int[Tensor, " 256"]
    next: Int[Tensor, "11 256"]
    needed: Int[Tensor, " 256"]
    """Number of bytes that must follow each first byte."""

    def states(self, history: Int[Tensor, "R T"]) -> Int[Tensor, " R"]:
        """The automaton state of each row, determined by the last three tokens: characters have at most four bytes."""
        states = torch.full((history.shape[0],), COMPLETE, device=history.device)
        for tokens in history[:, -3:].unbind(dim=1):
            matches = tokens[:, None] == self.byte_ids
            byte = matches.int().argmax(dim=1)
            after = self.next[states, byte]
            after = torch.where(after < 0, self.next[COMPLETE, byte], after).clamp(min=COMPLETE)
            states = torch.where(matches.any(dim=1), after, COMPLETE)
        return states

    def continue_character(
        self, log_probs: Float[Tensor, "R V"], allowed: Float[Tensor, "R V"], states: Int[Tensor, " R"]
    ) -> Float[Tensor, "R V"]:
        """`allowed`, but in rows inside a character only the bytes that may continue it."""
        columns = log_probs[:, self.byte_ids].masked_fill(self.next[states] < 0, -torch.inf)
        continued = torch.full_like(log_probs, -torch.inf).index_copy(1, self.byte_ids, columns)
        return torch.where((states != COMPLETE)[:, None], continued, allowed)

    def exclude_unfitting(self, allowed: Float[Tensor, "R V"], remaining: Int[Tensor, " R"]) -> Float[Tensor, "R V"]:
        """`allowed` without first bytes of characters that would exceed the remaining length."""
        columns = allowed[:, self.byte_ids].masked_fill(self.needed > remaining[:, None], -torch.inf)
        return allowed.index_copy(1, self.byte_ids, columns)


def make_utf8_constraint(byte_ids: Sequence[int], device: torch.device) -> Utf8Constraint | None:
    """The UTF-8 constraint of a vocabulary; None if it has no byte tokens."""
    if not byte_ids:
        return None
    following = torch.tensor(NEXT)
    needed = torch.tensor(NEEDED)[following[COMPLETE].clamp(min=COMPLETE)]
    ids = torch.tensor(list(byte_ids), device=device)
    return Utf8Constraint(ids, following.to(device), needed.to(device))


@dataclass(frozen=True)
class Constraints:
    """All constraints of a search over B sentences. At least one token always remains possible.

    `max_lengths` counts tokens without the end token. A hypothesis of that length is forced to end, with the model's
    log-probability of the end token, so that the scores of all hypotheses are comparable.
    """

    special: SpecialTokens
    forbidden: Int[Tensor, " K"]
    min_length: int
    no_repeat_ngram_size: int
    max_lengths: Int[Tensor, " B"]
    shortest_limit: int
    prefix: Int[Tensor, "B P"]
    constraint: Constraint | None = None
    bytes: Utf8Constraint | None = None
    sentence_forbidden: Int[Tensor, "F 2"] | None = None
    """Tokens forbidden in individual sentences: (sentence, token)."""

    def apply(self, log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        """The log-probabilities of the next token, with forbidden tokens at -inf."""
        allowed = forbid_tokens(log_probs, self.forbidden)
        rows_per_sentence, step = log_probs.shape[0] // self.max_lengths.shape[0], history.shape[1]
        if self.sentence_forbidden is not None:
            sentences, tokens = self.sentence_forbidden.unbind(dim=1)
            allowed = allowed.unflatten(0, (-1, rows_per_sentence)).clone()
            allowed[sentences, :, tokens] = -torch.inf
            allowed = allowed.flatten(0, 1)
        if self.bytes is not None and step + max(NEEDED) >= self.shortest_limit:
            remaining = (self.max_lengths - step - 1).repeat_interleave(rows_per_sentence)
            allowed = self.bytes.exclude_unfitting(allowed, remaining)
        if self.constraint is not None:
            allowed = if_possible(
                self.constraint.apply(allowed, history), allowed
            )  # a prefix may violate the constraint
        if self.no_repeat_ngram_size:
            allowed = if_possible(forbid_repeats(allowed, history, self.no_repeat_ngram_size), allowed)
        if step < self.min_length:
            allowed = forbid_end(allowed, self.special.eos_id)
        if self.bytes is not None and bool(((states := self.bytes.states(history)) != COMPLETE).any()):
            allowed = self.bytes.continue_character(log_probs, allowed, states)
        if step < self.prefix.shape[1] or step >= self.shortest_limit:
            allowed = force_tokens(log_probs, allowed, self.forced(step).repeat_interleave(rows_per_sentence))
        return allowed

    def forced(self, step: int) -> Int[Tensor, " B"]:
        """The forced token of each sentence at this step: from its prefix, the end token at its limit, or FREE."""
        if step < self.prefix.shape[1]:
            token = self.prefix[:, step]
        else:
            token = torch.full_like(self.max_lengths, FREE)
        return torch.where(self.max_lengths <= step, self.special.eos_id, token)

    def select(self, sentences: Int[Tensor, " b"]) -> Constraints:
        """The constraints for a subset of the sentences."""
        return dataclasses.replace(
            self,
            max_lengths=self.max_lengths[sentences],
            prefix=self.prefix[sentences],
            constraint=self.constraint.select(sentences) if self.constraint is not None else None,
            sentence_forbidden=select_pairs(self.sentence_forbidden, sentences)
            if self.sentence_forbidden is not None
            else None,
        )


def select_pairs(indices: Int[Tensor, "K 2"], sentences: Int[Tensor, " b"]) -> Int[Tensor, "k 2"]:
    """The (sentence, token) pairs of a subset of the sentences, renumbered."""
    number, kept = (indices[:, None, 0] == sentences).nonzero().flip(1).unbind(dim=1)
    return torch.stack([number, indices[kept, 1]], dim=1)


def make_constraints(
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None,
    forbidden: Sequence[Sequence[int]] | None = None,
    constraint: Constraint | None = None,
    device: torch.device,
) -> Constraints:
    """Constraints from a configuration, a length limit, prefix and forbidden tokens per sentence, and `constraint`."""
    prefixes = prefix if prefix is not None else [[] for _ in max_lengths]
    for number, (limit, prefix_ids) in enumerate(zip(max_lengths, prefixes, strict=True), start=1):
        if len(prefix_ids) > limit:
            raise DecodingError(
                f"the target prefix of sentence {number} has {len(prefix_ids)} tokens, more than its longest allowed "
                f"translation ({limit}); shorten it or raise decoding.max_length."
            )
    width = max((len(prefix_ids) for prefix_ids in prefixes), default=0)
    table = [[*prefix_ids, *[FREE] * (width - len(prefix_ids))] for prefix_ids in prefixes]
    indices = [(row, token) for row, tokens in enumerate(forbidden or ()) for token in tokens]
    no_beginnings = (number for number, after in zip(special.byte_ids, NEXT[COMPLETE], strict=False) if after < 0)
    never = sorted({special.pad_id, special.bos_id, *special.forbidden, *no_beginnings})
    return Constraints(
        special=special,
        forbidden=torch.tensor(never, device=device),
        min_length=config.min_length,
        no_repeat_ngram_size=config.no_repeat_ngram_size,
        max_lengths=torch.tensor(list(max_lengths), device=device),
        shortest_limit=min(max_lengths),
        prefix=torch.tensor(table, dtype=torch.long, device=device).view(len(table), width),
        constraint=constraint,
        bytes=make_utf8_constraint(special.byte_ids, device),
        sentence_forbidden=torch.tensor(indices, device=device) if indices else None,
    )


def allowed_log_probs(
    logits: Float[Tensor, "R V"], history: Int[Tensor, "R T"], constraints: Constraints
) -> Float[Tensor, "R V"]:
    """Log-softmax in float32, whatever the model computes in, with forbidden tokens at -inf."""
    return constraints.apply(torch.log_softmax(logits.float(), dim=-1), history)


MAX_OPENING_RUN = 12
"""Maximum number of consecutive opening brackets; English treebanks have up to 8."""


@dataclass(frozen=True)
class BracketSymbols:
    """The meaning of a parser's target ids."""

    pairs: tuple[tuple[int, int], ...]
    """Ids of the opening and the closing bracket of each label."""
    word_ids: tuple[int, ...]
    """Ids that stand for a word."""
    eos_id: int
    vocab_size: int
    numbered: bool = False
    """Whether word n of a sentence must be `word_ids[n % len(word_ids)]`."""


@dataclass(frozen=True)
class BracketConstraint:
    """Translations must be complete bracketed trees over the known number of words of each of B sentences."""

    symbols: BracketSymbols
    steps: Int[Tensor, " V"]
    """The change of depth by each token: 1 for opening brackets, -1 for closing ones, 0 for others."""
    closing: Int[Tensor, " V"]
    """The closing bracket of each opening bracket."""
    word_ids: Int[Tensor, " W"]
    is_word: Bool[Tensor, " V"]
    num_words: Int[Tensor, " B"]
    max_lengths: Int[Tensor, " B"]

    def apply(self, log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        """The log-probabilities with tokens at -inf that cannot lead to a complete tree."""
        return log_probs.masked_fill(~self.allowed(history), -torch.inf)

    def allowed(self, history: Int[Tensor, "R T"]) -> Bool[Tensor, "R V"]:
        """Which tokens may follow each history; at least one if the history satisfies the constraint."""
        rows, length = history.shape
        repeats = rows // len(self.num_words)
        num_words, max_lengths = (side.repeat_interleave(repeats) for side in (self.num_words, self.max_lengths))
        steps = self.steps[history]
        depths = steps.cumsum(dim=1)
        depth = steps.sum(dim=1)
        used = self.is_word[history].sum(dim=1)
        left = num_words - used
        run = run_length(steps == 1)
        ended = (depth <= 0) & (length > 0)

        fits = length + 1 + (depth + 1) + left <= max_lengths
        may_open = ~ended & (left > 0) & (run < MAX_OPENING_RUN) & fits
        may_close = (depth > 0) & (run == 0) & ((depth > 1) | (left == 0))
        allowed = may_open[:, None] & (self.steps == 1)
        innermost = last_place((steps == 1) & (depths == depth[:, None]))
        if length:
            closing = self.closing[history.gather(1, innermost[:, None])]
            allowed = allowed.scatter(1, closing, may_close[:, None])
        allowed |= ((depth > 0) & (left > 0))[:, None] & self._next_word(used)
        allowed[:, self.symbols.eos_id] = ended
        return allowed

    def _next_word(self, used: Int[Tensor, " R"]) -> Bool[Tensor, "#R V"]:
        """The symbols allowed for the next word, given the number of words used."""
        if not self.symbols.numbered:
            return self.is_word[None]
        chosen = self.word_ids[used % len(self.word_ids)]
        return torch.zeros_like(self.is_word).expand(len(used), -1).scatter(1, chosen[:, None], True)

    def select(self, sentences: Int[Tensor, " b"]) -> BracketConstraint:
        """The constraint for a subset of the sentences."""
        return dataclasses.replace(
            self, num_words=self.num_words[sentences], max_lengths=self.max_lengths[sentences]
        )  # fmt: skip


def last_place(marks: Bool[Tensor, "R T"]) -> Int[Tensor, " R"]:
    """The index of the last mark in each row; 0 if there is none."""
    indices = torch.arange(marks.shape[1], device=marks.device)
    return torch.where(marks, indices, 0).amax(dim=1) if marks.shape[1] else indices.new_zeros(marks.shape[0])


def run_length(marks: Bool[Tensor, "R T"]) -> Int[Tensor, " R"]:
    """The number of consecutive marks at the end of each row."""
    return marks.flip(1).long().cumprod(dim=1).sum(dim=1)


def make_bracket_constraint(
    symbols: BracketSymbols, *, num_words: Sequence[int], max_lengths: Sequence[int], device: torch.device
) -> BracketConstraint:
    """The constraint for sentences with these numbers of words and maximum lengths in tokens."""
    for number, (words, limit) in enumerate(zip(num_words, max_lengths, strict=True), start=1):
        if not 0 < words <= limit - 2:
            raise DecodingError(
                f"sentence {number} has {words} words and its tree may have {limit} symbols; a tree needs a symbol for "
                f"every word and at least two brackets. Raise decoding.max_length or max_extra_length."
            )
    steps = torch.zeros(symbols.vocab_size, dtype=torch.long)
    closing = torch.zeros(symbols.vocab_size, dtype=torch.long)
    for opening_id, closing_id in symbols.pairs:
        steps[opening_id], steps[closing_id] = 1, -1
        closing[opening_id] = closing_id
    word_ids = torch.tensor(symbols.word_ids, dtype=torch.long)
    is_word = torch.zeros(symbols.vocab_size, dtype=torch.bool)
    is_word[word_ids] = True
    return BracketConstraint(
        symbols=symbols,
        steps=steps.to(device),
        closing=closing.to(device),
        word_ids=word_ids.to(device),
        is_word=is_word.to(device),
        num_words=torch.tensor(list(num_words), device=device),
        max_lengths=torch.tensor(list(max_lengths), device=device),
    )
