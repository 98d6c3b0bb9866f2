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
from heedful.model_dir import LoadedModel
from heedful.paper.figures import (
    architecture,
    attention,
    decoding,
    masks,
    multi_head,
    norms,
    positions,
    schedule_smoothing,
    sequence_models,
)
from heedful.paper.plot_style import LANGUAGES, Words, in_language, make_output_directory, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TrainingRuns:
    """Settings of the figure that trains models: steps of each run, device, and a function that reports progress."""

    steps: int = norms.STEPS
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    report: norms.Progress | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"--steps must be at least 1, not {self.steps}.")


SAMPLE_SENTENCES = {
    "en": ("He wants to learn the language of his wife.", "de"),
    "zh": ("I have never seen such a large dog.", "zh"),
}
"""Label language to the sentence that the bundled model translates, and its target language."""


@dataclass(frozen=True)
class Sample:
    """A model, a sentence, and the language it is translated into (None: the model has only one)."""

    loaded: LoadedModel
    sentence: str
    target_language: str | None

    def attention(self, method: str | None = None) -> attention.AttentionExample:
        """The translation, with all attention weights."""
        return attention.translate_with_attention(
            self.loaded, self.sentence, target_language=self.target_language, method=method
        )


@dataclass(frozen=True)
class Settings:
    """What the figures are drawn from."""

    language: str = "en"
    config: ModelConfig = field(default_factory=ModelConfig)
    sample: Sample | None = None
    example: attention.AttentionExample | None = None
    layer: int | None = None
    heads: Sequence[int] = ()
    training_runs: TrainingRuns = field(default_factory=TrainingRuns)

    @property
    def shown(self) -> attention.AttentionExample:
        """The example; only figures of a trained model use it."""
        assert self.example is not None
        return self.example

    def greedy(self) -> attention.AttentionExample:
        """The example translated by greedy search."""
        assert self.sample is not None
        return self.sample.attention(method="greedy")

    def head_split(self) -> multi_head.HeadSplit:
        """The tensors of one attention of the model for the sample sentence."""
        assert self.sample is not None
        return multi_head.split_heads(self.sample.loaded, self.sample.sentence, self.sample.target_language)


Drawn = tuple["Figure", dict[str, Any]]
"""A figure and its numbers."""


@dataclass(frozen=True)
class Entry:
    """A figure: its texts, and the function that draws it, which may also return its numbers, or an animation."""

    words: Words
    draw: Callable[[Settings], Figure | Drawn | decoding.Animation]
    needs_sample: bool = False
    """Whether it shows a sentence that a trained model translates."""
    trains: bool = False
    """Whether it trains models; these are drawn last."""


FIGURES: dict[str, Entry] = {
    "architecture": Entry(
        architecture.ARCHITECTURE_WORDS, lambda given: architecture.draw_architecture(given.language, given.config)
    ),
    "multi_head": Entry(
        multi_head.MULTI_HEAD_WORDS, lambda given: multi_head.draw_multi_head(given.language, given.config)
    ),
    "head_split": Entry(
        multi_head.HEAD_SPLIT_WORDS,
        lambda given: multi_head.draw_head_split(given.language, given.head_split()),
        needs_sample=True,
    ),
    "sequence_models": Entry(
        sequence_models.SEQUENCE_MODEL_WORDS, lambda given: sequence_models.draw_sequence_models(given.language)
    ),
    "padding_mask": Entry(masks.PADDING_MASK_WORDS, lambda given: masks.draw_padding_mask(given.language)),
    "norm_axes": Entry(norms.NORM_AXES_WORDS, lambda given: norms.draw_norm_axes(given.language)),
    "positions": Entry(positions.POSITION_WORDS, lambda given: positions.draw_positions(given.language)),
    "masks": Entry(masks.MASK_WORDS, lambda given: masks.draw_masks(given.language)),
    "scaling": Entry(attention.SCALING_WORDS, lambda given: attention.draw_scaling(given.language)),
    "norms": Entry(norms.NORM_WORDS, lambda given: norms.draw_norms(given.language)),
    "norm_training": Entry(
        norms.NORM_TRAINING_WORDS,
        lambda given: train_and_draw_norms(given.language, given.training_runs),
        trains=True,
    ),
    "schedule": Entry(
        schedule_smoothing.SCHEDULE_WORDS, lambda given: schedule_smoothing.draw_schedule(given.language)
    ),
    "smoothing": Entry(
        schedule_smoothing.SMOOTHING_WORDS, lambda given: schedule_smoothing.draw_smoothing(given.language)
    ),
    "attention": Entry(
        attention.ATTENTION_WORDS,
        lambda given: attention.draw_attention(given.language, given.shown, given.layer, given.heads),
        needs_sample=True,
    ),
    "decoding": Entry(
        decoding.DECODING_WORDS,
        lambda given: decoding.draw_decoding(given.language, given.greedy()),
        needs_sample=True,
    ),
}
WORDS: dict[str, Words] = {name: entry.words for name, entry in FIGURES.items()}
"""The texts of each figure."""


def choose_figures(only: Sequence[str], *, with_sample: bool) -> list[str]:
    """The requested figures, or all; those of a trained model only with a sample sentence."""
    for name in only:
        if name not in FIGURES:
            known = ", ".join(FIGURES)
            raise ConfigError(f"--only: unknown figure {name!r}{did_you_mean(name, FIGURES)}; choose {known}.")
        if FIGURES[name].needs_sample and not with_sample:
            raise ConfigError(
                f"the figure {name} needs a sentence that the model translates: --model DIRECTORY --sentence TEXT."
            )
    return list(only) or [name for name, entry in FIGURES.items() if with_sample or not entry.needs_sample]


def draw_figures(
    output: Path,
    *,
    language: str = "en",
    theme: str = "light",
    only: Sequence[str] = (),
    config: ModelConfig | None = None,
    sample: Sample | None = None,
    layer: int | None = None,
    heads: Sequence[int] = (),
    training_runs: TrainingRuns | None = None,
) -> list[Path]:
    """Draw figures as PNG and SVG; returns the files. Figures of a trained model need `sample`.

    Figures that train models, with the settings `training_runs`, also write their numbers as JSON.
    """
    if language not in LANGUAGES:
        raise ConfigError(f"--lang is one of {', '.join(LANGUAGES)}, not {language!r}.")
    names = sorted(choose_figures(only, with_sample=sample is not None), key=lambda name: FIGURES[name].trains)
    example = sample.attention() if sample is not None and any(FIGURES[name].needs_sample for name in names) else None
    if example is not None:
        attention.cross_heads(example, layer, heads)  # report a wrong number before drawing
    settings = Settings(
        language, config or ModelConfig(), sample, example, layer, heads, training_runs or TrainingRuns()
    )
    texts = [text for name in names for text in in_language(WORDS[name], language).values()]
    texts += attention.attention_texts(example) if example is not None else []
    written = []
    with styled(texts, theme):
        make_output_directory(output)  # report errors before training
        for name in names:
            drawn = FIGURES[name].draw(settings)
            if isinstance(drawn, decoding.Animation):
                written += drawn.save(output, name)
                continue
            figure, numbers = drawn if isinstance(drawn, tuple) else (drawn, None)
            written += save(figure, output, name)
            if numbers is not None:
                written.append(output / f"{name}.json")
                written[-1].write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return written


def train_and_draw_norms(language: str, training_runs: TrainingRuns) -> Drawn:
    """Train with each norm; returns the figure and its numbers."""
    curves = norms.train_all(steps=training_runs.steps, device=training_runs.device, report=training_runs.report)
    return norms.draw_norm_training(language, curves), norms.norm_training_results(curves, device=training_runs.device)
