"""`heedful compare`: several systems on one corpus with one budget."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, request_of
from heedful.config_loading import settle

Systems = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Architectures with variants, such as transformer,recurrent-lstm-dot; else those that the file names "
        "under `systems`, or transformer,recurrent,convolutional.",
    ),
]
Equal = Annotated[
    str | None,
    typer.Option(metavar="WHAT", rich_help_panel=options.BUDGET, help="parameters, or minutes with presets as is."),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="Where all goes; else ./comparison.")
]
Language = Annotated[str, typer.Option("--lang", metavar="CODE", help="Language of table and report: en or zh.")]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Write PNG files too (needs matplotlib).")]


def compare(
    config: options.ConfigFile = None,
    source: options.Sources = None,
    target: options.Targets = None,
    data: options.SingleFiles = None,
    source_column: options.SourceColumn = None,
    target_column: options.TargetColumn = None,
    valid_source: options.ValidSources = None,
    valid_target: options.ValidTargets = None,
    test_source: options.TestSources = None,
    test_target: options.TestTargets = None,
    prepared: options.Prepared = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    systems: Systems = None,
    equal: Equal = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    tokens: options.Tokens = None,
    minutes: options.Minutes = None,
    output: Output = None,
    preset: options.Preset = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    seed: options.Seed = None,
    device: options.Device = None,
    lang: Language = "en",
    plots: Plots = True,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    settings: options.Settings = None,
) -> None:
    """Train several systems alike and put their numbers side by side.

    \b
    heedful compare --source train.en --target train.de --steps 2000 -o comparison
    heedful compare --data pairs.tsv --minutes 10 --systems transformer,recurrent-lstm-dot --lang zh
    heedful compare config.yaml --epochs 20 --equal parameters --resume

    Every key of the configuration is also a flag, for all systems: --model.dropout=0.2. The section `systems` of a
    configuration file names them and gives each settings of its own.
    """
    request = request_of(locals())
    results = run(request, systems, equal, lang=lang, plots=plots, resume=resume, overwrite=overwrite, quiet=quiet)
    if as_json:
        print(json.dumps(results, indent=2, ensure_ascii=False))
    elif not quiet:
        print_table(results, lang)


def run(
    request: dict[str, Any],
    systems: str | None,
    equal: str | None,
    *,
    lang: str,
    plots: bool,
    resume: bool,
    overwrite: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Compare, and return the results; a comparison that was interrupted ends the program."""
    shared = {key: value for key, value in request.items() if key != "systems"}
    settle(shared, "base")  # a wrong key is told before torch is imported
    from heedful.paper.compare import compare as compare_systems

    results = compare_systems(
        request,
        systems=None if systems is None else [name.strip() for name in systems.split(",") if name.strip()],
        equal=equal,
        language=lang,
        plots=plots,
        resume=resume,
        overwrite=overwrite,
        quiet=quiet,
        command=command_line(),
    )
    if not results["complete"]:
        raise typer.Exit(INTERRUPTED)
    return results


def print_table(results: dict[str, Any], language: str) -> None:
    """Print the table and what must be known to read it: with rules on a terminal, plain elsewhere."""
    from heedful.paper.compare_report import remarks, table

    heading, rows = table(results, language)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        drawn = Table(*heading)
        for column in drawn.columns[1:]:
            column.justify = "right"
        for row in rows:
            drawn.add_row(*row)
        Console(highlight=False).print(drawn)
    else:
        from rich.cells import cell_len

        lines = [heading, *rows]
        widths = [max(cell_len(line[index]) for line in lines) for index in range(len(heading))]
        for line in lines:
            padded = [" " * (width - cell_len(text)) + text for text, width in zip(line[1:], widths[1:], strict=True)]
            print("  ".join([line[0] + " " * (widths[0] - cell_len(line[0])), *padded]))
    for remark in remarks(results, language):
        print(f"- {remark}")
