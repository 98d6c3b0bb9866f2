"""Pairs about machine learning, everyday Chinese and places, for the bundled model.

    python3 recipes/bundled-model/synthetic_domain.py text

Reads the lists in the folder of this script: terms.tsv, terms_sentences.tsv and everyday.tsv
(written for this purpose), places.tsv (GeoNames, CC BY 4.0: name, Chinese name, country) and regions.tsv (Unicode CLDR,
Unicode License v3: kind, English, German, Chinese, code), and writes

    domain.{en,zh}             the sentences, unchanged
    terms.{en,zh}, terms-german.{en,de}       each term alone and in sentences
    places.{en,zh}             places in sentences, with their countries
    regions-german.{en,de}     countries, languages and currencies
"""

import re
from pathlib import Path
from random import Random

from synthetic import pick, run, write

HERE = Path(__file__).parent
TERM_SENTENCES = [
    ("What is {a}?", "什么是{a}？", "Was ist {a}?"),
    ("{a} is an important concept in machine learning.", "{a}是机器学习中的一个重要概念。", None),
    ("This section explains {a}.", "本节解释{a}。", None),
    ("We compare {a} with {b}.", "我们将{a}与{b}进行比较。", None),
    ("{a} and {b}", "{a}和{b}", "{a} und {b}"),
    ("{a}, {b} and {c}", "{a}、{b}和{c}", "{a}, {b} und {c}"),
    ("an introduction to {a}", "{a}简介", "Einführung: {a}"),
    ("How does {a} work?", "{a}是如何工作的？", None),
    ("The definition of {a} is given below.", "{a}的定义如下。", None),
    ("{a} is described in Section {n}.", "第{n}节介绍{a}。", None),
    ("Chapter {n}: {a}", "第{n}章：{a}", "Kapitel {n}: {a}"),
    ("Table {n} shows the results for {a}.", "表{n}列出了{a}的结果。", None),
    ("The paper is about {a}.", "这篇论文是关于{a}的。", None),
    ("She gave a talk on {a}.", "她做了一个关于{a}的报告。", None),
    ("I don't understand {a}.", "我不明白{a}是怎么回事。", None),
    ("Do you know what {a} means?", "你知道{a}是什么意思吗？", None),
    ("{a} depends on {b}.", "{a}取决于{b}。", None),
    ("Without {a} the model is worse.", "没有{a}，模型会变差。", None),
    ("The difference between {a} and {b} is small.", "{a}与{b}之间的差别很小。", None),
    ("We use {a} and {b} in all experiments.", "我们在所有实验中都使用{a}和{b}。", None),
    ("{a} (see Figure {n})", "{a}（见图{n}）", "{a} (siehe Abbildung {n})"),
    ("Keywords: {a}, {b}, {c}", "关键词：{a}，{b}，{c}", "Schlüsselwörter: {a}, {b}, {c}"),
    ("Students should be familiar with {a}.", "学生应当熟悉{a}。", None),
    ("The book covers {a}, {b} and {c}.", "这本书讲解了{a}、{b}和{c}。", None),
]
PLACE_SENTENCES = [
    ("{p}", "{p}"),
    ("{p}", "{p}"),
    ("{p}, {c}", "{c}{p}"),
    ("{p} is a city in {c}.", "{p}是{c}的一座城市。"),
    ("He lives in {p}.", "他住在{p}。"),
    ("She was born in {p}, {c}.", "她出生于{c}{p}。"),
    ("The train goes from {p} to {q}.", "这趟火车从{p}开往{q}。"),
    ("the mayor of {p}", "{p}市长"),
    ("The accident happened near {p}.", "事故发生在{p}附近。"),
    ("The University of {p} was founded in {y}.", "{p}大学成立于{y}年。"),
    ("We flew from {p} to {q} via {r}.", "我们从{p}经{r}飞往{q}。"),
    ("{p}, {q} and {r}", "{p}、{q}和{r}"),
    ("The conference will be held in {p} in {y}.", "会议将于{y}年在{p}举行。"),
    ("Two people were injured in {p} on Monday.", "周一，{p}有两人受伤。"),
    ("The company, based in {p}, was founded in {y}.", "该公司总部位于{p}，成立于{y}年。"),
    ("{p} is about {n} kilometres from {q}.", "{p}距离{q}约{n}公里。"),
    ("He moved from {p} to {q} in {y}.", "{y}年，他从{p}搬到了{q}。"),
    ("In {y}, about {n} thousand people lived in {p}.", "{y}年，{p}约有{n}千人居住。"),
    ("the old town of {p}", "{p}老城"),
    ("Have you ever been to {p}?", "你去过{p}吗？"),
    ("The weather in {p} is very hot today.", "今天{p}的天气很热。"),
]
REGION_SENTENCES = {
    "country": [
        ("{x}", "{x}", "{x}"), ("{x} and {z}", "{x}和{z}", "{x} und {z}"), ("the capital of {x}", "{x}的首都", None),
        ("The president of {x} met the prime minister of {z}.", "{x}总统会见了{z}总理。", None),
        ("trade between {x} and {z}", "{x}与{z}之间的贸易", "Handel zwischen {x} und {z}"),
        ("The team from {x} won.", "来自{x}的队伍赢了。", None), ("He comes from {x}.", "他来自{x}。", None),
        ("Exports to {x} rose by {n} percent.", "对{x}的出口增长了{n}%。", None),
        ("Elections were held in {x} in {y}.", "{y}年，{x}举行了选举。", None),
    ],
    "language": [
        ("{x}", "{x}", "{x}"), ("She speaks {x}.", "她会说{x}。", "Sie spricht {x}."),
        ("The book was translated into {x}.", "这本书被译成了{x}。", None), ("{x} and {z}", "{x}和{z}", "{x} und {z}"),
    ],
    "currency": [("{x}", "{x}", "{x}"), ("The price is given in {x}.", "价格以{x}计算。", None)],
}  # fmt: skip
COUNT = {"terms": 6_000, "places": 40_000, "regions": 9_000}


def table(name: str) -> list[list[str]]:
    """The rows of a list in the folder of this script."""
    text = (HERE / name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line]


def capitalized(text: str) -> str:
    """The text with its first letter as at the beginning of a sentence."""
    return text[:1].upper() + text[1:] if text.endswith((".", "?", "!")) else text


def filled(rng: Random, template: tuple[str | None, ...], rows: list[list[str]], slots: str) -> list[str | None]:
    """A template in each language, its slots filled with rows, which hold the languages in the same order."""
    numbers = {"n": str(2 + int(rng.random() * 400)), "y": str(1890 + int(rng.random() * 135))}
    chosen = {slot: pick(rng, rows) for slot in slots}
    found: list[str | None] = []
    for language, text in enumerate(template):
        if text is None:
            found.append(None)
            continue
        for slot, row in chosen.items():
            text = text.replace(f"{{{slot}}}", row[language])
        for slot, number in numbers.items():
            text = text.replace(f"{{{slot}}}", number)
        found.append(capitalized(text) if re.search("[A-Za-z]", text) else text)
    return found


def terms(rng: Random) -> list[list[str | None]]:
    """Each term alone, with and without a capital letter, and sentences about terms."""
    rows = table("terms.tsv")
    found: list[list[str | None]] = [list(row) for row in rows]
    found += [[row[0][:1].upper() + row[0][1:], row[1], row[2][:1].upper() + row[2][1:]] for row in rows]
    return found + [filled(rng, pick(rng, TERM_SENTENCES), rows, "abc") for _ in range(COUNT["terms"])]


def places(rng: Random, countries: dict[str, tuple[str, str]]) -> list[list[str]]:
    """Places in English and Chinese sentences; larger ones, which are listed first, more often."""
    rows = [row for row in table("places.tsv") if row[2] in countries]
    found = []
    for number in range(COUNT["places"]):
        first = rows[number % len(rows)] if number < len(rows) else rows[int(len(rows) * rng.random() ** 2)]
        english, chinese = pick(rng, PLACE_SENTENCES)
        names = {"p": first, "q": pick(rng, rows[:4_000]), "r": pick(rng, rows[:4_000])}
        numbers = {"n": str(2 + int(rng.random() * 900)), "y": str(1890 + int(rng.random() * 135))}
        pair = []
        for side, text in enumerate((english, chinese)):
            for slot, row in names.items():
                text = text.replace(f"{{{slot}}}", row[side])
            text = text.replace("{c}", countries[first[2]][side])
            for slot, value in numbers.items():
                text = text.replace(f"{{{slot}}}", value)
            pair.append(text)
        found.append(pair)
    return found


def main(folder: Path) -> None:
    """Write all files."""
    rng = Random(25)
    sentences = [row[:2] for row in table("terms_sentences.tsv")]
    sentences += [[english, chinese] for chinese, english in table("everyday.tsv")]
    write(folder, "domain", ("en", "zh"), sentences)
    about = terms(rng)
    write(folder, "terms", ("en", "zh"), [(one[0], one[1]) for one in about])
    write(folder, "terms-german", ("en", "de"), [(one[0], one[2]) for one in about if one[2]])
    regions = table("regions.tsv")
    countries = {code: (english, chinese) for kind, english, _, chinese, code in regions if kind == "country"}
    made: list[list[str | None]] = []
    for kind, templates in REGION_SENTENCES.items():
        rows = [[english, chinese, german] for one, english, german, chinese, _ in regions if one == kind]
        made += [list(row) for row in rows]
        made += [filled(rng, pick(rng, templates), rows, "xz") for _ in range(COUNT["regions"] // 3)]
    write(folder, "places", ("en", "zh"), [*places(rng, countries), *((one[0], one[1]) for one in made)])
    write(folder, "regions-german", ("en", "de"), [(one[0], one[2]) for one in made if one[2]])


if __name__ == "__main__":
    run(main, __doc__)
