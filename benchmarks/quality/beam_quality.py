"""Effect of beam size and length penalty: BLEU and sentences per second, as a table and a plot.

    python benchmarks/quality/beam_quality.py model newstest2014.en newstest2014.de --write 2026-11-15

Each search translates all sentences once; BLEU with its 95 % interval is over all of them. Speeds are comparable only
within one run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import run_metadata
from heedful.decoding.translator import Translator
from heedful.evaluation.score import score
from heedful.paper.text_tables import markdown_table

ROOT = Path(__file__).resolve().parents[2]
PENALTIES: dict[str, dict[str, Any]] = {
    "none": {"length_penalty": "none"},
    "paper, α = 0.6": {"length_penalty": "paper", "length_penalty_alpha": 0.6},
    "paper, α = 1": {"length_penalty": "paper", "length_penalty_alpha": 1.0},
    "average, α = 1": {"length_penalty": "average", "length_penalty_alpha": 1.0},
}


class Point(NamedTuple):
    """The result of one search."""

    penalty: str
    beam_size: int
    bleu: float
    low: float
    high: float
    length_ratio: float
    sentences_per_second: float
    signature: str


def measure(translator: Translator, texts: list[str], references: list[str], penalty: str, beam_size: int) -> Point:
    """Run one search over all sentences."""
    began = time.perf_counter()
    found = [one.text for one in translator.translate(texts, beam_size=beam_size, **PENALTIES[penalty])]
    rate = len(texts) / (time.perf_counter() - began)
    [bleu] = score(found, references, metrics=["bleu"])
    words = [sum(len(text.split()) for text in side) for side in (found, references)]
    assert bleu.interval is not None
    within = bleu.interval.low, bleu.interval.high
    return Point(penalty, beam_size, bleu.value, *within, words[0] / words[1], rate, bleu.signature)


def draw(points: list[Point], path: Path, title: str) -> None:
    """Plot BLEU against beam size, one line per penalty."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), dpi=150)
    for penalty in PENALTIES:
        line = [point for point in points if point.penalty == penalty]
        axes.plot([point.beam_size for point in line], [point.bleu for point in line], marker="o", label=penalty)
    axes.set_xscale("log", base=2)
    sizes = sorted({point.beam_size for point in points})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set(xlabel="beam size", ylabel="BLEU", title=title)
    axes.grid(alpha=0.3)
    axes.legend(title="length penalty", frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path, help="sentences, one per line")
    parser.add_argument("target", type=Path, help="their translations")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument(
        "--write", metavar="DATE", help="write benchmarks/results/beam_quality_DATE_<engine>.md and .png"
    )
    arguments = parser.parse_args()
    texts, references = (path.read_text(encoding="utf-8").splitlines() for path in (arguments.source, arguments.target))
    translator = Translator.load(arguments.model, engine=arguments.engine)
    translator.translate(texts[:32])
    points = []
    for beam_size in arguments.beams:
        for penalty in PENALTIES if beam_size > 1 else ["none"]:
            point = measure(translator, texts, references, penalty, beam_size)
            print(f"{point.penalty}, beam {point.beam_size}: {point.bleu:.2f}", file=sys.stderr, flush=True)
            points += [point] if beam_size > 1 else [point._replace(penalty=name) for name in PENALTIES]
    shown = [point for point in points if point.beam_size > 1 or point.penalty == "none"]
    rows = [
        [
            point.penalty if point.beam_size > 1 else "any",
            str(point.beam_size),
            f"{point.bleu:.2f}",
            f"{point.low:.2f}–{point.high:.2f}",
            f"{point.length_ratio:.3f}",
            f"{point.sentences_per_second:.1f}",
        ]
        for point in shown
    ]
    heading = ["length penalty", "beam", "BLEU", "95 %", "length relative to the reference", "sentences/s"]
    name = f"beam_quality_{arguments.write}_{arguments.engine}"
    picture = f"![BLEU by beam size]({name}.png)\n\n" if arguments.write else ""
    page = (
        f"# Beam size and length penalty\n\n{len(texts):,} sentences of {arguments.source.name}, engine "
        f"{arguments.engine}.\n\n{picture}{markdown_table(heading, rows)}\n\n"
        f"- BLEU: {points[0].signature}\n{run_metadata()}"
    )
    sys.stdout.write(page)
    if arguments.write:
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
        draw(points, folder / f"{name}.png", f"{len(texts):,} sentences of {arguments.source.name}")


if __name__ == "__main__":
    main()
