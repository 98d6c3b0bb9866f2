"""Translation speed on a few cores: sentences per second in batches, milliseconds for a single sentence."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common.corpus_files import TestSet, lines_of
from heedful.decoding.translator import Translator

SEARCHES: dict[str, dict[str, Any]] = {"beam 4": {"method": "beam", "beam_size": 4}, "greedy": {"method": "greedy"}}


@contextmanager
def on_cores(number: int) -> Iterator[int]:
    """Restrict this process and its children to at most `number` cores, if possible; returns their number."""
    if not hasattr(os, "sched_setaffinity"):
        yield os.cpu_count() or 1
        return
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:number])
    try:
        yield len(os.sched_getaffinity(0))
    finally:
        os.sched_setaffinity(0, all_cores)


def speed(
    directory: Path,
    data: Path,
    texts: Sequence[TestSet],
    *,
    precision: str = "int8",
    num_lines: int | None,
    rounds: int,
) -> list[dict[str, Any]]:
    """Sentences per second in batches and milliseconds for a single sentence, for all texts and both searches."""
    translator = Translator.load(directory, device="cpu", engine="native", quantization=precision)
    results = []
    for one in texts:
        lines = lines_of(data, one.files[0])[: num_lines or 1000]
        languages: dict[str, Any] = {"source_language": one.source, "target_language": one.target}
        translator.translate(lines[:32], **languages)
        for search, settings in SEARCHES.items():
            rates = [len(lines) / seconds_of(translator, lines, languages | settings) for _ in range(rounds)]
            alone = [seconds_of(translator, [line], languages | settings) for line in lines[:100]]
            results.append(
                {
                    "text": one.name,
                    "direction": f"{one.source}-{one.target}",
                    "precision": precision,
                    "search": search,
                    "num_sentences": len(lines),
                    "words": None if "zh" in one.source else sum(len(line.split()) for line in lines),
                    "sentences_per_second": {"best": max(rates), "median": statistics.median(rates)},
                    "alone_ms": {
                        "p50": 1e3 * statistics.median(alone),
                        "p95": 1e3 * sorted(alone)[-1 - len(alone) // 20],
                    },
                    "load": os.getloadavg()[0],
                }
            )
            summary = f"speed, {one.source}-{one.target}, {precision}, {search}: {max(rates):.0f} sentences/s"
            print(summary, file=sys.stderr, flush=True)
    return results


def seconds_of(translator: Translator, texts: list[str], settings: dict[str, Any]) -> float:
    began = time.perf_counter()
    translator.translate(texts, **settings)
    return time.perf_counter() - began
