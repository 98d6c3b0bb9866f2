"""Trade-offs of decoder depth, shortlist and beam size: BLEU against sentences per second.

    python benchmarks/speed/quality_speed_tradeoffs.py \\
        6-6=europarl-en-de 12-1=europarl-en-de-12-1 6-2=europarl-en-de-6-2 \\
        --test newstest2014 newstest2014.en newstest2014.de --test Multi30k test2016.en test2016.de --write 2026-11-15

Translates with each named model directory on this machine's CPU, using the native engine: with and without its
shortlist (`heedful shortlist`), greedily and with beam 4. Speed is measured on real sentences of the first
test set, in batches and one by one; configurations are interleaved, and the best round of each counts, since the others
are slowed down by other programs on a shared machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import run_metadata
from heedful.cpu_count import usable_cores
from heedful.decoding.engines.native_engine import NativeDecodingEngine
from heedful.decoding.translator import Translator
from heedful.evaluation.score import score
from heedful.paper.text_tables import markdown_table

ROOT = Path(__file__).resolve().parents[2]
SEARCHES: dict[str, dict[str, Any]] = {"greedy": {"method": "greedy"}, "beam 4": {"method": "beam", "beam_size": 4}}


@dataclass
class Way:
    """One configuration and its results."""

    model: str
    translator: Translator
    search: str
    shortlist: bool
    bleu: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    """Seconds for all timed sentences."""
    alone: list[float] = field(default_factory=list)
    """Median seconds of a single sentence, for each round."""

    def translate(self, texts: list[str]) -> list[str]:
        """All sentences at once."""
        found = self.translator.translate(texts, shortlist=self.shortlist, **SEARCHES[self.search])
        return [one.text for one in found]

    def run_round(self, texts: list[str], few: list[str]) -> None:
        """Run one timed turn."""
        began = time.perf_counter()
        self.translate(texts)
        self.together.append(time.perf_counter() - began)
        times = []
        for text in few:
            began = time.perf_counter()
            self.translate([text])
            times.append(time.perf_counter() - began)
        self.alone.append(statistics.median(times))


def ways_of(named: list[str]) -> Iterator[Way]:
    """Every model, search and vocabulary."""
    for one in named:
        name, _, directory = one.partition("=")
        translator = Translator.load(directory, device="cpu", engine="native")
        assert isinstance(translator.engine, NativeDecodingEngine)
        for shortlist in (False, True) if translator.engine.engine.has_shortlist else (False,):
            for search in SEARCHES:
                yield Way(name, translator, search, shortlist)


def lines_of(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def row_of(way: Way, count: int) -> list[str]:
    """The table row."""
    speed, alone = count / min(way.together), 1e3 * min(way.alone)
    words = "shortlist" if way.shortlist else "all"
    return [way.model, words, way.search, *(f"{one:.2f}" for one in way.bleu), f"{speed:,.0f}", f"{alone:.1f}"]


def draw(ways: list[Way], count: int, test: str, path: Path) -> None:
    """Plot BLEU against speed, batched and single: colour by model, marker by search, hollow with a shortlist."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    models, shapes = list(dict.fromkeys(way.model for way in ways)), dict(zip(SEARCHES, "os", strict=True))
    panels = {
        "sentences/s, all at once": lambda way: count / min(way.together),
        "sentences/s, each alone": lambda way: 1 / min(way.alone),
    }
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.5), sharey=True, layout="constrained")
    for panel, (label, speed) in zip(axes, panels.items(), strict=True):
        for way in ways:
            colour = f"C{models.index(way.model)}"
            fill = "none" if way.shortlist else colour
            panel.plot(speed(way), way.bleu[0], shapes[way.search], color=colour, markerfacecolor=fill, markersize=8)
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
        panel.xaxis.set_major_locator(MaxNLocator(6))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes[0].set_ylabel(f"BLEU, {test}")
    marks = [Line2D([], [], ls="", marker="D", color=f"C{n}", label=f"{one} layers") for n, one in enumerate(models)]
    marks += [Line2D([], [], ls="", marker=shape, color="0.4", label=one) for one, shape in shapes.items()]
    marks.append(Line2D([], [], ls="", marker="o", color="0.4", markerfacecolor="none", label="hollow: shortlist"))
    figure.legend(handles=marks, loc="outside upper center", ncols=len(marks))
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=DIRECTORY")
    parser.add_argument("--test", nargs=3, action="append", required=True, metavar=("NAME", "SOURCE", "REFERENCE"))
    parser.add_argument(
        "--sentences", type=int, default=400, help="number of evenly spaced sentences of the first test set to time"
    )
    parser.add_argument("--alone", type=int, default=30, help="number of these that are also translated one at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", metavar="DATE", help="write results/quality_speed_tradeoffs_DATE_cpu.md and .png")
    chosen = parser.parse_args()
    ways, signature = list(ways_of(chosen.models)), ""
    for way in ways:
        for _, source, reference in chosen.test:
            (found,) = score(way.translate(lines_of(source)), lines_of(reference), metrics=("bleu",))
            way.bleu.append(found.value)
            signature = found.signature
        print(way.model, way.shortlist, way.search, *way.bleu, file=sys.stderr, flush=True)
    texts = lines_of(chosen.test[0][1])
    texts = texts[:: max(1, len(texts) // chosen.sentences)][: chosen.sentences]
    few = texts[:: max(1, len(texts) // chosen.alone)][: chosen.alone]
    load = os.getloadavg()[0]
    for _ in range(chosen.rounds):
        for way in ways:
            way.run_round(texts, few)
    heading = ["layers", "words", "search", *(f"BLEU, {name}" for name, _, _ in chosen.test)]
    heading += ["sentences/s, all at once", "ms per sentence, alone"]
    page = (
        "# BLEU against sentences per second\n\n"
        f"{markdown_table(heading, [row_of(way, len(texts)) for way in ways])}\n\n"
        f"Native engine, int8, {usable_cores()} cores; {len(texts)} sentences of {chosen.test[0][0]}, "
        f"{len(few)} of them also alone (median); best of {chosen.rounds} rounds; load average {load:.1f} before.\n\n"
        f"- BLEU: {signature}\n{run_metadata()}"
    )
    print(page)
    if chosen.write:
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        (folder / f"quality_speed_tradeoffs_{chosen.write}_cpu.md").write_text(page, encoding="utf-8")
        draw(ways, len(texts), chosen.test[0][0], folder / f"quality_speed_tradeoffs_{chosen.write}_cpu.png")


if __name__ == "__main__":
    main()
