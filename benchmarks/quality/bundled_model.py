"""All results of the bundled model: scores in int8 and float32, beam 4 and greedy, speed, start, size, examples.

    python benchmarks/quality/bundled_model.py bundled-stage4 heedful/bundled/en-de-zh data --write 2026-11-16

The first directory is what `heedful train recipes/bundled-model/stage4.yaml` writes; `heedful/bundled/en-de-zh`
is the same model exported as compact; `data` holds the corpora, plain or .xz. Every finished measurement is written to
benchmarks/results/bundled_model_DATE_cpu.json at once: the same command resumes a stopped run, and repeats
measurements of another model or text. Parts can be measured separately, also on another machine; --take adds its JSON
file:

    python benchmarks/quality/bundled_model.py … --precisions float32 --device cuda --parts scores
    python benchmarks/quality/bundled_model.py … --take from-the-gpu/bundled_model_2026-11-16_cpu.json

int8 runs on CPUs with the native engine; so does float32, or with --device on that device with torch.
docs/bundled-model.md is generated from the JSON file by .ci/bundled_model_page.py.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.cpu_speed import on_cores, speed
from benchmarks.common.metrics_store import Bench, Results, parser_of, run
from benchmarks.quality.bundled_model_sets import CHECKSUMS, chosen_sets, seen_in_training
from benchmarks.quality.bundled_model_startup import size, start
from benchmarks.quality.bundled_model_tables import benchmark_page
from heedful.model_dir import files as model_files
from heedful.model_dir.save_load import read_record

PARTS = ("size", "examples", "start", "speed", "overlap", "scores")
SENTENCES = Path(__file__).with_name("bundled_model_sentences.tsv")
TIMED = ("newstest2014 en-de", "flores200-devtest zh-en")


class BundledModelBench(Bench):
    """The two forms of the bundled model: compact, as published, and full."""

    name = "bundled_model"
    parts = PARTS

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.sentences, self.corpora = (
            hashlib.sha256(path.read_bytes()).hexdigest() for path in (SENTENCES, CHECKSUMS)
        )
        super().__init__(arguments, {"int8": arguments.compact, "float32": arguments.full})
        check_pair(arguments.compact, self.marks["float32"])

    def mark_of(self, part: str) -> str:
        """The inputs that a part depends on, except the scores."""
        more = {"examples": f"{self.marks['int8']} {self.sentences}", "overlap": self.corpora}
        return more.get(part, self.marks["int8"])

    def examples(self) -> list[Results]:
        """The example sentences, translated with default settings."""
        rows = [line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
        translator = self.translator("int8")
        made = []
        for direction, kind, text in rows:
            source, target = direction.split("-")
            [done] = translator.translate([text], source_language=source, target_language=target)
            made.append({"direction": direction, "kind": kind, "source": text, "translation": done.text})
        return made

    def measure(self) -> None:
        """Measure all requested parts."""
        chosen = self.arguments
        parts: dict[str, Callable[[], Any]] = {
            "size": lambda: size(chosen.compact),
            "examples": self.examples,
            "start": lambda: start(chosen.compact, rounds=chosen.rounds),
            "speed": lambda: speed(chosen.compact, chosen.data, chosen_sets(TIMED), num_lines=chosen.lines, rounds=3),
            "overlap": lambda: seen_in_training(chosen.data),
        }
        for name, measure in parts.items():
            if name in chosen.parts:
                with on_cores(chosen.cores):
                    self.measure_part(name, measure)
        if "scores" in chosen.parts:
            self.measure_scores(chosen_sets(chosen.sets))


def check_pair(compact: Path, full_mark: str) -> None:
    """Raise an error unless both directories contain the same model."""
    _, details, _ = model_files.read_consistent(compact, read_record)
    if details.get("compact", {}).get("made_from") != full_mark:
        sys.exit(
            f"{compact} was not exported from the given float32 model. Export it again: heedful export --to compact"
        )


def parse() -> argparse.Namespace:
    directories = {
        "full": "the model directory with weights of float32",
        "compact": "the same model, exported as compact",
    }
    parser = parser_of("bundled_model", PARTS, description=__doc__, directories=directories)
    parser.add_argument("--sets", nargs="+", default=[], metavar="SET", help="such as flores200 or 'msdocs en-*'")
    parser.add_argument("--rounds", type=int, default=9, help="number of program starts to time")
    return parser.parse_args()


def main() -> None:
    BundledModelBench(parse()).finish(benchmark_page)


if __name__ == "__main__":
    run(main)
