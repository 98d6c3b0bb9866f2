"""BLEU of the bundled model on 200 everyday and machine-learning sentences, translated by hand, in both directions.

    python benchmarks/quality/bundled_model_first_sentences.py --write 2026-11-18
    python benchmarks/quality/bundled_model_first_sentences.py -m model
    python benchmarks/quality/bundled_model_first_sentences.py --translated "OPUS-MT zh-en" zh made.en  # other program

No sentence of the set is in the training text of this repository. Beam 4, engine `auto`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import run_metadata
from heedful.decoding.translator import Translator
from heedful.evaluation.score import score

SENTENCES = Path(__file__).with_name("bundled_model_first_sentences.tsv")
SHOWN = ("快递放门口就行，谢谢。", "残差连接把子层的输入加到它的输出上。", "你怎么不早说？")


def rows() -> list[dict[str, str]]:
    """The sentences with their kind."""
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    return [dict(zip(("kind", "zh", "en"), line.split("\t"), strict=True)) for line in lines]


def table_of(name: str, source: str, made: list[str]) -> list[str]:
    """A row for each kind of sentence, and one for all sentences."""
    target = "en" if source == "zh" else "zh"
    table = []
    for kind in ("everyday", "machine learning", None):
        chosen = [(text, row[target]) for text, row in zip(made, rows(), strict=True) if kind in (None, row["kind"])]
        found = score([one for one, _ in chosen], [other for _, other in chosen], metrics=("bleu", "chrf"),
                      target_language=target)  # fmt: skip
        cells = " | ".join(f"{one.value:.1f}" for one in found)
        table.append(f"| {name} | {source} → {target} | {kind or 'all'} | {len(chosen)} | {cells} |")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a model directory; by default the bundled model")
    parser.add_argument("--translated", nargs=3, action="append", default=[], metavar=("NAME", "FROM", "FILE"))
    parser.add_argument("--write", metavar="DATE", help="write the tables to benchmarks/results")
    chosen = parser.parse_args()
    translator = Translator.load(chosen.model) if chosen.model else Translator.load()
    table = ["| system | direction | sentences | number | BLEU | chrF2 |", "|---|---|---|---:|---:|---:|"]
    examples = ["| Chinese | reference | translation |", "|---|---|---|"]
    for source, target in (("zh", "en"), ("en", "zh")):
        texts = [row[source] for row in rows()]
        found = translator.translate(texts, source_language=source, target_language=target, beam_size=4)
        table += table_of("this model", source, [one.text for one in found])
        shown = zip(rows(), found, strict=True) if source == "zh" else ()
        examples += [f"| {row['zh']} | {row['en']} | {one.text} |" for row, one in shown if row["zh"] in SHOWN]
    for name, source, file in chosen.translated:
        table += table_of(name, source, Path(file).read_text(encoding="utf-8").splitlines())
    page = "\n\n".join(["# 200 first sentences", "\n".join(table), "\n".join(examples), run_metadata()])
    print(page)
    if chosen.write:
        path = Path(__file__).resolve().parents[1] / "results" / f"bundled_model_first_sentences_{chosen.write}_cpu.md"
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
