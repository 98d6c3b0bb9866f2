"""All results of one model in one JSON file, saved after each measurement; shared by the benchmarks of whole models."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.corpus_files import TestSet, found, lines_of, text_sha256
from benchmarks.common.cpu_speed import SEARCHES
from benchmarks.common.run_metadata import now, this_run
from heedful.decoding.translator import Translator
from heedful.errors import HeedfulError
from heedful.evaluation.score import score
from heedful.model_dir import files as model_files
from heedful.model_dir.save_load import read_record
from heedful.paper.experiment_io import write_json

ROOT = Path(__file__).resolve().parents[2]
PRECISIONS = ("int8", "float32")
Results = dict[str, Any]


class Bench(ABC):
    """One model in several precisions, its earlier measurements, and the file that stores them.

    `arguments` are those of `parser_of`. Subclasses define the results, their parts, and more dependencies of a part.
    """

    name: str
    """The file is NAME_DATE_cpu.json with the format heedful-NAME-figures."""
    parts: tuple[str, ...]
    """All parts that can be measured; the last one, the scores, is saved per test set."""

    def __init__(self, arguments: argparse.Namespace, directories: dict[str, Path]) -> None:
        self.arguments, self.directories = arguments, directories
        self.marks = {name: model_files.locate(path).weights_checksum for name, path in directories.items()}
        self.translators: dict[str, Translator] = {}
        self.digests: dict[Path, str] = {}
        self.format = f"heedful-{self.name}-figures"
        self.path = results_folder() / f"{self.name}_{arguments.write}_cpu.json" if arguments.write else None
        self.results: Results = {"format": self.format, "format_version": 1, "scores": {}, "runs": []}
        for path in [*arguments.take, *self.known_before()]:
            self.take(json.loads(path.read_text(encoding="utf-8")), path)
        self.results["model"] = facts(directories["float32"], self.marks)
        self.run = this_run(arguments.device)

    def known_before(self) -> list[Path]:
        """The file of an earlier run with the same date: in the output folder, else among the results."""
        if self.path is None:
            return []
        paths = [self.path, ROOT / "benchmarks" / "results" / self.path.name]
        return [path for path in paths if path.exists()][:1]

    def mark_of(self, part: str) -> str:
        """The inputs that a part depends on, except the scores."""
        return self.marks["int8"]

    def take(self, other: Results, path: Path) -> None:
        """Reuse all measurements of this model; those of another model are dropped."""
        if other.get("format") != self.format:
            sys.exit(f"{path}: these are not results of this benchmark")
        for key, one in other["scores"].items():
            if one["model"] == self.marks[one["precision"]]:
                self.results["scores"][key] = one
        for part in self.parts[:-1]:
            if other.get(part, {}).get("of") == self.mark_of(part):
                self.results[part] = other[part]
        self.results["runs"] += [run for run in other["runs"] if run not in self.results["runs"]]

    def keep(self) -> None:
        """Save all results, so that an interruption loses at most one measurement; runs without results are dropped."""
        self.run["ended"] = now()
        if self.run not in self.results["runs"]:
            self.results["runs"].append(self.run)
        parts = [self.results[part] for part in self.parts[:-1] if part in self.results]
        used = {one["run"] for one in [*self.results["scores"].values(), *parts]}
        self.results["runs"] = [run for run in self.results["runs"] if run["began"] in used]
        if self.path is not None:
            write_json(self.path, self.results)

    def translator(self, precision: str) -> Translator:
        """The translator for a precision, cached."""
        if precision not in self.translators:
            device = self.arguments.device if precision == "float32" else "cpu"
            engine = "native" if device == "cpu" else "torch"
            self.translators[precision] = Translator.load(
                self.directories[precision], device=device, engine=engine, quantization=precision
            )
        return self.translators[precision]

    def digest(self, name: str) -> str:
        """The checksum of a file's text."""
        path = found(self.arguments.data, name)
        if path not in self.digests:
            self.digests[path] = text_sha256(path)
        return self.digests[path]

    def lines(self, one: TestSet) -> tuple[list[str], list[str]]:
        """The requested number of sentences of a test set with their references."""
        texts, references = (lines_of(self.arguments.data, name)[: self.arguments.lines] for name in one.files)
        return texts, references

    def measure_score(self, one: TestSet, precision: str, search: str) -> Results:
        """BLEU and chrF of one test set in one precision and search."""
        texts, references = self.lines(one)
        translator = self.translator(precision)
        began = time.perf_counter()
        languages: Results = {"source_language": one.source, "target_language": one.target}
        made = [done.text for done in translator.translate(texts, **languages, **SEARCHES[search])]
        seconds = time.perf_counter() - began
        scores = score(made, references, metrics=("bleu", "chrf"), target_language=one.target)
        return {
            "set": one.name,
            "direction": f"{one.source}-{one.target}",
            "precision": precision,
            "search": search,
            "num_sentences": len(texts),
            "engine": " ".join(translator.engine_for(**SEARCHES[search])),
            "device": self.arguments.device if precision == "float32" else "cpu",
            "seconds": seconds,
            "scores": [one_score.to_dict() for one_score in scores],
            "files": {name: self.digest(name) for name in one.files},
            "model": self.marks[precision],
            "cut": self.arguments.lines,
            "run": self.run["began"],
        }

    def is_done(self, key: str, one: TestSet) -> bool:
        """Whether this was already measured on the same lines."""
        known = self.results["scores"].get(key)
        return (
            known is not None
            and known["files"] == {name: self.digest(name) for name in one.files}
            and known["cut"] == self.arguments.lines
        )

    def measure_scores(self, sets: Sequence[TestSet]) -> None:
        """Measure all requested scores of these sets that are missing."""
        tasks = [
            (f"{one.key}, {precision}, {search}", one, precision, search)
            for precision in self.arguments.precisions
            for one in sets
            for search in SEARCHES
        ]
        for number, (key, one, precision, search) in enumerate(tasks, start=1):
            if not self.is_done(key, one):
                self.results["scores"][key] = self.measure_score(one, precision, search)
                self.keep()
            known = self.results["scores"][key]
            shown = ", ".join(
                f"{one['name']} {'undefined' if one['value'] is None else format(one['value'], '.2f')}"
                for one in known["scores"]
            )
            write_progress(f"[{number}/{len(tasks)}] {key}: {shown} ({known['seconds']:.0f} s)")

    def measure_part(self, name: str, measure: Callable[[], Any]) -> None:
        """Measure a part, unless its result for the same model exists."""
        if name in self.results and name not in self.arguments.again:
            return write_progress(f"{name}: known")
        known: Results = {"of": self.mark_of(name), "run": self.run["began"], "machine": self.run["machine"]}
        self.results[name] = {**known, "found": measure()}
        self.keep()
        return write_progress(f"{name}: done")

    @abstractmethod
    def measure(self) -> None:
        """Measure all requested parts."""

    def finish(self, page: Callable[[Results], str]) -> None:
        """Measure, save the results, and write the page generated from them next to the JSON file."""
        self.measure()
        self.keep()
        text = page(self.results)
        sys.stdout.write(text)
        if self.path is not None:
            self.path.with_suffix(".md").write_text(text, encoding="utf-8")


def parser_of(
    name: str, parts: Sequence[str], *, description: str | None, directories: dict[str, str]
) -> argparse.ArgumentParser:
    """The flags of all model benchmarks; `directories` are the positional arguments with their help."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for given, summary in directories.items():
        parser.add_argument(given, type=Path, help=summary)
    parser.add_argument("data", type=Path, help="the folder of the corpora")
    parser.add_argument(
        "--write", metavar="DATE", help=f"write results to benchmarks/results/{name}_DATE_cpu.json and .md"
    )
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--device", default="cpu", help="device for float32: cpu, or cuda (with torch)")
    parser.add_argument(
        "--take", nargs="+", type=Path, default=[], metavar="JSON", help="add results that were measured elsewhere"
    )
    parser.add_argument("--again", nargs="+", default=[], choices=parts[:-1], help="measure these again")
    parser.add_argument("--cores", type=int, default=2, help="for what is timed")
    parser.add_argument("--lines", type=int, help="number of lines of each text, for a trial run")
    return parser


def facts(full: Path, marks: dict[str, str]) -> Results:
    """A description of the model."""
    config, details, _ = model_files.read_consistent(full, read_record)
    shape = config.model
    return {
        "name": config.name,
        "licence": config.licence,
        "num_parameters": details.get("num_parameters"),
        "num_encoder_layers": shape.num_encoder_layers,
        "num_decoder_layers": shape.num_decoder_layers,
        "d_model": shape.d_model,
        "d_ff": shape.d_ff,
        "num_heads": shape.num_heads,
        "vocabulary": shape.target_vocab_size,
        "num_pairs": details.get("data", {}).get("num_pairs"),
        "training": {k: v for k, v in details.get("training", {}).items() if isinstance(v, (int, float, str))},
        "weights_sha256": marks,
    }


def run(main: Callable[[], None]) -> None:
    """Run a benchmark as a program; input errors and Ctrl-C end it with one line."""
    try:
        main()
    except HeedfulError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped; with --write the same command resumes")


def write_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def results_folder() -> Path:
    return Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
