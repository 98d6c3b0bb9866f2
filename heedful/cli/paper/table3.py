"""`heedful paper table3`: every row of Table 3 as one sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, request_of

SOME_FAILED = 1

Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="Where all goes; else ./table3.")
]
Scale = Annotated[str, typer.Option(metavar="NAME", help="cheap: the same proportions, smaller; or paper.")]
Rows = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Groups or rows, such as A,B,big or C-layers-2; else all.")
]
Seeds = Annotated[int, typer.Option(help="How many runs of each row, with as many seeds.")]
Jobs = Annotated[
    int | None, typer.Option(help="Runs at once; else one for two cores on a GPU (at most 8), 1 on a CPU.")
]
Sentences = Annotated[
    int | None, typer.Option(help="Of valid, and of each test corpus, for BLEU; else 1,000 (cheap) or all (paper).")
]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the differences too (needs matplotlib).")]


def table3(
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
    scale: Scale = "cheap",
    rows: Rows = None,
    seeds: Seeds = 3,
    jobs: Jobs = None,
    sentences: Sentences = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    tokens: options.Tokens = None,
    minutes: options.Minutes = None,
    output: Output = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    seed: options.Seed = None,
    device: options.Device = None,
    lang: options.LabelLanguage = "en",
    plots: Plots = True,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    settings: options.Settings = None,
) -> None:
    """Train every row of Table 3 with several seeds, many at once, and see which effects are there.

    \b
    heedful paper table3 --source train.en --target train.de -o table3
    heedful paper table3 configs/table3.yaml -o table3 --rows A,B --seeds 5 --jobs 8
    heedful paper table3 configs/table3.yaml -o table3 --resume
    heedful paper table3 --prepared wmt14 --scale paper --seeds 1 -o table3-paper

    Every key of the configuration is also a flag, for all rows: --model.d_model=128 gives a smaller base.
    """
    request = request_of(locals())
    from heedful.paper.table3 import make_plan, run_table3

    names = [name.strip() for name in (rows or "").split(",") if name.strip()]
    plan = make_plan(request, scale=scale, rows=names, num_seeds=seeds, jobs=jobs, sentences=sentences)
    results = run_table3(
        plan,
        language=lang,
        plots=plots,
        resume=resume,
        overwrite=overwrite,
        quiet=quiet,
        command=command_line(),
    )
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    else:
        print(Path(plan.output / "table3.md").read_text(encoding="utf-8"), end="")
    if not results["complete"]:
        raise typer.Exit(INTERRUPTED)
    if results["failed"]:
        raise typer.Exit(SOME_FAILED)
