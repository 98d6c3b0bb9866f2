"""Checkpoints that a run keeps for looking at how it learned (`training.keep_checkpoints`).

A run learns most at its start, so the cube roots of the kept steps are spread evenly: of ten checkpoints of 1,000 steps
the first six are those of steps 0 to 161. The length of a run is not known in advance, because it may stop early.
Therefore a step is kept when the distance to the last kept one is what an even spread over the steps so far would have,
and when there are too many, the one whose neighbours are closest to each other is removed. The steps depend on nothing
but the number of updates; a resumed run keeps the same ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from heedful.atomic_files import REPLACED, replace_directory
from heedful.model_dir.checkpoints import FOLDER, checkpoint_path, list_checkpoints

INCOMPLETE = "incomplete"
"""Name of a checkpoint that is being written."""


class KeptCheckpoints:
    """At most `count` checkpoints in a model directory: the first step, the last, and steps between them."""

    def __init__(self, model_directory: Path, count: int) -> None:
        self.model_directory, self.count = model_directory, count
        self.steps: list[int] = []

    def is_due(self, step: int) -> bool:
        """Whether to keep the model after this step: √³step - √³last ≥ √³step / (count - 1), in whole numbers."""
        if not self.steps:
            return self.count > 0
        last = self.steps[-1]
        return step > last and self.count > 2 and step * (self.count - 2) ** 3 >= last * (self.count - 1) ** 3

    def add(self, step: int, save: Callable[[Path], None] | None) -> None:
        """Keep the model that `save` writes into a new directory; None: another rank writes it."""
        is_first = not self.steps
        self.steps, removed = thin([*self.steps, step], self.count)
        if save is None:
            return
        if is_first:  # what an earlier run may have left
            remove_checkpoints(self.model_directory)
        staging = self.model_directory / FOLDER / INCOMPLETE
        shutil.rmtree(staging, ignore_errors=True)
        try:
            save(staging)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        place = checkpoint_path(self.model_directory, step)
        replace_directory(staging, place)
        for old in (place.with_name(place.name + REPLACED), *(self._path(one) for one in removed)):
            shutil.rmtree(old, ignore_errors=True)

    def restore(self, steps: Sequence[int], *, is_writer: bool) -> None:
        """Continue a run that has kept these steps; other checkpoints are removed, unless none are kept any more."""
        self.steps = thin(steps, self.count)[0] if self.count else list(steps)
        if is_writer and self.count:
            remove_checkpoints(self.model_directory, keep=self.steps)

    def _path(self, step: int) -> Path:
        return checkpoint_path(self.model_directory, step)


def thin(steps: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """At most `count` of the steps, with the first and the last, and those that were removed."""
    kept, removed = list(steps), []
    while len(kept) > max(count, 2):
        roots = [step ** (1 / 3) for step in kept]
        gaps = [after - before for before, after in zip(roots, roots[2:], strict=False)]
        removed.append(kept.pop(gaps.index(min(gaps)) + 1))
    return kept, removed


def remove_checkpoints(model_directory: Path, *, keep: Sequence[int] = ()) -> None:
    """Remove the checkpoints of a model directory, except those of some steps, and unfinished ones."""
    folder = model_directory / FOLDER
    unwanted = [one.directory for one in list_checkpoints(model_directory) if one.step not in keep]
    for path in (*unwanted, folder / INCOMPLETE, *folder.glob(f"step-*{REPLACED}")):
        shutil.rmtree(path, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
