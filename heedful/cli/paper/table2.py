"""`heedful paper table2`: the published recipe on a corpus of one's own, from text to BLEU."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, request_of

WIDTH = 160  # of the tables where nobody watches
Recipe = Annotated[str, typer.Option(metavar="NAME", help="The paper's base or big model.")]


def table2(
    output: options.OutputFolder,
    config: options.ConfigFile = None,
    source: options.Sources = None,
    target: options.Targets = None,
    data: options.SingleFiles = None,
    valid_source: options.ValidSources = None,
    valid_target: options.ValidTargets = None,
    test_source: options.TestSources = None,
    test_target: options.TestTargets = None,
    prepared: options.Prepared = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    recipe: Recipe = "base",
    steps: options.Steps = None,
    minutes: options.Minutes = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    seed: options.Seed = None,
    device: options.Device = None,
    lang: options.LabelLanguage = "en",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    settings: options.Settings = None,
) -> None:
    """Train by the paper's recipe, score, and put the figures beside those of Table 2.

    \b
    heedful paper table2 -s train.en -t train.de --test-source test.en --test-target test.de -o table2
    heedful paper table2 -s train.en -t train.de --minutes 60 -o table2       (shortened, and the report says so)
    heedful paper table2 corpora.yaml --recipe big -o table2 --resume

    Every key of the configuration is also a flag; what it changes from the recipe is listed in the report.
    """
    flags = {name: value for name, value in locals().items() if name != "output"}
    request = request_of(flags)
    results = run(request, recipe, output, lang=lang, resume=resume, overwrite=overwrite, quiet=quiet)
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif not quiet:
        print_report(results, lang)


def run(
    request: dict[str, Any], recipe: str, output: Path, *, lang: str, resume: bool, overwrite: bool, quiet: bool
) -> dict[str, Any]:
    """Run, and return the results; a run that was interrupted ends the program."""
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
    """Print both tables and the remarks."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from heedful.paper.table2 import remarks, scores_table, table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for heading, rows in (table(results, language), scores_table(results, language)):
        drawn = Table(*map(escape, heading), box=box.SIMPLE_HEAD, pad_edge=False)
        for column in drawn.columns[1:]:
            column.justify = "right"
        for row in rows:
            drawn.add_row(*map(escape, row))
        console.print(drawn)
    for remark in remarks(results, language):
        console.print("- " + re.sub(r"\*\*|`", "", remark), markup=False, soft_wrap=True)
