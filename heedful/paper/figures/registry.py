"""All figures, by name: what is drawn, and the files it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from heedful.config import ModelConfig
from heedful.did_you_mean import did_you_mean
from heedful.errors import ConfigError
from heedful.paper.figures import (
    architecture,
    attention,
    attention_scaling,
    masks,
    norm_training,
    norms,
    positions,
    schedule_smoothing,
)
from heedful.paper.plot_style import LANGUAGES, Words, in_language, open_folder, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS: dict[str, Words] = {
    "architecture": architecture.WORDS,
    "positions": positions.WORDS,
    "masks": masks.WORDS,
    "scaling": attention_scaling.WORDS,
    "norms": norms.WORDS,
    "norm_training": norm_training.WORDS,
    "schedule": schedule_smoothing.SCHEDULE_WORDS,
    "smoothing": schedule_smoothing.SMOOTHING_WORDS,
    "attention": attention.WORDS,
}
"""What each figure says; its keys are the names of the figures."""


@dataclass(frozen=True)
class Runs:
    """How the figures that train something do so: updates of each run, where, and who is told of each update."""

    steps: int = norm_training.STEPS
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    tell: norm_training.Tell | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"--steps must be at least 1, not {self.steps}.")


def choose_figures(only: Sequence[str], *, with_model: bool) -> list[str]:
    """The figures that were asked for, or all that can be drawn: attention needs a model."""
    for name in only:
        if name not in WORDS:
            raise ConfigError(
                f"there is no figure {name!r}{did_you_mean(name, WORDS)}; choose from {', '.join(WORDS)}."
            )
    if "attention" in only and not with_model:
        raise ConfigError(
            "the figure of attention needs a trained model and a text: --model DIRECTORY --sentence TEXT."
        )
    return list(only) or [name for name in WORDS if name != "attention" or with_model]


def draw_figures(
    output: Path,
    *,
    language: str = "en",
    only: Sequence[str] = (),
    config: ModelConfig | None = None,
    looks: attention.Looks | None = None,
    layer: int | None = None,
    heads: Sequence[int] = (),
    runs: Runs | None = None,
) -> list[Path]:
    """Draw figures into a folder, PNG and SVG; return the files. `looks` is what `attention.look` gives.

    Figures that train something, as `runs` says, also leave their numbers as JSON.
    """
    if language not in LANGUAGES:
        raise ConfigError(f"--lang is one of {', '.join(LANGUAGES)}, not {language!r}.")
    names = choose_figures(only, with_model=looks is not None)
    drawers: dict[str, Callable[[], Figure]] = {
        "architecture": lambda: architecture.draw(language, config or ModelConfig()),
        "positions": lambda: positions.draw(language),
        "masks": lambda: masks.draw(language),
        "scaling": lambda: attention_scaling.draw(language),
        "norms": lambda: norms.draw(language),
        "schedule": lambda: schedule_smoothing.draw_schedule(language),
        "smoothing": lambda: schedule_smoothing.draw_smoothing(language),
    }
    measured: dict[str, Callable[[], tuple[Figure, dict[str, Any]]]] = {
        "norm_training": lambda: draw_norm_training(language, runs or Runs()),
    }
    if looks is not None:
        attention.chosen_heads(looks, layer, heads)  # a wrong number is told before the first figure is drawn
        drawers["attention"] = lambda: attention.draw(language, looks, layer, heads)
    said = [text for name in names for text in in_language(WORDS[name], language).values()]
    if looks is not None:
        said += [looks.source, looks.translation, *looks.source_pieces, *looks.target_pieces]
    written = []
    with styled(said):
        open_folder(output)  # told now, not after a figure that trains
        for name in names:
            if name in drawers:
                written += save(drawers[name](), output, name)
                continue
            figure, numbers = measured[name]()
            written += save(figure, output, name)
            written.append(output / f"{name}.json")
            written[-1].write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return written


def draw_norm_training(language: str, runs: Runs) -> tuple[Figure, dict[str, Any]]:
    """Train with each norm; the figure and its numbers."""
    curves = norm_training.train_all(steps=runs.steps, device=runs.device, tell=runs.tell)
    return norm_training.draw(language, curves), norm_training.results(curves, device=runs.device)
