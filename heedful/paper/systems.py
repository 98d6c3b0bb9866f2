"""Which systems are compared, by name, and how wide each must be to have as many parameters as the first.

A name is an architecture and, after hyphens, what differs: `recurrent-lstm-dot`, `convolutional-kernel5`,
`transformer-post`. What the name leaves open is taken from the request, then from the preset.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heedful.config import ModelConfig, merge, nearest
from heedful.errors import ConfigError

DEFAULT_SYSTEMS = ("transformer", "recurrent", "convolutional")
TOLERANCE = 0.05
"""Parameters of a rival may differ from the reference's by this share."""
WIDTH_STEPS = (8, 4, 2)
"""Widths are multiples of the first; of a later one only where no such width is near enough, as in small models."""
NARROWEST, WIDEST = 8, 16_384

SCORINGS = {name: {"attention_scoring": name} for name in ("additive", "dot", "scaled_dot")}
WORDS: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        **SCORINGS,
        **{name: {"norm_placement": name} for name in ("pre", "post")},
        **{name: {"positions": name} for name in ("sinusoidal", "learned", "rotary")},
    },
    "recurrent": {**SCORINGS, **{name: {"cell": name} for name in ("gru", "lstm")}},
    "convolutional": {f"kernel{size}": {"kernel_size": size} for size in range(2, 10)},
}
"""What each architecture understands after a hyphen, as keys of the section `model`."""
USUAL: dict[str, dict[str, Any]] = {
    "transformer": {},
    "recurrent": {"cell": "gru", "attention_scoring": "additive"},
    "convolutional": {},
}
"""What stands for a name when neither it nor the request says more: the recurrent system is Bahdanau's."""
ONE_HEAD = {"num_heads": 1, "head_dim": None}
"""The rivals attend with one head, so the paper's heads do not constrain their widths."""


@dataclass(frozen=True)
class System:
    """One system of a comparison: its name and the keys of `model` that make it."""

    name: str
    architecture: str
    keys: Mapping[str, Any]

    def request(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The shared request with this system's model: what the name says wins, what is usual gives way."""
        model = {**USUAL[self.architecture], **(shared.get("model") or {}), **self.keys}
        return merge(shared, {"model": {**model, "architecture": self.architecture}})


def parse_systems(names: Sequence[str]) -> list[System]:
    """Systems of names such as `recurrent-lstm-dot`, in their order."""
    if not names:
        raise ConfigError(f"--systems: name at least one, such as {','.join(DEFAULT_SYSTEMS)}.")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--systems: {name!r} is named twice.")
    return [_parse(name) for name in names]


def _parse(name: str) -> System:
    architecture, *words = re.split("-", name)
    if architecture not in WORDS:
        known = ", ".join(WORDS)
        raise ConfigError(f"--systems: there is no {name!r}{nearest(architecture, WORDS)}; a name begins with {known}.")
    keys: dict[str, Any] = {} if architecture == "transformer" else dict(ONE_HEAD)
    said: dict[str, str] = {}
    for word in words:
        found = WORDS[architecture].get(word)
        if found is None:
            known = ", ".join(WORDS[architecture])
            raise ConfigError(
                f"--systems: {name}: {word!r} is not a variant{nearest(word, WORDS[architecture])}; "
                f"{architecture} knows {known}."
            )
        for key in found:
            if key in said:
                raise ConfigError(f"--systems: {name}: {said[key]!r} and {word!r} exclude each other.")
            said[key] = word
        keys |= found
    return System(name, architecture, keys)


def num_parameters_of(config: ModelConfig) -> int:
    """How many parameters a model of this shape has, without making room for them."""
    import torch

    from heedful.build import build_model, num_parameters

    with torch.device("meta"):
        return num_parameters(build_model(config))


def equal_width(config: ModelConfig, wanted: int, name: str) -> int:
    """The width (`d_model`) at which a model of this shape has nearest to `wanted` parameters, at most 5 % off.

    Depth, `d_ff`, heads and vocabulary stay as they are. Widths are multiples of 8 (of 4, then 2, where no multiple
    of 8 is near enough) and of what the heads need.
    """
    heads = config.num_heads * (2 if config.positions == "rotary" else 1) if config.head_dim is None else 1
    closest = (math.inf, 0, 0)
    for step in WIDTH_STEPS:
        multiple = math.lcm(step, heads)
        for width in _around(config, wanted, multiple):
            count = num_parameters_of(replace(config, d_model=width))
            closest = min(closest, (abs(count - wanted) / wanted, width, count))
        if closest[0] <= TOLERANCE:
            return closest[1]
    raise ConfigError(
        f"{name}: no width gives within {TOLERANCE:.0%} of {wanted:,} parameters (width {closest[1]} has "
        f"{closest[2]:,}); take a larger model.d_model for all, or --equal minutes."
    )


def _around(config: ModelConfig, wanted: int, multiple: int) -> tuple[int, int]:
    """The two neighbouring multiples between which the wanted number of parameters lies, found by halving."""
    low, high = math.ceil(NARROWEST / multiple), max(1, WIDEST // multiple)
    while high - low > 1:
        middle = (low + high) // 2
        if num_parameters_of(replace(config, d_model=middle * multiple)) <= wanted:
            low = middle
        else:
            high = middle
    return low * multiple, high * multiple
