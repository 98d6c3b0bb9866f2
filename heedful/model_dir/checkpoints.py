"""The folder `checkpoints/` of a model directory: the model at several steps of its training run.

`heedful train` with `--keep-checkpoints` writes it. Each `step-N` in it is a complete model directory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from heedful.model_dir.files import CONFIG

FOLDER = "checkpoints"
NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, order=True)
class Checkpoint:
    """The model directory of one step."""

    step: int
    directory: Path


def checkpoint_path(model: str | Path, step: int) -> Path:
    """Where the checkpoint of a step is, or would be."""
    return Path(model) / FOLDER / f"step-{step:06d}"


def list_checkpoints(model: str | Path) -> list[Checkpoint]:
    """The checkpoints of a model directory, by step; their files are verified when they are loaded."""
    folder = Path(model) / FOLDER
    names = ((NAME.fullmatch(path.name), path) for path in folder.glob("step-*"))
    return sorted(Checkpoint(int(match[1]), path) for match, path in names if match and (path / CONFIG).is_file())
