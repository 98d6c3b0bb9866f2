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

WORDS = {
    "complexity": ("theory: operations", "理论：运算量"),
    "sequential": ("theory: sequential", "理论：顺序运算"),
    "longest_path": ("theory: maximum path", "理论：最长路径"),
    "flops_mixing": ("operations, mixing", "运算量，位置间交互"),
    "flops": ("operations, layer", "运算量，整层"),
    "seconds_mixing": ("time, mixing", "时间，位置间交互"),
    "seconds": ("time, layer", "时间，整层"),
    "memory_bytes": ("memory", "内存"),
    "operations": ("sequential operations", "顺序运算"),
    "path": ("path", "路径"),
    "self_attention": ("self-attention", "自注意力"),
    "restricted": ("restricted", "受限自注意力"),
    "recurrent": ("recurrent", "循环层"),
    "convolutional": ("convolutional", "卷积层"),
    "note": (
        "Measured: fitted powers of length n and width d. A stack of dilated convolutions has a path of log_k n.",
        "实测：对长度 n 和宽度 d 拟合的幂。多层空洞卷积的路径为 log_k n。",
    ),
}
"""The texts of the table."""
MEASURED = ("flops_mixing", "flops", "seconds_mixing", "seconds", "memory_bytes", "operations", "path")
"""Measured quantities in the order of the table."""
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
        print_exponents(results, lang)
        print(f"\n{output / 'results.json'}, {output / 'table1.png'}, {output / 'table1.svg'}")


def parse_numbers(text: str | None, flag: str) -> tuple[int, ...] | None:
    """The integers in a string such as `16,64,256`."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{flag} takes comma-separated integers such as 16,64,256, not {text!r}.") from None


def print_exponents(results: Mapping[str, Any], language: str) -> None:
    """Print a table with a column for each kind of layer: the theory, and the measured exponents."""
    from heedful.paper.plot_style import in_language
    from heedful.paper.text_tables import print_table

    words = in_language(WORDS, language)
    theory, exponents = results["theory"], results["exponents"]
    rows = [
        [words[text], *(theory[kind][name].split(" (")[0] for kind in exponents)]
        for text, name in (("complexity", "complexity"), ("sequential", "sequential"), ("longest_path", "path"))
    ]
    for name in MEASURED:
        has_width = name not in ("operations", "path")
        rows.append(
            [words[name], *(format_exponents(exponents[kind][name], has_width=has_width) for kind in exponents)]
        )
    print_table(["", *(words[kind] for kind in exponents)], rows, sections=[2])
    print(words["note"])


def format_exponents(exponents: tuple[float, float], *, has_width: bool = True) -> str:
    """Exponents such as `n^2.00 d^1.00`."""
    n = f"n^{exponents[0] + 0.0:.2f}"
    return f"{n} d^{exponents[1] + 0.0:.2f}" if has_width else n
