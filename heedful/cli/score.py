"""`heedful score` and `heedful evaluate`: score translations, compare systems with the first, or score a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.line_io import open_output, read_text, refuse_same_file
from heedful.cli.overrides import language_from_name, model_directory, require_model_directory, search_settings
from heedful.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from heedful.evaluation.score import Score
    from heedful.validation_bleu import EvaluationResult


def score(
    hypotheses: Annotated[list[str], typer.Argument(metavar="FILE...", help="Translations; - for standard input.")],
    references: Annotated[
        list[str], typer.Option("--reference", "-r", metavar="FILE", help="Reference translation; repeatable.")
    ],
    metrics: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Any of bleu, chrf, chrf++, ter, exact (identical lines) and cer (character error rate).",
        ),
    ] = "bleu,chrf,ter,exact,cer",
    target_language: Annotated[
        str | None,
        typer.Option(
            "--target-language",
            metavar="CODE",
            help="Language that selects BLEU's tokenizer; default: from the reference's file name.",
        ),
    ] = None,
    tokenize: Annotated[str | None, typer.Option(metavar="NAME", help="sacreBLEU tokenizer, such as 13a.")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    bootstrap: Annotated[
        int, typer.Option(help="Number of bootstrap samples for confidence intervals and tests; 0 for no intervals.")
    ] = 1000,
    test: Annotated[
        str, typer.Option(metavar="NAME", help="Significance test between systems: bootstrap or randomisation.")
    ] = "bootstrap",
    as_json: options.AsJson = False,
) -> None:
    """Score translations, or compare several systems with the first.

    \b
    heedful score output.de -r test.de
    heedful translate -m model -i test.en | heedful score - -r test.de
    heedful score baseline.de new.de -r test.de --metrics bleu,chrf
    """
    if [*hypotheses, *references].count("-") > 1:
        raise ConfigError("- (standard input) can be given only once.")
    if len(set(hypotheses)) < len(hypotheses):
        raise ConfigError("the same file of translations is given twice.")
    systems = {path: read_text(path) for path in hypotheses}
    texts = [read_text(path) for path in references]
    metric_options: dict[str, Any] = {
        "metrics": parse_metrics(metrics),
        "target_language": target_language or language_from_name(references[0]),
        "tokenize": tokenize,
        "lowercase": lowercase,
    }
    for name, lines in systems.items():
        require_equal_lengths(name, lines, references, texts)
    if len(systems) > 1:
        print_comparison(systems, texts, metric_options, test, bootstrap, as_json=as_json)
        return
    from heedful.evaluation.score import score as score_texts

    [lines] = systems.values()
    print_scores(score_texts(lines, texts, bootstrap=bootstrap, **metric_options), as_json=as_json)


def parse_metrics(metrics: str) -> tuple[str, ...]:
    """The names in a comma-separated list."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in metrics.split(",") if name.strip()))
    if not names:
        raise ConfigError("--metrics: name at least one of bleu, chrf, chrf++, ter, exact and cer.")
    return names


def require_equal_lengths(
    name: str, lines: Sequence[str], references: Sequence[str], texts: Sequence[Sequence[str]]
) -> None:
    """Raise `ConfigError` unless each reference has as many lines as the translations."""
    for reference, text in zip(references, texts, strict=True):
        if len(text) != len(lines):
            raise ConfigError(
                f"{name} has {len(lines):,} lines but {reference} has {len(text):,}; line n must translate line n."
            )


def print_scores(scores: Sequence[Score], *, as_json: bool, **more: Any) -> None:
    """Print one line per score, or one JSON object."""
    if as_json:
        plain = {**more, "scores": [one.to_dict() for one in scores]}
        print(json.dumps(plain, indent=2, ensure_ascii=False, default=float))  # numpy numbers
        return
    for line in scores:
        print(line)


def print_comparison(
    systems: dict[str, list[str]],
    references: list[list[str]],
    metric_options: dict[str, Any],
    test: str,
    samples: int,
    *,
    as_json: bool,
) -> None:
    """Print all systems with p-values of their difference from the first."""
    import shutil

    from heedful.evaluation.significance import compare

    comparison = compare(
        systems,
        references,
        test=test,  # type: ignore[arg-type]
        samples=samples if test == "bootstrap" else None,
        **metric_options,
    )
    if as_json:
        print(json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False, default=float))
    else:
        print(comparison.render(width=shutil.get_terminal_size((120, 24)).columns), end="")


@options.shared_options(after=options.SEARCH_OPTIONS)
def evaluate(
    *,
    source: Annotated[str | None, typer.Option("--source", "-s", metavar="FILE", help="Text to translate.")] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", metavar="FILE", help="Reference translation.")] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="FILE", help="Text to measure the perplexity of a language model on."),
    ] = None,
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
    """Translate a test set and score the translations, or measure the perplexity of a language model.

    \b
    heedful evaluate -m model -s test.en -t test.de
    heedful evaluate -m model -s test.en -t test.de --beam-size 8 -o output.de --json
    heedful evaluate -m lm --text test.txt

    Every configuration key of the section decoding is also a flag: --decoding.split=never.
    """
    search = search_settings(settings, **search_flags)
    if text is not None:
        others = {"--source": source, "--target": target, "-o": output, "--engine": engine, **search}
        if given := [name for name, value in others.items() if value is not None]:
            raise ConfigError(f"--text measures the perplexity of a language model; leave out {given[0]}.")
        print_perplexity(require_model_directory(model, "to measure"), text, device or "auto", as_json=as_json)
        return
    if source is None or target is None:
        raise ConfigError("give --source and --target; or --text, for the perplexity of a language model.")
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


def print_perplexity(directory: Path, text: str, device: str, *, as_json: bool) -> None:
    """Measure and print the perplexity of a language model on a text file."""
    from heedful.decoding.text_generation import TextGenerator

    measured = TextGenerator.load(directory, device=device).perplexity(read_text(text))
    if as_json:
        print(json.dumps({"model": str(directory), "text": text, **measured.to_dict()}, ensure_ascii=False))
        return
    if measured.num_too_long:
        print(f"warning: {measured.num_too_long:,} lines are too long for the model; left out.", file=sys.stderr)
    print(measured)


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
