"""The arrays that a search exchanges with the compiled library: sentences in, hypotheses out."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_int64
from itertools import accumulate, chain
from typing import Any

from heedful.config import DecodingConfig
from heedful.errors import DecodingError
from heedful.native.bindings import Results, Sentences
from heedful.search_types import Hypothesis, length_penalty


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

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The results: the best hypotheses of each sentence, best first."""
        return [
            [
                read_hypothesis(self.ids[first:end], self.log_probs[first:end], limit, self.config)
                for j, length in enumerate(self.lengths[i * self.num_best : (i + 1) * self.num_best])
                if length and (end := (first := self.offsets[i] + j * (limit + 1)) + length)
            ]
            for i, limit in enumerate(self.limits)
        ]


def read_hypothesis(ids: array[int], log_probs: array[float], limit: int, config: DecodingConfig) -> Hypothesis:
    """Build a hypothesis from its tokens and log-probabilities."""
    log_prob = sum(log_probs.tolist())
    return Hypothesis(
        tokens=ids.tolist(),
        token_log_probs=log_probs.tolist(),
        log_prob=log_prob,
        score=log_prob / length_penalty(float(len(ids)), config),
        finished=len(ids) <= limit,
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
