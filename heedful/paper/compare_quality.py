"""How the systems of a comparison differ: scores by source length, paired significance tests, sample translations.

Everything here is computed from the saved translations, so `heedful compare --resume` repeats it without training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import ConfigError
from heedful.evaluation.score import build_metric, score

if TYPE_CHECKING:
    from heedful.data.prepare import Prepared
    from heedful.text.preflight import TrainingPair

LENGTH_BOUNDS = (10, 20, 30, 40, 60, 80, 120, 160, 240, 320)
"""Default upper bounds of the length buckets, in source tokens; the last bucket has no upper bound."""
MIN_SENTENCES = 25
"""Buckets with fewer sentences are merged with the next."""
METRICS = ("bleu", "chrf")
METRIC_KEYS = {"BLEU": "bleu", "chrF2": "chrf"}
"""The key in the results for each name that sacreBLEU gives."""
QUANTILES = {"short": 0.1, "medium": 0.5, "long": 0.9}
"""The positions, in order of length, of the sentences among the samples."""
NUM_DISPUTED = 3
"""Number of samples on which the systems differ most."""
MIN_DISPUTED_TOKENS = 5
"""Shorter sentences are not among these samples, because a single word decides their score."""
TRANSLATIONS = "translations"
SAMPLED_LENGTHS = 100_000


@dataclass(frozen=True)
class ScoredSet:
    """Sentences of one test set with the same target language."""

    name: str
    language: str | None
    indices: list[int]


def scored_sets(prepared: Prepared) -> tuple[list[TrainingPair], list[ScoredSet]]:
    """The sentences to translate, divided into sets: the test corpora, or valid if there are none."""
    role = "test" if prepared.test_pairs else "valid"
    pairs = prepared.test_pairs or prepared.valid_pairs
    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == role]
    groups: dict[tuple[int, str | None], list[int]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault((pair.corpus_index if role == "test" else -1, pair.target_language), []).append(index)
    return pairs, [
        ScoredSet((names[corpus] if role == "test" else "valid") + (f" into {tag}" if tag else ""), tag, indices)
        for (corpus, tag), indices in groups.items()
    ]


# ---------------------------------------------------------------------- saved translations


def write_translations(output: Path, name: str, texts: Sequence[str]) -> None:
    """Write `translations/NAME.txt`, one line per sentence, in the order of the test sets."""
    from heedful.atomic_files import replace_file

    (output / TRANSLATIONS).mkdir(exist_ok=True)
    replace_file(output / TRANSLATIONS / f"{name}.txt", "".join(f"{' '.join(text.split(chr(10)))}\n" for text in texts))


def read_translations(output: Path, name: str, num_sentences: int) -> list[str] | None:
    """The lines of `translations/NAME.txt`; None unless the file has one line per sentence."""
    try:
        lines = (output / TRANSLATIONS / f"{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError):
        return None
    return lines if len(lines) == num_sentences else None


# ---------------------------------------------------------------------- the analysis


def analyse(
    output: Path,
    prepared: Prepared,
    names: Sequence[str],
    *,
    target_language: str | None,
    bounds: Sequence[int] = LENGTH_BOUNDS,
) -> dict[str, Any]:
    """Scores with paired tests, overall and by source length, for each test set; and samples of the first set.

    Lengths are in source tokens of the shared tokenizer, without tag and end token. The first system is the baseline of
    the paired tests.
    """
    pairs, sets = scored_sets(prepared)
    translations = {name: read_translations(output, name, len(pairs)) for name in names}
    texts = {name: lines for name, lines in translations.items() if lines is not None}
    lengths = source_lengths(prepared, pairs)
    return {
        "metrics": list(METRICS),
        "train_lengths": training_lengths(prepared),
        "sets": [
            {
                "data": one.name,
                "systems": system_scores(texts, pairs, one.indices, one.language or target_language),
                "buckets": [
                    {
                        "low": low,
                        "high": high,
                        "num_sentences": len(indices),
                        "systems": system_scores(texts, pairs, indices, one.language or target_language),
                    }
                    for low, high, indices in length_buckets(one.indices, lengths, bounds)
                ],
            }
            for one in sets
        ],
        "samples": samples(texts, pairs, sets[0], lengths, target_language),
    }


def source_lengths(prepared: Prepared, pairs: Sequence[TrainingPair]) -> list[int]:
    """Source tokens of each pair, without tag and end token."""
    num_added = 2 if prepared.tokenizer.tags else 1  # tag and end token
    by_language: dict[str | None, list[int]] = {}
    for index, pair in enumerate(pairs):
        by_language.setdefault(pair.target_language, []).append(index)
    lengths = [0] * len(pairs)
    for tag, indices in by_language.items():
        encoded = prepared.tokenizer.encode_sources([pairs[index].source for index in indices], tag)
        for index, ids in zip(indices, encoded, strict=True):
            lengths[index] = max(0, len(ids) - num_added)
    return lengths


def training_lengths(prepared: Prepared) -> dict[str, int]:
    """Median, 99th percentile and maximum of the source tokens in training, from at most 100,000 pairs."""
    import numpy as np

    sample = np.linspace(0, len(prepared.train) - 1, num=min(len(prepared.train), SAMPLED_LENGTHS)).astype(np.int64)
    num_added = 2 if prepared.tokenizer.tags else 1
    found = prepared.train.source.lengths(sample) - num_added
    return {"median": int(np.median(found)), "p99": int(np.percentile(found, 99)), "longest": int(found.max())}


def length_buckets(
    indices: Sequence[int], lengths: Sequence[int], bounds: Sequence[int]
) -> list[tuple[int, int | None, list[int]]]:
    """Lower bound, upper bound (None: open) and sentences of each bucket, shortest first.

    A bucket with fewer than `MIN_SENTENCES` is merged with the next longer one, and the last with the one before it.
    """
    found: list[tuple[int, int | None, list[int]]] = []
    low, inside = 1, list[int]()
    for before, high in pairwise([0, *bounds, None]):
        inside += [index for index in indices if (before or 0) < max(1, lengths[index]) <= (high or math.inf)]
        if len(inside) >= MIN_SENTENCES:
            found.append((low, high, inside))
            low, inside = (high or 0) + 1, []
    if inside or not found:
        low, _, earlier = found.pop() if found else (1, None, [])
        found.append((low, None, earlier + inside))
    return found


def system_scores(
    texts: Mapping[str, Sequence[str]], pairs: Sequence[TrainingPair], indices: Sequence[int], language: str | None
) -> list[dict[str, Any]]:
    """For each system: every metric with its interval and its paired test against the first, and the length ratio."""
    references = [pairs[index].target for index in indices]
    chosen = {name: [lines[index] for index in indices] for name, lines in texts.items()}
    found: dict[str, dict[str, Any]] = {name: {"name": name} for name in chosen}
    if len(chosen) > 1:
        from heedful.evaluation.significance import compare

        for result in compare(chosen, references, metrics=METRICS, target_language=language).results:
            tested = {"difference": result.difference, "p_value": result.p_value}
            found[result.system][METRIC_KEYS[result.score.name]] = {**result.score.to_dict(), **tested}
    else:
        [(name, lines)] = chosen.items()
        for one in score(lines, references, metrics=METRICS, target_language=language):
            found[name][METRIC_KEYS[one.name]] = {**one.to_dict(), "difference": None, "p_value": None}
    bleu = build_metric("bleu", target_language=language, tokenize=None, lowercase=False)
    for name, lines in chosen.items():
        counted: Any = bleu.corpus_score(lines, [references])
        found[name]["length_ratio"] = counted.sys_len / counted.ref_len if counted.ref_len else None
    return list(found.values())


def samples(
    texts: Mapping[str, Sequence[str]],
    pairs: Sequence[TrainingPair],
    chosen_set: ScoredSet,
    lengths: Sequence[int],
    language: str | None,
) -> list[dict[str, Any]]:
    """A short, a medium and a long sentence, and those on which the systems' sentence scores (chrF) differ most."""
    metric = build_metric("chrf", target_language=chosen_set.language or language, tokenize=None, lowercase=False)
    scores = {
        index: {
            name: float(metric.sentence_score(lines[index], [pairs[index].target]).score)
            for name, lines in texts.items()
        }
        for index in chosen_set.indices
    }

    def spread(index: int) -> float:
        return max(scores[index].values()) - min(scores[index].values())

    by_length = sorted(chosen_set.indices, key=lambda index: (lengths[index], index))
    chosen = {by_length[int(share * (len(by_length) - 1))]: kind for kind, share in QUANTILES.items()}
    disputed = [index for index in chosen_set.indices if lengths[index] >= MIN_DISPUTED_TOKENS and index not in chosen]
    if len(texts) > 1:
        for index in sorted(disputed, key=lambda index: (-spread(index), index))[:NUM_DISPUTED]:
            chosen[index] = "disputed"
    return [
        {
            "kind": kind,
            "length": lengths[index],
            "source": pairs[index].source,
            "reference": pairs[index].target,
            "systems": [
                {"name": name, "text": lines[index], "chrf": scores[index][name]} for name, lines in texts.items()
            ],
        }
        for index, kind in chosen.items()
    ]


def check_bounds(bounds: Sequence[int]) -> None:
    """Refuse bounds of length buckets that are not increasing positive integers."""
    if not bounds or any(bound < 1 for bound in bounds) or list(bounds) != sorted(set(bounds)):
        raise ConfigError(f"--length-buckets takes increasing positive integers such as 10,20,40,80, not {bounds}.")
