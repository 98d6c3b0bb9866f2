"""What a run began with, kept beside its resume state: a run may only go on with the same model, data and seed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.atomic_files import replace_file
from heedful.config import Config
from heedful.config_loading import to_mapping
from heedful.errors import TrainingError

FIXED_SECTIONS = ("data", "tokenizer", "model")
"""Sections that must be the same when a run goes on, causes first; of `training`, `init_from` and the fields below."""
FIXED_TRAINING = ("seed", "tokens_per_step", "ema_decay", "optimizer", "betas", "epsilon", "label_smoothing", "r_drop")

BEFORE_IT_WAS_A_KEY = {"data.shuffle": "pairs", "training.optimizer": "adam"}
"""How runs began whose record does not know the key yet."""


def record_run(
    path: Path, config: Config, report: Mapping[str, Any], *, resumed: bool, start: str | None = None
) -> None:
    """Write configuration and checksums of the corpora (out of the preflight's report); a resumed run checks them.

    `start` is the identity of the model that the run began with, if it was not a new one.
    """
    files = {file["path"]: file["sha256"] for corpus in report["corpora"] for file in corpus["files"]}
    now = json.loads(json.dumps({**to_mapping(config), "files": files, "start": start}))
    if resumed:
        try:
            before = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise TrainingError(f"{path}: cannot read what the run began with ({error}); start anew.") from None
        for key, old, new in differences(before, now):
            raise TrainingError(
                f"--resume: {key} was {old!r} when this run began and is {new!r} now. Put it back, or start anew."
            )
        if before.get("start") != start:
            named = config.training.init_from
            raise TrainingError(f"--resume: {named} is not the model this run began with. Put it back, or start anew.")
        for name in (name for name, digest in before.get("files", {}).items() if files.get(name) != digest):
            raise TrainingError(f"--resume: {name} is not the file this run began with. Put it back, or start anew.")
    replace_file(path, json.dumps(now, indent=2, ensure_ascii=False))


def forget_run(directory: Path) -> None:
    """Remove what an earlier run left, but not its prepared corpora."""
    for name in ("states", "snapshots", "tensorboard"):
        shutil.rmtree(directory / name, ignore_errors=True)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Keys that a resumed run may not change, with their old and new values."""
    keys = [("training", "init_from")]  # from which shape and tokenizer follow, so that it is named before them
    keys += [(section, name) for section in FIXED_SECTIONS for name in now[section]]
    keys += [("training", name) for name in FIXED_TRAINING]
    found = []
    for section, name in keys:
        key, new = f"{section}.{name}", now[section][name]
        old = before.get(section, {}).get(name, BEFORE_IT_WAS_A_KEY.get(key))
        if old != new:
            found.append((key, old, new))
    return found
