"""`heedful compare`: train several architectures on one corpus with the same budget."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.exit_codes import INTERRUPTED
from heedful.cli.overrides import command_line, request_from_flags
from heedful.config_loading import build_config
from heedful.errors import ConfigError

Systems = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Architectures and variants, such as transformer,recurrent-lstm-dot; default: section `systems` of the "
        "configuration file, or transformer,recurrent,convolutional.",
    ),
]
Equal = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT", rich_help_panel=options.BUDGET, help="What all systems have in common: parameters or minutes."
    ),
]
LengthBuckets = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        help="Upper bounds, in source tokens, of the buckets of quality by length; default: "
        "10,20,30,40,60,80,120,160,240,320.",
    ),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIRECTORY", help="Output directory; default: ./comparison.")
]
Language = Annotated[
    str, typer.Option("--lang", metavar="CODE", help="Language of the table and the report: en or zh.")
]
Plots = Annotated[bool, typer.Option("--plots/--no-plots", help="Also write PNG files (needs matplotlib).")]


@options.shared_options(before=options.CORPUS_OPTIONS, after=(*options.BUDGET_OPTIONS, "seed", "device", "settings"))
def compare(
    *,
    systems: Systems = None,
    equal: Equal = None,
    length_buckets: LengthBuckets = None,
    output: Output = None,
    preset: options.Preset = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    lang: Language = "en",
    plots: Plots = True,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    **flags: Any,
) -> None:
    """Train several systems under the same conditions and compare them.

    \b
    heedful compare --source train.en --target train.de --steps 2000 -o comparison
    heedful compare --data pairs.tsv --minutes 10 --systems transformer,recurrent-lstm-dot --lang zh
    heedful compare config.yaml --epochs 20 --equal parameters --resume

    Every configuration key is also a flag and applies to all systems: --model.dropout=0.2. The section `systems` of
    a configuration file names the systems and can override settings for each.
    """
    request = request_from_flags({**flags, "preset": preset, "output": output})
    bounds = None if length_buckets is None else parse_integers("--length-buckets", length_buckets)
    results = run(
        request, systems, equal, bounds, lang=lang, plots=plots, resume=resume, overwrite=overwrite, quiet=quiet
    )
    if as_json:
        print(json.dumps(results, indent=2, ensure_ascii=False))
    elif not quiet:
        print_table(results, lang)


def run(
    request: dict[str, Any],
    systems: str | None,
    equal: str | None,
    bounds: tuple[int, ...] | None,
    *,
    lang: str,
    plots: bool,
    resume: bool,
    overwrite: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Run the comparison and return its results; exit if it is interrupted."""
    shared = {key: value for key, value in request.items() if key != "systems"}
    build_config(shared, "base")  # reports unknown keys before torch is imported
    from heedful.paper.compare import compare as compare_systems

    results = compare_systems(
        request,
        systems=None if systems is None else [name.strip() for name in systems.split(",") if name.strip()],
        equal=equal,
        **({} if bounds is None else {"length_bounds": bounds}),
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


def parse_integers(flag: str, text: str) -> tuple[int, ...]:
    """The integers of a list such as 10,20,40."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{flag}: expected integers separated by commas, such as 10,20,40, not {text!r}.") from None


def print_table(results: dict[str, Any], language: str) -> None:
    """Print the table and its notes, and the scores by length."""
    from heedful.paper.compare_quality import length_note, length_tables, length_title, quality_sets
    from heedful.paper.compare_report import remarks, table

    print_cells(*table(results, language))
    for remark in remarks(results, language):
        print(f"- {remark}")
    if not quality_sets(results):
        return
    print(f"\n{length_title(language)}. {length_note(results, language)}")
    for one in length_tables(results, language):
        print(f"\n{one.caption}")
        print_cells(one.heading, one.rows)


def print_cells(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a frame on a terminal and as plain text elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        framed = Table(*heading)
        for column in framed.columns[1:]:
            column.justify = "right"
        for row in rows:
            framed.add_row(*row)
        Console(highlight=False).print(framed)
        return
    from rich.cells import cell_len

    lines = [heading, *rows]
    widths = [max(cell_len(line[index]) for line in lines) for index in range(len(heading))]
    for line in lines:
        padded = [" " * (width - cell_len(text)) + text for text, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join([line[0] + " " * (widths[0] - cell_len(line[0])), *padded]))
