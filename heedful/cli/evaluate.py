"""`heedful evaluate`: translate a test set with a model and score it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.cli.line_io import destination, read_text, refuse_same_file
from heedful.cli.overrides import model_directory, search_settings
from heedful.cli.score import print_scores
from heedful.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from heedful.validation_bleu import Evaluated

SEARCH_FLAGS = (
    "method beam_size length_penalty length_penalty_alpha max_length min_length no_repeat_ngram_size split "
    "batch_invariant shortlist protect"
).split()
"""Flags that are keys of the section decoding."""


def evaluate(
    source: Annotated[str, typer.Option("--source", "-s", metavar="FILE", help="Text to translate.")],
    target: Annotated[str, typer.Option("--target", "-t", metavar="FILE", help="Its reference translation.")],
    model: options.ModelDirectory = None,
    output: options.OutputFile = None,
    as_json: options.AsJson = False,
    target_language: options.To = None,
    method: options.Method = None,
    beam_size: options.BeamSize = None,
    length_penalty: options.LengthPenalty = None,
    length_penalty_alpha: options.LengthPenaltyAlpha = None,
    max_length: options.MaxLength = None,
    min_length: options.MinLength = None,
    no_repeat_ngram_size: options.NoRepeatNgram = None,
    split: options.Split = None,
    batch_invariant: options.BatchInvariant = None,
    shortlist: options.Shortlist = None,
    protect: options.Protect = None,
    device: options.Device = None,
    engine: options.Engine = None,
    quantization: options.Quantization = None,
    settings: options.Settings = None,
) -> None:
    """Translate a test set and score the translations.

    \b
    heedful evaluate -m model -s test.en -t test.de
    heedful evaluate -m model -s test.en -t test.de --beam-size 8 -o output.de --json

    Every key of the section decoding is also a flag: --decoding.split=never.
    """
    flags = dict(locals())
    search = search_settings(settings, **{name: flags[name] for name in SEARCH_FLAGS})
    if source == target == "-":
        raise ConfigError("- (standard input) can stand for one file only.")
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
        found = validation_bleu.evaluate(
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
        with destination(output) as file:
            file.writelines(text.replace("\n", " ").encode("utf-8", errors="replace") + b"\n" for text in found.texts)
    tell(found, directory, as_json=as_json)


def tell(found: Evaluated, directory: Path, *, as_json: bool) -> None:
    """Print the scores, and who translated: the scores are those of that engine."""
    if not as_json:
        chosen = ", words from its shortlist" if found.shortlist else ""
        print(f"Translated by the engine {found.engine}, weights {found.weights}{chosen}.", file=sys.stderr)
    if found.num_too_long:
        from heedful.decoding.translation import TOO_LONG, WARNINGS

        print(f"warning: {found.num_too_long:,} of the lines: {WARNINGS[TOO_LONG]}.", file=sys.stderr)
    told = {
        "model": str(directory),
        "num_sentences": len(found.texts),
        "engine": found.engine,
        "weights": found.weights,
        "shortlist": found.shortlist,
    }
    print_scores(found.scores, as_json=as_json, **told)
