"""The results of the bundled model as tables, in English and Chinese, for its results page and model card."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.result_tables import (
    COLUMNS,
    SPEED_HEADS,
    Results,
    arrow,
    cell,
    engines,
    machines,
    score_of,
    signatures,
    signed,
    speed_cells,
    value,
    word,
)
from benchmarks.quality.bundled_model_sets import SETS
from heedful.paper.text_tables import markdown_table


class Aim(NamedTuple):
    """Target scores of the published model: BLEU, int8, beam 4."""

    set: str
    direction: str
    bleu: float


AIMS = [
    Aim("newstest2014", "en-de", 21),
    Aim("newstest2014", "de-en", 25),
    Aim("flores200-devtest", "en-de", 26),
    Aim("flores200-devtest", "de-en", 30),
    Aim("flores200-devtest", "zh-en", 12),
    Aim("tatoeba", "en-de", 43),
    Aim("tatoeba", "zh-en", 26),
]

TITLES = {
    "newstest2014": ("newstest2014", "news", "新闻"),
    "flores200-devtest": ("FLORES-200 devtest", "encyclopedia, news, travel", "百科、新闻、旅游"),
    "newstest2017": ("newstest2017", "news", "新闻"),
    "tatoeba": ("Tatoeba", "everyday sentences, short", "日常短句"),
    "msdocs": ("Microsoft Docs", "software manuals", "软件文档"),
    "multi30k-test2016": ("Multi30k test2016", "captions of photographs", "图片描述"),
}


def measured_sets(results: Results) -> list[tuple[str, str]]:
    """Every test set and direction with a score, in order."""
    known = {(one["set"], one["direction"]) for one in results["scores"].values()}
    return [pair for pair in ((one.name, f"{one.source}-{one.target}") for one in SETS) if pair in known]


def score_tables(results: Results, lang: str) -> str:
    """BLEU, then chrF, of all test sets."""
    parts = []
    for metric, name in enumerate(("BLEU", "chrF2")):
        heads = [f"{precision}, {word(search, lang)}" for precision, search in COLUMNS]
        heading = [*(word(text, lang) for text in ("test", "text", "direction")), word("sentences", lang), *heads]
        rows = []
        for set_name, direction in measured_sets(results):
            found = [score_of(results, set_name, direction, *column) for column in COLUMNS]
            title, english, chinese = TITLES[set_name]
            count = next(one["num_sentences"] for one in found if one is not None)
            cells = [value(one, metric, interval=metric == 0 and index == 0) for index, one in enumerate(found)]
            rows.append([title, chinese if lang == "zh" else english, arrow(direction), f"{count:,}", *cells])
        head = f"**{name}**" + ({"en": " (95 % interval)", "zh": "（95 % 区间）"}[lang] if metric == 0 else "")
        parts.append(f"{head}\n\n{markdown_table(heading, rows, names=3)}")
    return "\n\n".join(parts)


def losses(results: Results) -> list[tuple[float, str, str]]:
    """Loss of int8 with beam 4 in BLEU, largest first: float32 − int8, set, direction."""
    found = []
    for name, direction in measured_sets(results):
        pair = [score_of(results, name, direction, precision, "beam 4") for precision in ("float32", "int8")]
        if pair[0] is not None and pair[1] is not None:
            full, rounded = (one["scores"][0]["value"] for one in pair if one is not None)
            found.append((full - rounded, name, direction))
    return sorted(found, reverse=True)


def rounding(results: Results, lang: str) -> str:
    """The loss of int8 as a sentence."""
    found = losses(results)
    if not found:
        return ""
    mean, (most, name, direction) = sum(one[0] for one in found) / len(found), found[0]
    title = f"{TITLES[name][0]} {arrow(direction)}"
    if lang == "zh":
        mean_difference = f"束宽 4 时，int8 与 float32 相比，{len(found)} 项测试平均相差 {signed(-mean)} BLEU"
        return f"{mean_difference}，损失最大的是 {title}：{signed(-most)}。"
    return (
        f"With beam 4, int8 has {signed(-mean)} BLEU against float32 on average over {len(found)} tests; "
        f"the largest loss is on {title}: {signed(-most)}."
    )


def overlap(results: Results, lang: str) -> str:
    """How many test sentences are also in the training text, with another translation."""
    counts = results["overlap"]["found"]
    rows = []
    for one in SETS:
        first = next(other for other in SETS if other.path == one.path)
        if one is not first:
            continue
        summary = [f"{name.rpartition('.')[2]} {counts[name]['seen']:,}" for name in sides_of(one.path, counts)]
        lines = counts[one.files[0]]["lines"]
        languages = "-".join(name.rpartition(".")[2] for name in sides_of(one.path, counts))
        rows.append([TITLES[one.name][0], languages, f"{lines:,}", ", ".join(summary)])
    heading = [word(text, lang) for text in ("test", "languages", "sentences", "also in training")]
    return markdown_table(heading, rows, names=2)


def sides_of(path: str, counts: Results) -> list[str]:
    return [name for name in counts if name.rpartition(".")[0] == path]


def aims(results: Results, lang: str) -> str:
    """Target and actual scores with two decimals, since a rounded 21.0 may be below 21."""
    rows = []
    for aim in AIMS:
        found = score_of(results, aim.set, aim.direction, "int8", "beam 4")
        if found is not None:
            reached = found["scores"][0]["value"]
            rows.append([TITLES[aim.set][0], arrow(aim.direction), f"{aim.bleu:g}", f"{reached:.2f}"])
    heading = [
        word("test", lang),
        word("direction", lang),
        f"BLEU, {word('aim', lang)}",
        f"BLEU, {word('reached', lang)}",
    ]
    return markdown_table(heading, rows, names=2)


def speeds(results: Results, lang: str) -> str:
    """Sentences per second and milliseconds."""
    heading = [word(text, lang) for text in ("test", "direction", "search", *SPEED_HEADS)]
    rows = []
    for one in results["speed"]["found"]:
        summary = (TITLES[one["text"]][0], arrow(one["direction"]), word(one["search"], lang))
        rows.append([*summary, *speed_cells(one)])
    return markdown_table(heading, rows, names=3)


def start_and_size(results: Results, lang: str) -> str:
    """Start-up times and file sizes as a list."""
    lines = []
    if "start" in results:
        one = results["start"]["found"]
        first, later = (f"{one[name]:.2f}" for name in ("first_seconds", "median_seconds"))
        times, memory = one["rounds"], f"{one['peak_mb']:.0f} MB"
        english = f"- the whole command for one sentence: {later} s (median of {times}), the first time {first} s"
        chinese = f"- 整条命令翻译一句话：{later} 秒（{times} 次的中位数），第一次 {first} 秒"
        lines.append({"en": f"{english}; at most {memory} of memory", "zh": f"{chinese}；内存最多 {memory}"}[lang])
    if "size" in results:
        one = results["size"]["found"]
        total, zipped = sum(one["files"].values()) / 1e6, one["zipped"] / 1e6
        lines.append(
            {
                "en": f"- files: {total:.1f} MB, in the wheel {zipped:.1f} MB",
                "zh": f"- 文件：{total:.1f} MB，在 wheel 里 {zipped:.1f} MB",
            }[lang]
        )
    return "\n".join(lines)


def examples(results: Results, lang: str) -> str:
    """Sentences and their translations, a table for each direction."""
    parts = []
    made = results["examples"]["found"]
    for direction in dict.fromkeys(one["direction"] for one in made):
        heading = [word(text, lang) for text in ("kind", "source", "translation")]
        rows = [
            [word(one["kind"], lang), cell(one["source"]), cell(one["translation"])]
            for one in made
            if one["direction"] == direction
        ]
        parts.append(f"**{arrow(direction)}**\n\n{markdown_table(heading, rows, names=3)}")
    return "\n\n".join(parts)


def benchmark_page(results: Results) -> str:
    """The results page."""
    model = results["model"]
    parts = [f"# The bundled model: {model['name']}", f"{model['num_parameters'] or 0:,} parameters."]
    if results["scores"]:
        parts += [
            score_tables(results, "en"),
            rounding(results, "en"),
            signatures(results, "en"),
            engines(results, "en"),
        ]
    if "speed" in results:
        parts.append(speeds(results, "en"))
    parts.append(start_and_size(results, "en"))
    if "overlap" in results:
        parts.append(overlap(results, "en"))
    if "examples" in results:
        parts.append(examples(results, "en"))
    if results["runs"]:
        parts.append(machines(results, "en"))
    return "\n\n".join(part for part in parts if part) + "\n"
