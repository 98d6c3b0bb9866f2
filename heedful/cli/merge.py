"""`heedful merge`: merge the shards of a translation into one file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.line_io import file_in_errors, refuse_same_file, require_writable


def merge(
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The file given as -o to translate --shard.")],
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input", "-i", metavar="FILE", help="Also check that the shards were translated from this file."
        ),
    ] = None,
) -> None:
    """Merge the shards of a translation into one file.

    \b
    heedful translate -m model -i corpus.en -o corpus.de --shard 1/2
    heedful translate -m model -i corpus.en -o corpus.de --shard 2/2
    heedful merge corpus.de

    All shards must exist, be complete, and have the same input, model and settings; otherwise nothing is written and
    the error names the shards at fault. The shards are kept.
    """
    require_writable(output)
    refuse_same_file(output, input_file)
    from heedful.console import Console
    from heedful.decoding.files.shards import merge_shards

    console = Console()
    num_reported = 0

    with file_in_errors(output), console.stages() as advance:

        def report(num_done: int, total: int) -> None:
            nonlocal num_reported
            advance("merging", num_done - num_reported, total)
            num_reported = num_done

        num_lines = merge_shards(output, input_file=input_file, progress=report)
    console.note(f"{output}: {num_lines:,} lines. To delete the shards: rm {shlex.quote(str(output))}.part-*")
