"""`heedful score`: score translations against references, or compare several systems with the first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.line_io import read_text
from heedful.cli.overrides import language_from_name
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.evaluation.score import Score


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
