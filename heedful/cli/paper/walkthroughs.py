"""`heedful paper worked-example`, `teacher-forcing` and `mixing`: single computations, shown with their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options

WORKED_EXAMPLE_FORMATS = ("text", "latex")
TableFormat = Annotated[str, typer.Option("--format", metavar="NAME", help="Print text, markdown or html.")]


def worked_example(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Two to eight words.")] = "three little words",
    form: Annotated[str, typer.Option("--format", metavar="NAME", help="Print text or latex.")] = "text",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="Also draw the figure in this folder.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes embeddings and weights.")] = 1,
    lang: options.LabelLanguage = "en",
) -> None:
    """Write out multi-head attention of a few words: every number from the vectors to the output.

    \b
    heedful paper worked-example "three little words"
    heedful paper worked-example "three little words" --format latex --lang zh > attention.tex
    heedful paper worked-example "three little words" -o figures
    """
    from heedful.paper.experiment_io import check_choice
    from heedful.paper.worked_example import compute_example
    from heedful.paper.worked_example_text import as_latex, as_text

    check_choice("--format", form, WORKED_EXAMPLE_FORMATS)
    example = compute_example(text, seed=seed)
    print({"text": as_text, "latex": as_latex}[form](example, lang), end="")
    if output is not None:
        from heedful.paper.figures.worked_example import WORKED_EXAMPLE_WORDS, draw_worked_example
        from heedful.paper.plot_style import in_language, save, styled

        with styled([*in_language(WORKED_EXAMPLE_WORDS, lang).values(), *example.words]):
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
    """Show what the decoder is fed in training and in decoding, and that both compute the same.

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
