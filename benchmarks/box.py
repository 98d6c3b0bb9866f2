"""All figures of the model in the box: scores in int8 and float32, beam 4 and greedy, speed, start, size, examples.

    python benchmarks/box.py box heedful/box/en-de-zh data --write 2026-11-16

`box` is what `heedful train configs/box.yaml -o box` wrote, `heedful/box/en-de-zh` the same model, exported as compact;
`data` holds the corpora, plain or .xz. Every finished measure is kept in benchmarks/results/box_DATE_cpu.json at once:
the same command goes on where it was stopped, and measures anew what belongs to another model or text. Parts may be
measured apart, also on another machine, whose JSON file --take adds to the one here:

    python benchmarks/box.py … --precisions float32 --device cuda --parts scores        # float32 by torch on a GPU
    python benchmarks/box.py … --take from-the-gpu/box_2026-11-16_cpu.json

int8 is computed by the native engine on CPUs, float32 by the same or, with --device, by torch there.
docs/box.md is made of the JSON file by .ci/box_page.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from box_sets import CHECKSUMS, TestSet, chosen_sets, found, lines_of, seen_in_training, text_sha256
from box_speed import SEARCHES, on_cores, size, speed, start
from box_tables import benchmark_page

from heedful.card import versions
from heedful.checkpoint import directory as files_of
from heedful.checkpoint.model import read_record
from heedful.decoding.translator import Translator
from heedful.errors import HeedfulError
from heedful.evaluation.score import score
from heedful.paper.experiment import processor, write_json

ROOT = Path(__file__).resolve().parents[1]
FORMAT = "heedful-box-figures"
PRECISIONS = ("int8", "float32")
PARTS = ("size", "examples", "start", "speed", "overlap", "scores")
SENTENCES = Path(__file__).with_name("box_sentences.tsv")
Results = dict[str, Any]


class Bench:
    """The two forms of one model, what was measured of them before, and where that is kept."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.directories = {"int8": arguments.compact, "float32": arguments.full}
        self.marks = {name: files_of.locate(path).weights_mark for name, path in self.directories.items()}
        self.place = results_folder() / f"box_{arguments.write}_cpu.json" if arguments.write else None
        self.sentences, self.corpora = (
            hashlib.sha256(path.read_bytes()).hexdigest() for path in (SENTENCES, CHECKSUMS)
        )
        self.results: Results = {"format": FORMAT, "format_version": 1, "scores": {}, "runs": []}
        for path in [*arguments.take, *self.known_before()]:
            self.take(json.loads(path.read_text(encoding="utf-8")), path)
        self.results["model"] = facts(arguments.full, self.marks)
        check_pair(arguments.compact, self.marks["float32"])
        self.run = this_run(arguments.device)
        self.translators: dict[str, Translator] = {}
        self.digests: dict[Path, str] = {}

    def known_before(self) -> list[Path]:
        """The file of an earlier run of the same date: where this one writes, or else among the results."""
        if self.place is None:
            return []
        places = [self.place, ROOT / "benchmarks" / "results" / self.place.name]
        return [place for place in places if place.exists()][:1]

    def mark_of(self, part: str) -> str:
        """What a part was measured of, apart from the scores."""
        more = {"examples": f"{self.marks['int8']} {self.sentences}", "overlap": self.corpora}
        return more.get(part, self.marks["int8"])

    def take(self, other: Results, path: Path) -> None:
        """Take over all that was measured of this very model; what belongs to another is left out."""
        if other.get("format") != FORMAT:
            sys.exit(f"{path}: these are no figures of this benchmark")
        for key, one in other["scores"].items():
            if one["model"] == self.marks[one["precision"]]:
                self.results["scores"][key] = one
        for part in PARTS[:-1]:
            if other.get(part, {}).get("of") == self.mark_of(part):
                self.results[part] = other[part]
        self.results["runs"] += [run for run in other["runs"] if run not in self.results["runs"]]

    def keep(self) -> None:
        """Write all that is known, so that a kill loses one measure at most; runs that left nothing are forgotten."""
        self.run["ended"] = now()
        if self.run not in self.results["runs"]:
            self.results["runs"].append(self.run)
        kept = [*self.results["scores"].values(), *(self.results[part] for part in PARTS[:-1] if part in self.results)]
        used = {one["run"] for one in kept}
        self.results["runs"] = [run for run in self.results["runs"] if run["began"] in used]
        if self.place is not None:
            write_json(self.place, self.results)

    def translator(self, precision: str) -> Translator:
        """The translator for a precision, loaded once."""
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

    def measure_score(self, one: TestSet, precision: str, search: str) -> Results:
        """BLEU and chrF of one test set in one precision and search."""
        texts, references = (lines_of(self.arguments.data, name)[: self.arguments.lines] for name in one.files)
        translator = self.translator(precision)
        began = time.perf_counter()
        languages = {"source_language": one.source, "target_language": one.target}
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
        """Whether this was measured before on the same lines."""
        known = self.results["scores"].get(key)
        return (
            known is not None
            and known["files"] == {name: self.digest(name) for name in one.files}
            and known["cut"] == self.arguments.lines
        )

    def measure_scores(self) -> None:
        """All scores that are asked for and not yet known."""
        tasks = [
            (f"{one.key}, {precision}, {search}", one, precision, search)
            for precision in self.arguments.precisions
            for one in chosen_sets(self.arguments.sets)
            for search in SEARCHES
        ]
        for number, (key, one, precision, search) in enumerate(tasks, start=1):
            if not self.is_done(key, one):
                self.results["scores"][key] = self.measure_score(one, precision, search)
                self.keep()
            known = self.results["scores"][key]
            told = ", ".join(f"{value['name']} {value['value']:.2f}" for value in known["scores"])
            say(f"[{number}/{len(tasks)}] {key}: {told} ({known['seconds']:.0f} s)")

    def measure_part(self, name: str, measure: Callable[[], Any]) -> None:
        """A part that is measured as a whole, unless it is known of the same model."""
        if name in self.results and name not in self.arguments.again:
            return say(f"{name}: known")
        known: Results = {"of": self.mark_of(name), "run": self.run["began"], "machine": self.run["machine"]}
        self.results[name] = {**known, "found": measure()}
        self.keep()
        return say(f"{name}: done")

    def examples(self) -> list[Results]:
        """The sentences of the examples, translated as the program does it by itself."""
        rows = [line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
        translator = self.translator("int8")
        made = []
        for direction, kind, text in rows:
            source, target = direction.split("-")
            [done] = translator.translate([text], source_language=source, target_language=target)
            made.append({"direction": direction, "kind": kind, "source": text, "translation": done.text})
        return made

    def measure(self) -> None:
        """Every part that is asked for."""
        chosen = self.arguments
        parts: dict[str, Callable[[], Any]] = {
            "size": lambda: size(chosen.compact),
            "examples": self.examples,
            "start": lambda: start(chosen.compact, rounds=chosen.rounds),
            "speed": lambda: speed(chosen.compact, chosen.data, num_lines=chosen.lines, rounds=3),
            "overlap": lambda: seen_in_training(chosen.data),
        }
        for name, measure in parts.items():
            if name in chosen.parts:
                with on_cores(chosen.cores):
                    self.measure_part(name, measure)
        if "scores" in chosen.parts:
            self.measure_scores()


def facts(full: Path, marks: dict[str, str]) -> Results:
    """What the model is."""
    config, details, _ = files_of.steady(full, read_record)
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
        "training": {k: v for k, v in details.get("training", {}).items() if isinstance(v, (int, float, str))},
        "weights_sha256": marks,
    }


def check_pair(compact: Path, full_mark: str) -> None:
    """The two directories hold one model."""
    _, details, _ = files_of.steady(compact, read_record)
    if details.get("compact", {}).get("made_from") != full_mark:
        sys.exit(f"{compact} was not made of the model of float32 that is given: heedful export --to compact makes it")


def this_run(device: str) -> Results:
    """Where, when, with which versions, and by which command; without the folders of this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = f"{processor()}, {cores} cores"
    if device.startswith("cuda"):
        import torch

        machine += f"; {torch.cuda.get_device_name(device)}" if torch.cuda.is_available() else ""
    return {
        "machine": machine,
        "versions": versions(),
        "command": shlex.join(["python", "benchmarks/box.py", *map(public, sys.argv[1:])]),
        "began": now(),
    }


def public(word: str) -> str:
    """A word of the command line; of a path outside the checkout only its last part."""
    if not (os.path.isabs(word) or word.startswith(("..", "~"))):
        return word
    path = Path(word).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def results_folder() -> Path:
    return Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("full", type=Path, help="the model directory with weights of float32")
    parser.add_argument("compact", type=Path, help="the same model, compact")
    parser.add_argument("data", type=Path, help="the folder of the corpora")
    parser.add_argument(
        "--write", metavar="DATE", help="keep everything in benchmarks/results/box_DATE_cpu.json and .md"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sets", nargs="+", default=[], metavar="SET", help="such as flores200 or 'msdocs en-*'")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--device", default="cpu", help="where float32 is computed: cpu, or cuda with torch")
    parser.add_argument(
        "--take", nargs="+", type=Path, default=[], metavar="JSON", help="also take what was measured elsewhere"
    )
    parser.add_argument("--again", nargs="+", default=[], choices=PARTS[:-1], help="measure these anew")
    parser.add_argument("--cores", type=int, default=2, help="for speed and start")
    parser.add_argument("--rounds", type=int, default=9, help="how often the program is started")
    parser.add_argument("--lines", type=int, help="only so many lines of every text: to try it out")
    return parser.parse_args()


def main() -> None:
    bench = Bench(parse())
    bench.measure()
    bench.keep()
    page = benchmark_page(bench.results)
    sys.stdout.write(page)
    if bench.place is not None:
        bench.place.with_suffix(".md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except HeedfulError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped; with --write the same command goes on from here")
