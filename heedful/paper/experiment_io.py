"""Shared by the experiments: the output directory, prepared corpora, results.json, and the machine's description."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from heedful.atomic_files import replace_file
from heedful.config import Config, DataConfig
from heedful.config_loading import to_mapping
from heedful.errors import ConfigError, did_you_mean
from heedful.model_card import versions
from heedful.training_pipeline import device_name, load_data

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.prepare import Prepared

T = TypeVar("T")
RESULTS = "results.json"
COMPARED_SECTIONS = ("preset", "tokenizer", "model", "training", "decoding")
"""Sections that must be unchanged for a resumed experiment to keep a finished run."""


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
    """Create or check the output directory; returns the earlier results if the experiment is resumed.

    Missing corpora are reported before anything is written. `what` names the experiment in messages.
    """
    from heedful.text.preflight import check_files

    refuse_ranks(what)
    if data is not None and data.prepared is None:
        check_files(data)
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: the output must be a directory, and this is a file.")
    path = output / RESULTS
    existing = sorted(entry.name for entry in output.iterdir()) if output.exists() else []
    if existing and not path.exists():
        raise ConfigError(
            f"{output}: the directory holds other files ({existing[0]}); choose an empty directory with -o."
        )
    earlier = read_results(path, format_name, overwrite=overwrite) if path.exists() else {}
    if path.exists() and not (resume or overwrite):
        raise ConfigError(
            f"{output} already holds a {what}; add {'--resume to continue it, ' if can_resume else ''}--overwrite to "
            f"replace it, or choose another directory with -o."
        )
    output.mkdir(parents=True, exist_ok=True)
    if not path.exists() or (overwrite and not resume):
        write_json(path, {"format": format_name, "complete": False})
        return {}
    return earlier


def read_results(path: Path, format_name: str, *, overwrite: bool) -> dict[str, Any]:
    """The results of an earlier run; damaged results are an error unless `overwrite` is set."""
    try:
        earlier = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        if overwrite:
            return {}
        raise ConfigError(f"{path}: damaged ({error}); remove it, or add --overwrite to start over.") from None
    if not isinstance(earlier, dict) or earlier.get("format") != format_name:
        raise ConfigError(f"{path}: these are the results of another experiment; choose another directory with -o.")
    return earlier


def refuse_ranks(what: str) -> None:
    """Refuse to run under torchrun, where each process would run the whole experiment."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError(f"a {what} runs in one process; start it without torchrun (`heedful train` supports it).")


def refuse_init_from(requested: Config) -> None:
    """Refuse `training.init_from`: the models of an experiment are trained from scratch."""
    if requested.training.init_from is not None:
        raise ConfigError("training.init_from: the models of an experiment are trained from scratch; remove this key.")


def shared_data(requested: Config, directory: Path, console: Console, *, resume: bool) -> Prepared:
    """Prepare the corpora once for all runs; a resumed experiment must use the same data."""
    from heedful.data.prepare import MANIFEST, is_prepared, prepared_fingerprint

    if resume and requested.data.prepared is None and requested.data.train and (directory / MANIFEST).exists():
        mark = prepared_fingerprint(requested.data, requested.tokenizer, requested.training.seed)
        if not is_prepared(directory, mark):
            raise ConfigError(f"--resume: {directory} was prepared from other files or settings; choose another -o.")
    return load_data(requested, directory, console)


def from_prepared(request: Mapping[str, Any], prepared: Prepared) -> dict[str, Any]:
    """The request with the prepared data in place of its corpora."""
    data = {key: value for key, value in (request.get("data") or {}).items() if key not in ("train", "valid", "test")}
    return {**request, "data": {**data, "prepared": str(prepared.directory)}}


def settings_of(config: Config) -> dict[str, Any]:
    """The settings that determine the result of a run, as plain JSON values."""
    plain = to_mapping(config)
    settings: dict[str, Any] = json.loads(json.dumps({section: plain[section] for section in COMPARED_SECTIONS}))
    return settings


def corpora_of(prepared: Prepared) -> list[dict[str, Any]]:
    """Role, name and number of sentence pairs of each corpus."""
    return [{key: corpus[key] for key in ("role", "name", "num_kept")} for corpus in prepared.report["corpora"]]


def evenly_spaced(items: Sequence[T], count: int | None) -> list[T]:
    """At most `count` items at equal distances, starting with the first; None: all items."""
    num_chosen = len(items) if count is None else min(count, len(items))
    return [items[number * len(items) // num_chosen] for number in range(num_chosen)]


def machine(device: torch.device) -> dict[str, Any]:
    """The hardware and operating system of the measurements."""
    import torch

    return {
        "device": device_name(device),
        "processor": processor(),
        "num_cores": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "system": platform.platform(),
    }


def processor() -> str:
    """The name of the processor, if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def results_header(format_name: str, format_version: int, command: str | None) -> dict[str, Any]:
    """The first keys of all results: format, command, date and versions."""
    return {
        "format": format_name,
        "format_version": format_version,
        "complete": False,
        "command": command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    }


def open_runs(
    output: Path,
    format_name: str,
    format_version: int,
    what: str,
    *,
    settings: Mapping[str, Any],
    command: str,
    resume: bool,
    overwrite: bool,
) -> dict[str, Any]:
    """Open the output of an experiment of many small CPU runs; a resumed one starts with its finished `runs`.

    Results of other settings are refused, because continuing would discard them.
    """
    import torch

    from heedful.model_dir.save_load import plain_data

    earlier = open_output(output, format_name, what, resume=resume, overwrite=overwrite)
    plain = plain_data(settings)
    if earlier.get("settings", plain) != plain:
        changed = sorted(key for key in plain if earlier["settings"].get(key) != plain[key]) or ["settings"]
        raise ConfigError(
            f"--resume: {output} holds a {what} with other settings ({', '.join(changed)}); give the same ones, or "
            f"choose another directory with -o."
        )
    return {
        **results_header(format_name, format_version, command),
        "machine": machine(torch.device("cpu")),
        "settings": plain,
        "runs": earlier.get("runs", []),
    }


def complete_runs(
    output: Path,
    results: dict[str, Any],
    names: Sequence[str],
    combinations: Iterable[tuple[Any, ...]],
    *,
    train: Callable[..., Any],
    skip: Callable[[], None],
) -> None:
    """Train the combinations of the settings `names` that `results["runs"]` lacks; write the results after each."""
    done = {tuple(run[name] for name in names) for run in results["runs"]}
    for combination in combinations:
        if combination in done:
            skip()
            continue
        results["runs"] = [*results["runs"], asdict(train(*combination))]
        write_json(output / RESULTS, results)


def check_choice(flag: str, value: str, known: Collection[str]) -> None:
    """Refuse a value that is not in `known`."""
    if value not in known:
        raise ConfigError(f"{flag}: {value!r} is not one of {', '.join(known)}{did_you_mean(value, known)}.")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    from heedful.model_dir.save_load import plain_data

    replace_file(path, json.dumps(plain_data(values), indent=1, ensure_ascii=False) + "\n")
