"""`heedful train` and `heedful prepare`: train a model on parallel text, or only check and tokenise the text."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.overrides import request_from_flags
from heedful.config import Config, choose_preset
from heedful.config_loading import build_config, to_mapping
from heedful.errors import ConfigError
from heedful.fine_tuning import known_directions, with_initial_model

if TYPE_CHECKING:
    from heedful.console import Console
    from heedful.data.prepare import Prepared


PREPARED_FILES = (
    "prepared.json prepared.json.incomplete tokenizer.json tokenizer.model source.model target.model "
    "train valid valid.jsonl test.jsonl"
).split()
"""Names in a prepared directory. One with other files is refused: its `train` and `valid` may be the user's."""


@options.shared_options(
    before=(*options.CORPUS_OPTIONS, *options.TEXT_FILES, "init_from"),
    after=(*options.BUDGET_OPTIONS, "keep_checkpoints", "seed", "device", "settings"),
)
def train(
    *,
    output: options.Output = None,
    preset: options.Preset = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    name: options.Name = None,
    licence: options.Licence = None,
    quiet: options.Quiet = False,
    dry_run: options.DryRun = False,
    **flags: Any,
) -> None:
    """Train a model on parallel text, or a language model on one text.

    \b
    heedful train --source train.en --target train.de -o model
    heedful train --data pairs.tsv.gz --preset tiny --minutes 5 -o model
    heedful train config.yaml --training.steps=1000 --model.dropout 0.2
    heedful train config.yaml --resume
    heedful train --source own.en --target own.de --init-from model -o tuned
    heedful train --text corpus.txt --model.architecture=decoder -o lm

    Every configuration key is also a flag: --section.key=value.
    """
    request = request_from_flags({**flags, "preset": preset, "output": output, "name": name, "licence": licence})
    if dry_run:
        print_configuration(resolve_config(request))
        return
    build_config(request, "base")  # reports unknown keys before torch is imported
    from heedful import training_pipeline

    training_pipeline.train(request, resume=resume, overwrite=overwrite, quiet=quiet)


def resolve_config(request: Mapping[str, Any]) -> Config:
    """The configuration of a run, with a preset chosen by the number of lines."""
    from heedful.fine_tuning import with_initial_model

    request = with_initial_model(request)
    config = build_config(request, "base")
    if request.get("preset") not in (None, "auto"):
        return config
    from heedful.build_model import resolve_device

    on_gpu = resolve_device(config.training.device).type != "cpu"
    return build_config(request, choose_preset(_count_pairs(config), on_gpu=on_gpu))


def _count_pairs(config: Config) -> int:
    """The number of lines of the training corpora, or of pairs in a prepared directory."""
    from heedful.text.corpus import corpus_files
    from heedful.text.text_files import read_lines

    if config.data.prepared is not None:
        from heedful.data.prepare import Prepared

        return len(Prepared.open(config.data.prepared).train)
    if not config.data.train:
        files = "--text" if config.model.is_language_model else "--source and --target"
        raise ConfigError(f"no corpus to train on: give {files}, or data.train in the configuration.")
    return sum(sum(1 for _ in read_lines(corpus_files(corpus)[0])) for corpus in config.data.train)


def print_configuration(config: Config) -> None:
    """Print a configuration as YAML that can be used as a configuration file."""
    import yaml

    plain = to_mapping(config)
    for part in ("train", "valid", "test"):
        plain["data"][part] = [{k: v for k, v in corpus.items() if v is not None} for corpus in plain["data"][part]]
    print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")


@options.shared_options(
    before=(
        *options.CORPUS_FILES,
        *options.COLUMNS,
        *options.HELD_OUT_FILES,
        *options.TEXT_FILES,
        *options.LANGUAGE_CODES,
    ),
    after=("seed", "settings"),
)
def prepare(
    *,
    init_from: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Prepare for fine-tuning this model, with its tokenizer."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Output directory.")] = Path(
        "prepared"
    ),
    vocab_size: Annotated[int | None, typer.Option(help="Vocabulary size; default: by corpus size.")] = None,
    join: Annotated[
        list[Path] | None,
        typer.Option("--join", metavar="DIRECTORY", help="Merge this prepared directory; repeatable."),
    ] = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the statistics without writing anything.")] = False,
    **flags: Any,
) -> None:
    """Check corpora and prepare them for training.

    \b
    heedful prepare --source train.en --target train.de --dry-run
    heedful prepare --source train.en --target train.de -o prepared
    heedful train --prepared prepared -o model
    heedful prepare --source own.en --target own.de --init-from model -o prepared
    heedful prepare --join part1 --join part2 -o prepared

    Every configuration key of the sections data and tokenizer is also a flag: --data.max_characters=500.
    """
    request = request_from_flags({**flags, "init_from": init_from, "vocab_size": vocab_size})
    config = build_config(with_initial_model(with_architecture(request)), "base")
    if join:
        merge_parts(config, join, output, quiet=quiet, overwrite=overwrite)
        return
    if not config.data.train:
        raise ConfigError(
            "no corpus to prepare: give --source and --target (a language model: --text), or data.train in the "
            "configuration."
        )
    from heedful.console import Console

    console = Console(quiet=quiet)
    if dry_run:
        print_preflight(config, console)
    else:
        write_prepared(config, output, console, overwrite=overwrite)


def with_architecture(request: dict[str, Any]) -> dict[str, Any]:
    """The request; if it prepares a text, for a language model: both kinds are trained on the same prepared data."""
    corpora = (request.get("data") or {}).get("train") or []
    if not any(isinstance(corpus, dict) and corpus.get("text") for corpus in corpora):
        return request
    return {**request, "model": {"architecture": "decoder", **(request.get("model") or {})}}


def print_preflight(config: Config, console: Console) -> None:
    """Print corpus statistics to stdout."""
    from rich.console import Console as RichConsole

    from heedful.text.preflight import plain_table, preflight, table

    with console.stages() as advance:
        report = preflight(
            config.data,
            seed=config.training.seed,
            progress=lambda lines: advance("scanning the corpora", lines, None),
            known=known_directions(config),
        ).report
    if sys.stdout.isatty():
        RichConsole().print(table(report))
    else:
        print(plain_table(report))


def write_prepared(config: Config, output: Path, console: Console, *, overwrite: bool) -> None:
    """Write a prepared directory, unless it is up to date."""
    from heedful import training_pipeline
    from heedful.data.prepare import Prepared, prepared_fingerprint

    if is_up_to_date(
        output, prepared_fingerprint(config.data, config.tokenizer, config.training.seed), overwrite=overwrite
    ):
        training_pipeline.prepack_rows(config.data.shuffle, Prepared.open(output), console)
        console.note(f"{output} is up to date: it was prepared from the same files and settings.")
        return
    prepared = training_pipeline.prepare_corpora(config, output, console)
    print_next_step(prepared, console, config.training.init_from)


def merge_parts(config: Config, parts: list[Path], output: Path, *, quiet: bool, overwrite: bool) -> None:
    """Merge several prepared directories into one."""
    from heedful import training_pipeline
    from heedful.console import Console
    from heedful.data.prepare import merge_prepared, merged_fingerprint

    if config.data.train:
        raise ConfigError("--join merges prepared directories only; prepare the other corpora separately first.")
    if output.resolve() in [part.resolve() for part in parts]:
        raise ConfigError(f"-o {output} is also given with --join; choose another directory.")
    console = Console(quiet=quiet)
    if is_up_to_date(output, merged_fingerprint(parts), overwrite=overwrite):
        console.note(f"{output} is up to date: it was merged from the same parts.")
        return
    with console.stages() as advance:
        prepared = merge_prepared(parts, output, progress=advance)
    training_pipeline.prepack_rows(config.data.shuffle, prepared, console)
    print_next_step(prepared, console)


def is_up_to_date(output: Path, fingerprint: str, *, overwrite: bool) -> bool:
    """Whether the directory has this fingerprint. Raises `ConfigError` if it has other contents that must be kept."""
    from heedful.data.prepare import MANIFEST, is_prepared
    from heedful.directory_lock import LOCK_FILE

    if output.exists() and not output.is_dir():
        raise ConfigError(f"-o {output}: this is a file; name a directory to write.")
    other_files = [path.name for path in output.glob("*") if path.name not in {*PREPARED_FILES, LOCK_FILE}]
    if other_files:
        raise ConfigError(f"-o {output} contains other files ({other_files[0]}); choose an empty directory.")
    if is_prepared(output, fingerprint):
        return True
    if (output / MANIFEST).exists() and not overwrite:
        raise ConfigError(
            f"-o {output} was prepared from other files or settings, or is damaged; add --overwrite to replace it."
        )
    return False


def print_next_step(prepared: Prepared, console: Console, init_from: str | None = None) -> None:
    """Print what was written and the command that trains on it."""
    init_flag = "" if init_from is None else f" --init-from {init_from}"
    console.note(
        f"{len(prepared.train):,} pairs in rows of {prepared.row_width} tokens, "
        f"{prepared.tokenizer.target_vocab_size:,} subwords. "
        f"Next: heedful train --prepared {prepared.directory}{init_flag} -o model"
    )
