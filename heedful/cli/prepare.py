"""`heedful prepare`: look over the corpora, learn the tokenizer, write ids; `train --prepared` starts from there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.cli.overrides import request_of
from heedful.config import Config
from heedful.config_loading import settle
from heedful.errors import ConfigError
from heedful.fine_tuning import known_directions, with_start

if TYPE_CHECKING:
    from heedful.console import Console
    from heedful.data.prepare import Prepared

OWN_NAMES = (
    "prepared.json prepared.json.incomplete tokenizer.json tokenizer.model source.model target.model "
    "train valid valid.jsonl test.jsonl"
).split()
"""What may stand in a prepared directory: in one with anything else, `train` and `valid` may be a user's own."""


def prepare(
    config: options.ConfigFile = None,
    source: options.Sources = None,
    target: options.Targets = None,
    data: options.SingleFiles = None,
    source_column: options.SourceColumn = None,
    target_column: options.TargetColumn = None,
    valid_source: options.ValidSources = None,
    valid_target: options.ValidTargets = None,
    test_source: options.TestSources = None,
    test_target: options.TestTargets = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    init_from: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Prepare for going on from this finished model, as it reads text."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="The directory to write.")] = Path(
        "prepared"
    ),
    vocab_size: Annotated[int | None, typer.Option(help="Subwords to learn; else chosen for the corpus.")] = None,
    join: Annotated[
        list[Path] | None,
        typer.Option("--join", metavar="DIRECTORY", help="A part that was prepared apart; once for each part."),
    ] = None,
    overwrite: options.Overwrite = False,
    seed: options.Seed = None,
    quiet: options.Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look: print the table, write nothing.")] = False,
    settings: options.Settings = None,
) -> None:
    """Look over corpora and make them ready for training.

    \b
    heedful prepare --source train.en --target train.de --dry-run
    heedful prepare --source train.en --target train.de -o prepared
    heedful train --prepared prepared -o model
    heedful prepare --source own.en --target own.de --init-from model -o prepared
    heedful prepare --join part1 --join part2 -o prepared

    Every key of the sections data and tokenizer is also a flag: --data.max_characters=500.
    """
    flags = {name: value for name, value in locals().items() if name not in ("output", "join")}  # not a model's
    asked = settle(with_start(request_of(flags)), "base")
    if join:
        join_parts(asked, join, output, quiet=quiet, overwrite=overwrite)
        return
    if not asked.data.train:
        raise ConfigError("no corpus to prepare: give --source and --target, or data.train in the configuration.")
    from heedful.console import Console

    console = Console(quiet=quiet)
    if dry_run:
        show_corpora(asked, console)
    else:
        write(asked, output, console, overwrite=overwrite)


def show_corpora(asked: Config, console: Console) -> None:
    """Print the table of the preflight on stdout."""
    from rich.console import Console as RichConsole

    from heedful.text.preflight import plain_table, preflight, table

    with console.stages() as tell:
        report = preflight(
            asked.data,
            seed=asked.training.seed,
            progress=lambda lines: tell("scanning the corpora", lines, None),
            known=known_directions(asked),
        ).report
    if sys.stdout.isatty():
        RichConsole().print(table(report))
    else:
        print(plain_table(report))


def write(asked: Config, output: Path, console: Console, *, overwrite: bool) -> None:
    """Prepare into a directory of its own."""
    from heedful import training_pipeline
    from heedful.data.prepare import Prepared, prepared_fingerprint

    if stands_there(
        output, prepared_fingerprint(asked.data, asked.tokenizer, asked.training.seed), overwrite=overwrite
    ):
        training_pipeline.arrange_rows(asked.data.shuffle, Prepared.open(output), console)
        console.note(f"{output} is prepared already, from the same files and settings.")
        return
    prepared = training_pipeline.prepare(asked, output, console)
    tell_what_is_next(prepared, console, asked.training.init_from)


def join_parts(asked: Config, parts: list[Path], output: Path, *, quiet: bool, overwrite: bool) -> None:
    """Make one prepared directory of several."""
    from heedful import training_pipeline
    from heedful.console import Console
    from heedful.data.prepare import merge_prepared, merged_fingerprint

    if asked.data.train:
        raise ConfigError("--join takes parts that are prepared already: prepare the other corpora as a part first.")
    if output.resolve() in [part.resolve() for part in parts]:
        raise ConfigError(f"-o {output} is one of the parts; choose another directory.")
    console = Console(quiet=quiet)
    if stands_there(output, merged_fingerprint(parts), overwrite=overwrite):
        console.note(f"{output} is joined already, from the same parts.")
        return
    with console.stages() as tell:
        prepared = merge_prepared(parts, output, progress=tell)
    training_pipeline.arrange_rows(asked.data.shuffle, prepared, console)
    tell_what_is_next(prepared, console)


def stands_there(output: Path, mark: str, *, overwrite: bool) -> bool:
    """Whether the directory is finished already; `ConfigError` if it holds anything else that is not to be replaced."""
    from heedful.data.prepare import MANIFEST, is_prepared
    from heedful.directory_lock import NAME as LOCK

    if output.exists() and not output.is_dir():
        raise ConfigError(f"-o {output}: this is a file; name a directory to write.")
    foreign = [path.name for path in output.glob("*") if path.name not in {*OWN_NAMES, LOCK}]
    if foreign:
        raise ConfigError(f"-o {output}: there are other things in it ({foreign[0]}); choose a directory of its own.")
    if is_prepared(output, mark):
        return True
    if (output / MANIFEST).exists() and not overwrite:
        raise ConfigError(
            f"-o {output} was prepared from other files or settings, or is damaged; add --overwrite to replace it."
        )
    return False


def tell_what_is_next(prepared: Prepared, console: Console, init_from: str | None = None) -> None:
    """One line about what was written."""
    start = "" if init_from is None else f" --init-from {init_from}"
    console.note(
        f"{len(prepared.train):,} pairs in rows of {prepared.row_width} tokens, "
        f"{prepared.tokenizer.target_vocab_size:,} subwords. "
        f"Go on: heedful train --prepared {prepared.directory}{start} -o model"
    )
