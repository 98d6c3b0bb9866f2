"""What experiments of several training runs share: a directory of their own, corpora prepared once, results."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.atomic_files import replace_file
from heedful.config import Config, DataConfig
from heedful.config_loading import to_mapping
from heedful.did_you_mean import did_you_mean
from heedful.errors import ConfigError
from heedful.model_card import versions
from heedful.training_pipeline import device_name, obtain_data

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.prepare import Prepared

RESULTS = "results.json"
COMPARED_SECTIONS = ("preset", "tokenizer", "model", "training", "decoding")
"""What must be the same for a finished run to be taken over by a resumed experiment."""


def open_output(
    output: Path,
    format_name: str,
    what: str,
    *,
    data: DataConfig | None = None,
    resume: bool,
    overwrite: bool,
    can_resume: bool = True,
) -> dict[str, Any]:
    """Make the directory, or see that it may be used; returns the earlier results where the experiment goes on.

    Corpora that are not there are told before anything is written. `what` names the experiment in messages.
    """
    from heedful.text.preflight import check_files

    refuse_ranks(what)
    if data is not None and data.prepared is None:
        check_files(data)
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: the output must be a directory, and this is a file.")
    path = output / RESULTS
    there = sorted(entry.name for entry in output.iterdir()) if output.exists() else []
    if there and not path.exists():
        raise ConfigError(
            f"{output}: there are other things in it ({there[0]}); choose a directory of its own with -o."
        )
    earlier = read_results(path, format_name, overwrite=overwrite) if path.exists() else {}
    if path.exists() and not (resume or overwrite):
        raise ConfigError(
            f"{output} already holds a {what}; add {'--resume to go on with it, ' if can_resume else ''}--overwrite to "
            f"replace it, or choose another directory with -o."
        )
    output.mkdir(parents=True, exist_ok=True)
    if not path.exists() or (overwrite and not resume):
        write_json(path, {"format": format_name, "complete": False})
        return {}
    return earlier


def read_results(path: Path, format_name: str, *, overwrite: bool) -> dict[str, Any]:
    """The results of an earlier run of the same kind; damaged ones only go away when asked for."""
    try:
        earlier = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        if overwrite:
            return {}
        raise ConfigError(f"{path}: damaged ({error}); remove it, or add --overwrite to start anew.") from None
    if not isinstance(earlier, dict) or earlier.get("format") != format_name:
        raise ConfigError(f"{path}: holds results of something else; choose another directory with -o.")
    return earlier


def refuse_ranks(what: str) -> None:
    """Several processes would each make the whole experiment, in one directory."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError(f"a {what} is made by one process; run it without torchrun (`heedful train` takes several).")


def refuse_start(asked: Config) -> None:
    """An experiment's models begin from nothing: what they cost and reach would else be partly another's."""
    if asked.training.init_from is not None:
        raise ConfigError("training.init_from: the models of an experiment begin from nothing; leave it out.")


def shared_data(asked: Config, directory: Path, console: Console, *, resume: bool) -> Prepared:
    """Prepare the corpora once for all runs; a resumed experiment never changes what it began with."""
    from heedful.data.prepare import MANIFEST, is_prepared, prepared_fingerprint

    if resume and asked.data.prepared is None and asked.data.train and (directory / MANIFEST).exists():
        mark = prepared_fingerprint(asked.data, asked.tokenizer, asked.training.seed)
        if not is_prepared(directory, mark):
            raise ConfigError(f"--resume: {directory} was prepared from other files or settings; start anew with -o.")
    return obtain_data(asked, directory, console)


def from_prepared(request: Mapping[str, Any], prepared: Prepared) -> dict[str, Any]:
    """The request with what was prepared in the place of its corpora."""
    data = {key: value for key, value in (request.get("data") or {}).items() if key not in ("train", "valid", "test")}
    return {**request, "data": {**data, "prepared": str(prepared.directory)}}


def settings_of(config: Config) -> dict[str, Any]:
    """The settings that decide the result of a run, as they come back from JSON."""
    plain = to_mapping(config)
    settings: dict[str, Any] = json.loads(json.dumps({section: plain[section] for section in COMPARED_SECTIONS}))
    return settings


def corpora_of(prepared: Prepared) -> list[dict[str, Any]]:
    """Role, name and number of pairs of each corpus."""
    return [{key: corpus[key] for key in ("role", "name", "num_kept")} for corpus in prepared.report["corpora"]]


def machine(device: torch.device) -> dict[str, Any]:
    """Where the numbers were measured."""
    import torch

    return {
        "device": device_name(device),
        "processor": processor(),
        "num_cores": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "system": platform.platform(),
    }


def processor() -> str:
    """The name of the processor, as well as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def heading_of(format_name: str, format_version: int, command: str | None) -> dict[str, Any]:
    """How the results of every experiment begin: what they are, what made them and when."""
    return {
        "format": format_name,
        "format_version": format_version,
        "complete": False,
        "command": command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    }


def check_choice(flag: str, value: str, known: Collection[str]) -> None:
    """Refuse a value that is none of those known."""
    if value not in known:
        raise ConfigError(f"{flag}: {value!r} is not one of {', '.join(known)}{did_you_mean(value, known)}.")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file in one stroke."""
    from heedful.model_dir.save_load import plain_data

    replace_file(path, json.dumps(plain_data(values), indent=1, ensure_ascii=False) + "\n")
