"""`heedful merge`: the shards of a translation made one file, if all are there and belong together."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.line_io import naming, refuse_no_place, refuse_same_file


def merge(
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="What was given as -o to translate --shard.")],
    input_file: Annotated[
        str | None,
        typer.Option("--input", "-i", metavar="FILE", help="Also make sure that the shards are of this text."),
    ] = None,
) -> None:
    """Merge the shards of a translation into one file.

    \b
    heedful translate -m model -i corpus.en -o corpus.de --shard 1/2
    heedful translate -m model -i corpus.en -o corpus.de --shard 2/2
    heedful merge corpus.de

    Every shard must be there and finished, of the same text, model and settings; else those that are not are named,
    and nothing is written. The shards stay.
    """
    refuse_no_place(output)
    refuse_same_file(output, input_file)
    from heedful.console import Console
    from heedful.decoding.files.shards import merge_shards

    console = Console()
    before = 0

    with naming(output), console.stages() as tell:

        def told(done: int, total: int) -> None:
            nonlocal before
            tell("merging", done - before, total)
            before = done

        lines = merge_shards(output, input_file=input_file, progress=told)
    console.note(f"{output}: {lines:,} lines. The shards may go: rm {shlex.quote(str(output))}.part-*")
