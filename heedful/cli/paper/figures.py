"""`heedful paper figures`: reproduce the figures of the paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.console import Console
    from heedful.paper.figures.registry import Sample, TrainingRuns

DURATION = "less than a minute with 500 steps on an idle CPU"


def figures(
    output: options.OutputFolder,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="A trained model, by directory or name: its architecture and, with --sentence, its attention. "
            "Default: the architecture of --preset, and the attention of the bundled model.",
            autocompletion=options.model_names,
        ),
    ] = None,
    sentence: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Sentence whose translation shows the attention.")
    ] = None,
    target_language: options.To = None,
    layer: Annotated[int | None, typer.Option(help="Layer whose cross-attention is shown, counted from 1.")] = None,
    head: Annotated[list[int] | None, typer.Option(help="Head to show, counted from 1; repeatable.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Draw only this figure; repeatable.")] = None,
    preset: Annotated[str, typer.Option(metavar="NAME", help="Architecture to draw without --model.")] = "base",
    steps: Annotated[int | None, typer.Option(help="Steps of each norm_training run; default: 500.")] = None,
    device: options.Device = None,
    lang: options.LabelLanguage = "en",
    theme: Annotated[str, typer.Option(metavar="NAME", help="Colours: light or dark.")] = "light",
    quiet: options.Quiet = False,
) -> None:
    """Draw the figures of the paper and of common explanations, from what the code computes.

    \b
    heedful paper figures -o figures
    heedful paper figures -o figures --lang zh --theme dark --only masks --only scaling
    heedful paper figures -o figures --only norm_training --steps 1000
    heedful paper figures -o figures -m model --sentence "Where is Tom?" --layer 2 --head 1 --head 3
    """
    from heedful.config import Config
    from heedful.config_loading import build_config, from_mapping
    from heedful.console import Console
    from heedful.model_dir import describe
    from heedful.model_dir.registry import find_model
    from heedful.paper.experiment_io import refuse_ranks
    from heedful.paper.figures.registry import FIGURES, choose_figures, draw_figures

    refuse_ranks("folder of figures")
    directory = None if model is None else find_model(model)
    with_sample = sentence is not None or directory is None
    names = choose_figures(only or [], with_sample=with_sample)
    config = (
        build_config({"preset": preset}) if directory is None else from_mapping(Config, describe(directory)["config"])
    )
    needs_sample = any(FIGURES[name].needs_sample for name in names)
    sample = load_sample(directory, sentence, target_language, lang) if needs_sample else None
    console = Console(quiet=quiet)
    training_runs = load_training_runs(steps, device, console) if "norm_training" in names else None
    with console.stages() as report:
        written = draw_figures(
            output,
            language=lang,
            theme=theme,
            only=names,
            config=config.model,
            sample=sample,
            layer=layer,
            heads=head or [],
            training_runs=None if training_runs is None else replace(training_runs, report=report),
        )
    if not quiet:
        print("\n".join(str(path) for path in written))


def load_training_runs(steps: int | None, device: str | None, console: Console) -> TrainingRuns:
    """The settings of the figure that trains models; says how long it takes."""
    from heedful.build_model import resolve_device
    from heedful.paper.figures.norms import STEPS
    from heedful.paper.figures.registry import TrainingRuns

    training_runs = TrainingRuns(STEPS if steps is None else steps, resolve_device(device or "auto"))
    console.note(f"norm_training trains three small models for {training_runs.steps} steps each, {DURATION}.")
    return training_runs


def load_sample(directory: Path | None, sentence: str | None, target_language: str | None, lang: str) -> Sample:
    """The model and the sentence that it translates; by default the bundled model and a sentence for the labels."""
    from heedful.model_dir.registry import default_model
    from heedful.paper.figures.attention import load_for_figures
    from heedful.paper.figures.registry import SAMPLE_SENTENCES, Sample
    from heedful.paper.plot_style import LANGUAGES

    if sentence is None:
        if lang not in LANGUAGES:
            raise ConfigError(f"--lang is one of {', '.join(LANGUAGES)}, not {lang!r}.")
        sentence, default = SAMPLE_SENTENCES[lang]
        target_language = target_language or default
    loaded, target = load_for_figures(directory or default_model(), sentence, target_language)
    return Sample(loaded, sentence, target)
