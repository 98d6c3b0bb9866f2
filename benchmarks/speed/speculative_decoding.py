"""Speculative decoding: how many drafted tokens are accepted, how much time that saves, whether output changes.

    python benchmarks/speed/speculative_decoding.py en-de-zh --text newstest2014.en de --write 2026-11-16

The native engine translates every line of the texts greedily, one by one, alternately with and without speculation, and
all lines of a text in one batch, without speculation. All three must agree in every token and log-probability. The same
is repeated with a base model of random weights, the hardest case for the draft. Times are medians over the sentences
and ratios of the sums.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from benchmarks.common.run_metadata import public, run_metadata
from benchmarks.speed.native_speed import LENGTH, SPECIAL, VOCAB, make_model
from heedful import Translator
from heedful.config import DecodingConfig
from heedful.decoding.engines.native_engine import NativeDecodingEngine
from heedful.native import NativeEngine

RESULTS = Path(__file__).resolve().parents[1] / "results"
Run = Callable[[Sequence[Any]], list[Any]]
"""Sentences -> full translations."""


@dataclass
class Row:
    """The results for one text."""

    name: str
    sentences: int
    right: int
    wrong: int
    different: int
    seconds: dict[bool, list[float]]


def measure(name: str, engine: NativeEngine, sentences: Sequence[Any], run: Run) -> Row:
    """Translate each sentence alone, with and without speculation, alternating; then all in one batch."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    found: dict[bool, list[Any]] = {True: [], False: []}
    run(sentences[:3])
    before = engine.speculation_counts()
    for sentence in sentences:
        for speculative in (True, False):
            engine.speculative = speculative
            start = time.perf_counter()
            found[speculative] += run([sentence])
            seconds[speculative].append(time.perf_counter() - start)
    right, wrong = (now - then for now, then in zip(engine.speculation_counts(), before, strict=True))
    pairs = zip(found[True], found[False], run(sentences), strict=True)  # in one batch, without speculation
    different = sum(not (one == other == third) for one, other, third in pairs)
    engine.speculative = True
    return Row(name, len(sentences), right, wrong, different, seconds)


def measure_text(translator: Translator, path: Path, language: str, lines: int) -> Row:
    """Measure the first lines of a text."""
    assert isinstance(translator.engine, NativeDecodingEngine), "only the native engine decodes speculatively"
    with path.open(encoding="utf-8") as file:
        texts = [line.strip() for line in islice(file, lines)]

    def run(some: Sequence[str]) -> list[Any]:
        return list(translator.translate(some, target_language=language, method="greedy", shortlist=False))

    return measure(f"{path.name} to {language}", translator.engine.engine, texts, run)


def measure_random_weights(count: int) -> Row:
    """Measure random sentences with translations of equal length."""
    random = np.random.default_rng(1)
    sources = [[*random.integers(4, VOCAB, LENGTH - 1).tolist(), SPECIAL.eos_id] for _ in range(count)]
    config = DecodingConfig(method="greedy", min_length=LENGTH - 1)
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        engine = NativeEngine.load(folder)

        def run(some: Sequence[list[int]]) -> list[Any]:
            return engine.translate_ids(some, config, SPECIAL, max_lengths=[LENGTH - 1] * len(some))

        return measure(f"base model, random weights, {LENGTH} tokens", engine, sources, run)


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| text | sentences | different | drafted tokens | rejected per 10,000 | ms with speculation | ms without "
        "| speed-up |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        drafted = row.right + row.wrong
        medians = [1000 * statistics.median(row.seconds[speculative]) for speculative in (True, False)]
        ratio = sum(row.seconds[False]) / sum(row.seconds[True])
        wrong = 10_000 * row.wrong / max(drafted, 1)
        lines.append(
            f"| {row.name} | {row.sentences:,} | {row.different} | {drafted:,} | {wrong:.1f} "
            f"| {medians[0]:.1f} | {medians[1]:.1f} | {ratio:.2f}× |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", nargs=2, action="append", default=[], metavar=("FILE", "LANGUAGE"))
    parser.add_argument("--lines", type=int, default=300, help="lines of each text, and number of random sentences")
    parser.add_argument("--write", metavar="DATE", help="write results/speculative_decoding_DATE_cpu.md")
    chosen = parser.parse_args()
    translator = Translator.load(chosen.model, engine="native")
    rows = [measure_text(translator, Path(path), language, chosen.lines) for path, language in chosen.text]
    rows.append(measure_random_weights(chosen.lines))
    page = f"# Speculative decoding\n\n{run_metadata()}- model: {public(str(chosen.model))}\n\n{table(rows)}"
    print(page)
    if chosen.write:
        (RESULTS / f"speculative_decoding_{chosen.write}_cpu.md").write_text(page, encoding="utf-8")
    sys.exit(any(row.different for row in rows))


if __name__ == "__main__":
    main()
