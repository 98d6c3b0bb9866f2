"""The report of a comparison: tables, a self-contained HTML page, a Markdown page, and plots as PNG files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from heedful.paper.compare_quality import (
    QUALITY_WORDS,
    length_note,
    length_tables,
    plot_quality_by_length,
    quality_html,
    quality_sets,
    sample_texts,
    samples_note,
    tests_table,
)
from heedful.paper.plot_style import choose_font, in_language, installed_fonts
from heedful.paper.profiling import is_busy
from heedful.paper.svg_charts import Line, bar_chart, line_chart, without_steep_start
from heedful.paper.text_tables import markdown_table, number, score_text

LANGUAGES = ("en", "zh")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f", "#8b4513")
"""The colours of the systems, distinguishable by colour-blind readers (after Okabe and Ito)."""

WORDS: dict[str, dict[str, str]] = {
    "en": {
        "title": "Comparison of systems",
        "system": "system",
        "parameters": "parameters",
        "width": "width",
        "bleu": "BLEU",
        "valid_loss": "valid loss",
        "training": "training, tokens/s",
        "decoding": "decoding, tokens/s",
        "memory": "memory",
        "minutes": "minutes",
        "steps": "steps",
        "over_tokens": "Loss against tokens",
        "over_time": "Loss against time",
        "tokens": "target tokens",
        "time": "seconds, including validation",
        "loss": "loss per token",
        "curves": "Lines with markers: valid loss, without label smoothing. Thin lines: training loss.",
        "made": "Setup",
        "equal_parameters": "The width of each other system is chosen so that its number of parameters is closest to "
        "that of {reference}.",
        "equal_minutes": "Every system was trained for the same time, with its preset unchanged.",
        "differs": "settings of single systems",
        "budget": "budget",
        "corpora": "corpora",
        "on_valid": "No test corpus was given: BLEU is on valid, which also selected the weights.",
        "signature": "BLEU signature",
        "first_of_several": "BLEU in the table is on {data}. Other test sets: {others}.",
        "cuda_max_memory_allocated": "Memory: peak GPU memory of tensors (max_memory_allocated) during training, "
        "including validation and test.",
        "resident_memory_growth": "Memory: growth of the resident set size (RSS) of the process during training, "
        "including validation and test, sampled 50 times per second.",
        "not_measured": "Memory was not measured: not available on this machine.",
        "decoded": "Decoding: the same sentences for all systems, in batches, with {search}.",
        "early": "Stopped early because valid did not improve: {names}.",
        "seed": "seed",
        "machine": "machine",
        "versions": "versions",
        "command": "command",
        "created": "date",
        "busy": "The machine was busy: CPU time was below 90 % of the wall time of training and translating ({names}). "
        "The speeds and minutes are not reliable.",
        "one_run": "One run per system with one seed: small differences may be chance.",
    },
    "zh": {
        "title": "系统对比",
        "system": "系统",
        "parameters": "参数量",
        "width": "宽度",
        "bleu": "BLEU",
        "valid_loss": "验证损失",
        "training": "训练，词元/秒",
        "decoding": "解码，词元/秒",
        "memory": "内存",
        "minutes": "分钟",
        "steps": "步数",
        "over_tokens": "损失随词元数的变化",
        "over_time": "损失随时间的变化",
        "tokens": "已训练的目标端词元数",
        "time": "秒（含验证）",
        "loss": "每个词元的损失",
        "curves": "带点的线：验证损失，不含标签平滑。细线：训练损失。",
        "made": "实验设置",
        "equal_parameters": "其余每个系统的宽度取参数量最接近 {reference} 者。",
        "equal_minutes": "所有系统的训练时间相同，预设保持不变。",
        "differs": "各系统的单独设置",
        "budget": "预算",
        "corpora": "语料",
        "on_valid": "未指定测试集：BLEU 在验证集上计算，而权重也是用验证集挑选的。",
        "signature": "BLEU 签名",
        "first_of_several": "表中的 BLEU 在 {data} 上计算；其他测试集：{others}。",
        "cuda_max_memory_allocated": "内存：训练（含验证和测试）期间张量占用 GPU 显存的峰值（max_memory_allocated）。",
        "resident_memory_growth": "内存：训练（含验证和测试）期间进程常驻内存（RSS）的增长，每秒采样 50 次。",
        "not_measured": "未测量内存：本机不支持。",
        "decoded": "解码：所有系统翻译相同的句子，批量解码，{search}。",
        "early": "因验证集不再提升而提前停止：{names}。",
        "seed": "随机种子",
        "machine": "机器",
        "versions": "版本",
        "command": "命令",
        "created": "日期",
        "busy": "机器繁忙：训练和翻译期间的 CPU 时间低于实际时间的 90%（{names}），速度和分钟数不可靠。",
        "one_run": "每个系统只用一个随机种子训练一次：小的差异可能是偶然。",
    },
}

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --dim: #66666b; --rule: #d9d9de; --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf0; --dim: #a3a3aa; --rule: #3d3d42; --paper: #17171a; } }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, "Noto Sans SC", "PingFang SC", "Microsoft YaHei", sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .45rem; text-align: right; border-bottom: 1px solid var(--rule); }
td { white-space: nowrap; } th { vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; } th { color: var(--dim); font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 2rem; }
.lengths > div { max-width: 38rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 13px; }
svg text.small { font-size: 11px; } h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
.sample { border-left: 3px solid var(--rule); padding-left: 1rem; margin: 1rem 0 1.5rem; }
.grid { stroke: var(--rule); } .axis { stroke: var(--dim); fill: none; }
.line { fill: none; stroke-width: 2.2; } .faint { fill: none; stroke-width: 1.2; opacity: .6; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin-right: .4rem; }
.name { white-space: nowrap; }
p, dd { color: var(--ink); } .note, dt { color: var(--dim); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
code { font-size: .9em; }
"""

Results = Mapping[str, Any]


# ---------------------------------------------------------------------- the table


def table(results: Results, language: str) -> tuple[list[str], list[list[str]]]:
    """The header and one row per system, as text."""
    words = WORDS[language]
    names = (
        "system",
        "parameters",
        "width",
        "bleu",
        "valid_loss",
        "training",
        "decoding",
        "memory",
        "minutes",
        "steps",
    )
    rows = [
        [
            one["name"],
            parameters_text(one["parameters"], results["systems"][0]["parameters"]),
            str(one["width"]),
            score_text(one["scores"][0]),
            number(one["valid_loss"], ".3f"),
            number(one["training_tokens_per_second"], ",.0f"),
            number(one["decoding_tokens_per_second"], ",.0f"),
            bytes_text(one["memory_bytes"]),
            number(one["minutes"], ",.2f"),
            number(one["steps"], ","),
        ]
        for one in results["systems"]
    ]
    return [words[name] for name in names], rows


def parameters_text(count: int, reference: int) -> str:
    """A number of parameters such as 1,234,567 (+1.2%), relative to the first system."""
    return f"{count:,}" if count == reference else f"{count:,} ({count / reference - 1:+.1%})"


def bytes_text(count: int | None) -> str:
    """A size such as 812 MiB."""
    if count is None:
        return "–"
    return f"{count / 2**30:,.2f} GiB" if count >= 2**30 else f"{count / 2**20:,.0f} MiB"


def remarks(results: Results, language: str) -> list[str]:
    """The notes below the table."""
    words, search = WORDS[language], results["search"]
    kinds = sorted({one["memory_kind"] for one in results["systems"]})
    early = ", ".join(one["name"] for one in results["systems"] if one["stopped_by"] is not None)
    method = f"{search['method']} {search['beam_size'] or ''}".strip()
    return [
        words[f"equal_{results['equal']}"].format(reference=results["reference"]),
        *other_sets_text(results, words),
        *([words["early"].format(names=early)] if early else []),
        *([words["on_valid"]] if results["scored_on"] == "valid" else []),
        words["decoded"].format(search=method),
        *(words[kind] for kind in kinds),
        *busy_text(results, words),
        words["one_run"],
    ]


def busy_text(results: Results, words: Mapping[str, str]) -> list[str]:
    """A warning if other programs took the processor during the measurements."""
    busy = [f"{one['name']} {one['cpu_share']:.0%}" for one in results["systems"] if is_busy(one.get("cpu_share"))]
    return [words["busy"].format(names=", ".join(busy))] if busy else []


def other_sets_text(results: Results, words: Mapping[str, str]) -> list[str]:
    """With several test sets: which of them is in the table, and the BLEU of every system on the others."""
    first, *others = results["systems"][0]["scores"]
    found = [
        f"{score['data']}: "
        + ", ".join(f"{one['name']} {score_text(one['scores'][place])}" for one in results["systems"])
        for place, score in enumerate(others, start=1)
    ]
    return [words["first_of_several"].format(data=first["data"], others="; ".join(found))] if found else []


def markdown_page(results: Results, language: str) -> str:
    """The report as Markdown, without the charts."""
    words = {**in_language(QUALITY_WORDS, language), **WORDS[language]}
    parts = [f"# {words['title']}", markdown_table(*table(results, language)), listed(remarks(results, language))]
    if quality_sets(results):
        parts += [f"## {words['by_length']}", length_note(results, language)]
        parts += [one.render("markdown").strip() for one in length_tables(results, language)]
        tests = tests_table(results, language)
        parts += [f"## {words['tests']}", markdown_table(tests.heading, tests.rows, names=2), *tests.notes]
        parts += [f"## {words['samples']}", samples_note(results, language)]
        for title, texts in sample_texts(results, language):
            parts += [f"### {title}", listed(f"{name}: {text}" for name, text in texts)]
    return "\n\n".join(parts) + "\n"


def listed(items: Iterable[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {item}" for item in items)


# ---------------------------------------------------------------------- the page


def write_report(
    results: Results, output: Path, *, language: str = "en", plots: bool = True, report: Callable[[str], None]
) -> list[Path]:
    """Write `report.html`, `report.md` and, if `plots` is set, the PNG files; returns their paths."""
    page, text = output / "report.html", output / "report.md"
    page.write_text(html_page(results, language), encoding="utf-8")
    text.write_text(markdown_page(results, language), encoding="utf-8")
    return [page, text, *(write_plots(results, output, language, report) if plots else [])]


def html_page(results: Results, language: str) -> str:
    """The report as one HTML file with inline style and charts, without scripts or external resources."""
    words = WORDS[language]
    heading, rows = table(results, language)
    cells = "".join(f"<th scope=col>{escape(text)}</th>" for text in heading)
    body = "".join(
        f"<tr><td>{key(index)}{escape(row[0])}</td>{''.join(f'<td>{escape(text)}</td>' for text in row[1:])}</tr>"
        for index, row in enumerate(rows)
    )
    rules = "".join(
        f".s{index} {{ stroke: {colour} }} .f{index} {{ fill: {colour} }}\n"
        for index, colour in enumerate(system_colours(results))
    )
    legend = " &ensp; ".join(
        f'<span class="name">{key(index)}{escape(row[0])}</span>' for index, row in enumerate(rows)
    )
    notes = "".join(f"<li>{escape(text)}</li>" for text in remarks(results, language))
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in setup_facts(results, words))
    return (
        f'<!doctype html>\n<html lang="{"zh-CN" if language == "zh" else "en"}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{words["title"]}</title>\n'
        f"<style>{STYLE}{rules}</style>\n</head>\n<body>\n<h1>{words['title']}</h1>\n"
        f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>\n'
        f'<ul class="note">{notes}</ul>\n'
        f'<p class="note">{legend}<br>{words["curves"]}</p>\n{charts(results, words)}\n'
        f"{quality_html(results, language, legend)}"
        f"<h2>{words['made']}</h2>\n<dl>{facts}</dl>\n</body>\n</html>\n"
    )


def system_colours(results: Results) -> list[str]:
    """One colour per system."""
    return [COLOURS[index % len(COLOURS)] for index in range(len(results["systems"]))]


def key(index: int) -> str:
    """A small square in the colour of a system."""
    return f'<span class="key" style="background: {COLOURS[index % len(COLOURS)]}"></span>'


def charts(results: Results, words: Mapping[str, str]) -> str:
    """The loss curves against tokens and against time, and a bar chart of each other quantity."""
    figures = [
        (words[title], line_chart(loss_lines(results, axis), x_label=words[label], y_label=words["loss"]))
        for title, axis, label in (("over_tokens", "tokens", "tokens"), ("over_time", "seconds", "time"))
    ]
    figures += [(words[title], bar_chart(bars, title=words[title])) for title, bars in bar_values(results).items()]
    return (
        f'<div class="charts">{"".join(f"<div><h2>{escape(name)}</h2>{drawn}</div>" for name, drawn in figures)}</div>'
    )


def loss_lines(results: Results, axis: str) -> list[Line]:
    """The valid and the training loss of all systems."""
    return [
        Line(one["name"], [(point[axis], point["loss"]) for point in one["curves"][part]], index, thin=part == "train")
        for index, one in enumerate(results["systems"])
        for part in ("train", "valid")
    ]


def bar_values(results: Results) -> dict[str, list[tuple[str, float | None, str]]]:
    """The values of each bar chart: name of the system, number, number as text."""
    found: dict[str, list[tuple[str, float | None, str]]] = {}
    for one in results["systems"]:
        bleu = one["scores"][0]
        rates = {name: one[f"{name}_tokens_per_second"] for name in ("training", "decoding")}
        found.setdefault("bleu", []).append((one["name"], bleu["value"], score_text(bleu)))
        for name, rate in rates.items():
            found.setdefault(name, []).append((one["name"], rate, number(rate, ",.0f")))
        found.setdefault("memory", []).append((one["name"], one["memory_bytes"], bytes_text(one["memory_bytes"])))
        found.setdefault("parameters", []).append((one["name"], one["parameters"], f"{one['parameters']:,}"))
    return found


def setup_facts(results: Results, words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and values (HTML) of the setup."""
    budget = ", ".join(f"{value:,.10g} {name}" for name, value in results["budget"].items())
    corpora = "<br>".join(
        escape(f"{corpus['role']}: {corpus['name']} ({corpus['num_kept']:,})") for corpus in results["corpora"]
    )
    scores = "<br>".join(
        escape(f"{one['name']}, {score['data']}: {score_text(score)}")
        for one in results["systems"]
        for score in one["scores"]
    )
    differs = "<br>".join(escape(text) for text in differences_text(results))
    machine = results["machine"]
    threads = f"{machine['num_cores']} cores, threads: {machine['num_threads']}"
    return [
        (words["budget"], escape(f"{budget} ({results['preset']})")),
        *([(words["differs"], differs)] if differs else []),
        (words["corpora"], corpora),
        (words["bleu"], scores),
        (words["signature"], f"<code>{escape(results['systems'][0]['scores'][0]['signature'])}</code>"),
        (words["seed"], str(results["seed"])),
        (words["machine"], escape(f"{machine['device']}; {machine['processor']}, {threads}; {machine['system']}")),
        (words["versions"], escape(", ".join(f"{name} {value}" for name, value in results["versions"].items()))),
        (words["command"], f"<code>{escape(results['command'] or '–')}</code>"),
        (words["created"], escape(results["created"])),
    ]


def differences_text(results: Results) -> list[str]:
    """The settings in which each system differs from the first, except architecture, width and heads."""
    return [
        f"{one['name']}: " + ", ".join(f"{key} {value}" for key, value in one["differs"].items())
        for one in results["systems"]
        if one["differs"]
    ]


# ---------------------------------------------------------------------- the plots


def write_plots(results: Results, output: Path, language: str, report: Callable[[str], None]) -> list[Path]:
    """`loss_over_tokens.png`, `loss_over_time.png`, `quality_by_length.png` and `summary.png`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    font = choose_font(installed_fonts()) if language == "zh" else None
    if language == "zh" and font is None:
        report("No font with Chinese characters was found: the PNG plots have English labels.")
    words = WORDS[language if language == "en" or font else "en"]
    colours = system_colours(results)
    paths = []
    with rc_context({"font.family": [font, "sans-serif"]} if font else {}):
        for name, axis, label in (("over_tokens", "tokens", "tokens"), ("over_time", "seconds", "time")):
            figure = Figure(figsize=(7, 4.2), layout="constrained")
            axes = figure.add_subplot()
            for line in without_steep_start(loss_lines(results, axis)):
                xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
                style = (
                    {"alpha": 0.4, "linewidth": 1} if line.thin else {"marker": "o", "markersize": 4, "linewidth": 2}
                )
                axes.plot(xs, ys, color=colours[line.colour], label=None if line.thin else line.label, **style)
            axes.set(xlabel=words[label], ylabel=words["loss"], title=words[name])
            axes.set_xlim(left=0)
            axes.grid(visible=True, alpha=0.3)
            axes.legend()
            paths.append(output / f"loss_{name}.png")
            figure.savefig(paths[-1], dpi=150)
        if quality_sets(results):
            paths.append(output / "quality_by_length.png")
            chosen = language if language == "en" or font else "en"
            plot_quality_by_length(results, chosen, colours).savefig(paths[-1], dpi=150)
        paths.append(output / "summary.png")
        _summary(results, words, colours).savefig(paths[-1], dpi=150)
    return paths


def _summary(results: Results, words: Mapping[str, str], colours: Sequence[str]) -> Any:
    """All bar charts in one figure."""
    from matplotlib.figure import Figure

    charts = bar_values(results)
    figure = Figure(figsize=(3.1 * len(charts), 1.2 + 0.45 * len(colours)), layout="constrained")
    for axes, (title, bars) in zip(figure.subplots(1, len(charts), sharey=True), charts.items(), strict=True):
        drawn = axes.barh([name for name, _, _ in bars], [value or 0.0 for _, value, _ in bars], color=colours)
        axes.bar_label(drawn, labels=[written for _, _, written in bars], padding=3, fontsize=8)
        axes.set_title(words[title], fontsize=10)
        axes.set_xticks([])
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.margins(x=0.45)
    figure.axes[0].invert_yaxis()
    return figure
