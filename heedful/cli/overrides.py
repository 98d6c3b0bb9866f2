"""From flags to a request: every key of the configuration as `--section.key=value`, short flags, corpora."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from heedful.cli.exit_codes import handled
from heedful.config import Config
from heedful.config_loading import is_section, merge, read_request, set_key
from heedful.did_you_mean import did_you_mean
from heedful.errors import ConfigError

_DOTTED = re.compile(r"--([A-Za-z][\w-]*(?:\.[\w-]+)+)(?:=(.*))?", re.DOTALL)
TEXTS = "words"
"""The parameter of a verb that takes texts as arguments."""
HIDDEN = "\0"
"""Marks a text among arguments: no program can be given this character."""
_LANGUAGE = re.compile(r"[a-z]{2}(?:[-_][A-Za-z]{2,4})?")


class Verb(TyperCommand):
    """A verb that takes any key of the configuration as a flag, and ends with one message when it cannot go on."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the flags, dotted ones as values of `--set`."""
        takes_settings = any("--set" in parameter.opts for parameter in self.params)
        args = fold(args) if takes_settings else args
        if not any(parameter.name == TEXTS for parameter in self.params):
            return super().parse_args(ctx, args)
        rest = super().parse_args(ctx, hide_texts(args, self.params))
        if ctx.params.get(TEXTS):
            ctx.params[TEXTS] = [text.removeprefix(HIDDEN) for text in ctx.params[TEXTS]]
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with handled():
            return super().invoke(ctx)


def hide_texts(arguments: Sequence[str], parameters: Iterable[Any]) -> list[str]:
    """Arguments with those marked that begin with a dash but are text, such as `- Buy milk` or `-5 degrees`."""
    takes_value = {name for one in parameters if not getattr(one, "is_flag", True) for name in one.opts}
    hidden: list[str] = []
    before = ""
    for index, argument in enumerate(arguments):
        if argument == "--":
            return [*hidden, argument, *(f"{HIDDEN}{text}" for text in arguments[index + 1 :])]
        is_text = before not in takes_value and (argument.startswith(HIDDEN) or _is_dashed_text(argument))
        hidden.append(f"{HIDDEN}{argument}" if is_text else argument)
        before = argument
    return hidden


def _is_dashed_text(argument: str) -> bool:
    """Whether no flag looks like this: after its dashes comes no letter, or a space stands in its name."""
    if argument == "-" or not argument.startswith("-"):
        return False
    return not re.match(r"-[A-Za-z]|--[A-Za-z][\w.-]*(=|$)", argument)


def fold(arguments: Sequence[str]) -> list[str]:
    """Arguments with each `--section.key value` or `--section.key=value` as `--set section.key=value`."""
    folded: list[str] = []
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        index += 1
        if argument == "--":
            return [*folded, argument, *arguments[index:]]
        found = _DOTTED.fullmatch(argument)
        if found is None:
            folded.append(argument)
            continue
        key, value = found[1].replace("-", "_"), found[2]
        following = arguments[index] if index < len(arguments) else None
        if value is None:
            value = _following_value(key, following)
            index += value is following
        folded += ["--set", f"{key}={value}"]
    return folded


def _following_value(key: str, following: str | None) -> str:
    """The value after a dotted flag; a flag of the kind true or false may stand alone."""
    switch = _hint_of(key) in (bool, bool | None)
    if switch and (following is None or following.lower() not in ("true", "false", "yes", "no", "on", "off", "none")):
        return "true"
    if following is None or re.match(r"--|-[A-Za-z]", following):
        raise ConfigError(f"--{key} needs a value, such as --{key}=….")
    return following


def _hint_of(key: str) -> Any:
    """The type of a key of the configuration; an unknown key is an error that names the nearest right one."""
    known = _keys()
    if key not in known:
        same = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
        hint = f" (did you mean '--{same[0]}'?)" if same else did_you_mean(f"--{key}", (f"--{name}" for name in known))
        raise ConfigError(f"--{key}: unknown key{hint}.")
    return known[key]


def _keys() -> dict[str, Any]:
    """Every dotted key of the configuration with its type."""
    keys: dict[str, Any] = {}
    for section, hint in typing.get_type_hints(Config).items():
        if is_section(hint):
            hints = typing.get_type_hints(hint)
            keys |= {f"{section}.{field.name}": hints[field.name] for field in dataclasses.fields(hint)}
    return keys


def similar_flag(name: str, known: Iterable[str]) -> str:
    """A hint to the flag that was perhaps meant: one that looks alike, or the key of that name."""
    flags = [flag for flag in known if flag.startswith("--") and flag != "--set"]
    key = name.lstrip("-").replace("-", "_")
    same = [f"--{dotted}" for dotted in _keys() if dotted.rpartition(".")[2] == key]
    if same and "--set" in known:
        return f" (did you mean {same[0]!r}?)"
    return did_you_mean(name, flags)


def settings_of(pairs: Sequence[str] | None, **short: Any) -> dict[str, Any]:
    """A request out of short flags (`training__steps=…`; None: not given) and dotted ones, which win."""
    request: dict[str, Any] = {}
    for name, value in short.items():
        if value is not None:
            set_key(request, name.replace("__", "."), value)
    for pair in pairs or ():
        key, separator, text = pair.partition("=")
        _hint_of(key)
        if not separator:
            raise ConfigError(f"--set {key}: a value is missing, such as --set {key}=….")
        set_key(request, key, text)
    return request


FLAG_KEYS = {
    **{name: name for name in ("preset", "output", "name", "licence")},
    **{name: f"data.{name}" for name in ("prepared", "source_language", "target_language")},
    **{name: f"training.{name}" for name in ("steps", "epochs", "tokens", "minutes", "seed", "device", "init_from")},
    "vocab_size": "tokenizer.vocab_size",
}
"""Flags of the verbs that train, and the keys of the configuration that they set."""


def request_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The request that a verb's flags amount to, laid over its configuration file; called first, with `locals()`."""
    short = {key.replace(".", "__"): flags[name] for name, key in FLAG_KEYS.items() if name in flags}
    for part, flag in (("train", ""), ("valid", "valid_"), ("test", "test_")):
        files = flags.get("data") if part == "train" else None
        shown = flag.replace("_", "-")
        columns = {name: str(flags[name]) for name in ("source_column", "target_column") if flags.get(name)}
        short[f"data__{part}"] = corpora_of(
            flags.get(f"{flag}source"), flags.get(f"{flag}target"), files, flag=shown, columns=columns
        )
    return complete_request(flags.get("config"), settings_of(flags.get("settings"), **short))


def command_line() -> str:
    """The command as it was given, to be kept with its results."""
    return shlex.join(["heedful", *sys.argv[1:]])


def search_settings(pairs: Sequence[str] | None, **short: Any) -> dict[str, Any]:
    """Keys of the section `decoding` out of flags; no other section has a place where nothing is trained."""
    request = settings_of(pairs, **{f"decoding__{name}": value for name, value in short.items()})
    for section in request:
        if section != "decoding":
            raise ConfigError(f"--{section}.…: a finished model takes keys of decoding only.")
    return dict(request.get("decoding", {}))


def corpora_of(
    sources: Sequence[str] | None,
    targets: Sequence[str] | None,
    files: Sequence[str] | None = None,
    *,
    flag: str = "",
    columns: Mapping[str, str] | None = None,
) -> list[dict[str, str]] | None:
    """The corpora named by flags; None when there are none. `flag` is what stands before `source` in their names.

    `columns`: which columns of the files with both sides hold them.
    """
    if columns and not files and not flag:
        raise ConfigError("--source-column and --target-column are for a file with both sides; name it with --data.")
    sources, targets = sources or (), targets or ()
    if len(sources) != len(targets):
        raise ConfigError(
            f"--{flag}source is given {len(sources)} times and --{flag}target {len(targets)} times; "
            f"each source file needs its target file."
        )
    pairs = [{"source": source, "target": target} for source, target in zip(sources, targets, strict=True)]
    return [*pairs, *({"path": path, **(columns or {})} for path in files or ())] or None


def complete_request(config: Path | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration file with flags laid over it, and the languages that the names of the corpora tell."""
    request = merge(read_request(config) if config is not None else {}, changes)
    data = request.get("data")
    if isinstance(data, Mapping):
        request["data"] = {**_languages_of(data), **data}
    return request


def _languages_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Language codes out of names such as `train.en` and `train.de.gz`, if the user gave none and all names agree."""
    if data.get("source_language") or data.get("target_language"):
        return {}
    corpora = data.get("train")
    corpora = corpora if isinstance(corpora, list) else [corpora]
    found = set()
    for corpus in corpora:
        if not isinstance(corpus, Mapping) or corpus.get("source_language") or corpus.get("target_language"):
            return {}
        found.add((language_of(corpus.get("source")), language_of(corpus.get("target"))))
    if len(found) != 1:
        return {}
    source, target = found.pop()
    if source is None or target is None or source == target:
        return {}
    return {"source_language": source, "target_language": target}


def language_of(path: Any) -> str | None:
    """The language code that a file's name ends with, as in `test.de` or `test.zh.gz`."""
    name = str(path or "")
    ending = re.sub(r"\.(gz|xz|bz2)$", "", name, flags=re.IGNORECASE).rpartition(".")[2]
    return ending if ending != name and _LANGUAGE.fullmatch(ending) else None


def model_directory(given: Path | None) -> Path:
    """The model that was named, by its path or its name; else that of HEEDFUL_MODEL, else the bundled one."""
    from heedful.model_dir.registry import default_model, find_model

    return default_model() if given is None else find_model(given)


def own_model_directory(given: Path | None, purpose: str) -> Path:
    """The same for a verb that the bundled model cannot serve: a model must be named. `purpose`: what it is for."""
    from heedful.model_dir.registry import DEFAULT_VARIABLE

    if given is None and not os.environ.get(DEFAULT_VARIABLE):
        raise ConfigError(f"no model is named; give the model {purpose} with -m DIRECTORY (or {DEFAULT_VARIABLE}).")
    return model_directory(given)
