"""The results of a comparison for people: a table, an HTML page that needs nothing else, and plots as PNG files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from heedful.paper.fonts import choose_font, installed_fonts
from heedful.paper.svg_charts import Line, bar_chart, line_chart, visible

LANGUAGES = ("en", "zh")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f", "#8b4513")
"""Of the systems, in order; told apart by colour-blind readers too (after Okabe and Ito)."""

WORDS: dict[str, dict[str, str]] = {
    "en": {
        "title": "Systems compared",
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
        "over_tokens": "Loss over tokens",
        "over_time": "Loss over time",
        "tokens": "target tokens trained on",
        "time": "seconds of the budget's clock, looks at valid included",
        "loss": "loss of a token",
        "curves": "Lines with marks: valid, without label smoothing. Faint lines: training, as optimised.",
        "made": "How it was made",
        "equal_parameters": "Each rival has the width at which its parameters come nearest to those of {reference}.",
        "equal_minutes": "Every system trained for the same minutes, with its preset as it is.",
        "differs": "what differs",
        "budget": "budget",
        "corpora": "corpora",
        "on_valid": "No test corpus was given: BLEU is on valid, on which the weights were also chosen.",
        "signature": "BLEU signature",
        "first_of_several": "BLEU in the table is on {data}; on the other sets: {others}.",
        "cuda_max_memory_allocated": "Memory: the peak of what tensors took on the GPU (max_memory_allocated) in "
        "training, validations and test included.",
        "resident_memory_growth": "Memory: by how much the process grew in RAM in training, validations and test "
        "included; sampled.",
        "not_measured": "Memory was not measured: this machine does not tell it.",
        "decoded": "Decoding: the same sentences for all, in batches, by {search}.",
        "early": "Before the budget was used, for want of progress on valid, stopped: {names}.",
        "seed": "seed",
        "machine": "machine",
        "versions": "versions",
        "command": "command",
        "created": "date",
        "one_run": "One run of each system with one seed: small differences may be luck.",
    },
    "zh": {
        "title": "系统对比",
        "system": "系统",
        "parameters": "参数量",
        "width": "宽度",
        "bleu": "BLEU",
        "valid_loss": "验证损失",
        "training": "训练，token/秒",
        "decoding": "解码，token/秒",
        "memory": "内存",
        "minutes": "分钟",
        "steps": "步数",
        "over_tokens": "损失随 token 数的变化",
        "over_time": "损失随时间的变化",
        "tokens": "训练过的目标端 token 数",
        "time": "秒（训练预算的计时，含验证）",
        "loss": "每个 token 的损失",
        "curves": "带点的线：验证集，不含标签平滑。浅色线：训练损失，即优化的目标。",
        "made": "怎样得到的",
        "equal_parameters": "每个对手的宽度都选成参数量与 {reference} 最接近的那个。",
        "equal_minutes": "所有系统训练同样长的时间，预设保持不变。",
        "differs": "各自的设置",
        "budget": "预算",
        "corpora": "语料",
        "on_valid": "没有给出测试集：BLEU 在验证集上计算，而权重也是在它上面挑选的。",
        "signature": "BLEU 签名",
        "first_of_several": "表中的 BLEU 是在 {data} 上的；其他测试集：{others}。",
        "cuda_max_memory_allocated": "内存：训练（含验证和测试）时张量在 GPU 上占用的峰值（max_memory_allocated）。",
        "resident_memory_growth": "内存：训练（含验证和测试）期间进程常驻内存（RSS）的增长，每秒采样 50 次。",
        "not_measured": "内存没有测量：这台机器不提供。",
        "decoded": "解码：所有系统翻译同样的句子，成批解码，{search}。",
        "early": "验证集上不再进步、没有用完预算就停下的：{names}。",
        "seed": "随机种子",
        "machine": "机器",
        "versions": "版本",
        "command": "命令",
        "created": "日期",
        "one_run": "每个系统只用一个随机种子训练了一次：小的差别可能是偶然。",
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
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 13px; }
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
    """Heading and rows, one a system, as text."""
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
            bleu_text(one["scores"][0]),
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


def number(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else format(value, form)


def parameters_text(count: int, reference: int) -> str:
    """Such as 1,234,567 (+1.2 %), compared with the first system."""
    return f"{count:,}" if count == reference else f"{count:,} ({count / reference - 1:+.1%})"


def bleu_text(score: Mapping[str, Any]) -> str:
    """Such as 34.5 ± 1.1: half the interval in which it lies with 95 %."""
    within = score.get("interval")
    half = f" ± {(within['high'] - within['low']) / 2:.1f}" if within else ""
    return "–" if score["value"] is None else f"{score['value']:.1f}{half}"


def bytes_text(count: int | None) -> str:
    """Such as 812 MiB."""
    if count is None:
        return "–"
    return f"{count / 2**30:,.2f} GiB" if count >= 2**30 else f"{count / 2**20:,.0f} MiB"


def remarks(results: Results, language: str) -> list[str]:
    """What a reader must know to read the table rightly."""
    words, search = WORDS[language], results["search"]
    kinds = sorted({one["memory_kind"] for one in results["systems"]})
    early = ", ".join(one["name"] for one in results["systems"] if one["stopped_by"] is not None)
    method = f"{search['method']} {search['beam_size'] or ''}".strip()
    return [
        words[f"equal_{results['equal']}"].format(reference=results["reference"]),
        *others_text(results, words),
        *([words["early"].format(names=early)] if early else []),
        *([words["on_valid"]] if results["scored_on"] == "valid" else []),
        words["decoded"].format(search=method),
        *(words[kind] for kind in kinds),
        words["one_run"],
    ]


def others_text(results: Results, words: Mapping[str, str]) -> list[str]:
    """Where there are several sets, on which the table's BLEU is, and every system's BLEU on the others."""
    first, *others = results["systems"][0]["scores"]
    found = [
        f"{score['data']}: "
        + ", ".join(f"{one['name']} {bleu_text(one['scores'][place])}" for one in results["systems"])
        for place, score in enumerate(others, start=1)
    ]
    return [words["first_of_several"].format(data=first["data"], others="; ".join(found))] if found else []


# ---------------------------------------------------------------------- the page


def write_report(
    results: Results, output: Path, *, language: str = "en", plots: bool = True, tell: Callable[[str], None]
) -> list[Path]:
    """Write `report.html` and, with `plots`, the PNG files; returns their paths."""
    page = output / "report.html"
    page.write_text(html_page(results, language), encoding="utf-8")
    return [page, *(write_plots(results, output, language, tell) if plots else [])]


def html_page(results: Results, language: str) -> str:
    """The whole report as one file: style and charts inside, nothing fetched, no script."""
    words = WORDS[language]
    heading, rows = table(results, language)
    cells = "".join(f"<th scope=col>{escape(text)}</th>" for text in heading)
    body = "".join(
        f"<tr><td>{key(index)}{escape(row[0])}</td>{''.join(f'<td>{escape(text)}</td>' for text in row[1:])}</tr>"
        for index, row in enumerate(rows)
    )
    rules = "".join(
        f".s{index} {{ stroke: {colour} }} .f{index} {{ fill: {colour} }}\n"
        for index, colour in enumerate(colours_of(results))
    )
    legend = " &ensp; ".join(
        f'<span class="name">{key(index)}{escape(row[0])}</span>' for index, row in enumerate(rows)
    )
    notes = "".join(f"<li>{escape(text)}</li>" for text in remarks(results, language))
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in facts_of(results, words))
    return (
        f'<!doctype html>\n<html lang="{"zh-CN" if language == "zh" else "en"}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{words["title"]}</title>\n'
        f"<style>{STYLE}{rules}</style>\n</head>\n<body>\n<h1>{words['title']}</h1>\n"
        f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>\n'
        f'<ul class="note">{notes}</ul>\n'
        f'<p class="note">{legend}<br>{words["curves"]}</p>\n{charts(results, words)}\n'
        f"<h2>{words['made']}</h2>\n<dl>{facts}</dl>\n</body>\n</html>\n"
    )


def colours_of(results: Results) -> list[str]:
    """A colour for each system."""
    return [COLOURS[index % len(COLOURS)] for index in range(len(results["systems"]))]


def key(index: int) -> str:
    """A little square of a system's colour."""
    return f'<span class="key" style="background: {COLOURS[index % len(COLOURS)]}"></span>'


def charts(results: Results, words: Mapping[str, str]) -> str:
    """Loss curves over tokens and over time, then a bar chart of each other number."""
    figures = [
        (words[title], line_chart(loss_lines(results, axis), x_label=words[label], y_label=words["loss"]))
        for title, axis, label in (("over_tokens", "tokens", "tokens"), ("over_time", "seconds", "time"))
    ]
    figures += [(words[title], bar_chart(bars, title=words[title])) for title, bars in bars_of(results).items()]
    return (
        f'<div class="charts">{"".join(f"<div><h2>{escape(name)}</h2>{drawn}</div>" for name, drawn in figures)}</div>'
    )


def loss_lines(results: Results, axis: str) -> list[Line]:
    """The curves of all systems: valid, and faintly training."""
    return [
        Line(one["name"], [(point[axis], point["loss"]) for point in one["curves"][part]], index, faint=part == "train")
        for index, one in enumerate(results["systems"])
        for part in ("train", "valid")
    ]


def bars_of(results: Results) -> dict[str, list[tuple[str, float | None, str]]]:
    """For each bar chart its values: name of the system, number, number as text."""
    found: dict[str, list[tuple[str, float | None, str]]] = {}
    for one in results["systems"]:
        bleu = one["scores"][0]
        rates = {name: one[f"{name}_tokens_per_second"] for name in ("training", "decoding")}
        found.setdefault("bleu", []).append((one["name"], bleu["value"], bleu_text(bleu)))
        for name, rate in rates.items():
            found.setdefault(name, []).append((one["name"], rate, number(rate, ",.0f")))
        found.setdefault("memory", []).append((one["name"], one["memory_bytes"], bytes_text(one["memory_bytes"])))
        found.setdefault("parameters", []).append((one["name"], one["parameters"], f"{one['parameters']:,}"))
    return found


def facts_of(results: Results, words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and values (HTML) of what the comparison was made with."""
    budget = ", ".join(f"{value:,.10g} {name}" for name, value in results["budget"].items())
    corpora = "<br>".join(
        escape(f"{corpus['role']}: {corpus['name']} ({corpus['num_kept']:,})") for corpus in results["corpora"]
    )
    scores = "<br>".join(
        escape(f"{one['name']}, {score['data']}: {bleu_text(score)}")
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
    """Of each system what it has otherwise than the first, architecture, width and heads aside."""
    return [
        f"{one['name']}: " + ", ".join(f"{key} {value}" for key, value in one["differs"].items())
        for one in results["systems"]
        if one["differs"]
    ]


# ---------------------------------------------------------------------- the plots


def write_plots(results: Results, output: Path, language: str, tell: Callable[[str], None]) -> list[Path]:
    """`loss_over_tokens.png`, `loss_over_time.png` and `summary.png`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    font = choose_font(installed_fonts()) if language == "zh" else None
    if language == "zh" and font is None:
        tell("No font with Chinese characters was found: the PNG plots have English labels.")
    words = WORDS[language if language == "en" or font else "en"]
    colours = colours_of(results)
    paths = []
    with rc_context({"font.family": [font, "sans-serif"]} if font else {}):
        for name, axis, label in (("over_tokens", "tokens", "tokens"), ("over_time", "seconds", "time")):
            figure = Figure(figsize=(7, 4.2), layout="constrained")
            axes = figure.add_subplot()
            for line in visible(loss_lines(results, axis)):
                xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
                look = (
                    {"alpha": 0.4, "linewidth": 1} if line.faint else {"marker": "o", "markersize": 4, "linewidth": 2}
                )
                axes.plot(xs, ys, color=colours[line.colour], label=None if line.faint else line.label, **look)
            axes.set(xlabel=words[label], ylabel=words["loss"], title=words[name])
            axes.set_xlim(left=0)
            axes.grid(visible=True, alpha=0.3)
            axes.legend()
            paths.append(output / f"loss_{name}.png")
            figure.savefig(paths[-1], dpi=150)
        paths.append(output / "summary.png")
        _summary(results, words, colours).savefig(paths[-1], dpi=150)
    return paths


def _summary(results: Results, words: Mapping[str, str], colours: Sequence[str]) -> Any:
    """All bar charts side by side."""
    from matplotlib.figure import Figure

    charts = bars_of(results)
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
