"""Write the cards of the bundled models: docs/bundled-model.md, the Chinese page, and the READMEs of both models.

    python .ci/bundled_model_page.py              # write all of them
    python .ci/bundled_model_page.py docs/bundled-model.md  # print one of them

The prose is written by hand; the text between `<!-- made: NAME -->` and `<!-- end -->` is generated from the newest
benchmarks/results/bundled_model_DATE_cpu.json (benchmarks/common/generated_pages.py). The README of heedful/bundled/en-de-zh holds both languages one after the other, because
licences and figures must travel with the model. The scores also go into its config.json, for `heedful info` and `heedful models`. The checksums in
checksums.json are updated. The README of heedful/bundled/en-zh is made of docs/bundled-model-en-zh.md and its Chinese
page in the same way. A test compares them all.
"""
# ruff: noqa: E501

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import benchmarks.quality.bundled_model_tables as tables  # noqa: E402
from benchmarks.common.generated_pages import fill, machine, newest_figures, shape, source, two_columns  # noqa: E402
from benchmarks.common.result_tables import engines, signatures  # noqa: E402
from heedful.model_card import model_card  # noqa: E402
from heedful.model_dir import files as model_files  # noqa: E402
from heedful.model_dir.files import CARD, CHECKSUMS, sha256  # noqa: E402
from heedful.model_dir.save_load import read_record  # noqa: E402

PAGES = {"en": ROOT / "docs" / "bundled-model.md", "zh": ROOT / "docs" / "bundled-model.zh-CN.md"}
BUNDLED = ROOT / "heedful" / "bundled" / "en-de-zh"
PAIR = ROOT / "heedful" / "bundled" / "en-zh"
PAIR_PAGES = {"en": ROOT / "docs" / "bundled-model-en-zh.md", "zh": ROOT / "docs" / "bundled-model-en-zh.zh-CN.md"}
IN_CHINESE = {
    "| test | direction | sentences |": "| 测试集 | 方向 | 句数 |",
    "| test | direction | pairs | model | without masks | with masks | all masks |": "| 测试集 | 方向 | 句对 | 模型 | 无掩码 | 有掩码 | 掩码齐全 |",
    "| kind | source | translation |": "| 类别 | 原文 | 译文 |",
    "MLQE-PE, Wikipedia": "MLQE-PE，维基百科",
    "\n| easy |": "\n| 简单 |",
    "\n| long |": "\n| 长句 |",
    "\n| names |": "\n| 人名地名 |",
    "\n| numbers |": "\n| 数字 |",
    "\n| idiom |": "\n| 习语 |",
    "\n| technical |": "\n| 技术 |",
    "\n| unlike its training |": "\n| 与训练文本不同 |",
}
Results = dict[str, Any]


def sections(path: Path, results: Results, lang: str) -> dict[str, str]:
    """All sections generated from these results."""
    made = {"facts": facts(results, lang)}
    if results["scores"]:
        parts = [tables.score_tables(results, lang), tables.rounding(results, lang), signatures(results, lang)]
        made["scores"] = "\n\n".join(part for part in [*parts, engines(results, lang), source(path, lang)] if part)
        made["aims"] = tables.aims(results, lang)
    if "speed" in results:
        made["speed"] = (
            f"{tables.speeds(results, lang)}\n\n{tables.start_and_size(results, lang)}\n\n{machine(results, lang)}"
        )
    if "overlap" in results:
        made["overlap"] = tables.overlap(results, lang)
    if "examples" in results:
        made["examples"] = tables.examples(results, lang)
    return made


def facts(results: Results, lang: str) -> str:
    """A description of the model as a table of two columns."""
    model = results["model"]
    names = {
        "en": ("Parameters", "Model", "Vocabulary", "Size in the wheel", "Licence"),
        "zh": ("参数量", "模型", "词表", "在 wheel 里的大小", "许可证"),
    }[lang]
    subwords = {"en": "subwords for all three languages", "zh": "个子词，三种语言共用"}[lang]
    size = f"{results['size']['found']['zipped'] / 1e6:.1f} MB" if "size" in results else "–"
    cells = (
        f"{model['num_parameters']:,}",
        shape(model, lang),
        f"{model['vocabulary']:,} {subwords}",
        size,
        model["licence"] or "–",
    )
    return two_columns(dict(zip(names, cells, strict=True)))


def filled(lang: str) -> str:
    """A page with regenerated sections; a section without results is empty."""
    found = newest_figures("bundled_model")
    return fill(PAGES[lang].read_text(encoding="utf-8"), sections(*found, lang) if found else {})


def card(model: Path, texts: list[str]) -> str:
    """The README of a model: front matter, the English and the Chinese page, without relative links."""
    config, details, _ = model_files.read_consistent(model, read_record)
    front = model_card(config, details, details.get("scores") or []).split("---\n")[1]
    pages = []
    for text in texts:
        page = re.sub(r"<!-- .*? -->\n", "", text)
        page = re.sub(r"^\[(?:中文|English)\]\([^)]*\)\n\n", "", page, flags=re.MULTILINE)
        pages.append(re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", page).strip())
    return f"---\n{front}---\n\n(中文说明在后半部分。)\n\n" + "\n\n---\n\n".join(pages) + "\n"


def scores(results: Results, weights: str) -> list[dict[str, Any]]:
    """The scores that `heedful info` and `heedful models` show: news and FLORES-200 in the learned directions.

    Empty if the results were measured with other weights than those of the bundled model.
    """
    if results["model"]["weights_sha256"].get("int8") != weights:
        return []
    found = []
    for one in results["scores"].values():
        is_general = one["set"].startswith(("newstest", "flores")) and "en" in one["direction"].split("-")
        if is_general and (one["precision"], one["search"]) == ("int8", "beam 4") and one["cut"] is None:
            found += [{**score, "data": f"{one['set']} {one['direction']}"} for score in one["scores"]]
    return found


def write_scores() -> None:
    """Write the scores into config.json of the bundled model."""
    if (newest := newest_figures("bundled_model")) is None:
        return
    path = BUNDLED / model_files.CONFIG
    record = json.loads(path.read_text(encoding="utf-8"))
    record["details"]["scores"] = scores(newest[1], sha256(BUNDLED / "model.safetensors"))
    path.write_text(model_files.to_json(record), encoding="utf-8")
    list_file(BUNDLED, model_files.CONFIG)


def write_card() -> None:
    """Write the card of the model with results."""
    (BUNDLED / CARD).write_text(card(BUNDLED, [filled(lang) for lang in PAGES]), encoding="utf-8")
    list_file(BUNDLED, CARD)


def pair_card() -> str:
    """The README of the model for English and Chinese."""
    return card(PAIR, [pair_page(lang) for lang in PAIR_PAGES])


def pair_page(lang: str) -> str:
    """A page of this model with the tables of the newest benchmarks/results/bundled_models_chinese_DATE_cpu.md."""
    newest = max((ROOT / "benchmarks" / "results").glob("bundled_models_chinese_*_cpu.md"))
    text = newest.read_text(encoding="utf-8").partition("interval).\n\n")[2].partition("\n\n- machine")[0]
    if lang == "zh":
        for english, chinese in IN_CHINESE.items():
            text = text.replace(english, chinese)
    scores, rest = text.split("\n\n## Masks\n\n")
    masks, examples = rest.split("\n\n## Examples\n\n")
    made = {"scores": scores, "masks": masks, "examples": examples}
    return fill(PAIR_PAGES[lang].read_text(encoding="utf-8"), made)


def list_file(model: Path, name: str) -> None:
    """Update size and checksum of a file in checksums.json."""
    listed = json.loads((model / CHECKSUMS).read_text(encoding="utf-8"))
    listed["files"][name] = {"size": (model / name).stat().st_size, "sha256": sha256(model / name)}
    (model / CHECKSUMS).write_text(model_files.to_json(listed), encoding="utf-8")


def main() -> None:
    """Print the requested page, or write all."""
    if len(sys.argv) > 1:
        asked = (ROOT / sys.argv[1]).resolve()
        lang = next((lang for lang, page in PAGES.items() if page.resolve() == asked), None)
        pair = next((lang for lang, page in PAIR_PAGES.items() if page.resolve() == asked), None)
        if pair is not None or asked == (PAIR / CARD).resolve():
            sys.stdout.write(pair_card() if pair is None else pair_page(pair))
        else:
            sys.stdout.write(card(BUNDLED, [filled(one) for one in PAGES]) if lang is None else filled(lang))
        return
    for lang, page in PAGES.items():
        page.write_text(filled(lang), encoding="utf-8")
    if BUNDLED.is_dir():
        write_scores()
        write_card()
    for lang, page in PAIR_PAGES.items():
        page.write_text(pair_page(lang), encoding="utf-8")
    (PAIR / CARD).write_text(pair_card(), encoding="utf-8")
    list_file(PAIR, CARD)


if __name__ == "__main__":
    main()
