"""The settings of a search as keyword arguments, so that editors complete them and type checkers check them.

These are the fields of `DecodingConfig`, which explains each; a test compares the two.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class SearchSettings(TypedDict, total=False):
    """What may be changed for one call of `Translator.translate`."""

    method: Literal["beam", "greedy", "sampling"]
    beam_size: int
    length_penalty: Literal["paper", "average", "none"]
    length_penalty_alpha: float
    num_best: int
    min_length: int
    max_length: int | None
    max_extra_length: int
    no_repeat_ngram: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
    split: Literal["long", "always", "never"]
    tokens_per_batch: int
    fast: bool
    shortlist: bool | None
    checks: bool | None
    protect: bool | None
