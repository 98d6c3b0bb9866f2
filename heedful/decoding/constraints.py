"""What a translation may and must contain. Rules set the log-probabilities of forbidden tokens to -inf.

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
from heedful.decoding.utf8_automaton import COMPLETE, NEEDED, NEXT
from heedful.errors import DecodingError
from heedful.search_types import SpecialTokens as SpecialTokens
from heedful.tensor_types import Bool, Float, Int

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
class ByteRule:
    """Byte tokens come only as whole characters: the automaton of `heedful.decoding.utf8_automaton`, for all rows."""

    byte_ids: Int[Tensor, " 256"]
    next: Int[Tensor, "11 256"]
    needed: Int[Tensor, " 256"]
    """How many bytes must follow each first byte."""

    def states(self, history: Int[Tensor, "R T"]) -> Int[Tensor, " R"]:
        """The state of each row. Characters have four bytes at most, so that the last three tokens say it."""
        states = torch.full((history.shape[0],), COMPLETE, device=history.device)
        for tokens in history[:, -3:].unbind(dim=1):
            matches = tokens[:, None] == self.byte_ids
            byte = matches.int().argmax(dim=1)
            after = self.next[states, byte]
            after = torch.where(after < 0, self.next[COMPLETE, byte], after).clamp(min=COMPLETE)
            states = torch.where(matches.any(dim=1), after, COMPLETE)
        return states

    def only_bytes(
        self, log_probs: Float[Tensor, "R V"], allowed: Float[Tensor, "R V"], states: Int[Tensor, " R"]
    ) -> Float[Tensor, "R V"]:
        """`allowed`, but in rows inside a character the bytes that may continue it, and nothing else."""
        columns = log_probs[:, self.byte_ids].masked_fill(self.next[states] < 0, -torch.inf)
        continued = torch.full_like(log_probs, -torch.inf).index_copy(1, self.byte_ids, columns)
        return torch.where((states != COMPLETE)[:, None], continued, allowed)

    def that_fit(self, allowed: Float[Tensor, "R V"], room: Int[Tensor, " R"]) -> Float[Tensor, "R V"]:
        """`allowed` without first bytes of characters that need more tokens than there is room for after them."""
        columns = allowed[:, self.byte_ids].masked_fill(self.needed > room[:, None], -torch.inf)
        return allowed.index_copy(1, self.byte_ids, columns)


def make_byte_rule(byte_ids: Sequence[int], device: torch.device) -> ByteRule | None:
    """The rule for a vocabulary; None if it has no byte tokens."""
    if not byte_ids:
        return None
    following = torch.tensor(NEXT)
    needed = torch.tensor(NEEDED)[following[COMPLETE].clamp(min=COMPLETE)]
    ids = torch.tensor(list(byte_ids), device=device)
    return ByteRule(ids, following.to(device), needed.to(device))


@dataclass(frozen=True)
class Constraints:
    """All rules of one search over B sentences. Whatever they forbid, one token at least stays possible.

    `max_lengths` counts tokens without the end token: a hypothesis that has as many must end, at the price the model
    puts on it. So every hypothesis ends with the end token, and their scores compare.
    """

    special: SpecialTokens
    forbidden: Int[Tensor, " K"]
    min_length: int
    no_repeat_ngram_size: int
    max_lengths: Int[Tensor, " B"]
    shortest_limit: int
    prefix: Int[Tensor, "B P"]
    rule: Rule | None = None
    bytes: ByteRule | None = None
    own_forbidden: Int[Tensor, "F 2"] | None = None
    """Tokens that single sentences may not have: (sentence, token)."""

    def apply(self, log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        """The log-probabilities of the next token after each row's history, forbidden ones at -inf."""
        allowed = forbid_tokens(log_probs, self.forbidden)
        rows_per_sentence, step = log_probs.shape[0] // self.max_lengths.shape[0], history.shape[1]
        if self.own_forbidden is not None:
            sentences, tokens = self.own_forbidden.unbind(dim=1)
            allowed = allowed.unflatten(0, (-1, rows_per_sentence)).clone()
            allowed[sentences, :, tokens] = -torch.inf
            allowed = allowed.flatten(0, 1)
        if self.bytes is not None and step + max(NEEDED) >= self.shortest_limit:
            room = (self.max_lengths - step - 1).repeat_interleave(rows_per_sentence)
            allowed = self.bytes.that_fit(allowed, room)
        if self.rule is not None:
            allowed = unless_stuck(self.rule.apply(allowed, history), allowed)  # a prefix may have broken the rule
        if self.no_repeat_ngram_size:
            allowed = unless_stuck(forbid_repeats(allowed, history, self.no_repeat_ngram_size), allowed)
        if step < self.min_length:
            allowed = forbid_end(allowed, self.special.eos_id)
        if self.bytes is not None and bool(((states := self.bytes.states(history)) != COMPLETE).any()):
            allowed = self.bytes.only_bytes(log_probs, allowed, states)
        if step < self.prefix.shape[1] or step >= self.shortest_limit:
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
            own_forbidden=places_in(self.own_forbidden, sentences) if self.own_forbidden is not None else None,
        )


def places_in(places: Int[Tensor, "K 2"], sentences: Int[Tensor, " b"]) -> Int[Tensor, "k 2"]:
    """Of places (sentence, token) those of some sentences, which are numbered by their order now."""
    number, kept = (places[:, None, 0] == sentences).nonzero().flip(1).unbind(dim=1)
    return torch.stack([number, places[kept, 1]], dim=1)


def make_constraints(
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None,
    forbidden: Sequence[Sequence[int]] | None = None,
    rule: Rule | None = None,
    device: torch.device,
) -> Constraints:
    """The rules of a configuration, of a limit, forced beginning and forbidden tokens a sentence, and a further one."""
    beginnings = prefix if prefix is not None else [[] for _ in max_lengths]
    for number, (limit, beginning) in enumerate(zip(max_lengths, beginnings, strict=True), start=1):
        if len(beginning) > limit:
            raise DecodingError(
                f"the target prefix of sentence {number} has {len(beginning)} tokens, more than its longest allowed "
                f"translation ({limit}); shorten it or raise decoding.max_length."
            )
    width = max((len(beginning) for beginning in beginnings), default=0)
    table = [[*beginning, *[FREE] * (width - len(beginning))] for beginning in beginnings]
    places = [(row, token) for row, tokens in enumerate(forbidden or ()) for token in tokens]
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
        rule=rule,
        bytes=make_byte_rule(special.byte_ids, device),
        own_forbidden=torch.tensor(places, device=device) if places else None,
    )


def allowed_log_probs(
    logits: Float[Tensor, "R V"], history: Int[Tensor, "R T"], constraints: Constraints
) -> Float[Tensor, "R V"]:
    """Log-softmax in float32, whatever the model computes in, with forbidden tokens at -inf."""
    return constraints.apply(torch.log_softmax(logits.float(), dim=-1), history)


LONGEST_RUN = 12
"""Most opening brackets in a row; in treebanks of English up to 8 are found."""


@dataclass(frozen=True)
class BracketSymbols:
    """What the target ids of a parser mean."""

    pairs: tuple[tuple[int, int], ...]
    """Ids of the opening and the closing bracket of each label."""
    word_ids: tuple[int, ...]
    """Ids that stand for a word."""
    eos_id: int
    vocab_size: int
    numbered: bool = False
    """Whether word n of a sentence is `word_ids[n]` (and so on from the first after the last) and no other."""


@dataclass(frozen=True)
class BracketRule:
    """The rule for B sentences, whose numbers of words are known."""

    symbols: BracketSymbols
    steps: Int[Tensor, " V"]
    """By how much a token changes the depth: 1 for opening brackets, -1 for closing ones, 0 for all others."""
    closing: Int[Tensor, " V"]
    """For an opening bracket the closing one."""
    word_ids: Int[Tensor, " W"]
    is_word: Bool[Tensor, " V"]
    num_words: Int[Tensor, " B"]
    max_lengths: Int[Tensor, " B"]

    def apply(self, log_probs: Float[Tensor, "R V"], history: Int[Tensor, "R T"]) -> Float[Tensor, "R V"]:
        """The log-probabilities with every token at -inf that would leave the way to a whole tree."""
        return log_probs.masked_fill(~self.allowed(history), -torch.inf)

    def allowed(self, history: Int[Tensor, "R T"]) -> Bool[Tensor, "R V"]:
        """Which tokens may follow each history; one at least, if the history itself kept the rule."""
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
        may_open = ~ended & (left > 0) & (run < LONGEST_RUN) & fits
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
        """The symbols that the next word may have, in rows with so many words already."""
        if not self.symbols.numbered:
            return self.is_word[None]
        chosen = self.word_ids[used % len(self.word_ids)]
        return torch.zeros_like(self.is_word).expand(len(used), -1).scatter(1, chosen[:, None], True)

    def select(self, sentences: Int[Tensor, " b"]) -> BracketRule:
        """The rule for some of the sentences."""
        return dataclasses.replace(
            self, num_words=self.num_words[sentences], max_lengths=self.max_lengths[sentences]
        )  # fmt: skip


def last_place(marks: Bool[Tensor, "R T"]) -> Int[Tensor, " R"]:
    """Where the last mark of each row stands; 0 where there is none."""
    places = torch.arange(marks.shape[1], device=marks.device)
    return torch.where(marks, places, 0).amax(dim=1) if marks.shape[1] else places.new_zeros(marks.shape[0])


def run_length(marks: Bool[Tensor, "R T"]) -> Int[Tensor, " R"]:
    """How many marks in a row each row ends with."""
    return marks.flip(1).long().cumprod(dim=1).sum(dim=1)


def make_bracket_rule(
    symbols: BracketSymbols, *, num_words: Sequence[int], max_lengths: Sequence[int], device: torch.device
) -> BracketRule:
    """The rule for sentences of so many words, each with its longest length in tokens."""
    for number, (words, limit) in enumerate(zip(num_words, max_lengths, strict=True), start=1):
        if not 0 < words <= limit - 2:
            raise DecodingError(
                f"sentence {number} has {words} words and its tree may have {limit} symbols; a tree has a symbol for "
                f"every word and two brackets at least. Raise decoding.max_length or max_extra_length."
            )
    steps = torch.zeros(symbols.vocab_size, dtype=torch.long)
    closing = torch.zeros(symbols.vocab_size, dtype=torch.long)
    for opening_id, closing_id in symbols.pairs:
        steps[opening_id], steps[closing_id] = 1, -1
        closing[opening_id] = closing_id
    word_ids = torch.tensor(symbols.word_ids, dtype=torch.long)
    is_word = torch.zeros(symbols.vocab_size, dtype=torch.bool)
    is_word[word_ids] = True
    return BracketRule(
        symbols=symbols,
        steps=steps.to(device),
        closing=closing.to(device),
        word_ids=word_ids.to(device),
        is_word=is_word.to(device),
        num_words=torch.tensor(list(num_words), device=device),
        max_lengths=torch.tensor(list(max_lengths), device=device),
    )
