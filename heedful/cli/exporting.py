"""`heedful export`: a model in the format of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options
from heedful.cli.flags import model_directory
from heedful.config import nearest
from heedful.errors import ConfigError

FORMATS = ("ctranslate2",)


def export(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="The directory to write.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="ctranslate2.")],
    model: options.ModelDirectory = None,
    quantization: Annotated[
        str, typer.Option(metavar="TYPE", help="Type of the weights: float32, float16, bfloat16, int16 or int8.")
    ] = "float32",
    overwrite: options.Overwrite = False,
) -> None:
    """Write a model in the format of another program, with its tokenizer.

    \b
    heedful export --to ctranslate2 -m model -o model-ct2
    heedful export --to ctranslate2 -m model -o model-int8 --quantization int8
    heedful translate -m model-int8 --engine ctranslate2 "A sentence."
    """
    if to not in FORMATS:
        raise ConfigError(f"--to: {to!r} is not a format{nearest(to, FORMATS)}; choose one of {', '.join(FORMATS)}.")
    directory = model_directory(model)
    from heedful.interop.ctranslate2 import export_ctranslate2

    export_ctranslate2(directory, output, quantization=quantization, overwrite=overwrite)
