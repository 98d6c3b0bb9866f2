"""`heedful evaluate`: translate a test set with a model and score it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.line_io import open_output, read_text, refuse_same_file
from heedful.cli.overrides import model_directory, search_settings
from heedful.cli.score import print_scores
from heedful.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from heedful.validation_bleu import EvaluationResult


@options.shared_options(after=options.SEARCH_OPTIONS)
def evaluate(
    *,
    source: Annotated[str, typer.Option("--source", "-s", metavar="FILE", help="Text to translate.")],
    target: Annotated[str, typer.Option("--target", "-t", metavar="FILE", help="Reference translation.")],
    model: options.ModelDirectory = None,
    output: options.OutputFile = None,
    as_json: options.AsJson = False,
    target_language: options.To = None,
    device: options.Device = None,
    engine: options.Engine = None,
    quantization: options.Quantization = None,
    settings: options.Settings = None,
    **search_flags: Any,
) -> None:
    """Translate a test set and score the translations.

    \b
    heedful evaluate -m model -s test.en -t test.de
    heedful evaluate -m model -s test.en -t test.de --beam-size 8 -o output.de --json

    Every configuration key of the section decoding is also a flag: --decoding.split=never.
    """
    search = search_settings(settings, **search_flags)
    if source == target == "-":
        raise ConfigError("- (standard input) can be given only once.")
    if str(output) == "-":
        raise ConfigError("-o -: the scores are written to standard output; name a file for the translations.")
    refuse_same_file(output, source, target)
    directory = model_directory(model)
    sources, references = read_text(source), read_text(target)
    if len(sources) != len(references):
        raise CorpusError(
            f"{source} has {len(sources):,} lines but {target} has {len(references):,}; line n must translate line n."
        )
    from rich.console import Console

    from heedful import validation_bleu

    with Console(stderr=True, quiet=not sys.stderr.isatty()).status(f"translating {len(sources):,} lines"):
        evaluated = validation_bleu.evaluate(
            directory,
            sources,
            references,
            device=device or "auto",
            engine=engine or "auto",
            quantization=quantization,
            target_language=target_language,
            **search,
        )
    if output is not None:
        with open_output(output) as file:
            file.writelines(
                text.replace("\n", " ").encode("utf-8", errors="replace") + b"\n" for text in evaluated.texts
            )
    print_results(evaluated, directory, as_json=as_json)


def print_results(evaluated: EvaluationResult, directory: Path, *, as_json: bool) -> None:
    """Print the scores and the engine that they were measured with."""
    if not as_json:
        shortlist = ", with its shortlist" if evaluated.shortlist else ""
        print(
            f"Translated with the {evaluated.engine} engine, weights {evaluated.weights}{shortlist}.", file=sys.stderr
        )
    if evaluated.num_too_long:
        from heedful.decoding.translation import TOO_LONG, WARNINGS

        print(f"warning: {evaluated.num_too_long:,} lines: {WARNINGS[TOO_LONG]}.", file=sys.stderr)
    details = {
        "model": str(directory),
        "num_sentences": len(evaluated.texts),
        "engine": evaluated.engine,
        "weights": evaluated.weights,
        "shortlist": evaluated.shortlist,
    }
    print_scores(evaluated.scores, as_json=as_json, **details)
