"""`heedful export`: convert a model to CTranslate2, to int8, or to several weight files."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options
from heedful.cli.overrides import model_directory
from heedful.errors import ConfigError, did_you_mean

FORMATS = ("ctranslate2", "compact", "shards")


def export(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Output directory.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="ctranslate2, compact or shards.")],
    model: options.ModelDirectory = None,
    quantization: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="With ctranslate2: float32, float16, bfloat16, int16 or int8."),
    ] = None,
    shard_mb: Annotated[
        float | None,
        typer.Option(metavar="MB", help="With compact and shards: maximum size of a weight file in MB."),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Convert a model to another format.

    \b
    heedful export --to ctranslate2 -m model -o model-ct2
    heedful export --to ctranslate2 -m model -o model-int8 --quantization int8
    heedful translate -m model-int8 --engine ctranslate2 "A sentence."
    heedful export --to compact -m model -o model-small
    heedful export --to shards --shard-mb 100 -m model -o model-in-parts

    compact writes a model directory of a quarter of the size, with the int8
    weights of the native engine. Every engine can read it; training and
    averaging need the full model.
    """
    if to not in FORMATS:
        raise ConfigError(
            f"--to: {to!r} is not a known format{did_you_mean(to, FORMATS)}; choose one of {', '.join(FORMATS)}."
        )
    if to != "ctranslate2" and quantization is not None:
        raise ConfigError("--quantization applies to --to ctranslate2 only.")
    if to == "ctranslate2" and shard_mb is not None:
        raise ConfigError("--shard-mb applies to --to shards and --to compact; CTranslate2 reads a single file.")
    if to == "shards" and shard_mb is None:
        raise ConfigError("--to shards needs a file size, such as --shard-mb 100.")
    if shard_mb is not None and not shard_mb > 0:
        raise ConfigError(f"--shard-mb must be above 0, not {shard_mb}.")
    directory = model_directory(model)
    if to == "ctranslate2":
        from heedful.interop.ctranslate2_export import export_ctranslate2

        export_ctranslate2(directory, output, quantization=quantization or "float32", overwrite=overwrite)
        print_written(output, "CTranslate2 files")
        return
    from heedful.interop.repack import repack

    for name in repack(directory, output, compact=to == "compact", shard_mb=shard_mb, overwrite=overwrite):
        print(f"note: the tensor {name} is larger than {shard_mb:g} MB, so its file is too.", file=sys.stderr)
    print_written(output, "a compact int8 model" if to == "compact" else "the model")


def print_written(output: Path, contents: str) -> None:
    """Print what was written, its size, and a command that uses it."""
    files = [file for file in output.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / 1e6
    number = "1 file" if len(files) == 1 else f"{len(files)} files"
    print(
        f'{output}: {contents} ({number}, {size:,.1f} MB). Use it: heedful translate -m {shlex.quote(str(output))} "…"'
    )
