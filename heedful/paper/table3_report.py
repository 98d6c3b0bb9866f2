"""The swept Table 3 for people: Markdown with the paper's numbers beside ours, and a plot of the differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.paper.markdown import markdown_table
from heedful.paper.plot_style import COLOURS, in_language, new_figure, save, styled
from heedful.paper.table3_analysis import paper_difference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = Mapping[str, Any]

WORDS = {
    "title": ("Table 3, run again", "重跑表 3"),
    "paper": ("paper", "论文"),
    "ours": ("ours", "我们"),
    "parameters": ("params", "参数量"),
    "perplexity": ("PPL (dev)", "困惑度 (dev)"),
    "bleu": ("BLEU (dev)", "BLEU (dev)"),
    "test": ("BLEU", "BLEU"),
    "from_base": ("{metric}: difference from base", "{metric}：与 base 之差"),
    "log": ("ratio to base, in %", "相对 base 的变化，%"),
    "sinusoidal": ("sinusoidal", "正弦"),
    "learned": ("learned", "学习"),
    "seen": ("seen", "看到了"),
    "partly": ("seen in part", "部分看到"),
    "unclear": ("not beyond the noise", "未超出噪声"),
    "opposite": ("the opposite", "相反"),
    "unknown": ("needs two seeds or more", "至少需要两个种子"),
    "claims": ("Which of the paper's effects are seen", "论文的哪些效应看到了"),
    "claim": ("in the paper", "论文中"),
    "rows": ("rows", "行"),
    "verdict": ("here", "这里"),
    "one_head_worse": ("a single head is worse", "单头更差"),
    "many_heads_worse": ("too many heads are worse", "头太多也更差"),
    "small_keys_worse": ("smaller keys (d_k) are worse", "键更窄 (d_k 更小) 更差"),
    "deeper_better": ("more layers are better", "层数越多越好"),
    "wider_better": ("a larger d_model is better", "d_model 越大越好"),
    "wider_inside_better": ("a larger d_ff is better", "d_ff 越大越好"),
    "dropout_helps": ("dropout helps", "dropout 有帮助"),
    "smoothing_costs_perplexity": ("label smoothing costs perplexity", "标签平滑使困惑度变差"),
    "smoothing_helps_bleu": ("label smoothing helps BLEU", "标签平滑提高 BLEU"),
    "learned_as_good": ("learned positions are as good as sinusoidal ones", "学习的位置编码与正弦的一样好"),
    "big_better": ("the big model is better", "big 模型更好"),
    "how": (
        "Ours: mean ± standard deviation over {seeds} seeds. Perplexity per subword on valid, of the last weights; "
        "BLEU by sacreBLEU, {search}, on {sentences}. The paper's are of another corpus and another BLEU: compare "
        "differences.",
        "我们的数字：{seeds} 个种子的均值 ± 标准差。困惑度按子词计，在验证集上，用最后的权重；"
        "BLEU 由 sacreBLEU 计算，{search}，{sentences}。论文用的语料和 BLEU 都不同：请比较差值。",
    ),
    "all_sentences": ("all sentences", "全部句子"),
    "some_sentences": ("at most {count:,} sentences of each set, evenly spaced", "每个集合均匀取至多 {count:,} 句"),
    "beyond": (
        "Seen: the difference from base has the paper's direction and is larger than twice its standard error; "
        "where the paper finds none, ours is not larger than that.",
        "“看到了”：与 base 之差的方向同论文一致，且大于其标准误的两倍；论文认为没有差别的，我们的差不大于此。",
    ),
    "unfinished": ("Unfinished: {done} of {all} runs are in it.", "尚未完成：共 {all} 次训练，这里有 {done} 次。"),
    "failed": ("Failed runs: {names}.", "失败的训练：{names}。"),
    "budget": ("Budget of a run: {budget}; of the big model {times} times that.",
               "每次训练的预算：{budget}；big 模型为其 {times} 倍。"),
    "scale": ("Scale: {scale}; {pairs:,} training pairs, a vocabulary of {vocab:,}; {device}.",
              "规模：{scale}；{pairs:,} 对训练句，词表 {vocab:,}；{device}。"),
    "group_A": ("(A) heads", "(A) 头数"),
    "group_B": ("(B) width of keys", "(B) 键的宽度"),
    "group_C": ("(C) size", "(C) 大小"),
    "group_D": ("(D) dropout, smoothing", "(D) dropout 与平滑"),
    "group_E": ("(E) positions", "(E) 位置编码"),
    "group_big": ("big", "big"),
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
    """Tell before the work what could not be written after it."""
    words = in_language(WORDS, language)
    if plots:
        with styled(words.values()):
            pass


# ---------------------------------------------------------------------- the table


def markdown(results: Results, language: str = "en") -> str:
    """The whole page."""
    words = in_language(WORDS, language)
    tests = list(dict.fromkeys(name for row in results["rows"] for name in row["test"]))
    heading = ["", *COLUMNS.values()]
    heading += [f"{words['paper']}: {words[key]}" for key in ("perplexity", "bleu", "parameters")]
    heading += [f"{words['ours']}: {words[key]}" for key in ("perplexity", "bleu")]
    heading += [f"{words['test']} ({name})" for name in tests] + [f"{words['ours']}: {words['parameters']}"]
    rows = [cells(row, results, tests, words) for row in results["rows"]]
    lines = [f"# {words['title']}", "", markdown_table(heading, rows, names=len(heading))]
    lines += ["", *(f"- {remark}" for remark in remarks(results, words)), "", f"## {words['claims']}", ""]
    claims = []
    for claim in results["claims"]:
        found = ", ".join(f"{name}: {words[verdict]}" for name, verdict in claim["rows"].items())
        claims.append([words[claim["name"]], found, f"**{words[claim['verdict']]}**"])
    lines.append(markdown_table([words["claim"], words["rows"], words["verdict"]], claims, names=3))
    return "\n".join([*lines, "", words["beyond"]]) + "\n"


def cells(row: Results, results: Results, tests: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """A row as text: what differs from the base in our values, the paper's value in brackets where it is another."""
    printed, own = row["paper"]["values"], row["values"]
    base = next((one for one in results["rows"] if one["name"] == "base"), row)["values"]
    shown = []
    for name in COLUMNS:
        is_told = row["group"] in ("base", "big") or own[name] != base[name]
        other = f" ({printed[name]})" if printed[name] != own[name] else ""
        shown.append(f"{own[name]}{other}" if is_told else "")
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
    """The first column: base, (A) … (E), big."""
    return row["group"] if row["group"] in ("base", "big") else f"({row['group']})"


def spread_text(found: Mapping[str, Any] | None, digits: int) -> str:
    """Such as `6.13 ± 0.04`; a dash where there is nothing yet."""
    if found is None:
        return "–"
    mean = f"{found['mean']:.{digits}f}"
    return mean if found["deviation"] is None else f"{mean} ± {found['deviation']:.{digits}f}"


def remarks(results: Results, words: Mapping[str, str]) -> list[str]:
    """What must be known to read the table."""
    search, limit = results["search"], results["sentences"]
    how = f"beam {search['beam_size']}" if search["method"] == "beam" else search["method"]
    sentences = words["some_sentences"].format(count=limit) if limit else words["all_sentences"]
    budget = ", ".join(f"{value:,} {name}" for name, value in results["budget"].items())
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
        names = ", ".join(f"{one['row']} (seed {one['seed']})" for one in results["failed"])
        found.append(words["failed"].format(names=names))
    return found


# ---------------------------------------------------------------------- the plot


def write_plot(results: Results, output: Path, language: str = "en") -> list[Path]:
    """`table3.png` and `.svg`: for each row the difference from the base, ours with error bars, the paper's beside it.

    Perplexities are compared by their ratio, for ours are of another corpus; BLEU by its difference.
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
            place - 0.19, printed, height=0.36, color=COLOURS[1], alpha=0.55, label=None if place else words["paper"]
        )
        found = row[f"{metric}_difference"]
        if found is not None:
            error = None if found["error"] is None else 2 * found["error"] * ours_unit
            value = found["value"] * ours_unit
            panel.barh(place + 0.19, value, height=0.36, color=COLOURS[0], label=None if place else words["ours"])
            if error is not None:
                panel.errorbar(value, place + 0.19, xerr=error, color="black", capsize=2, linewidth=1)
    panel.axvline(0, color="black", linewidth=0.8)
    panel.grid(visible=True, axis="x", alpha=0.25)
    panel.set_title(words["from_base"].format(metric=words[metric]))
    if as_ratio:
        panel.set_xlabel(words["log"])


def tick(row: Results, words: Mapping[str, str]) -> str:
    """A row in a few characters: its group and what differs."""
    if row["group"] == "big":
        return "big"
    if row["group"] == "E":
        return f"(E) {words['learned']}"
    column = {"A": "heads", "B": "key_dim"}.get(row["group"])
    kind = row["name"].split("-")[1]
    column = column or {"layers": "layers", "width": "d_model", "inner": "d_ff", "dropout": "dropout"}.get(kind)
    column = column or "label_smoothing"
    return f"({row['group']}) {COLUMNS[column]} = {row['values'][column]}"
