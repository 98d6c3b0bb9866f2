"""The arrays that a search exchanges with the compiled library: sentences in, hypotheses out."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_int64, c_uint64
from itertools import accumulate, chain
from typing import Any

from heedful.config import DecodingConfig
from heedful.errors import DecodingError
from heedful.native.bindings import Phrases, Results, Sentences
from heedful.search_types import Hypothesis, PhrasePlacement, RequiredPhrase, length_penalty


class SearchBatch:
    """Sentences to translate and the memory for their results, as the C interface expects them."""

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        prefix: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        banned: Sequence[Sequence[int]],
        config: DecodingConfig,
        longest: int,
        phrases: Sequence[Sequence[RequiredPhrase]] = (),
        placement: PhrasePlacement | None = None,
    ) -> None:
        self.config, self.num_best = config, 1 if config.method == "greedy" else config.num_best
        self.limits = array("i", max_lengths)
        tokens, starts = flatten(sources)
        prefix_tokens, prefix_starts = flatten(prefix)
        banned_tokens, banned_starts = flatten(banned)
        self.inputs = tokens, starts, prefix_tokens, prefix_starts, banned_tokens, banned_starts
        self.sentences = Sentences(
            count=len(sources),
            tokens=pointer(tokens, c_int32),
            starts=pointer(starts, c_int64),
            prefix=pointer(prefix_tokens, c_int32),
            prefix_starts=pointer(prefix_starts, c_int64),
            max_lengths=pointer(self.limits, c_int32),
            forbidden=pointer(banned_tokens, c_int32),
            forbidden_starts=pointer(banned_starts, c_int64),
        )
        self.missing = array("Q")
        if any(phrases):
            self.phrases = PhraseArrays(phrases, placement or PhrasePlacement())
            self.sentences.phrases = ctypes.pointer(self.phrases.structure)
        # The engine refuses limits outside 0 … longest - 1; memory for their results is not needed.
        capacities = (min(max(limit, 0), longest) + 1 for limit in self.limits)
        self.offsets = array("q", accumulate((self.num_best * capacity for capacity in capacities), initial=0))
        self.ids, self.log_probs = array("i", bytes(4 * self.offsets[-1])), array("f", bytes(4 * self.offsets[-1]))
        self.lengths = array("i", bytes(4 * len(sources) * self.num_best))
        self.results = Results(
            pointer(self.offsets, c_int64),
            pointer(self.ids, c_int32),
            pointer(self.log_probs, c_float),
            pointer(self.lengths, c_int32),
        )
        if any(phrases):
            self.missing = array("Q", bytes(8 * len(self.lengths)))
            self.costs = array("f", bytes(4 * len(self.lengths)))
            self.results.missing = pointer(self.missing, c_uint64)
            self.results.placement_costs = pointer(self.costs, c_float)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The results: the best hypotheses of each sentence, best first."""
        return [
            [
                read_hypothesis(
                    self.ids[first:end],
                    self.log_probs[first:end],
                    limit,
                    self.config,
                    missing=self.missing[i * self.num_best + j] if self.missing else 0,
                    cost=self.costs[i * self.num_best + j] if self.missing else 0.0,
                )
                for j, length in enumerate(self.lengths[i * self.num_best : (i + 1) * self.num_best])
                if length and (end := (first := self.offsets[i] + j * (limit + 1)) + length)
            ]
            for i, limit in enumerate(self.limits)
        ]


class PhraseArrays:
    """The required phrases of all sentences, as the C interface expects them."""

    def __init__(self, phrases: Sequence[Sequence[RequiredPhrase]], placement: PhrasePlacement) -> None:
        flat = [phrase for row in phrases for phrase in row]
        forms = [(*phrase.alternatives, *phrase.at_beginning) for phrase in flat]
        tokens, token_starts = flatten([ids for each in forms for ids in each])
        starts, alternative_starts = (array("q", accumulate(map(len, lists), initial=0)) for lists in (phrases, forms))
        sources = array("i", chain.from_iterable(phrase.source for phrase in flat))
        self.arrays = starts, alternative_starts, token_starts, tokens, sources
        self.structure = Phrases(
            *(pointer(one, c_int64) for one in (starts, alternative_starts, token_starts)),
            pointer(tokens, c_int32),
            b"".join(bytes(len(one.alternatives)) + b"\1" * len(one.at_beginning) for one in flat),
            pointer(sources, c_int32),
            word_flags=placement.word_flags,
            layer=placement.layer,
            head=-1 if placement.head is None else placement.head,
            offset=placement.offset,
            placement_weight=placement.weight,
        )


def read_hypothesis(
    ids: array[int], log_probs: array[float], limit: int, config: DecodingConfig, *, missing: int = 0, cost: float = 0.0
) -> Hypothesis:
    """Build a hypothesis from its tokens and log-probabilities.

    `missing`: a bit for each phrase that is missing; `cost`: of the places of phrases.
    """
    log_prob = sum(log_probs.tolist())
    return Hypothesis(
        tokens=ids.tolist(),
        token_log_probs=log_probs.tolist(),
        log_prob=log_prob,
        score=(log_prob - cost) / length_penalty(float(len(ids)), config),
        finished=len(ids) <= limit,
        missing=tuple(number for number in range(missing.bit_length()) if missing >> number & 1),
    )


def flatten(lists: Sequence[Sequence[int]]) -> tuple[array[int], array[int]]:
    """Concatenate lists of ids; returns the ids and the offsets of the lists."""
    starts = array("q", accumulate(map(len, lists), initial=0))
    try:
        return array("i", chain.from_iterable(lists)), starts
    except OverflowError:
        raise DecodingError("a token id is outside of any vocabulary.") from None


def pointer(numbers: array[Any], kind: Any) -> Any:
    """A pointer to the data of an array, which must outlive it."""
    return ctypes.cast(numbers.buffer_info()[0], POINTER(kind))
