"""BLEU of the bundled models on English and Chinese, side by side, and what rounding to int8 costs.

    python benchmarks/quality/bundled_models_chinese.py data --write 2026-11-19
    python benchmarks/quality/bundled_models_chinese.py data --before-rounding full --write 2026-11-19

`data` holds the test sets, plain or .xz. Each model translates with its default search (beam 4) and engine. A model
with weights before rounding is scored on FLORES-200 in float32 by the native engine. The second table has pairs of two
test sets in which shared names and numbers are replaced by masks, {0} and so on, as `heedful translate` replaces
protected spans.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.corpus_files import TestSet, lines_of
from benchmarks.common.run_metadata import run_metadata
from heedful.decoding.translator import Translator
from heedful.evaluation.score import Score, score
from heedful.model_dir.registry import BUNDLED

SETS = [
    TestSet("FLORES-200 devtest", "newstest/flores200-devtest", "zh", "en"),
    TestSet("FLORES-200 devtest", "newstest/flores200-devtest", "en", "zh"),
    TestSet("newstest2017", "newstest/newstest2017.zh-en", "zh", "en"),
    TestSet("Tatoeba", "tatoeba-en-zh/test", "zh", "en"),
    TestSet("Tatoeba", "tatoeba-en-zh/test", "en", "zh"),
    TestSet("MLQE-PE, Wikipedia", "mlqe-pe-en-zh/test", "zh", "en"),
    TestSet("MLQE-PE, Wikipedia", "mlqe-pe-en-zh/test", "en", "zh"),
    TestSet("Microsoft Docs", "msdocs-en-zh/test", "zh", "en"),
    TestSet("Microsoft Docs", "msdocs-en-zh/test", "en", "zh"),
]
MODELS = ("en-de-zh", "en-zh")
SENTENCES = Path(__file__).with_name("bundled_model_sentences.tsv")
MASKED_SETS = [one for one in SETS if one.name in ("MLQE-PE, Wikipedia", "Microsoft Docs")]


def bleu_of(texts: list[str], references: list[str], target: str) -> Score:
    """BLEU with its interval."""
    [found] = score(texts, references, metrics=("bleu",), target_language=target)
    return found


def mask_rows(data: Path, systems: dict[str, Translator]) -> list[str]:
    """Pairs with one to four masks: BLEU without masks, with masks, and how many translations have all masks once."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes" / "bundled-model"))
    masked = importlib.import_module("synthetic_masks").masked
    rows = [
        "| test | direction | pairs | model | without masks | with masks | all masks |",
        "|---|---|---:|---|---:|---:|---:|",
    ]
    for one in MASKED_SETS:
        pairs = list(zip(*(lines_of(data, name) for name in one.files), strict=True))
        both = [(pair, put) for pair in pairs if (put := masked(Random(len(pair[0])), *pair))]
        for name, translator in systems.items():
            made = {}
            for form in (0, 1):
                texts = [row[form][0] for row in both]
                found = translator.translate(
                    texts, source_language=one.source, target_language=one.target, protect=False, checks=False
                )
                made[form] = [row.text for row in found]
            cells = [f"{bleu_of(made[form], [row[form][1] for row in both], one.target).value:.1f}" for form in (0, 1)]
            kept = sum(
                sorted(re.findall(r"\{\d\}", text)) == sorted(re.findall(r"\{\d\}", row[1][1]))
                for text, row in zip(made[1], both, strict=True)
            )
            rows.append(
                f"| {one.name} | {one.source} → {one.target} | {len(both)} | {name} | {cells[0]} | {cells[1]} "
                f"| {kept / len(both):.1%} |"
            )
            print(rows[-1], flush=True)
    return rows


def example_rows(translator: Translator) -> list[str]:
    """The example sentences of these directions."""
    rows = ["| kind | source | translation |", "|---|---|---|"]
    for direction, kind, text in (line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines()):
        source, target = direction.split("-")
        if {source, target} == {"en", "zh"}:
            [made] = translator.translate([text], source_language=source, target_language=target)
            rows.append(f"| {kind} | {text} | {made.text} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--before-rounding", type=Path, metavar="MODEL", help="en-zh with weights of float32")
    parser.add_argument("--write", metavar="DATE", help="write the table to benchmarks/results")
    chosen = parser.parse_args()
    systems = {f"{name}, int8": Translator.load(BUNDLED / name) for name in MODELS}
    if chosen.before_rounding:
        systems["en-zh, float32"] = Translator.load(chosen.before_rounding, engine="native", quantization="float32")
    int8 = {name: systems[name] for name in list(systems)[: len(MODELS)]}
    table = [f"| test | direction | sentences | {' | '.join(systems)} |", "|---|---|---:|" + "---:|" * len(systems)]
    signatures = dict[str, None]()
    for one in SETS:
        sources, references = (lines_of(chosen.data, name) for name in one.files)
        cells = []
        for translator in systems.values() if one in SETS[:2] else int8.values():
            made = translator.translate(sources, source_language=one.source, target_language=one.target)
            bleu = bleu_of([row.text for row in made], references, one.target)
            interval = f" ({bleu.interval.low:.1f}–{bleu.interval.high:.1f})" if bleu.interval else ""
            cells.append(f"{bleu.value:.2f}{interval}")
            signatures[bleu.signature] = None
        cells += ["–"] * (len(systems) - len(cells))
        table.append(f"| {one.name} | {one.source} → {one.target} | {len(sources):,} | {' | '.join(cells)} |")
        print(table[-1], flush=True)
    masks = mask_rows(chosen.data, int8)
    notes = [f"- `{signature}`" for signature in signatures]
    examples = example_rows(systems["en-zh, int8"])
    head = ["# English and Chinese", "", "BLEU (95 % interval)."]
    parts = [
        *head,
        "",
        *table,
        "",
        *notes,
        "",
        "## Masks",
        "",
        *masks,
        "",
        "## Examples",
        "",
        *examples,
        "",
        run_metadata(),
    ]
    text = "\n".join(parts)
    print(text)
    if chosen.write:
        name = f"bundled_models_chinese_{chosen.write}_cpu.md"
        Path(__file__).parents[1].joinpath("results", name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
