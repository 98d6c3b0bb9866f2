"""The report of Table 3: means, spreads, differences from the base, the paper's claims, as Markdown and as a plot.

An effect is seen when the difference from the base has the paper's direction and is larger than twice its standard
error, √(s²/n + s₀²/n₀) over the seeds; where the paper finds no difference, when ours is not larger than that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.paper.plot_style import in_language, new_figure, save, styled, theme
from heedful.paper.table3_rows import ROWS, Row, Values
from heedful.paper.text_tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEEN, UNCLEAR, OPPOSITE, UNKNOWN, PARTLY = "seen", "unclear", "opposite", "unknown", "partly"
"""In the paper's direction beyond twice the standard error; within it; opposite; too few seeds; in part."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: the sign of the difference of some rows from the base (0: no difference)."""

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
    """The rows with means and differences, and the claims; `runs` are the finished runs of each row."""
    found = [row_summary(row, base, runs.get(row.name, ())) for row in rows]
    reference = next((row for row in found if row["name"] == "base"), None)
    for row in found:
        for metric in ("perplexity", "bleu"):
            row[f"{metric}_difference"] = difference(row[metric], None if reference is None else reference[metric])
    return {"rows": found, "claims": claims(found)}


def row_summary(row: Row, base: Values, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row: the paper's values and results, our values, runs and means."""
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
    """BLEU of a run on valid (averaged over target languages) or on one test corpus."""
    values = [one["value"] for one in run["scores"] if one["role"] == role and name in (None, one["data"])]
    return statistics.fmean(values) if values else None


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Mean and, for two or more values, standard deviation; None without values."""
    if not values:
        return None
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "deviation": deviation, "num_seeds": len(values)}


def difference(one: Mapping[str, Any] | None, base: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The difference of the means and its standard error; None if a row is missing."""
    if one is None or base is None:
        return None
    error = None
    if one["deviation"] is not None and base["deviation"] is not None:
        error = math.sqrt(sum(side["deviation"] ** 2 / side["num_seeds"] for side in (one, base)))
    return {"value": one["mean"] - base["mean"], "error": error}


def verdict(found: Mapping[str, Any] | None, expected: int) -> str:
    """Whether a difference agrees with the paper: `expected` is 1 for larger than the base, -1 smaller, 0 equal."""
    if found is None or found["error"] is None:
        return UNKNOWN
    is_beyond = abs(found["value"]) > 2 * found["error"]
    if expected == 0:
        return OPPOSITE if is_beyond else SEEN
    if not is_beyond:
        return UNCLEAR
    return SEEN if found["value"] * expected > 0 else OPPOSITE


def claims(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every claim whose rows are in the results, with the verdict for each row and overall."""
    by_name = {row["name"]: row for row in rows}
    found = []
    for claim in CLAIMS:
        if not set(claim.expected) <= set(by_name):
            continue
        verdicts = {
            name: verdict(by_name[name][f"{claim.metric}_difference"], expected)
            for name, expected in claim.expected.items()
        }
        found.append({**asdict(claim), "rows": verdicts, "verdict": overall_verdict(list(verdicts.values()))})
    return found


def overall_verdict(verdicts: Sequence[str]) -> str:
    """The overall verdict: the common one; else "partly" if a row is seen; else the worst."""
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return next((one for one in (SEEN, OPPOSITE, UNCLEAR) if one in verdicts), UNKNOWN).replace(SEEN, PARTLY)


def paper_difference(name: str, metric: str) -> float:
    """The difference of a row from the base in the paper."""
    row, base = (next(row for row in ROWS if row.name == wanted) for wanted in (name, "base"))
    return float(getattr(row, metric) - getattr(base, metric))


Results = Mapping[str, Any]

WORDS = {
    "title": ("Table 3, reproduced", "复现论文的表 3"),
    "paper": ("paper", "论文"),
    "ours": ("ours", "本次"),
    "parameters": ("params", "参数量"),
    "perplexity": ("PPL (dev)", "困惑度（dev）"),
    "bleu": ("BLEU (dev)", "BLEU（dev）"),
    "paper_column": ("paper: {column}", "论文：{column}"),
    "our_column": ("ours: {column}", "本次：{column}"),
    "test_column": ("BLEU ({name})", "BLEU（{name}）"),
    "group": ("({group}) ", "（{group}）"),
    "comma": (", ", "，"),
    "colon": (": ", "："),
    "beam": ("beam {size}", "束宽 {size}"),
    "seed": (" (seed {seed})", "（种子 {seed}）"),
    "steps": ("steps", "步"),
    "epochs": ("epochs", "轮"),
    "tokens": ("tokens", "词元"),
    "minutes": ("minutes", "分钟"),
    "from_base": ("{metric}: difference from base", "{metric}：与 base 的差"),
    "log": ("change relative to base, %", "相对 base 的变化，%"),
    "sinusoidal": ("sinusoidal", "正弦"),
    "learned": ("learned", "可学习"),
    "seen": ("seen", "观察到"),
    "partly": ("partly seen", "部分观察到"),
    "unclear": ("within the noise", "未超出噪声"),
    "opposite": ("the opposite", "相反"),
    "unknown": ("needs at least two seeds", "至少需要两个种子"),
    "claims": ("Effects of the paper seen here", "论文中的效应是否出现"),
    "claim": ("effect", "论文中的效应"),
    "rows": ("rows", "行"),
    "verdict": ("result", "本次"),
    "one_head_worse": ("a single head is worse", "单头更差"),
    "many_heads_worse": ("too many heads are worse", "头太多也更差"),
    "small_keys_worse": ("smaller keys (d_k) are worse", "键的维度 d_k 越小越差"),
    "deeper_better": ("more layers are better", "层数越多越好"),
    "wider_better": ("a larger d_model is better", "d_model 越大越好"),
    "wider_inside_better": ("a larger d_ff is better", "d_ff 越大越好"),
    "dropout_helps": ("dropout helps", "dropout 有帮助"),
    "smoothing_costs_perplexity": ("label smoothing hurts perplexity", "标签平滑使困惑度变差"),
    "smoothing_helps_bleu": ("label smoothing improves BLEU", "标签平滑提高 BLEU"),
    "learned_as_good": ("learned positions are as good as sinusoidal ones", "可学习的位置编码与正弦的一样好"),
    "big_better": ("the big model is better", "big 模型更好"),
    "how": (
        "Ours: mean ± standard deviation over {seeds} seeds. Perplexity per subword on valid, with the last weights; "
        "BLEU by sacreBLEU, {search}, on {sentences}. The paper uses another corpus and another BLEU: compare only "
        "the differences.",
        "本次结果：{seeds} 个种子的均值 ± 标准差。困惑度按子词计，在验证集上用最后的权重计算；"
        "BLEU 由 sacreBLEU 计算，{search}，{sentences}。论文的语料和 BLEU 都不同：请只比较差值。",
    ),
    "all_sentences": ("all sentences", "全部句子"),
    "some_sentences": ("at most {count:,} sentences of each set, evenly spaced", "每个集合均匀取至多 {count:,} 句"),
    "beyond": (
        "Seen: the difference from base has the same sign as in the paper and exceeds twice its standard error; if the "
        "paper finds no difference, ours does not exceed it.",
        "“观察到”：与 base 的差与论文同号，且大于其标准误的两倍；论文认为无差异的，本次的差不超过该值。",
    ),
    "unfinished": ("Unfinished: {done} of {all} runs are included.", "尚未完成：共 {all} 次训练，已含 {done} 次。"),
    "failed": ("Failed runs: {names}.", "失败的训练：{names}。"),
    "budget": ("Training budget per run: {budget}; {times} times as much for the big model.",
               "每次训练的预算：{budget}；big 模型为其 {times} 倍。"),
    "scale": ("Scale: {scale}; {pairs:,} training pairs, a vocabulary of {vocab:,}; {device}.",
              "规模：{scale}；{pairs:,} 对训练句，词表 {vocab:,}；{device}。"),
}  # fmt: skip

COLUMNS = {
    "layers": "N",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "heads": "h",
    "key_dim": "d_k",
    "value_dim": "d_v",
    "dropout": "P_drop",
    "label_smoothing": "ε_ls",
}


def check_report(language: str, *, plots: bool) -> None:
    """Report missing fonts or packages before the work starts."""
    words = in_language(WORDS, language)
    if plots:
        with styled(words.values()):
            pass


# ---------------------------------------------------------------------- the table


def markdown(results: Results, language: str = "en") -> str:
    """The report as a Markdown page."""
    words = in_language(WORDS, language)
    heading, rows = main_table(results, language)
    claim_heading, found = claims_table(results, language)
    found = [[*cells, f"**{outcome}**"] for *cells, outcome in found]
    lines = [f"# {words['title']}", "", markdown_table(heading, rows, names=len(heading)), ""]
    lines += [*(f"- {remark}" for remark in remarks(results, language)), "", f"## {words['claims']}", ""]
    return "\n".join([*lines, markdown_table(claim_heading, found, names=3), "", words["beyond"]]) + "\n"


def main_table(results: Results, language: str) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of the table: the paper's values and results, and ours."""
    words = in_language(WORDS, language)
    tests = list(dict.fromkeys(name for row in results["rows"] for name in row["test"]))
    heading = ["", *COLUMNS.values()]
    heading += [words["paper_column"].format(column=words[key]) for key in ("perplexity", "bleu", "parameters")]
    heading += [words["our_column"].format(column=words[key]) for key in ("perplexity", "bleu")]
    heading += [words["test_column"].format(name=name) for name in tests]
    heading.append(words["our_column"].format(column=words["parameters"]))
    return heading, [cells(row, results, tests, words) for row in results["rows"]]


def claims_table(results: Results, language: str) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of the table of effects: the effect, each row's result, and the overall one."""
    words = in_language(WORDS, language)
    rows = [
        [
            words[claim["name"]],
            words["comma"].join(f"{name}{words['colon']}{words[verdict]}" for name, verdict in claim["rows"].items()),
            words[claim["verdict"]],
        ]
        for claim in results["claims"]
    ]
    return [words["claim"], words["rows"], words["verdict"]], rows


def cells(row: Results, results: Results, tests: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """A row as text: values that differ from the base, with the paper's value in parentheses if it is different."""
    printed, own = row["paper"]["values"], row["values"]
    base = next((one for one in results["rows"] if one["name"] == "base"), row)["values"]
    shown = []
    for name in COLUMNS:
        is_shown = row["group"] in ("base", "big") or own[name] != base[name]
        other = f" ({printed[name]})" if printed[name] != own[name] else ""
        shown.append(f"{own[name]}{other}" if is_shown else "")
    if row["group"] == "E":
        shown[0] = words[own["positions"]]
    millions, count = row["paper"]["millions"], row["parameters"] or results["parameters"].get(row["name"])
    return [
        label(row),
        *shown,
        f"{row['paper']['perplexity']:.2f}",
        f"{row['paper']['bleu']:.1f}",
        f"{millions:g} M" if millions else "",
        spread_text(row["perplexity"], 2),
        spread_text(row["bleu"], 1),
        *(spread_text(row["test"].get(name), 1) for name in tests),
        f"{count / 1e6:.1f} M" if count else "",
    ]


def label(row: Results) -> str:
    """The text of the first column: base, (A) … (E), big."""
    return row["group"] if row["group"] in ("base", "big") else f"({row['group']})"


def spread_text(found: Mapping[str, Any] | None, digits: int) -> str:
    """A mean such as `6.13 ± 0.04`, or a dash for None."""
    if found is None:
        return "–"
    mean = f"{found['mean']:.{digits}f}"
    return mean if found["deviation"] is None else f"{mean} ± {found['deviation']:.{digits}f}"


def remarks(results: Results, language: str) -> list[str]:
    """The notes below the table."""
    words = in_language(WORDS, language)
    search, limit = results["search"], results["sentences"]
    how = words["beam"].format(size=search["beam_size"]) if search["method"] == "beam" else search["method"]
    sentences = words["some_sentences"].format(count=limit) if limit else words["all_sentences"]
    budget = words["comma"].join(f"{value:,} {words[name]}" for name, value in results["budget"].items())
    done = sum(len(row["runs"]) for row in results["rows"])
    expected = len(results["rows"]) * len(results["seeds"])
    found = [
        words["how"].format(seeds=len(results["seeds"]), search=how, sentences=sentences),
        words["scale"].format(
            scale=results["scale"],
            pairs=results["num_train_pairs"],
            vocab=results["vocab_size"],
            device=results["machine"]["device"],
        ),
        words["budget"].format(budget=budget, times=3),
    ]
    if done < expected:
        found.append(words["unfinished"].format(done=done, all=expected))
    if results["failed"]:
        names = words["comma"].join(one["row"] + words["seed"].format(seed=one["seed"]) for one in results["failed"])
        found.append(words["failed"].format(names=names))
    return found


# ---------------------------------------------------------------------- the plot


def write_plot(results: Results, output: Path, language: str = "en") -> list[Path]:
    """Write `table3.png` and `.svg`: the difference of each row from the base, ours with error bars, and the paper's.

    Perplexities of different corpora are compared by their ratio, BLEU by its difference.
    """
    words = in_language(WORDS, language)
    rows = [row for row in results["rows"] if row["name"] != "base" and row["perplexity_difference"] is not None]
    with styled(words.values()):
        figure = new_figure(11, 1.6 + 0.34 * max(1, len(rows)))
        axes = figure.subplots(1, 2, sharey=True)
        for panel, metric in zip(axes, ("perplexity", "bleu"), strict=True):
            _bars(panel, rows, metric, results, words)
        axes[0].set_yticks(range(len(rows)), [tick(row, words) for row in rows])
        axes[0].invert_yaxis()
        axes[0].legend(frameon=False, loc="lower right")
        figure.suptitle(words["title"])
        return save(figure, output, "table3")


def _bars(panel: Axes, rows: Sequence[Results], metric: str, results: Results, words: Mapping[str, str]) -> None:
    base = next(row for row in results["rows"] if row["name"] == "base")
    as_ratio = metric == "perplexity"
    ours_unit, paper_unit = (
        (100 / base[metric]["mean"], 100 / base["paper"][metric]) if as_ratio and base[metric] else (1, 1)
    )
    for place, row in enumerate(rows):
        printed = paper_difference(row["name"], metric) * paper_unit
        panel.barh(
            place - 0.19,
            printed,
            height=0.36,
            color=theme().colours[1],
            alpha=0.55,
            label=None if place else words["paper"],
        )
        found = row[f"{metric}_difference"]
        if found is not None:
            error = None if found["error"] is None else 2 * found["error"] * ours_unit
            value = found["value"] * ours_unit
            panel.barh(
                place + 0.19, value, height=0.36, color=theme().colours[0], label=None if place else words["ours"]
            )
            if error is not None:
                panel.errorbar(value, place + 0.19, xerr=error, color="black", capsize=2, linewidth=1)
    panel.axvline(0, color="black", linewidth=0.8)
    panel.grid(visible=True, axis="x", alpha=0.25)
    panel.set_title(words["from_base"].format(metric=words[metric]))
    if as_ratio:
        panel.set_xlabel(words["log"])


def tick(row: Results, words: Mapping[str, str]) -> str:
    """The tick label of a row: its group and the value that differs."""
    if row["group"] == "big":
        return "big"
    if row["group"] == "E":
        return words["group"].format(group="E") + words["learned"]
    column = {"A": "heads", "B": "key_dim"}.get(row["group"])
    kind = row["name"].split("-")[1]
    column = column or {"layers": "layers", "width": "d_model", "inner": "d_ff", "dropout": "dropout"}.get(kind)
    column = column or "label_smoothing"
    return f"{words['group'].format(group=row['group'])}{COLUMNS[column]} = {row['values'][column]}"
