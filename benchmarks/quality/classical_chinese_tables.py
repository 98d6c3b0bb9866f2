"""Results of classical to modern Chinese as tables, in English and Chinese, for the results page and docs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.generated_pages import shape, two_columns
from benchmarks.common.result_tables import (
    COLUMNS,
    SPEED_HEADS,
    Results,
    cell,
    engines,
    machines,
    score_of,
    signatures,
    speed_cells,
    value,
    word,
)
from heedful.paper.text_tables import markdown_table

DIRECTION = "lzh-zh"
SETS = ("test", "valid")
FACTS = {
    "en": {
        "Parameters": "{parameters}",
        "Model": "{shape}",
        "Vocabulary": "{vocabulary} characters and words, shared by both sides",
        "Text": "{pairs} pairs of sentences, each seen {epochs} times",
        "Training": "weights after {steps} steps, {tokens} million target tokens, {device}",
        "Valid loss": "{loss}",
    },
    "zh": {
        "参数量": "{parameters}",
        "模型": "{shape}",
        "词表": "{vocabulary} 个字和词，原文、译文共用",
        "训练文本": "{pairs} 对句子，每对学了 {epochs} 遍",
        "训练": "取自第 {steps} 步的权重，其间共学了 {tokens} 百万个目标词元，{device}",
        "验证集损失": "{loss}",
    },
}


def facts(results: Results, lang: str) -> str:
    """Description of the model and its training, from its details."""
    model = results["model"]
    training = model["training"]
    numbers = {
        "parameters": formatted(model["num_parameters"], ","),
        "vocabulary": formatted(model["vocabulary"], ","),
        "pairs": formatted(model["num_pairs"], ","),
        "loss": formatted(training.get("valid_loss"), ".3f"),
        "steps": formatted(training.get("steps"), ","),
        "tokens": formatted(training["tokens"] / 1e6 if "tokens" in training else None, ".0f"),
        "epochs": formatted(training.get("epochs"), ".1f"),
        "device": training.get("device", "–"),
        "shape": shape(model, lang),
    }
    return two_columns({name: cells.format(**numbers) for name, cells in FACTS[lang].items()})


def formatted(number: float | None, how: str) -> str:
    """A formatted number, or a dash for None."""
    return "–" if number is None else format(number, how)


def scores(results: Results, lang: str) -> str:
    """BLEU and chrF2 of both sets, and of the unchanged source."""
    interval = {"en": " (95 % interval)", "zh": "（95% 区间）"}[lang]
    rows = []
    for name in SETS:
        found = [(column, score_of(results, name, DIRECTION, *column)) for column in COLUMNS]
        for (precision, search), one in found:
            if one is not None:
                how = f"{precision}, {word(search, lang)}"
                rows.append([title(name, lang), f"{one['num_sentences']:,}", how, *both(one)])
        count = next((f"{one['num_sentences']:,}" for _, one in found if one is not None), "–")
        if "copied" in results:
            copied = {"scores": results["copied"]["found"][name]}
            rows.append([title(name, lang), count, word("source, copied", lang), *both(copied)])
    heading = [word("set", lang), word("sentences", lang), "", f"BLEU{interval}", f"chrF2{interval}"]
    return markdown_table(heading, rows, names=3)


def both(one: Results) -> list[str]:
    """BLEU and chrF2 with confidence intervals."""
    return [value(one, metric, interval=True) for metric in (0, 1)]


def title(name: str, lang: str) -> str:
    return {"test": "测试集", "valid": "验证集"}[name] if lang == "zh" else name


def lengths(results: Results, lang: str) -> str:
    """Scores on the test set by source length."""
    rows = []
    for one in results["lengths"]["found"]:
        least, most = one["longer_than"] + 1, one["at_most"]
        group = f"{least}–{most}" if most else {"en": f"{least} and more", "zh": f"{least} 及以上"}[lang]
        copied = {"scores": one["copied"]}
        rows.append([group, f"{one['num_sentences']:,}", *both(one), value(copied, 0), value(copied, 1)])
    heads = ("characters of the source", "sentences")
    more = (f"BLEU, {word('source, copied', lang)}", f"chrF2, {word('source, copied', lang)}")
    interval = {"en": " (95 % interval)", "zh": "（95% 区间）"}[lang]
    heading = [*(word(text, lang) for text in heads), f"BLEU{interval}", f"chrF2{interval}", *more]
    return markdown_table(heading, rows)


def speeds(results: Results, lang: str) -> str:
    """Sentences per second and milliseconds."""
    heading = [word(text, lang) for text in ("precision", "search", *SPEED_HEADS)]
    rows = [[one["precision"], word(one["search"], lang), *speed_cells(one)] for one in results["speed"]["found"]]
    return markdown_table(heading, rows, names=2)


def test_lines(results: Results, lang: str) -> str:
    """Lines of the test set, their translations, and the references."""
    heading = [word(text, lang) for text in ("line", "source", "translation", "reference")]
    rows = [
        [f"{one['line']:,}", *(cell(one[name]) for name in ("source", "translation", "reference"))]
        for one in results["samples"]["found"]["lines"]
    ]
    return markdown_table(heading, rows, names=len(heading))


def famous(results: Results, lang: str) -> str:
    """Famous sentences, their translations, and their meaning in English."""
    index = {"en": 0, "zh": 1}[lang]
    heading = [word(text, lang) for text in ("work", "source", "translation")]
    rows = []
    for one in results["samples"]["found"]["famous"]:
        where = {"en": "{}; {}", "zh": "{}（{}）"}[lang].format(one["work"][index], one["author"][index])
        rows.append([where, cell(one["source"]), cell(one["translation"])])
        if lang == "en":
            rows[-1].append(cell(one["meaning"]))
    heading += ["meaning, in our words"] if lang == "en" else []
    return markdown_table(heading, rows, names=len(heading))


def not_seen(results: Results, lang: str) -> str:
    """Which clauses of the famous sentences occur in the corpus."""
    clauses = results["samples"]["found"]["clauses"]
    if lang == "zh":
        known = "、".join(f"“{clause}”（{count} 次）" for clause, count in clauses.items())
        some = f"四字及以上的分句中，语料里出现过的有{known}。" if clauses else "四字及以上的分句也都没有出现过。"
        return f"去掉标点逐字查找过：这十句都不在语料（训练集、验证集、测试集）的文言一侧。{some}"
    known = ", ".join(f"{clause} ({count})" for clause, count in clauses.items())
    some = (
        f"of their clauses of four characters and more these do: {known}." if clauses else "nor does a clause of them."
    )
    return (
        "Searched character by character, without punctuation: none of the ten occurs on the classical side of the "
        f"corpus (train, valid, test); {some}"
    )


def benchmark_page(results: Results) -> str:
    """The results page."""
    parts = [f"# {results['model']['name']}", facts(results, "en")]
    if results["scores"]:
        parts += [scores(results, "en"), signatures(results, "en"), engines(results, "en")]
    if "lengths" in results:
        parts += ["By length, test, int8, beam 4:", lengths(results, "en")]
    if "speed" in results:
        parts.append(speeds(results, "en"))
    if "samples" in results:
        parts += [test_lines(results, "en"), famous(results, "en"), not_seen(results, "en")]
    if results["runs"]:
        parts.append(machines(results, "en"))
    return "\n\n".join(parts) + "\n"
