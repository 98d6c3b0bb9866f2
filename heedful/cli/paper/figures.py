"""`heedful paper figures`: reproduce the figures of the paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options
from heedful.errors import ConfigError

DURATION = "less than a minute with 500 steps on an idle CPU"


def figures(
    output: options.OutputFolder,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="DIRECTORY",
            help="A trained model to draw: its architecture and, with --sentence, its attention.",
        ),
    ] = None,
    sentence: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Sentence whose translation shows the attention.")
    ] = None,
    target_language: options.To = None,
    layer: Annotated[int | None, typer.Option(help="Layer whose attention is shown, counted from 1.")] = None,
    head: Annotated[list[int] | None, typer.Option(help="Head to show, counted from 1; repeatable.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Draw only this figure; repeatable.")] = None,
    preset: Annotated[str, typer.Option(metavar="NAME", help="Architecture to draw without --model.")] = "base",
    steps: Annotated[int | None, typer.Option(help="Steps of each norm_training run; default: 500.")] = None,
    device: options.Device = None,
    lang: options.LabelLanguage = "en",
    quiet: options.Quiet = False,
) -> None:
    """Draw the figures of the paper and of common explanations, from what the code computes.

    \b
    heedful paper figures -o figures
    heedful paper figures -o figures --lang zh --only masks --only scaling
    heedful paper figures -o figures --only norm_training --steps 1000
    heedful paper figures -o figures -m model --sentence "Where is Tom?" --layer 2 --head 1 --head 3
    """
    from heedful.build_model import resolve_device
    from heedful.config import Config
    from heedful.config_loading import build_config, from_mapping
    from heedful.console import Console
    from heedful.model_dir import describe
    from heedful.paper.experiment_io import refuse_ranks
    from heedful.paper.figures.attention import translate_with_attention
    from heedful.paper.figures.norms import STEPS
    from heedful.paper.figures.registry import TrainingRuns, choose_figures, draw_figures

    refuse_ranks("folder of figures")
    if sentence is not None and model is None:
        raise ConfigError("--sentence needs --model DIRECTORY, the model whose attention is shown.")
    names = choose_figures(only or [], with_model=sentence is not None)
    config = build_config({"preset": preset}) if model is None else from_mapping(Config, describe(model)["config"])
    example = None
    if model is not None and sentence is not None and "attention" in names:
        example = translate_with_attention(model, sentence, target_language=target_language)
    console = Console(quiet=quiet)
    has_training = "norm_training" in names
    if has_training:
        training_runs = TrainingRuns(STEPS if steps is None else steps, resolve_device(device or "auto"))
        console.note(f"norm_training trains three small models for {training_runs.steps} steps each, {DURATION}.")
    with console.stages() as report:
        written = draw_figures(
            output,
            language=lang,
            only=names,
            config=config.model,
            example=example,
            layer=layer,
            heads=head or [],
            training_runs=replace(training_runs, report=report) if has_training else None,
        )
    if not quiet:
        print("\n".join(str(path) for path in written))
