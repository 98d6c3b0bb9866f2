"""What the runs of Table 3 say: means and spreads, differences from the base, which of the paper's effects are seen.

An effect is seen when the difference from the base has the paper's direction and is larger than twice its standard
error, √(s²/n + s₀²/n₀) over the seeds; where the paper finds no difference, when ours is not larger than that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from heedful.paper.table3_rows import ROWS, Row, Values

SEEN, UNCLEAR, OPPOSITE, UNKNOWN, PARTLY = "seen", "unclear", "opposite", "unknown", "partly"
"""The paper's direction beyond twice the standard error; within it; the other way; too few seeds; some of both."""


@dataclass(frozen=True)
class Claim:
    """One thing the table is read to say: how a number of some rows differs from the base's (0: it does not)."""

    name: str
    group: str
    metric: str
    expected: Mapping[str, int]


CLAIMS = (
    Claim("one_head_worse", "A", "perplexity", {"A-heads-1": 1}),
    Claim("many_heads_worse", "A", "perplexity", {"A-heads-32": 1}),
    Claim("small_keys_worse", "B", "perplexity", {"B-keys-16": 1, "B-keys-32": 1}),
    Claim("deeper_better", "C", "perplexity", {"C-layers-2": 1, "C-layers-4": 1, "C-layers-8": -1}),
    Claim("wider_better", "C", "perplexity", {"C-width-256": 1, "C-width-1024": -1}),
    Claim("wider_inside_better", "C", "perplexity", {"C-inner-1024": 1, "C-inner-4096": -1}),
    Claim("dropout_helps", "D", "perplexity", {"D-dropout-0.0": 1}),
    Claim("smoothing_costs_perplexity", "D", "perplexity", {"D-smoothing-0.0": -1, "D-smoothing-0.2": 1}),
    Claim("smoothing_helps_bleu", "D", "bleu", {"D-smoothing-0.0": -1}),
    Claim("learned_as_good", "E", "perplexity", {"E-learned": 0}),
    Claim("big_better", "big", "perplexity", {"big": -1}),
)


def summary(rows: Sequence[Row], base: Values, runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Rows with their means and differences, and the claims; `runs` are the finished ones of each row."""
    found = [row_summary(row, base, runs.get(row.name, ())) for row in rows]
    reference = next((row for row in found if row["name"] == "base"), None)
    for row in found:
        for metric in ("perplexity", "bleu"):
            row[f"{metric}_difference"] = difference(row[metric], None if reference is None else reference[metric])
    return {"rows": found, "claims": claims(found)}


def row_summary(row: Row, base: Values, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row: the paper's numbers, our values, the runs and their means."""
    tests = dict.fromkeys(one["data"] for run in runs for one in run["scores"] if one["role"] == "test")
    return {
        "group": row.group,
        "name": row.name,
        "paper": {
            "values": asdict(row.values),
            "perplexity": row.perplexity,
            "bleu": row.bleu,
            "millions": row.millions,
        },
        "values": asdict(row.at(base)),
        "runs": [dict(run) for run in runs],
        "parameters": runs[0]["parameters"] if runs else None,
        "perplexity": spread([run["perplexity"] for run in runs]),
        "bleu": spread([value for run in runs if (value := score_of(run, "valid")) is not None]),
        "test": {
            name: spread([value for run in runs if (value := score_of(run, "test", name)) is not None])
            for name in tests
        },
    }


def score_of(run: Mapping[str, Any], role: str, name: str | None = None) -> float | None:
    """BLEU of a run on valid (the mean over its target languages) or on one test corpus."""
    values = [one["value"] for one in run["scores"] if one["role"] == role and name in (None, one["data"])]
    return statistics.fmean(values) if values else None


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean and, of two or more, standard deviation; None where there is nothing."""
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "deviation": deviation, "num_seeds": len(values)}


def difference(one: Mapping[str, Any] | None, base: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """How far a row's mean lies from the base's, and the standard error of that; None where one of them is missing."""
    if one is None or base is None:
        return None
    error = None
    if one["deviation"] is not None and base["deviation"] is not None:
        error = math.sqrt(sum(side["deviation"] ** 2 / side["num_seeds"] for side in (one, base)))
    return {"value": one["mean"] - base["mean"], "error": error}


def verdict(found: Mapping[str, Any] | None, expected: int) -> str:
    """Whether a difference is what the paper finds: 1 larger than the base's, -1 smaller, 0 the same."""
    if found is None or found["error"] is None:
        return UNKNOWN
    is_beyond = abs(found["value"]) > 2 * found["error"]
    if expected == 0:
        return OPPOSITE if is_beyond else SEEN
    if not is_beyond:
        return UNCLEAR
    return SEEN if found["value"] * expected > 0 else OPPOSITE


def claims(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every claim whose rows are all there, with the verdict on each row and on the whole."""
    by_name = {row["name"]: row for row in rows}
    found = []
    for claim in CLAIMS:
        if not set(claim.expected) <= set(by_name):
            continue
        verdicts = {
            name: verdict(by_name[name][f"{claim.metric}_difference"], expected)
            for name, expected in claim.expected.items()
        }
        found.append({**asdict(claim), "rows": verdicts, "verdict": whole(list(verdicts.values()))})
    return found


def whole(verdicts: Sequence[str]) -> str:
    """The verdict on several rows: theirs where they agree; in part where one is seen; else the worst of them."""
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return next((one for one in (SEEN, OPPOSITE, UNCLEAR) if one in verdicts), UNKNOWN).replace(SEEN, PARTLY)


def paper_difference(name: str, metric: str) -> float:
    """How far a row lies from the base in the paper."""
    row, base = (next(row for row in ROWS if row.name == wanted) for wanted in (name, "base"))
    return float(getattr(row, metric) - getattr(base, metric))
