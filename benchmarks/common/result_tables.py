"""Shared cells, lines and words of result tables, in English and Chinese."""

from __future__ import annotations

from typing import Any

Results = dict[str, Any]
COLUMNS = [("int8", "beam 4"), ("int8", "greedy"), ("float32", "beam 4"), ("float32", "greedy")]
SPEED_HEADS = ("sentences/s in bulk, best (median)", "ms for a sentence alone, p50", "p95")
WORDS = {
    "test": "测试集",
    "text": "文本",
    "direction": "方向",
    "sentences": "句数",
    "languages": "语言",
    "also in training": "训练文本里也有的句子",
    "beam 4": "束宽 4",
    "greedy": "贪心",
    "aim": "目标",
    "reached": "达到",
    "kind": "类型",
    "source": "原文",
    "translation": "译文",
    "search": "搜索",
    "sentences/s in bulk, best (median)": "批量，句/秒，最好（中位数）",
    "ms for a sentence alone, p50": "单句毫秒，p50",
    "p95": "p95",
    "easy": "简单",
    "long": "长句",
    "names": "人名地名",
    "numbers": "数字",
    "idiom": "习语",
    "technical": "技术文档",
    "set": "数据",
    "line": "行号",
    "work": "出处",
    "reference": "参考译文",
    "precision": "精度",
    "source, copied": "原文照抄",
    "characters of the source": "原文字数",
    "unlike its training": "训练里没有的领域",
}


def word(text: str, lang: str) -> str:
    """A word of a table in the language of the page."""
    return WORDS[text] if lang == "zh" else text


def score_of(results: Results, name: str, direction: str, precision: str, search: str) -> Results | None:
    """The measurement for one cell; None if there is none."""
    found: Results | None = results["scores"].get(f"{name} {direction}, {precision}, {search}")
    return found


def arrow(direction: str) -> str:
    return direction.replace("-", " → ")


def value(found: Results | None, metric: int, *, interval: bool = False) -> str:
    """A score as a cell."""
    if found is None:
        return "–"
    one = found["scores"][metric]
    within = one["interval"]
    shown = "undefined" if one["value"] is None else f"{one['value']:.1f}"
    return shown + (f" ({within['low']:.1f}–{within['high']:.1f})" if interval and within else "")


def signatures(results: Results, lang: str) -> str:
    """How the scores were computed: sacreBLEU signatures, each once."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in results["scores"].values():
        for each in one["scores"]:
            targets = found.setdefault((each["name"], each["signature"]), [])
            target = one["direction"].split("-")[1]
            targets += [] if target in targets else [target]
    into = {"en": "into", "zh": "译入"}[lang]
    return "\n".join(f"- {name}, {into} {', '.join(sorted(to))}: `{text}`" for (name, text), to in found.items())


def engines(results: Results, lang: str) -> str:
    """Which engine computed which results."""
    who = {
        (one["precision"], one["engine"].split()[0], one["device"].split(":")[0]) for one in results["scores"].values()
    }
    summary = [
        f"{precision}: {engine}, {'GPU' if device == 'cuda' else 'CPU'}" for precision, engine, device in sorted(who)
    ]
    return {"en": "Computed by: ", "zh": "计算引擎："}[lang] + "; ".join(summary) + {"en": ".", "zh": "。"}[lang]


def signed(number: float) -> str:
    return f"{round(number, 2) + 0.0:+.2f}"


def cell(text: str) -> str:
    """Text escaped for a table cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def machines(results: Results, lang: str) -> str:
    """The machines, packages and commands of the results."""
    runs = results["runs"]
    summary = list(dict.fromkeys(one["machine"] for one in runs))
    packages = ", ".join(f"{name} {version}" for name, version in runs[-1]["versions"].items())
    commands = "\n".join(dict.fromkeys(f"- `{one['command']}`" for one in runs))
    names = {"en": ("machine", "versions"), "zh": ("机器", "版本")}[lang]
    return f"- {names[0]}: {'; '.join(summary)}\n- {names[1]}: {packages}\n{commands}"


def speed_cells(one: Results) -> list[str]:
    """Speeds as cells under SPEED_HEADS."""
    rate, alone = one["sentences_per_second"], one["alone_ms"]
    return [f"{rate['best']:.0f} ({rate['median']:.0f})", f"{alone['p50']:.1f}", f"{alone['p95']:.1f}"]
