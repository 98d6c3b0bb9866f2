"""Paired significance tests of systems on the same sentences (sacreBLEU)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from heedful.errors import ConfigError
from heedful.evaluation.score import (
    DEFAULT_METRICS,
    Interval,
    Score,
    build_metric,
    check_ngrams,
    sacrebleu_seed,
    validate_lines,
)

Test = Literal["bootstrap", "randomisation"]


@dataclass(frozen=True)
class ComparedSystem:
    """The score of one system by one metric, and its difference from the baseline (None for the baseline)."""

    system: str
    score: Score
    difference: float | None
    p_value: float | None


@dataclass(frozen=True)
class Comparison:
    """Scores of several systems on one test set, with p-values of their differences from a baseline."""

    baseline: str
    test: Test
    results: tuple[ComparedSystem, ...]

    def significant(self, level: float = 0.05) -> list[ComparedSystem]:
        """The results with p below `level`."""
        return [result for result in self.results if result.p_value is not None and result.p_value < level]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        rows = [{**vars(result), "score": result.score.to_dict()} for result in self.results]
        return {"baseline": self.baseline, "test": self.test, "results": rows}

    def render(self, *, level: float = 0.05, width: int = 120) -> str:
        """A text table with the signatures below; a star marks differences with p below `level`."""
        import io

        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(f"Paired {self.test} test against {self.baseline}"))
        for heading in ("Metric", "System"):
            table.add_column(heading)
        for heading in ("Score", "95 %", "Difference", "p"):
            table.add_column(heading, justify="right")
        for result in self.results:
            table.add_row(*map(escape, _cells(result, level)), end_section=result is self._last_of(result.score.name))
        signatures = {result.score.name: result.score.signature for result in self.results}
        remarks = dict.fromkeys((result.score.name, result.score.remark) for result in self.results)
        page = io.StringIO()
        console = Console(file=page, width=width)
        console.print(table)
        for name, signature in signatures.items():
            console.print(f"{name}: {signature}", markup=False, highlight=False, soft_wrap=True)
        for name, remark in remarks:
            if remark:
                console.print(f"{name}: {remark}.", markup=False, highlight=False, soft_wrap=True)
        return page.getvalue()

    def __str__(self) -> str:
        return self.render()

    def _last_of(self, metric: str) -> ComparedSystem:
        return [result for result in self.results if result.score.name == metric][-1]


def compare(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str] | Sequence[Sequence[str]],
    *,
    baseline: str | None = None,
    test: Test = "bootstrap",
    samples: int | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    target_language: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
    seed: int = 12345,
) -> Comparison:
    """Score systems and test their differences from a baseline (by default the first) with a paired test.

    `bootstrap` resamples sentences (Koehn 2004; 1,000 samples), `randomisation` swaps the systems' outputs at random
    (Riezler and Maxwell 2005; 10,000 trials). Both are two-sided.
    """
    from sacrebleu.significance import PairedTest

    ordered = _baseline_first(systems, baseline)
    streams = validate_lines(systems, references)
    if seed < 1 or (samples is not None and samples < 2):
        raise ConfigError(f"seed must be at least 1 and samples at least 2, not {seed} and {samples}.")
    if test not in ("bootstrap", "randomisation"):
        raise ConfigError(f"test: {test!r} is not known; choose bootstrap or randomisation.")
    choice = {"target_language": target_language, "tokenize": tokenize, "lowercase": lowercase}
    built = {name: build_metric(name, **choice) for name in metrics}  # type: ignore[arg-type]
    with sacrebleu_seed(seed), count_ties(test):
        signatures, table = PairedTest(
            [(name, list(lines)) for name, lines in ordered.items()],
            built,
            streams,
            test_type="bs" if test == "bootstrap" else "ar",
            n_samples=samples or 0,
            n_ar_confidence=-1 if test == "bootstrap" else 1000,
        )()
    bootstraps = (samples or 1000) if test == "bootstrap" else 1000
    results = []
    for (name, signature), metric in zip(signatures.items(), built.values(), strict=True):
        first: Any = table[name][0]
        for system, result in zip(ordered, table[name], strict=True):
            compared = _compared(system, name, result, first, str(signature), bootstraps)
            score = check_ngrams(compared.score, metric, [ordered[system]], streams)
            results.append(
                replace(compared, score=score) if score.is_defined else ComparedSystem(system, score, None, None)
            )
    return Comparison(next(iter(ordered)), test, tuple(results))


@contextmanager
def count_ties(test: Test) -> Iterator[None]:
    """Make sacreBLEU count randomisation trials that equal the observed difference, not only those that exceed it.

    Exact match has few values: for two systems that differ in a single line all trials tie, and p would be nearly 0.
    """
    from sacrebleu import significance

    original = significance._compute_p_value

    def p_value(stats: Any, real_difference: float) -> float:
        return float((stats >= real_difference - 1e-9).sum() + 1) / (len(stats) + 1)

    if test == "randomisation":
        significance._compute_p_value = p_value
    try:
        yield
    finally:
        significance._compute_p_value = original


def _compared(system: str, metric: str, result: Any, first: Any, signature: str, samples: int) -> ComparedSystem:
    interval = Interval.around(float(result.mean), float(result.ci), samples=samples, metric=metric)
    score = Score(metric, float(result.score), signature, interval)
    if result is first:
        return ComparedSystem(system, score, None, None)
    difference = float(result.score - first.score)
    # sacreBLEU counts only differences larger than the observed one, so equal systems would look different.
    return ComparedSystem(system, score, difference, float(result.p_value) if difference else 1.0)


def _baseline_first(systems: Mapping[str, Sequence[str]], baseline: str | None) -> dict[str, Sequence[str]]:
    if len(systems) < 2:
        raise ConfigError(f"a comparison needs at least two systems, not {len(systems)}.")
    first = next(iter(systems)) if baseline is None else baseline
    if first not in systems:
        raise ConfigError(f"baseline {first!r} is not among the systems {', '.join(systems)}.")
    return {first: systems[first], **systems}


def _cells(result: ComparedSystem, level: float) -> list[str]:
    interval = result.score.interval
    if interval is None:
        return [result.score.name, result.system, "undefined", "", "", ""]
    cells = [result.score.name, result.system, f"{result.score.value:.2f}", f"{interval.low:.2f}–{interval.high:.2f}"]
    if result.p_value is None or result.difference is None:
        return [*cells, "baseline", ""]
    star = "*" if result.p_value < level else ""
    return [*cells, f"{result.difference:+.2f}", f"{result.p_value:.4f}{star}"]
