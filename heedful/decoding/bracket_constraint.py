"""A rule for the search that lets only whole, well-formed trees out: every bracket is closed by its own kind.

The symbols are those of a linearised tree, `(S (NP XX XX )NP (VP XX )VP )S`: opening brackets, closing brackets, and
symbols for words: one for all, one for each kind (tags), or one for each place (`<w0> <w1>`). A hypothesis begins with
an opening bracket and has one root; a closing bracket is that of the innermost open constituent, which holds a word at
least; there are exactly as many words as the sentence has, where they have places in their order; the end comes when
all is closed. At every step enough room is left to close everything within the longest length allowed. All rows are
judged at once, on the device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.errors import DecodingError
from heedful.tensor_types import Bool, Float, Int

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
