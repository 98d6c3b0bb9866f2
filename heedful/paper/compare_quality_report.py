"""The sections of a comparison's report about quality: scores by source length, paired tests, sample translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from heedful.paper.plot_style import Words, in_language
from heedful.paper.svg_charts import interval_chart
from heedful.paper.text_tables import Table, number, score_text

Results = Mapping[str, Any]

WORDS: Words = {
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
    words = in_language(WORDS, language)
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
    words = in_language(WORDS, language)
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
    return in_language(WORDS, language)["by_length"]


def length_note(results: Results, language: str) -> str:
    """The unit of length, and the lengths in training."""
    return in_language(WORDS, language)["length_unit"].format(**results["quality"]["train_lengths"])


def sample_texts(results: Results, language: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """For each sample a title, and names with texts: source, reference, every system."""
    words = in_language(WORDS, language)
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
    return in_language(WORDS, language)["samples_how"].format(data=quality_sets(results)[0]["data"])


# ---------------------------------------------------------------------- charts and HTML


def quality_html(results: Results, language: str, legend: str) -> str:
    """Quality by length, paired tests and samples; `legend` is HTML with the colours of the systems."""
    if not quality_sets(results):
        return ""
    words = in_language(WORDS, language)
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

    sets, words = quality_sets(results), in_language(WORDS, language)
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
