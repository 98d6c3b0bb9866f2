"""`heedful export`: a model in the format of another program, in int8, or in files of another size."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options
from heedful.cli.overrides import model_directory
from heedful.did_you_mean import did_you_mean
from heedful.errors import ConfigError

FORMATS = ("ctranslate2", "compact", "shards")


def export(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="The directory to write.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="ctranslate2, compact or shards.")],
    model: options.ModelDirectory = None,
    quantization: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="For ctranslate2: float32, float16, bfloat16, int16 or int8."),
    ] = None,
    shard_mb: Annotated[
        float | None,
        typer.Option(metavar="MB", help="For compact and shards: weights in several files of at most this many MB."),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a model anew: for another program, in int8, or in several files.

    \b
    heedful export --to ctranslate2 -m model -o model-ct2
    heedful export --to ctranslate2 -m model -o model-int8 --quantization int8
    heedful translate -m model-int8 --engine ctranslate2 "A sentence."
    heedful export --to compact -m model -o model-small
    heedful export --to shards --shard-mb 100 -m model -o model-in-parts

    compact is a model directory with a quarter of the bytes: the int8 weights
    that the native engine computes with. Every engine reads it; training and
    averaging want the full one.
    """
    if to not in FORMATS:
        raise ConfigError(
            f"--to: {to!r} is not a format{did_you_mean(to, FORMATS)}; choose one of {', '.join(FORMATS)}."
        )
    if to != "ctranslate2" and quantization is not None:
        raise ConfigError(f"--quantization is for --to ctranslate2; --to {to} has no such choice.")
    if to == "ctranslate2" and shard_mb is not None:
        raise ConfigError("--shard-mb is for --to shards and --to compact; CTranslate2 reads one file.")
    if to == "shards" and shard_mb is None:
        raise ConfigError("--to shards needs a size for the files, such as --shard-mb 100.")
    if shard_mb is not None and not shard_mb > 0:
        raise ConfigError(f"--shard-mb must be above 0, not {shard_mb}.")
    directory = model_directory(model)
    if to == "ctranslate2":
        from heedful.interop.ctranslate2_export import export_ctranslate2

        export_ctranslate2(directory, output, quantization=quantization or "float32", overwrite=overwrite)
        return
    from heedful.interop.repack import export_own

    for name in export_own(directory, output, compact=to == "compact", shard_mb=shard_mb, overwrite=overwrite):
        print(f"{name} alone is larger than {shard_mb:g} MB, and so is its file.", file=sys.stderr)
