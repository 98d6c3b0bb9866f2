"""`heedful paper worked-example`: computations of the paper, shown number by number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options

WORKED_EXAMPLE_FORMATS = ("text", "latex")


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
