"""`heedful paper table2`: the training recipe of the paper on your corpus, from text to BLEU."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, request_from_flags

Recipe = Annotated[str, typer.Option(metavar="NAME", help="Model of the paper: base or big.")]


@options.shared_options(
    before=(*options.CORPUS_FILES, *options.HELD_OUT_FILES, "prepared", *options.LANGUAGE_CODES),
    after=("steps", "minutes", "seed", "device", "settings"),
)
def table2(
    output: options.OutputFolder,
    *,
    recipe: Recipe = "base",
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    **flags: Any,
) -> None:
    """Train with the recipe of the paper, score, and compare with Table 2.

    \b
    heedful paper table2 -s train.en -t train.de --test-source test.en --test-target test.de -o table2
    heedful paper table2 -s train.en -t train.de --minutes 60 -o table2       (shortened, noted in the report)
    heedful paper table2 corpora.yaml --recipe big -o table2 --resume

    Every configuration key is also a flag; the report lists all changes to the recipe.
    """
    request = request_from_flags(flags)
    results = run(request, recipe, output, lang=lang, resume=resume, overwrite=overwrite, quiet=quiet)
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif not quiet:
        print_report(results, lang)


def run(
    request: dict[str, Any], recipe: str, output: Path, *, lang: str, resume: bool, overwrite: bool, quiet: bool
) -> dict[str, Any]:
    """Run the experiment and return its results; exit if it is interrupted."""
    from heedful.paper.table2 import run_table2

    results = run_table2(
        request,
        recipe=recipe,
        output=output,
        language=lang,
        resume=resume,
        overwrite=overwrite,
        quiet=quiet,
        command=command_line(),
    )
    if not results["complete"]:
        raise typer.Exit(INTERRUPTED)
    return results


def print_report(results: dict[str, Any], language: str) -> None:
    """Print both tables and the notes."""
    from heedful.paper.table2 import remarks, scores_table, table
    from heedful.paper.text_tables import print_table

    for heading, rows in (table(results, language), scores_table(results, language)):
        print_table(heading, rows)
    for remark in remarks(results, language):
        print("- " + re.sub(r"\*\*|`", "", remark))
