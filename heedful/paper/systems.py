"""The systems of a comparison: their names, their settings, and the width at which their parameter counts match.

A name is an architecture, optionally followed by variants: `recurrent-lstm-dot`, `convolutional-kernel5`,
`transformer-post`. Other settings come, in this order, from the system's entry in the section `systems` of the request,
from the rest of the request, from the defaults of the architecture, and from the preset.
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
from heedful.errors import ConfigError, did_you_mean

DEFAULT_SYSTEMS = ("transformer", "recurrent", "convolutional")
TOLERANCE = 0.05
"""Relative difference allowed between the parameter counts of a system and the reference."""
WIDTH_STEPS = (8, 4, 2)
"""Widths are multiples of the first step; later steps are tried only if no such width is close enough."""
NARROWEST, WIDEST = 8, 16_384

SCORINGS = {name: {"attention_scoring": name} for name in ("additive", "dot", "scaled_dot")}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        **SCORINGS,
        **{name: {"norm_placement": name} for name in ("pre", "post")},
        **{name: {"positions": name} for name in ("sinusoidal", "learned", "rotary")},
    },
    "recurrent": {**SCORINGS, **{name: {"cell": name} for name in ("gru", "lstm")}},
    "convolutional": {f"kernel{size}": {"kernel_size": size} for size in range(2, 10)},
}
"""The variants of each architecture, as keys of the section `model`."""
ARCHITECTURE_DEFAULTS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "recurrent": {
        "cell": "gru", "attention_scoring": "additive", "num_encoder_layers": 2, "num_decoder_layers": 2,
    },
    "convolutional": {},
}  # fmt: skip
"""Defaults of an architecture: the recurrent system is Bahdanau's, with few layers."""
SYSTEM_SECTIONS: dict[str, type] = {"model": ModelConfig, "training": TrainingConfig}
"""Sections that may differ between systems; data, tokenizer and decoding are shared."""
SHARED_KEYS = {
    "model": ("architecture", "source_vocab_size", "target_vocab_size"),
    "training": (
        *("seed", "device", "precision", "init_from"),
        *("steps", "epochs", "tokens", "minutes", "tokens_per_step"),
    ),
}
"""Keys that are shared by all systems, or set by their names."""
TRANSFORMER_ONLY = (
    *("d_ff", "key_dim", "norm_placement", "norm", "norm_epsilon", "final_norm"),
    *("activation", "attention_dropout", "activation_dropout"),
)
UNUSED_KEYS = {
    "transformer": ("cell", "kernel_size"),
    "recurrent": (*TRANSFORMER_ONLY, "positions", "kernel_size"),
    "convolutional": (*TRANSFORMER_ONLY, "cell", "bias"),
}
"""Keys of `model` that an architecture does not use, and that are therefore not listed as differences."""
ONE_HEAD = {"num_heads": 1, "head_dim": None}
"""The other architectures use one attention head, so `num_heads` does not constrain their widths."""


@dataclass(frozen=True)
class System:
    """One system of a comparison: its name, the keys of `model` that the name sets, and its own settings."""

    name: str
    architecture: str
    keys: Mapping[str, Any]
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def request(self, shared: Mapping[str, Any]) -> dict[str, Any]:
        """The shared request with this system's settings; the name has priority over them, defaults do not."""
        common = dict(shared.get("model") or {})
        if self.architecture != "transformer":
            common["key_dim"] = None  # only the Transformer has it
        model = {**ARCHITECTURE_DEFAULTS[self.architecture], **common, **self.overrides.get("model", {}), **self.keys}
        overrides = {**self.overrides, "model": {**model, "architecture": self.architecture}}
        request = merge(shared, overrides)
        if self.overrides.get("training", {}).get("learning_rate") is not None:
            request["training"].pop("learning_rate_factor", None)  # the system's own setting replaces it
        return request


def parse_systems(names: Sequence[str], overrides: Mapping[str, Any] | None = None) -> list[System]:
    """The systems with these names, such as `recurrent-lstm-dot`, and their settings in the section `systems`."""
    overrides = overrides or {}
    for name in overrides:
        _parse(name, "systems")
    systems = _parse_names(names)
    return [replace(system, overrides=system_settings(system, overrides.get(system.name))) for system in systems]


def system_names(section: Any) -> list[str]:
    """The names in the section `systems` of a request."""
    if not isinstance(section, Mapping) or not all(isinstance(name, str) for name in section):
        example = "systems: {transformer: , recurrent: {training: {learning_rate: 0.001}}}"
        raise ConfigError(f"systems: expected names of systems, each with its settings or empty, such as {example}.")
    return list(section)


def system_settings(system: System, section: Any) -> dict[str, dict[str, Any]]:
    """The validated settings of one system."""
    where, settings = f"systems.{system.name}", {} if section is None else section
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where}: expected sections such as `training:`, found {settings!r}.")
    for name, values in settings.items():
        if name not in SYSTEM_SECTIONS:
            known, hint = " and ".join(SYSTEM_SECTIONS), did_you_mean(str(name), SYSTEM_SECTIONS)
            raise ConfigError(f"{where}.{name}: one system can set only {known}{hint}.")
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"{where}.{name}: expected keys with values, found {values!r}.")
        _check_keys(system, str(name), values or {}, f"{where}.{name}")
    return {str(name): dict(values or {}) for name, values in settings.items()}


def _check_keys(system: System, section: str, values: Mapping[str, Any], where: str) -> None:
    hints = typing.get_type_hints(SYSTEM_SECTIONS[section])
    for key, value in values.items():
        if key not in hints:
            hint = elsewhere(str(key), SYSTEM_SECTIONS[section]) or did_you_mean(str(key), hints)
            raise ConfigError(f"{where}.{key}: unknown key{hint}.")
        if key in SHARED_KEYS[section]:
            raise ConfigError(f"{where}.{key}: this key is shared by all systems, or set by their names.")
        if section == "model" and key in system.keys and key not in ONE_HEAD:
            raise ConfigError(f"{where}.{key}: the name {system.name} already sets this key.")
        convert(value, hints[key], f"{where}.{key}")


def differences(config: Config, reference: Config) -> dict[str, Any]:
    """The keys, with their values, in which a system differs from the reference, except width and heads."""
    one, other = to_mapping(config), to_mapping(reference)
    hidden = {"architecture", "d_model", *ONE_HEAD, *UNUSED_KEYS[config.model.architecture]}
    return {
        f"{section}.{key}": value
        for section in SYSTEM_SECTIONS
        for key, value in one[section].items()
        if value != other[section][key] and not (section == "model" and key in hidden)
    }


def _parse_names(names: Sequence[str]) -> list[System]:
    if not names:
        raise ConfigError(f"--systems: give at least one name, such as {','.join(DEFAULT_SYSTEMS)}.")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--systems: {name!r} is given twice.")
    return [_parse(name) for name in names]


def _parse(name: str, where: str = "--systems") -> System:
    architecture, *words = re.split("-", name)
    if architecture not in VARIANTS:
        known = ", ".join(VARIANTS)
        raise ConfigError(f"{where}: unknown system {name!r}{did_you_mean(architecture, VARIANTS)}; choose {known}.")
    keys: dict[str, Any] = {} if architecture == "transformer" else dict(ONE_HEAD)
    set_by: dict[str, str] = {}
    for word in words:
        changes = VARIANTS[architecture].get(word)
        if changes is None:
            known = ", ".join(VARIANTS[architecture])
            raise ConfigError(
                f"{where}: {name}: unknown variant {word!r}{did_you_mean(word, VARIANTS[architecture])}; "
                f"the variants of {architecture} are {known}."
            )
        for key in changes:
            if key in set_by:
                raise ConfigError(f"{where}: {name}: {set_by[key]!r} and {word!r} exclude each other.")
            set_by[key] = word
        keys |= changes
    return System(name, architecture, keys)


def num_parameters_of(config: ModelConfig) -> int:
    """The number of parameters of a model of this shape, counted without allocating them."""
    import torch

    from heedful.build_model import build_model, num_parameters

    with torch.device("meta"):
        return num_parameters(build_model(config))


def matching_width(config: ModelConfig, target: int, name: str) -> int:
    """The width (`d_model`) at which the number of parameters is closest to `target`, within 5 %.

    Depth, `d_ff`, heads and vocabulary do not change. Widths are multiples of 8 (of 4, then 2, if no multiple of 8 is
    close enough) and of the size that the heads require.
    """
    heads = config.num_heads * (2 if config.positions == "rotary" else 1) if config.head_dim is None else 1
    closest = (math.inf, 0, 0)
    for step in WIDTH_STEPS:
        multiple = math.lcm(step, heads)
        for width in _adjacent_widths(config, target, multiple):
            count = num_parameters_of(replace(config, d_model=width))
            closest = min(closest, (abs(count - target) / target, width, count))
        if closest[0] <= TOLERANCE:
            return closest[1]
    raise ConfigError(
        f"{name}: no width has within {TOLERANCE:.0%} of {target:,} parameters (width {closest[1]} has "
        f"{closest[2]:,}); set a larger model.d_model for all systems, or use --equal minutes."
    )


def _adjacent_widths(config: ModelConfig, target: int, multiple: int) -> tuple[int, int]:
    """The two adjacent multiples that enclose the target number of parameters, by binary search."""
    low, high = math.ceil(NARROWEST / multiple), max(1, WIDEST // multiple)
    while high - low > 1:
        middle = (low + high) // 2
        if num_parameters_of(replace(config, d_model=middle * multiple)) <= target:
            low = middle
        else:
            high = middle
    return low * multiple, high * multiple
