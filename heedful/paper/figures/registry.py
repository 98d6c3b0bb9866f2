"""All figures by name, and their output files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from heedful.config import ModelConfig
from heedful.errors import ConfigError, did_you_mean
from heedful.paper.figures import (
    architecture,
    attention,
    norms,
    positions,
    schedule_smoothing,
)
from heedful.paper.plot_style import LANGUAGES, Words, in_language, make_output_directory, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS: dict[str, Words] = {
    "architecture": architecture.ARCHITECTURE_WORDS,
    "positions": positions.POSITION_WORDS,
    "masks": attention.MASK_WORDS,
    "scaling": attention.SCALING_WORDS,
    "norms": norms.NORM_WORDS,
    "norm_training": norms.NORM_TRAINING_WORDS,
    "schedule": schedule_smoothing.SCHEDULE_WORDS,
    "smoothing": schedule_smoothing.SMOOTHING_WORDS,
    "attention": attention.ATTENTION_WORDS,
}
"""The texts of each figure; the keys are the names of the figures."""


@dataclass(frozen=True)
class TrainingRuns:
    """Settings of the figure that trains models: steps of each run, device, and a function that reports progress."""

    steps: int = norms.STEPS
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    report: norms.Progress | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"--steps must be at least 1, not {self.steps}.")


def choose_figures(only: Sequence[str], *, with_model: bool) -> list[str]:
    """The requested figures, or all; attention only with a model."""
    for name in only:
        if name not in WORDS:
            raise ConfigError(f"--only: unknown figure {name!r}{did_you_mean(name, WORDS)}; choose {', '.join(WORDS)}.")
    if "attention" in only and not with_model:
        raise ConfigError(
            "the figure attention needs a trained model and a sentence: --model DIRECTORY --sentence TEXT."
        )
    return list(only) or [name for name in WORDS if name != "attention" or with_model]


def draw_figures(
    output: Path,
    *,
    language: str = "en",
    only: Sequence[str] = (),
    config: ModelConfig | None = None,
    example: attention.AttentionExample | None = None,
    layer: int | None = None,
    heads: Sequence[int] = (),
    training_runs: TrainingRuns | None = None,
) -> list[Path]:
    """Draw figures as PNG and SVG; returns the files. The figure attention needs `example`.

    Figures that train models, with the settings `training_runs`, also write their numbers as JSON.
    """
    if language not in LANGUAGES:
        raise ConfigError(f"--lang is one of {', '.join(LANGUAGES)}, not {language!r}.")
    names = choose_figures(only, with_model=example is not None)
    drawers: dict[str, Callable[[], Figure]] = {
        "architecture": lambda: architecture.draw_architecture(language, config or ModelConfig()),
        "positions": lambda: positions.draw_positions(language),
        "masks": lambda: attention.draw_masks(language),
        "scaling": lambda: attention.draw_scaling(language),
        "norms": lambda: norms.draw_norms(language),
        "schedule": lambda: schedule_smoothing.draw_schedule(language),
        "smoothing": lambda: schedule_smoothing.draw_smoothing(language),
    }
    drawers_with_results: dict[str, Callable[[], tuple[Figure, dict[str, Any]]]] = {
        "norm_training": lambda: train_and_draw_norms(language, training_runs or TrainingRuns()),
    }
    if example is not None:
        attention.chosen_heads(example, layer, heads)  # report a wrong number before drawing
        drawers["attention"] = lambda: attention.draw_attention(language, example, layer, heads)
    texts = [text for name in names for text in in_language(WORDS[name], language).values()]
    if example is not None:
        texts += [
            example.source,
            example.translation,
            *example.source_pieces,
            *example.target_pieces,
        ]
    written = []
    with styled(texts):
        make_output_directory(output)  # report errors before training
        for name in names:
            if name in drawers:
                written += save(drawers[name](), output, name)
                continue
            figure, numbers = drawers_with_results[name]()
            written += save(figure, output, name)
            written.append(output / f"{name}.json")
            written[-1].write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return written


def train_and_draw_norms(language: str, training_runs: TrainingRuns) -> tuple[Figure, dict[str, Any]]:
    """Train with each norm; returns the figure and its numbers."""
    curves = norms.train_all(steps=training_runs.steps, device=training_runs.device, report=training_runs.report)
    return norms.draw_norm_training(language, curves), norms.norm_training_results(curves, device=training_runs.device)
