"""`heedful average`: average the weights of several models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options
from heedful.errors import ConfigError


def average(
    models: Annotated[
        list[Path], typer.Argument(metavar="DIRECTORY...", help="Models with the same architecture and tokenizer.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Model directory to write.")],
    overwrite: options.Overwrite = False,
) -> None:
    """Average the weights of several models.

    \b
    heedful average run1 run2 run3 -o averaged
    """
    if len(models) < 2:
        raise ConfigError("average needs at least two model directories.")
    from heedful.model_dir.registry import find_model

    models = [find_model(model) for model in models]
    if (output / "config.json").exists() and not overwrite:
        raise ConfigError(
            f"{output} already contains a model; add --overwrite to replace it, or choose another directory with -o."
        )
    from heedful.training.averaging import average_models

    average_models(models, output)
