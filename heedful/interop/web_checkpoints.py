"""The checkpoints of a run as files for the page: the engine's weights of each step, and the losses of the run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from heedful.interop.web import WebFile, json_file
from heedful.model_dir.checkpoints import FOLDER, list_checkpoints
from heedful.native.convert import native_weights

MANIFEST = f"{FOLDER}/checkpoints.json"
FORMAT_VERSION = 1
MAX_POINTS = 200
"""The most points of a loss curve."""
LOSSES = {"train": "train_loss", "valid": "valid_loss"}
"""Kinds of events in the log, and the name of their loss."""


def checkpoint_files(model: str | Path) -> dict[str, WebFile]:
    """The files of `checkpoints/` for the page, by name; empty if the run kept none.

    `checkpoints.json` lists them. The train loss of a checkpoint is the mean over the updates of the line of the log
    that its step belongs to, and the valid loss that of a validation after its step; null where there is none.
    """
    checkpoints = list_checkpoints(model)
    if not checkpoints:
        return {}
    losses = read_losses(Path(model) / "training" / "log.jsonl")
    files, described = {}, []
    for checkpoint in checkpoints:
        name = f"{checkpoint.directory.name}.bin"
        file = WebFile(native_weights(checkpoint.directory))
        files[f"{FOLDER}/{name}"] = file
        trained = (step for step in losses["train_loss"] if step >= checkpoint.step > 0)
        described.append(
            {
                "step": checkpoint.step,
                "weights": name,
                "bytes": file.size,
                "sha256": file.sha256,
                "train_loss": losses["train_loss"].get(min(trained, default=0)),
                "valid_loss": losses["valid_loss"].get(checkpoint.step),
            }
        )
    curve = [
        {"step": step, name: loss} for name, by_step in losses.items() for step, loss in thin_curve(by_step).items()
    ]
    curve.sort(key=lambda point: point["step"])
    return {
        MANIFEST: json_file({"format_version": FORMAT_VERSION, "checkpoints": described, "curve": curve}),
        **files,
    }


def read_losses(log: Path) -> dict[str, dict[int, float]]:
    """The finite losses in the log of a run, by step; a line that was cut off ends it."""
    losses: dict[str, dict[int, float]] = {name: {} for name in LOSSES.values()}
    for event in read_events(log):
        name = LOSSES.get(str(event.get("event")))
        if name is not None and isinstance(event.get("loss"), float):
            losses[name].setdefault(int(event["step"]), round(event["loss"], 5))
    return losses


def read_events(log: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a log; none if the run's files were removed."""
    lines: Iterable[str] = log.read_text("utf-8", errors="replace").split("\n") if log.is_file() else ()
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            return
        if isinstance(event, dict):
            yield event


def thin_curve(losses: Mapping[int, float]) -> dict[int, float]:
    """At most `MAX_POINTS` of the steps, evenly, and always the last."""
    steps = sorted(losses, reverse=True)
    return {step: losses[step] for step in reversed(steps[:: -(-len(steps) // MAX_POINTS) or 1])}
