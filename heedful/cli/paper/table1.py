"""`heedful paper table1`: measure the cost of each kind of layer."""

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
    "flops": "operations, layer",
    "seconds_mixing": "time, mixing",
    "seconds": "time, layer",
    "memory_bytes": "memory",
    "operations": "sequential",
    "path": "path",
}
"""Measured quantities in the order of the table, and their row names."""
Numbers = Annotated[str | None, typer.Option(metavar="N,N,…", help="Default: by device.")]


def table1(
    output: options.OutputFolder,
    lengths: Numbers = None,
    widths: Numbers = None,
    window: Annotated[int | None, typer.Option(help="r of restricted self-attention; default: 16.")] = None,
    kernel_size: Annotated[int | None, typer.Option(help="k of the convolution; default: 3.")] = None,
    attention: Annotated[str | None, typer.Option(metavar="NAME", help="fused (the default) or explicit.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few repetitions.")] = False,
    overwrite: options.Overwrite = False,
    lang: options.LabelLanguage = "en",
    device: options.Device = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure Table 1: complexity per layer, sequential operations and maximum path length.

    \b
    heedful paper table1 -o table1
    heedful paper table1 -o table1 --quick --json
    heedful paper table1 -o table1 --lengths 16,64,256,1024 --widths 64,256 --device cpu
    """
    from heedful.build_model import resolve_device
    from heedful.paper.table1 import default_sweep, run_table1

    target_device = resolve_device(device or "auto")
    values = {
        "lengths": parse_numbers(lengths, "--lengths"),
        "widths": parse_numbers(widths, "--widths"),
        "window": window,
        "kernel_size": kernel_size,
        "attention": attention,
    }
    changes: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    sweep = dataclasses.replace(default_sweep(target_device, quick=quick), **changes)

    def report(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr)

    command = command_line()
    results = run_table1(
        output, sweep=sweep, device=target_device, command=command, language=lang, overwrite=overwrite, report=report
    )
    if as_json:
        print(json.dumps(results, indent=1, ensure_ascii=False))
    elif not quiet:
        print_table(results)
        print(f"\n{output / 'results.json'}, {output / 'table1.png'}, {output / 'table1.svg'}")


def parse_numbers(text: str | None, flag: str) -> tuple[int, ...] | None:
    """The integers in a string such as `16,64,256`."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{flag} takes comma-separated integers such as 16,64,256, not {text!r}.") from None


def print_table(results: Mapping[str, Any]) -> None:
    """Print a table with a column for each kind of layer: the theory, and the measured exponents."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for kind in results["exponents"]:
        table.add_column(kind.replace("_", " "))
    for heading, name in (("theory: operations", "complexity"), ("sequential", "sequential"), ("maximum path", "path")):
        table.add_row(heading, *(theory[name].split(" (")[0] for theory in results["theory"].values()))
    table.add_section()
    for name, heading in MEASURED.items():
        has_width = name not in ("operations", "path")
        table.add_row(
            heading, *(format_exponents(row[name], has_width=has_width) for row in results["exponents"].values())
        )
    console = Console()
    console.print(table)
    console.print(
        "Measured: fitted powers of length n and width d. A stack of dilated convolutions has a path of log_k n."
    )


def format_exponents(exponents: tuple[float, float], *, has_width: bool = True) -> str:
    """Exponents such as `n^2.00 d^1.00`."""
    n = f"n^{exponents[0] + 0.0:.2f}"
    return f"{n} d^{exponents[1] + 0.0:.2f}" if has_width else n
