"""Configuration from command-line flags: `--section.key=value`, short flags, corpora and the model directory."""

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

from heedful.cli.exit_codes import exit_on_error
from heedful.config import Config
from heedful.config_loading import is_section, merge, read_request, set_key
from heedful.errors import ConfigError, did_you_mean
from heedful.extras import VERB_PACKAGES, require

_DOTTED = re.compile(r"--([A-Za-z][\w-]*(?:\.[\w-]+)+)(?:=(.*))?", re.DOTALL)
TEXTS = "words"
"""The parameter of verbs that take texts as arguments."""
TEXT_MARK = "\0"
"""Prefix that marks an argument as text. NUL cannot occur in arguments."""
_LANGUAGE = re.compile(r"[a-z]{2}(?:[-_][A-Za-z]{2,4})?")


class Verb(TyperCommand):
    """A command that accepts every configuration key as a flag and reports errors as one message."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the flags, with dotted flags as values of `--set`."""
        takes_settings = any("--set" in parameter.opts for parameter in self.params)
        args = fold_dotted_flags(args) if takes_settings else args
        if not any(parameter.name == TEXTS for parameter in self.params):
            return super().parse_args(ctx, args)
        rest = super().parse_args(ctx, mark_texts(args, self.params))
        if ctx.params.get(TEXTS):
            ctx.params[TEXTS] = [text.removeprefix(TEXT_MARK) for text in ctx.params[TEXTS]]
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with exit_on_error():
            require(VERB_PACKAGES.get((ctx.command_path.split()[1:2] or [""])[0], ()))
            return super().invoke(ctx)


def mark_texts(arguments: Sequence[str], parameters: Iterable[Any]) -> list[str]:
    """Mark arguments that begin with a dash but are text, such as `- Buy milk` or `-5 degrees`."""
    takes_value = {name for one in parameters if not getattr(one, "is_flag", True) for name in one.opts}
    marked: list[str] = []
    previous = ""
    for index, argument in enumerate(arguments):
        if argument == "--":
            return [*marked, argument, *(f"{TEXT_MARK}{text}" for text in arguments[index + 1 :])]
        is_text = previous not in takes_value and (argument.startswith(TEXT_MARK) or _is_dashed_text(argument))
        marked.append(f"{TEXT_MARK}{argument}" if is_text else argument)
        previous = argument
    return marked


def _is_dashed_text(argument: str) -> bool:
    """Whether an argument with a leading dash cannot be a flag: no letter follows, or its name contains a space."""
    if argument == "-" or not argument.startswith("-"):
        return False
    return not re.match(r"-[A-Za-z]|--[A-Za-z][\w.-]*(=|$)", argument)


def fold_dotted_flags(arguments: Sequence[str]) -> list[str]:
    """Replace each `--section.key value` or `--section.key=value` by `--set section.key=value`."""
    folded: list[str] = []
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        index += 1
        if argument == "--":
            return [*folded, argument, *arguments[index:]]
        match = _DOTTED.fullmatch(argument)
        if match is None:
            folded.append(argument)
            continue
        key, value = match[1].replace("-", "_"), match[2]
        following = arguments[index] if index < len(arguments) else None
        if value is None:
            value = _following_value(key, following)
            index += value is following
        folded += ["--set", f"{key}={value}"]
    return folded


def _following_value(key: str, following: str | None) -> str:
    """The value after a dotted flag; a boolean flag needs none."""
    is_boolean = _type_of_key(key) in (bool, bool | None)
    if is_boolean and (
        following is None or following.lower() not in ("true", "false", "yes", "no", "on", "off", "none")
    ):
        return "true"
    if following is None or re.match(r"--|-[A-Za-z]", following):
        raise ConfigError(f"--{key} needs a value, such as --{key}=….")
    return following


def _type_of_key(key: str) -> Any:
    """The type of a configuration key. An unknown key raises `ConfigError` with the closest known key."""
    known = _configuration_keys()
    if key not in known:
        same_name = [name for name in known if name.rpartition(".")[2] == key.rpartition(".")[2]]
        hint = (
            f" (did you mean '--{same_name[0]}'?)"
            if same_name
            else did_you_mean(f"--{key}", (f"--{name}" for name in known))
        )
        raise ConfigError(f"--{key}: unknown key{hint}.")
    return known[key]


def _configuration_keys() -> dict[str, Any]:
    """Every dotted configuration key with its type."""
    keys: dict[str, Any] = {}
    for section, hint in typing.get_type_hints(Config).items():
        if is_section(hint):
            hints = typing.get_type_hints(hint)
            keys |= {f"{section}.{field.name}": hints[field.name] for field in dataclasses.fields(hint)}
    return keys


def similar_flag(name: str, known: Iterable[str]) -> str:
    """A hint at a similar flag, or at the configuration key with this name."""
    flags = [flag for flag in known if flag.startswith("--") and flag != "--set"]
    key = name.lstrip("-").replace("-", "_")
    same_name = [f"--{dotted}" for dotted in _configuration_keys() if dotted.rpartition(".")[2] == key]
    if same_name and "--set" in known:
        return f" (did you mean {same_name[0]!r}?)"
    return did_you_mean(name, flags)


def settings_from_flags(pairs: Sequence[str] | None, **short: Any) -> dict[str, Any]:
    """A configuration mapping from short flags (`training__steps=…`; None if absent) and dotted flags, which win."""
    request: dict[str, Any] = {}
    for name, value in short.items():
        if value is not None:
            set_key(request, name.replace("__", "."), value)
    for pair in pairs or ():
        key, separator, text = pair.partition("=")
        _type_of_key(key)
        if not separator:
            raise ConfigError(f"--set {key}: a value is missing, such as --set {key}=….")
        set_key(request, key, text)
    return request


FLAG_KEYS = {
    **{name: name for name in ("preset", "output", "name", "licence")},
    **{name: f"data.{name}" for name in ("prepared", "source_language", "target_language")},
    **{name: f"training.{name}" for name in ("steps", "epochs", "tokens", "minutes", "seed", "device", "init_from")},
    "keep_checkpoints": "training.keep_checkpoints",
    "vocab_size": "tokenizer.vocab_size",
    "beam_size": "decoding.beam_size",
}
"""Parameters of verbs that train, and the configuration keys that they set."""


def request_from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration file of a verb, overridden by its flags."""
    short = {key.replace(".", "__"): flags[name] for name, key in FLAG_KEYS.items() if name in flags}
    for part, flag in (("train", ""), ("valid", "valid_"), ("test", "test_")):
        files = flags.get("data") if part == "train" else None
        prefix = flag.replace("_", "-")
        columns = {name: str(flags[name]) for name in ("source_column", "target_column") if flags.get(name)}
        short[f"data__{part}"] = corpora_from_flags(
            flags.get(f"{flag}source"),
            flags.get(f"{flag}target"),
            files,
            flag=prefix,
            columns=columns,
            texts=flags.get(f"{flag}text"),
        )
    return complete_request(flags.get("config"), settings_from_flags(flags.get("settings"), **short))


def command_line() -> str:
    """The command line, for the record of a result."""
    return shlex.join(["heedful", *sys.argv[1:]])


def search_settings(pairs: Sequence[str] | None, **short: Any) -> dict[str, Any]:
    """Keys of the section `decoding` from flags. Other sections are refused, as they apply to training only."""
    request = settings_from_flags(pairs, **{f"decoding__{name}": value for name, value in short.items()})
    for section in request:
        if section != "decoding":
            raise ConfigError(f"--{section}.…: only keys of the section decoding apply to a trained model.")
    return dict(request.get("decoding", {}))


def corpora_from_flags(
    sources: Sequence[str] | None,
    targets: Sequence[str] | None,
    files: Sequence[str] | None = None,
    *,
    flag: str = "",
    columns: Mapping[str, str] | None = None,
    texts: Sequence[str] | None = None,
) -> list[dict[str, str]] | None:
    """The corpora given by flags; None if there are none.

    `flag`: the prefix of the flags, such as `valid-`. `columns`: source and target columns of `files`. `texts`: files
    of a language model.
    """
    if columns and not files and not flag:
        raise ConfigError("--source-column and --target-column apply to --data only.")
    sources, targets = sources or (), targets or ()
    if len(sources) != len(targets):
        raise ConfigError(
            f"--{flag}source is given {len(sources)} times and --{flag}target {len(targets)} times; "
            f"each source file needs its target file."
        )
    pairs = [{"source": source, "target": target} for source, target in zip(sources, targets, strict=True)]
    tables = [{"path": path, **(columns or {})} for path in files or ()]
    return [*pairs, *tables, *({"text": path} for path in texts or ())] or None


def complete_request(config: Path | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration file overridden by `changes`, with languages from the corpus file names."""
    request = merge(read_request(config) if config is not None else {}, changes)
    data = request.get("data")
    if isinstance(data, Mapping):
        request["data"] = {**_languages_from_names(data), **data}
    return request


def _languages_from_names(data: Mapping[str, Any]) -> dict[str, str]:
    """Language codes from file names such as `train.en` and `train.de.gz`, if none are given and all names agree."""
    if data.get("source_language") or data.get("target_language"):
        return {}
    corpora = data.get("train")
    corpora = corpora if isinstance(corpora, list) else [corpora]
    languages = set()
    for corpus in corpora:
        if not isinstance(corpus, Mapping) or corpus.get("source_language") or corpus.get("target_language"):
            return {}
        languages.add((language_from_name(corpus.get("source")), language_from_name(corpus.get("target"))))
    if len(languages) != 1:
        return {}
    source, target = languages.pop()
    if source is None or target is None or source == target:
        return {}
    return {"source_language": source, "target_language": target}


def language_from_name(path: Any) -> str | None:
    """The language code in a file name such as `test.de` or `test.zh.gz`."""
    name = str(path or "")
    ending = re.sub(r"\.(gz|xz|bz2)$", "", name, flags=re.IGNORECASE).rpartition(".")[2]
    return ending if ending != name and _LANGUAGE.fullmatch(ending) else None


def model_directory(given: Path | None) -> Path:
    """The model given by path or name; default: that of HEEDFUL_MODEL, else the bundled model."""
    from heedful.model_dir.registry import default_model, find_model

    return default_model() if given is None else find_model(given)


def require_model_directory(given: Path | None, purpose: str) -> Path:
    """Like `model_directory`, but without the bundled model as default. `purpose` completes the error message."""
    from heedful.model_dir.registry import DEFAULT_VARIABLE

    if given is None and not os.environ.get(DEFAULT_VARIABLE):
        raise ConfigError(f"no model is named; give the model {purpose} with -m DIRECTORY (or {DEFAULT_VARIABLE}).")
    return model_directory(given)
