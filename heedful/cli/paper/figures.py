"""`heedful paper figures`, and computations shown with their numbers: `worked-example`, `teacher-forcing`, `mixing`."""

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
WORKED_EXAMPLE_FORMATS = ("text", "latex")
TableFormat = Annotated[str, typer.Option("--format", metavar="NAME", help="Print text, markdown or html.")]


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
    theme: options.Theme = "light",
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


def worked_example(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Two to eight words.")] = "three little words",
    form: Annotated[str, typer.Option("--format", metavar="NAME", help="Print text or latex.")] = "text",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="Also draw the figure in this folder.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes embeddings and weights.")] = 1,
    lang: options.LabelLanguage = "en",
    theme: options.Theme = "light",
) -> None:
    """Write out multi-head attention of a few words: every number from the vectors to the output.

    \b
    heedful paper worked-example "three little words"
    heedful paper worked-example "three little words" --format latex --lang zh > attention.tex
    heedful paper worked-example "three little words" -o figures
    """
    from heedful.paper.experiment_io import check_choice
    from heedful.paper.worked_example import compute_example
    from heedful.paper.worked_example_report import WORKED_EXAMPLE_WORDS, as_latex, as_text, draw_worked_example

    check_choice("--format", form, WORKED_EXAMPLE_FORMATS)
    example = compute_example(text, seed=seed)
    print({"text": as_text, "latex": as_latex}[form](example, lang), end="")
    if output is not None:
        from heedful.paper.plot_style import in_language, save, styled

        with styled([*in_language(WORKED_EXAMPLE_WORDS, lang).values(), *example.words], theme):
            for path in save(draw_worked_example(lang, example), output, "worked_example"):
                typer.echo(path, err=True)


def teacher_forcing(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A source sentence.")] = "Where is Tom ?",
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Its translation.")] = "Wo ist Tom ?",
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", metavar="MODEL", help="Directory or name; else a small untrained model."),
    ] = None,
    target_language: options.To = None,
    form: TableFormat = "text",
    lang: options.LabelLanguage = "en",
) -> None:
    """Show the input of the decoder in training and in decoding, and that both give the same logits.

    \b
    heedful paper teacher-forcing "Where is Tom ?" "Wo ist Tom ?"
    heedful paper teacher-forcing "Where is Tom?" "Wo ist Tom?" -m en-de-zh --to de --lang zh
    """
    from heedful.cli.overrides import model_directory
    from heedful.errors import ConfigError
    from heedful.paper.experiment_io import check_choice
    from heedful.paper.teacher_forcing import (
        compute_teacher_forcing,
        teacher_forcing_table,
        trained_pair,
        untrained_pair,
    )
    from heedful.paper.text_tables import TABLE_FORMATS

    check_choice("--format", form, TABLE_FORMATS)
    if model is None:
        if target_language is not None:
            raise ConfigError("--target-language needs a trained model: -m MODEL.")
        pair = untrained_pair(source, target)
    else:
        pair = trained_pair(model_directory(model), source, target, target_language=target_language)
    print(teacher_forcing_table(compute_teacher_forcing(pair), lang).render(form, language=lang), end="")


def mixing(
    length: Annotated[int, typer.Option(metavar="N", help="Positions.")] = 64,
    width: Annotated[int, typer.Option(metavar="D", help="Channels: d_model.")] = 512,
    kernel_size: Annotated[int, typer.Option(metavar="K", help="Width of the depthwise convolution, odd.")] = 9,
    form: TableFormat = "text",
    lang: options.LabelLanguage = "en",
) -> None:
    """Compare self-attention and feed-forward with depthwise and pointwise convolution: cost and reach.

    \b
    heedful paper mixing
    heedful paper mixing --length 256 --width 512 --format markdown --lang zh
    """
    from heedful.paper.experiment_io import check_choice
    from heedful.paper.mixing import MixingSizes, mixing_table
    from heedful.paper.text_tables import TABLE_FORMATS

    check_choice("--format", form, TABLE_FORMATS)
    table = mixing_table(MixingSizes(length=length, width=width, kernel_size=kernel_size), lang)
    print(table.render(form, language=lang), end="")
