"""`heedful paper table1`: what a layer costs, measured."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.overrides import command_line
from heedful.errors import ConfigError

MEASURED = {
    "flops_mixing": "operations, mixing",
    "flops": "operations, whole",
    "seconds_mixing": "time, mixing",
    "seconds": "time, whole",
    "memory_bytes": "memory",
    "operations": "one after another",
    "path": "path",
}
"""Quantities in the order of the table, and what it calls them."""
Numbers = Annotated[str | None, typer.Option(metavar="N,N,…", help="Else chosen for the device.")]


def table1(
    output: options.OutputFolder,
    lengths: Numbers = None,
    widths: Numbers = None,
    window: Annotated[int | None, typer.Option(help="r of restricted self-attention; without it 16.")] = None,
    kernel_size: Annotated[int | None, typer.Option(help="k of the convolution; without it 3.")] = None,
    attention: Annotated[str | None, typer.Option(metavar="NAME", help="fused (the default) or explicit.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, short times: a first look.")] = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    device: options.Device = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure Table 1: what a layer costs, what must wait, how far information travels.

    \b
    heedful paper table1 -o table1
    heedful paper table1 -o table1 --quick --json
    heedful paper table1 -o table1 --lengths 16,64,256,1024 --widths 64,256 --device cpu
    """
    from heedful.build_model import resolve_device
    from heedful.paper.table1 import default_sweep, run_table1

    where = resolve_device(device or "auto")
    given = {
        "lengths": numbers(lengths, "--lengths"),
        "widths": numbers(widths, "--widths"),
        "window": window,
        "kernel_size": kernel_size,
        "attention": attention,
    }
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    sweep = dataclasses.replace(default_sweep(where, quick=quick), **changed)

    def report(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr)

    command = command_line()
    found = run_table1(
        output, sweep=sweep, device=where, command=command, language=lang, overwrite=overwrite, report=report
    )
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    elif not quiet:
        print_table(found)
        print(f"\n{output / 'results.json'}, {output / 'table1.png'}, {output / 'table1.svg'}")


def numbers(text: str | None, flag: str) -> tuple[int, ...] | None:
    """Whole numbers out of text like `16,64,256`."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"{flag} takes whole numbers with commas between them, such as 16,64,256, not {text!r}."
        ) from None


def print_table(found: Mapping[str, Any]) -> None:
    """The measured table, a column for each kind of layer: the theory, and below it the exponents that came out."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for kind in found["exponents"]:
        table.add_column(kind.replace("_", " "))
    for heading, name in (("theory: operations", "complexity"), ("must wait", "sequential"), ("longest path", "path")):
        table.add_row(heading, *(theory[name].split(" (")[0] for theory in found["theory"].values()))
    table.add_section()
    for name, heading in MEASURED.items():
        with_d = name not in ("operations", "path")
        table.add_row(heading, *(power(row[name], d=with_d) for row in found["exponents"].values()))
    console = Console()
    console.print(table)
    console.print("Measured: fitted powers of length n and width d. Dilated convolutions would have a path of log_k n.")


def power(exponents: tuple[float, float], *, d: bool = True) -> str:
    """Such as `n^2.00 d^1.00`."""
    n = f"n^{exponents[0] + 0.0:.2f}"
    return f"{n} d^{exponents[1] + 0.0:.2f}" if d else n
