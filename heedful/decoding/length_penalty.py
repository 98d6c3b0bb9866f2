"""Length penalties: score = log_prob / penalty(length), because a sum of log-probabilities favours short sentences."""

from __future__ import annotations

from typing import Any, TypeVar

from heedful.config import DecodingConfig

Length = TypeVar("Length", float, Any)  # a tensor too, but torch is not imported for its name alone


def length_penalty(length: Length, config: DecodingConfig) -> Length:
    """What a log-probability is divided by; `length` counts the end token. It never falls as the length grows.

    paper    ((5 + length) / 6)^α      Wu et al. 2016, used in section 6.1 of the paper
    average  length^α                  with α = 1 the mean log-probability of a token
    none     1
    """
    if config.length_penalty == "paper":
        return ((length + 5.0) / 6.0) ** config.length_penalty_alpha
    if config.length_penalty == "average":
        return length**config.length_penalty_alpha
    return length**0.0
