"""Building a configuration from YAML files, flags and mappings.

A *request* is a mapping with only the values that differ from the defaults. `build_config` applies it over a preset and
returns a complete `Config`. An unknown key is an error that suggests the nearest known one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from heedful.config import LANGUAGE_MODEL_DEFAULTS, LANGUAGE_MODELS, PRESETS, Config, CorpusConfig
from heedful.errors import ConfigError, did_you_mean

T = TypeVar("T")

NON_EMPTY_KEYS = ("training.init_from", "tokenizer.path", "data.prepared")
"""Keys whose empty text does not mean None: most likely it is an unset variable of a shell."""


def build_config(request: Mapping[str, Any], preset: str | None = None) -> Config:
    """Apply a request over its preset and the defaults; `preset` replaces "auto"."""
    chosen = str(request.get("preset") or "auto")
    if chosen == "auto":
        chosen = preset or "auto"
    if chosen != "auto" and chosen not in PRESETS:
        raise ConfigError(
            f"preset: there is no {chosen!r}{did_you_mean(chosen, PRESETS)}; choose one of auto, {', '.join(PRESETS)}."
        )
    if "systems" in request:
        raise ConfigError("systems: this section is only for `heedful compare`; leave it out here.")
    values = merge(PRESETS.get(chosen, {"model": {}, "training": {}}), {})
    model, training, tokenizer = request.get("model"), request.get("training"), request.get("tokenizer")
    if isinstance(model, Mapping) and model.get("architecture") in LANGUAGE_MODELS:
        values = merge(
            values,
            {section: merge(values.get(section, {}), changes) for section, changes in LANGUAGE_MODEL_DEFAULTS.items()},
        )
    if isinstance(training, Mapping) and training.get("learning_rate_factor") is not None:
        values["training"].pop("learning_rate", None)  # the factor replaces the preset's peak
    if isinstance(tokenizer, Mapping) and not convert(tokenizer.get("joint", True), bool, "tokenizer.joint"):
        values["model"]["tying"] = "target"  # separate vocabularies cannot share all three matrices
    return from_mapping(Config, merge(values, {**request, "preset": chosen}))


def read_request(path: str | Path) -> dict[str, Any]:
    """Read a YAML file of settings; its paths are relative to the working directory."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read this configuration: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8.") from None
    try:
        request = yaml.safe_load(text)
        _refuse_repeated_keys(path, yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML: {error.problem}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}.") from None
    if request is None:
        return {}
    if not isinstance(request, dict):
        found = type(request).__name__
        raise ConfigError(f"{path}: expected sections such as `data:` and `training:`, not a {found}.")
    return request


def _refuse_repeated_keys(path: str | Path, root: Any) -> None:
    """Raise `ConfigError` for a repeated key, of which YAML would silently use the last."""
    pending: list[Any] = [root]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):
            continue
        seen.add(id(node))  # aliases may form cycles
        names: set[str] = set()
        for item in node.value:
            name, below = item if isinstance(item, tuple) else (None, item)
            if name is not None and isinstance(name.value, str):
                if name.value in names:
                    line = name.start_mark.line + 1
                    raise ConfigError(f"{path}, line {line}: {name.value!r} is given twice; merge the two.")
                names.add(name.value)
            pending.append(below)


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `base` updated with `change`, section by section; an empty section changes nothing."""
    merged = {key: merge(value, {}) if isinstance(value, Mapping) else value for key, value in base.items()}
    for key, value in change.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and (value is None or isinstance(value, Mapping)):
            merged[key] = merge(below, value or {})
        else:
            merged[key] = value
    return merged


def set_key(request: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a key such as `training.steps` in a request; the value may be the text of a flag."""
    *sections, name = dotted.split(".")
    for section in sections:
        if request.get(section) is None:
            request[section] = {}
        if not isinstance(request[section], dict):
            raise ConfigError(f"{dotted}: {section} is not a section.")
        request = request[section]
    request[name] = value


def from_mapping(cls: type[T], mapping: Any, where: str = "") -> T:
    """Build a configuration dataclass from a mapping, checking every key and type."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where or 'configuration'}: expected a mapping, not {mapping!r}.")
    hints = _hints(cls)  # type: ignore[arg-type]
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        full = f"{where}.{key}" if where else str(key)
        if key not in names:
            raise ConfigError(f"{full}: unknown key{elsewhere(str(key), cls) or did_you_mean(str(key), names)}.")
        values[key] = convert(value, hints[key], full)
    return cls(**values)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def to_mapping(config: Any) -> dict[str, Any]:
    """A configuration as a mapping that JSON and YAML can represent."""
    return {f.name: _plain(getattr(config, f.name)) for f in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def elsewhere(key: str, cls: type) -> str:
    """A hint such as " (training.steps exists)" for a key in the wrong section."""
    sections: dict[str, Any] = {name: hint for name, hint in typing.get_type_hints(Config).items() if is_section(hint)}
    sections["data.train[0]"] = CorpusConfig
    found = [
        f"{name}.{key}"
        for name, section in sections.items()
        if section is not cls and key in {f.name for f in dataclasses.fields(section)}
    ]
    return f" ({' and '.join(found)} exist{'s' if len(found) == 1 else ''})" if found else ""


def is_section(hint: Any) -> bool:
    """Whether the type of a field is a configuration dataclass."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def convert(value: Any, hint: Any, where: str) -> Any:
    """Convert a value to the declared type of a field; `ConfigError` names what was expected."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        none = ("none", "null") if where in NON_EMPTY_KEYS else ("none", "null", "")
        if value is None or (isinstance(value, str) and value.lower() in none):
            return None
        return convert(value, next(a for a in arguments if a is not type(None)), where)
    if origin is Literal:
        if value not in arguments:
            choices = f"{', '.join(arguments)}{did_you_mean(str(value), arguments)}"
            raise ConfigError(f"{where}: {value!r} is not one of {choices}.")
        return value
    if origin is tuple:
        return _convert_tuple(value, arguments, where)
    if is_section(hint):
        return value if isinstance(value, hint) else from_mapping(hint, {} if value is None else value, where)
    return _convert_plain(value, hint, where)


def _convert_tuple(value: Any, arguments: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.strip("[]() ").split(",") if part.strip()]
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{where}: expected a list, not {value!r}.")
    hints = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
    if len(value) != len(hints):
        raise ConfigError(f"{where}: expected {len(hints)} values, not {len(value)}.")
    return tuple(
        convert(item, hint, f"{where}[{index}]") for index, (item, hint) in enumerate(zip(value, hints, strict=True))
    )


def _convert_plain(value: Any, hint: type, where: str) -> Any:
    expected, reader = {
        bool: ("true or false", _read_bool),
        int: ("a whole number", _read_int),
        float: ("a number", _read_float),
        str: ("text", _read_text),
    }[hint]
    try:
        return reader(value)
    except (TypeError, ValueError, OverflowError):
        remedy = ""
        if hint is str and isinstance(value, bool):
            remedy = " (YAML reads no, off, yes and on as true or false: put them in quotes)"
        raise ConfigError(f"{where}: expected {expected}, not {value!r}{remedy}.") from None


def _read_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if not isinstance(value, str) or value.lower() not in words:
        raise ValueError
    return words[value.lower()]


def _read_int(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass  # "1e5" and "2.0" are whole numbers too
    number = _read_float(value)
    if not number.is_integer():
        raise ValueError
    return value if isinstance(value, int) else int(number)


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or not math.isfinite(number := float(value)):
        raise ValueError
    return number


def _read_text(value: Any) -> str:
    if value is None or isinstance(value, (bool, Mapping, list, tuple)):
        raise TypeError
    return str(value)
