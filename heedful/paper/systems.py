"""Which systems are compared, by name, and how wide each must be to have as many parameters as the first.

A name is an architecture and, after hyphens, what differs: `recurrent-lstm-dot`, `convolutional-kernel5`,
`transformer-post`. What the name leaves open is taken from the system's own settings (the request's section `systems`),
then from what the request says for all, then from what is usual for the architecture, then from the preset.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heedful.config import Config, ModelConfig, TrainingConfig
from heedful.config_loading import convert, elsewhere, merge, to_mapping
from heedful.did_you_mean import did_you_mean
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
    "recurrent": {
        "cell": "gru", "attention_scoring": "additive", "num_encoder_layers": 2, "num_decoder_layers": 2,
    },
    "convolutional": {},
}  # fmt: skip
"""What stands for a name when neither it nor the request says more: the recurrent system is Bahdanau's, not deep."""
OWN_SECTIONS: dict[str, type] = {"model": ModelConfig, "training": TrainingConfig}
"""Where a system may have settings of its own; data, tokenizer and search are the same for all."""
SHARED_KEYS = {
    "model": ("architecture", "source_vocab_size", "target_vocab_size"),
    "training": (
        *("seed", "device", "precision", "init_from"),
        *("steps", "epochs", "tokens", "minutes", "tokens_per_step"),
    ),
}
"""What is the same for all systems, or follows from their names."""
NO_TRANSFORMER = (
    *("d_ff", "key_dim", "norm_placement", "norm", "norm_epsilon", "final_norm"),
    *("activation", "attention_dropout", "activation_dropout"),
)
MEANINGLESS = {
    "transformer": ("cell", "kernel_size"),
    "recurrent": (*NO_TRANSFORMER, "positions", "kernel_size"),
    "convolutional": (*NO_TRANSFORMER, "cell", "bias"),
}
"""Keys of `model` that an architecture does not read: a system does not differ in what it has not."""
ONE_HEAD = {"num_heads": 1, "head_dim": None}
"""The rivals attend with one head, so the paper's heads do not constrain their widths."""


@dataclass(frozen=True)
class System:
    """One system of a comparison: its name, the keys of `model` that the name means, and settings of its own."""

    name: str
    architecture: str
    keys: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def request(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The shared request with this system's settings: what the name says wins, what is usual gives way."""
        common = dict(shared.get("model") or {})
        if self.architecture != "transformer":
            common["key_dim"] = None  # what all are told about keys is for the Transformer
        model = {**USUAL[self.architecture], **common, **self.own.get("model", {}), **self.keys}
        own = {**self.own, "model": {**model, "architecture": self.architecture}}
        request = merge(shared, own)
        if self.own.get("training", {}).get("learning_rate") is not None:
            request["training"].pop("learning_rate_factor", None)  # of the two ways to say it the own one holds
        return request


def parse_systems(names: Sequence[str], own: Mapping[str, Any] | None = None) -> list[System]:
    """Systems of names such as `recurrent-lstm-dot`, in their order, with what the section `systems` says of each."""
    own = own or {}
    for name in own:
        _parse(name, "systems")
    systems = _parse_names(names)
    return [replace(system, own=own_settings(system, own.get(system.name))) for system in systems]


def names_of(section: Any) -> list[str]:
    """The systems that the section `systems` of a request names."""
    if not isinstance(section, Mapping) or not all(isinstance(name, str) for name in section):
        example = "systems: {transformer: , recurrent: {training: {learning_rate: 0.001}}}"
        raise ConfigError(f"systems: expected names of systems, each with its settings or nothing, such as {example}.")
    return list(section)


def own_settings(system: System, section: Any) -> dict[str, dict[str, Any]]:
    """What a request says of one system alone, each key checked."""
    where, settings = f"systems.{system.name}", {} if section is None else section
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where}: expected sections such as `training:`, found {settings!r}.")
    for name, values in settings.items():
        if name not in OWN_SECTIONS:
            known = " and ".join(OWN_SECTIONS)
            raise ConfigError(
                f"{where}.{name}: one system may differ in {known} only{did_you_mean(str(name), OWN_SECTIONS)}."
            )
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"{where}.{name}: expected named keys, found {values!r}.")
        _check_keys(system, str(name), values or {}, f"{where}.{name}")
    return {str(name): dict(values or {}) for name, values in settings.items()}


def _check_keys(system: System, section: str, values: Mapping[str, Any], where: str) -> None:
    hints = typing.get_type_hints(OWN_SECTIONS[section])
    for key, value in values.items():
        if key not in hints:
            hint = elsewhere(str(key), OWN_SECTIONS[section]) or did_you_mean(str(key), hints)
            raise ConfigError(f"{where}.{key}: unknown key{hint}.")
        if key in SHARED_KEYS[section]:
            raise ConfigError(f"{where}.{key}: this is the same for all systems, or follows from their names.")
        if section == "model" and key in system.keys and key not in ONE_HEAD:
            raise ConfigError(f"{where}.{key}: the name {system.name} says it already.")
        convert(value, hints[key], f"{where}.{key}")


def differences(config: Config, reference: Config) -> dict[str, Any]:
    """By dotted key what one system has otherwise than the reference: what it does read, width and heads aside."""
    one, other = to_mapping(config), to_mapping(reference)
    hidden = {"architecture", "d_model", *ONE_HEAD, *MEANINGLESS[config.model.architecture]}
    return {
        f"{section}.{key}": value
        for section in OWN_SECTIONS
        for key, value in one[section].items()
        if value != other[section][key] and not (section == "model" and key in hidden)
    }


def _parse_names(names: Sequence[str]) -> list[System]:
    if not names:
        raise ConfigError(f"--systems: name at least one, such as {','.join(DEFAULT_SYSTEMS)}.")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--systems: {name!r} is named twice.")
    return [_parse(name) for name in names]


def _parse(name: str, where: str = "--systems") -> System:
    architecture, *words = re.split("-", name)
    if architecture not in WORDS:
        known = ", ".join(WORDS)
        raise ConfigError(
            f"{where}: there is no {name!r}{did_you_mean(architecture, WORDS)}; a name begins with {known}."
        )
    keys: dict[str, Any] = {} if architecture == "transformer" else dict(ONE_HEAD)
    said: dict[str, str] = {}
    for word in words:
        found = WORDS[architecture].get(word)
        if found is None:
            known = ", ".join(WORDS[architecture])
            raise ConfigError(
                f"{where}: {name}: {word!r} is not a variant{did_you_mean(word, WORDS[architecture])}; "
                f"{architecture} knows {known}."
            )
        for key in found:
            if key in said:
                raise ConfigError(f"{where}: {name}: {said[key]!r} and {word!r} exclude each other.")
            said[key] = word
        keys |= found
    return System(name, architecture, keys)


def num_parameters_of(config: ModelConfig) -> int:
    """How many parameters a model of this shape has, without making room for them."""
    import torch

    from heedful.build_model import build_model, num_parameters

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
