"""`heedful paper table3`: train every row of Table 3 as one sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, request_from_flags

SOME_FAILED = 1

Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="Output directory; default: ./table3.")
]
Scale = Annotated[str, typer.Option(metavar="NAME", help="cheap (smaller models, same proportions) or paper.")]
Rows = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Groups or rows, such as A,B,big or C-layers-2; default: all.")
]
Seeds = Annotated[int, typer.Option(help="Number of runs per row, each with another seed.")]
Jobs = Annotated[
    int | None, typer.Option(help="Parallel runs; default: half the number of cores on a GPU (at most 8), 1 on a CPU.")
]
Sentences = Annotated[
    int | None, typer.Option(help="Sentences per corpus for BLEU; default: 1,000 (cheap) or all (paper).")
]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Also draw the differences (needs matplotlib).")]


@options.shared_options(
    before=(*options.CORPUS_FILES, *options.HELD_OUT_FILES, "prepared", *options.LANGUAGE_CODES),
    after=(*options.BUDGET_OPTIONS, "seed", "device", "settings"),
)
def table3(
    *,
    scale: Scale = "cheap",
    rows: Rows = None,
    seeds: Seeds = 3,
    jobs: Jobs = None,
    sentences: Sentences = None,
    output: Output = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    plots: Plots = True,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    **flags: Any,
) -> None:
    """Train every row of Table 3 with several seeds and test which effects are significant.

    \b
    heedful paper table3 --source train.en --target train.de -o table3
    heedful paper table3 configs/table3.yaml -o table3 --rows A,B --seeds 5 --jobs 8
    heedful paper table3 configs/table3.yaml -o table3 --resume
    heedful paper table3 --prepared wmt14 --scale paper --seeds 1 -o table3-paper

    Every configuration key is also a flag and applies to all rows: --model.d_model=128 makes all of them smaller.
    """
    request = request_from_flags({**flags, "output": output})
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
        print_report(results, lang)
    if not results["complete"]:
        raise typer.Exit(INTERRUPTED)
    if results["failed"]:
        raise typer.Exit(SOME_FAILED)


def print_report(results: Mapping[str, Any], language: str) -> None:
    """Print the table, the remarks, and which of the paper's effects are seen."""
    from heedful.paper.plot_style import in_language
    from heedful.paper.table3_report import COLUMNS, WORDS, claims_table, main_table, remarks
    from heedful.paper.text_tables import print_table

    words = in_language(WORDS, language)
    print(words["title"])
    print_table(*main_table(results, language), names=1 + len(COLUMNS))
    print("\n".join(f"- {remark}" for remark in remarks(results, language)))
    print(f"\n{words['claims']}")
    print_table(*claims_table(results, language), names=3)
    print(words["beyond"])
