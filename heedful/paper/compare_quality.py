"""How the systems of a comparison differ: scores by source length, paired significance tests, sample translations.

Everything is computed from the saved translations, so `heedful compare --resume` repeats it without training. The
second half of the file makes the sections of the report about quality.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import ConfigError
from heedful.evaluation.score import build_metric, score
from heedful.paper.plot_style import Words, in_language
from heedful.paper.svg_charts import interval_chart
from heedful.paper.text_tables import Table, number, score_text

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


# ---- report

Results = Mapping[str, Any]

QUALITY_WORDS: Words = {
    "by_length": ("Quality by source length", "按源句长度划分的质量"),
    "length_unit": (
        (
            "Lengths are in source tokens of the shared tokenizer. In training: median {median}, 99 % at "
            "most {p99}, longest {longest}. Intervals: 95 %, from 1,000 bootstrap samples of the sentences."
        ),
        (
            "长度为共用分词器切出的源句词元数。训练语料：中位数 {median}，99% 不超过 {p99}，"
            "最长 {longest}。区间为 95% 置信区间，由对句子的 1,000 次自助重采样得到。"
        ),
    ),
    "length_ratio": ("length ratio (translation to reference)", "长度比（译文与参考译文之比）"),
    "source_tokens": ("source tokens", "源句词元数"),
    "sentences": ("sentences", "句数"),
    "in_parentheses": (" (sentences in parentheses)", "（括号内为句数）"),
    "beyond": ("longer than 99 % of training", "比 99% 的训练句子长"),
    "tests": ("Paired tests", "配对检验"),
    "tests_how": (
        (
            "Differences from {reference}, with p from a paired bootstrap test over 1,000 samples. p below "
            "0.05 compares these two models on this test set; it does not include the variation between "
            "training runs."
        ),
        (
            "与 {reference} 的差值，p 值来自 1,000 次配对自助重采样检验。p 小于 0.05 只说明这两个模型在该测试"
            "集上有差异，不包含不同训练运行之间的波动。"
        ),
    ),
    "system": ("system", "系统"),
    "colon": (": ", "："),
    "comma": (", ", "，"),
    "test_set": ("test set", "测试集"),
    "interval": ("95 % interval", "95% 区间"),
    "difference": ("difference", "差值"),
    "samples": ("Sample translations", "译文示例"),
    "samples_how": (
        (
            "From {data}: a short, a medium and a long sentence (at 10, 50 and 90 % of the lengths), and "
            "those whose scores (chrF, in parentheses) differ most between the systems."
        ),
        (
            "取自 {data}：短句、中等长度句和长句各一句（分别位于长度分布的 10%、50% 和 90% 处），以及各系"
            "统得分（chrF，见括号）相差最大的句子。"
        ),
    ),
    "short": ("short", "短句"),
    "medium": ("medium", "中等长度句"),
    "long": ("long", "长句"),
    "disputed": ("largest difference", "得分相差最大"),
    "source": ("source", "源句"),
    "reference": ("reference", "参考译文"),
    "num_tokens": ("{count} source tokens", "源句 {count} 个词元"),
}


def bucket_name(bucket: Mapping[str, Any]) -> str:
    """A range of lengths such as 11–20, or 81+."""
    return f"{bucket['low']}+" if bucket["high"] is None else f"{bucket['low']}–{bucket['high']}"


def length_tables(results: Results, language: str) -> list[Table]:
    """For each test set a table of BLEU, of chrF and of length ratios: a row for each length, a column per system."""
    words = in_language(QUALITY_WORDS, language)
    return [
        Table(
            caption=f"{title}{words['colon']}{one['data']}",
            heading=[words["source_tokens"], words["sentences"], *(system["name"] for system in one["systems"])],
            rows=[
                [
                    bucket_name(bucket),
                    f"{bucket['num_sentences']:,}",
                    *(
                        number(system[name], ".2f") if name == "length_ratio" else score_text(system[name])
                        for system in bucket["systems"]
                    ),
                ]
                for bucket in one["buckets"]
            ],
        )
        for one in quality_sets(results)
        for name, title in (("bleu", "BLEU"), ("chrf", "chrF"), ("length_ratio", words["length_ratio"]))
    ]


def tests_table(results: Results, language: str) -> Table:
    """Scores on each test set with intervals, and the differences from the first system with their p-values."""
    words = in_language(QUALITY_WORDS, language)
    headings = [words[name] for name in ("test_set", "system")]
    for metric in ("BLEU", "chrF"):
        headings += [metric, words["interval"], words["difference"], "p"]
    rows = [
        [one["data"], system["name"], *score_cells(system["bleu"]), *score_cells(system["chrf"])]
        for one in quality_sets(results)
        for system in one["systems"]
    ]
    note = words["tests_how"].format(reference=results["reference"])
    return Table(words["tests"], headings, rows, [note], num_names=2)


def score_cells(score: Mapping[str, Any]) -> list[str]:
    """Value, interval, difference and p-value of one score as text."""
    interval = score["interval"]
    return [
        number(score["value"], ".1f"),
        f"{interval['low']:.1f}–{interval['high']:.1f}" if interval else "–",
        number(score["difference"], "+.1f"),
        number(score["p_value"], ".3f"),
    ]


def quality_sets(results: Results) -> list[dict[str, Any]]:
    """The test sets of the analysis; empty for results without one."""
    sets: list[dict[str, Any]] = results.get("quality", {}).get("sets", [])
    return sets


def length_title(language: str) -> str:
    """The title of the section about length."""
    return in_language(QUALITY_WORDS, language)["by_length"]


def length_note(results: Results, language: str) -> str:
    """The unit of length, and the lengths in training."""
    return in_language(QUALITY_WORDS, language)["length_unit"].format(**results["quality"]["train_lengths"])


def sample_texts(results: Results, language: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """For each sample a title, and names with texts: source, reference, every system."""
    words = in_language(QUALITY_WORDS, language)
    return [
        (
            f"{words[sample['kind']]}{words['comma']}{words['num_tokens'].format(count=sample['length'])}",
            [
                (words["source"], sample["source"]),
                (words["reference"], sample["reference"]),
                *((f"{one['name']} ({one['chrf']:.0f})", one["text"]) for one in sample["systems"]),
            ],
        )
        for sample in results.get("quality", {}).get("samples", [])
    ]


def samples_note(results: Results, language: str) -> str:
    """How the samples are chosen."""
    return in_language(QUALITY_WORDS, language)["samples_how"].format(data=quality_sets(results)[0]["data"])


# ---------------------------------------------------------------------- charts and HTML


def quality_html(results: Results, language: str, legend: str) -> str:
    """Quality by length, paired tests and samples; `legend` is HTML with the colours of the systems."""
    if not quality_sets(results):
        return ""
    words = in_language(QUALITY_WORDS, language)
    drawn = [
        f"<div><h3>{escape(one['data'])}</h3>"
        + interval_chart(*length_series(one), x_label=words["source_tokens"], y_label="BLEU")
        + "</div>"
        for one in quality_sets(results)
    ]
    tables = "".join(f"<h3>{escape(one.caption)}</h3>{html_table(one)}" for one in length_tables(results, language))
    tests = tests_table(results, language)
    shown = "".join(
        f'<h3>{escape(title)}</h3><dl class="sample">'
        + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in texts)
        + "</dl>"
        for title, texts in sample_texts(results, language)
    )
    return (
        f'<h2>{words["by_length"]}</h2>\n<p class="note">{escape(length_note(results, language))}<br>{legend}</p>\n'
        f'<div class="charts lengths">{"".join(drawn)}</div>\n{tables}\n'
        f'<h2>{words["tests"]}</h2>\n{html_table(tests)}<p class="note">{escape(tests.notes[0])}</p>\n'
        f'<h2>{words["samples"]}</h2>\n<p class="note">{escape(samples_note(results, language))}</p>\n{shown}\n'
    )


def length_series(
    one: Mapping[str, Any],
) -> tuple[list[str], list[tuple[str, list[tuple[float, float, float] | None]]]]:
    """The names of the buckets, and for every system BLEU with its interval in each."""
    names = [bucket_name(bucket) for bucket in one["buckets"]]
    series = []
    for place, system in enumerate(one["systems"]):
        scores = [bucket["systems"][place]["bleu"] for bucket in one["buckets"]]
        points = [
            (score["value"], score["interval"]["low"], score["interval"]["high"]) if score["interval"] else None
            for score in scores
        ]
        series.append((system["name"], points))
    return names, series


def html_table(one: Table) -> str:
    """A table as part of the page."""
    heading = "".join(f"<th scope=col>{escape(text)}</th>" for text in one.heading)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in one.rows)
    return f'<div class="scroll"><table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table></div>'


def plot_quality_by_length(results: Results, language: str, colours: Sequence[str]) -> Any:
    """BLEU with intervals against the length of the source, one panel for each test set."""
    from matplotlib.figure import Figure

    sets, words = quality_sets(results), in_language(QUALITY_WORDS, language)
    longest_common = results["quality"]["train_lengths"]["p99"]
    figure = Figure(figsize=(9, 4.2 * len(sets)), layout="constrained")
    for axes, one in zip(figure.subplots(len(sets), 1, squeeze=False).flatten(), sets, strict=True):
        names, series = length_series(one)
        for index, (name, points) in enumerate(series):
            known = [(place, point) for place, point in enumerate(points) if point is not None]
            xs = [place + 0.12 * (index - (len(series) - 1) / 2) for place, _ in known]
            values = [value for _, (value, _, _) in known]
            bounds = [[value - low for _, (value, low, _) in known], [high - value for _, (value, _, high) in known]]
            axes.errorbar(xs, values, bounds, color=colours[index], label=name, marker="o", markersize=5, capsize=2)
        counts = [f"{name}\n({bucket['num_sentences']:,})" for name, bucket in zip(names, one["buckets"], strict=True)]
        axes.set_xticks(range(len(names)), counts)
        long = [place for place, bucket in enumerate(one["buckets"]) if bucket["low"] > longest_common]
        if long:
            axes.axvspan(long[0] - 0.5, long[-1] + 0.5, color="grey", alpha=0.12, label=words["beyond"])
            axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set(title=one["data"], ylabel="BLEU", xlabel=f"{words['source_tokens']}{words['in_parentheses']}")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, axis="y", alpha=0.3)
        axes.legend()
    return figure
