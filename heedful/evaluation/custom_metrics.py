"""Metrics that sacreBLEU lacks (exact match, character error rate), with its interface for intervals and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as MetricScore

from heedful import __version__


class CustomSignature(Signature):
    """A sacreBLEU signature with the version of this package."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.update("case", "lc" if args["lowercase"] else "mixed")
        self.update("version", f"heedful-{__version__}")


class LineMetric(Metric):
    """A percentage: the sum of a line statistic, divided by the sum of another."""

    _SIGNATURE_TYPE = CustomSignature
    name: str

    def __init__(self, *, lowercase: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lowercase = lowercase

    def _preprocess_segment(self, sent: str) -> str:
        return (sent.lower() if self.lowercase else sent).strip()

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": list(refs)}

    def _aggregate_and_compute(self, stats: list[list[Any]]) -> MetricScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_score_from_stats(self, stats: Sequence[Any]) -> MetricScore:
        numerator, denominator = float(stats[0]), float(stats[1])
        if not denominator:
            return MetricScore(self.name, 100.0 if numerator else 0.0)
        return MetricScore(self.name, 100.0 * numerator / denominator)


class ExactMatch(LineMetric):
    """The percentage of lines that equal a reference, ignoring leading and trailing spaces."""

    name = "ExactMatch"

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        return [int(hypothesis in ref_kwargs["references"]), 1]


class CharacterErrorRate(LineMetric):
    """Character error rate: character edits between translation and reference, divided by the reference's length.

    An edit is an insertion, deletion or substitution of a code point. Of several references, the closest counts.
    """

    name = "CER"

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        return list(min((edit_distance(hypothesis, one), len(one)) for one in ref_kwargs["references"]))


def edit_distance(first: str, second: str) -> int:
    """Levenshtein distance by the bit-vector algorithm of Myers (1999, as in Hyyrö 2003): O(n) integer operations.

    Bit i of `up` (`down`) is set if the distance increases (decreases) from row i to row i + 1 of the current column.
    """
    if first == second:
        return 0
    if not first or not second:
        return len(first) or len(second)
    occurrences: dict[str, int] = {}
    for index, character in enumerate(first):
        occurrences[character] = occurrences.get(character, 0) | 1 << index
    all_bits = (1 << len(first)) - 1
    last = 1 << len(first) - 1
    up, down, distance = all_bits, 0, len(first)
    for character in second:
        equal = occurrences.get(character, 0)
        vertical = equal | down
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up = down | (~(diagonal | up) & all_bits)
        right_down = up & diagonal
        if right_up & last:
            distance += 1
        elif right_down & last:
            distance -= 1
        right_up = (right_up << 1 | 1) & all_bits
        right_down = right_down << 1 & all_bits
        up = right_down | (~(vertical | right_up) & all_bits)
        down = right_up & vertical
    return distance
