"""Metadata of a benchmark run: machine, versions and command, printed below result tables."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from heedful.model_card import versions
from heedful.paper.experiment_io import processor

ROOT = Path(__file__).resolve().parents[2]


def run_metadata(device: str = "cpu") -> str:
    """Machine, versions and the running command as a Markdown list."""
    machine = f"{processor()}, {os.cpu_count()} cores"
    if device.startswith("cuda"):
        import torch

        machine = torch.cuda.get_device_name(device)
    packages = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"- machine: {machine}\n- versions: {packages}\n- command: `{command()}`\n"


def this_run(device: str) -> dict[str, Any]:
    """Machine, date, versions and command, without local paths."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = f"{processor()}, {cores} cores"
    if device.startswith("cuda"):
        import torch

        machine += f"; {torch.cuda.get_device_name(device)}" if torch.cuda.is_available() else ""
    return {
        "machine": machine,
        "versions": versions(),
        "command": command(),
        "began": now(),
    }


def command() -> str:
    """The running command without local paths."""
    return shlex.join(["python", public(str(Path(sys.argv[0]).resolve())), *map(public, sys.argv[1:])])


def public(word: str) -> str:
    """An argument of the command line; of a path outside the checkout only the last part."""
    if not (os.path.isabs(word) or word.startswith(("..", "~"))):
        return word
    path = Path(word).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
