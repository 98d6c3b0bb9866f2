"""Metrics that sacreBLEU lacks, with its interface, so that intervals and paired tests are the same as for its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as MetricScore

from heedful import __version__


class OwnSignature(Signature):
    """sacreBLEU's signature with the version of this package, which computes the metric."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.update("case", "lc" if args["lowercase"] else "mixed")
        self.update("version", f"heedful-{__version__}")


class LineMetric(Metric):
    """A percentage: the sum of the first statistic of all lines over the sum of the second."""

    _SIGNATURE_TYPE = OwnSignature
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
        part, whole = float(stats[0]), float(stats[1])
        return MetricScore(self.name, 100.0 * part / whole if whole else 0.0 if part == 0 else 100.0)


class ExactMatch(LineMetric):
    """The percentage of lines that equal a reference, apart from spaces at their ends."""

    name = "ExactMatch"

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        return [int(hypothesis in ref_kwargs["references"]), 1]


class CharacterErrorRate(LineMetric):
    """Insertions, deletions and substitutions of characters that make the translations the references, over the
    characters of these. Of several references the one with the fewest edits counts; a character is a code point."""

    name = "CER"

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        return list(min((edit_distance(hypothesis, one), len(one)) for one in ref_kwargs["references"]))


def edit_distance(first: str, second: str) -> int:
    """Levenshtein distance by the bit-vectors of Myers (1999, in the form of Hyyrö 2003): O(n) steps on integers.

    Bit i of `up` (`down`) says whether the distance grows (shrinks) from row i to row i + 1 of the present column.
    """
    if first == second:
        return 0
    if not first or not second:
        return len(first) or len(second)
    places: dict[str, int] = {}
    for place, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << place
    every = (1 << len(first)) - 1
    last = 1 << len(first) - 1
    up, down, distance = every, 0, len(first)
    for character in second:
        equal = places.get(character, 0)
        vertical = equal | down
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up = down | (~(diagonal | up) & every)
        right_down = up & diagonal
        if right_up & last:
            distance += 1
        elif right_down & last:
            distance -= 1
        right_up = (right_up << 1 | 1) & every
        right_down = right_down << 1 & every
        up = right_down | (~(vertical | right_up) & every)
        down = right_up & vertical
    return distance
