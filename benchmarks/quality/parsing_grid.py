"""Compare recipes for parsing: variants of `heedful paper table4`, trained in parallel, with their F1.

    python benchmarks/quality/parsing_grid.py path/of/gum path/of/craft --minutes 5 --jobs 8 --write 2026-11-15

Each folder is a treebank with train, valid and test in .trees (plain, .gz or .xz); a variant is trained on all of them
together and scored on the validation part of each, since recipes are chosen there (`--part test` scores on test).
Every variant runs in a separate process. `--set KEY=VALUE` changes all of them, `--variants` selects some.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from heedful.config_loading import merge, set_key
from heedful.errors import ConfigError, HeedfulError
from heedful.model_card import versions
from heedful.paper.experiment_io import check_choice, machine, write_json
from heedful.paper.sweep import Ended, Job, Sweep, default_jobs, tail
from heedful.paper.table4 import Treebanks, run_table4

ROOT = Path(__file__).resolve().parents[2]
ORDER, RESULT, LOG = "variant.json", "result.json", "log.txt"
PLAIN: dict[str, Any] = {"training": {"r_drop": 0.0}}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "xx": ("xx", PLAIN),
    "xx-rdrop": ("xx", {}),
    "index": ("index", PLAIN),
    "index-rdrop": ("index", {}),
    "tags": ("tags", PLAIN),
    "tags-rdrop": ("tags", {}),
    "index-rdrop-256": ("index", {"model": {"d_model": 256, "d_ff": 768, "num_heads": 4}}),
    "index-rdrop-512": ("index", {"model": {"d_model": 512, "d_ff": 1408, "num_heads": 8}}),
    "index-rdrop-6-layers": ("index", {"model": {"num_encoder_layers": 6}}),
    "index-rdrop-sinusoidal": ("index", {"model": {"positions": "sinusoidal"}}),
    "index-rdrop-low-rate": ("index", {"training": {"learning_rate": 7e-4}}),
    "index-rdrop-dropout-0.3": ("index", {"model": {"dropout": 0.3}}),
}
"""The word symbol, and changes to the default settings of table4 on a GPU."""
USUAL = tuple(VARIANTS)[:8]


def trees_of(folder: Path, part: str) -> str:
    """The file of one part of a treebank, compressed or not."""
    for ending in (".trees", ".trees.xz", ".trees.gz"):
        if (folder / (part + ending)).exists():
            return str(folder / (part + ending))
    raise ConfigError(f"{folder}: there is no {part}.trees, {part}.trees.xz or {part}.trees.gz.")


def orders(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The settings of each variant's process."""
    scored = [trees_of(folder, arguments.part) for folder in arguments.folders]
    treebanks = {
        "train": [trees_of(folder, "train") for folder in arguments.folders],
        "valid": [trees_of(folder, "valid") for folder in arguments.folders],
        "test": scored,
        "sentences": arguments.sentences,
    }
    found = {}
    for name in arguments.variants.split(","):
        check_choice("--variants", name, VARIANTS)
        words, change = VARIANTS[name]
        budget = {"minutes": arguments.minutes, "epochs": arguments.epochs, "seed": arguments.seed}
        request = merge(change, {"training": {"tensorboard": False, **budget}, "decoding": {"beam_size": 1}})
        for setting in arguments.set:
            key, _, value = setting.partition("=")
            set_key(request, key, value)
        request["output"] = str(arguments.output / name / "table4")
        found[name] = {"words": words, "request": request, "treebanks": treebanks, "brackets": arguments.brackets}
    return found


def work(directory: Path) -> None:
    """Run one variant in this process: train, parse, and write result.json."""
    order = json.loads((directory / ORDER).read_text(encoding="utf-8"))
    began = time.perf_counter()
    results = run_table4(
        order["request"],
        Treebanks(**order["treebanks"]),
        words=order["words"],
        brackets=order["brackets"],
        overwrite=True,
    )
    if not results["complete"]:
        sys.exit(130)
    write_json(directory / RESULT, {**results, "seconds": time.perf_counter() - began})


def row(name: str, result: dict[str, Any]) -> str:
    """The table row of a variant."""
    cells = [name, f"{result['steps']:,}", f"{result['valid_loss']:.3f}"]
    cells.append("" if result["valid_f1"] is None else f"{result['valid_f1']:.1f}")
    for test in result["tests"]:
        for way in ("forced", "free"):
            if way in test:
                one = test[way]["all"]
                cells += [f"{one['f1']:.1f}"] + ([f"{one['num_failed']:,}"] if way == "free" else [])
    tagged = [test["forced"].get("tag_accuracy") for test in result["tests"] if "forced" in test]
    cells.append(" ".join(f"{share:.1f}" for share in tagged if share is not None))
    cells.append(f"{result['seconds']:.0f}")
    return f"| {' | '.join(cells)} |"


def table(found: dict[str, dict[str, Any]], failed: dict[str, str]) -> str:
    """All variants, sorted by mean F1."""
    if not found:
        return "No variant has finished.\n"
    first = next(iter(found.values()))
    ways = [way for way in ("forced", "free") if way in first["tests"][0]]
    names = {"forced": ["forced"], "free": ["free", "no tree"]}
    scores = [f"{test['name']}, {name}" for test in first["tests"] for way in ways for name in names[way]]
    heading = ["variant", "steps", "valid loss", "valid F1", *scores, "tags", "seconds"]
    order = sorted(found, key=lambda name: -sum(test[ways[0]]["all"]["f1"] for test in found[name]["tests"]))
    lines = [f"| {' | '.join(heading)} |", "|---|" + "---:|" * (len(heading) - 1)]
    lines += [row(name, found[name]) for name in order]
    lines += [f"\n{name} failed:\n\n```\n{end}\n```" for name, end in failed.items()]
    return "\n".join(lines) + "\n"


def run(arguments: argparse.Namespace) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Train all variants in parallel; returns their results, and the end of the logs of failed ones."""
    from heedful.console import Console

    console, jobs = Console(), []
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    for name, order in orders(arguments).items():
        directory = arguments.output / name
        directory.mkdir(parents=True, exist_ok=True)
        write_json(directory / ORDER, order)
        (directory / RESULT).unlink(missing_ok=True)
        events = directory / "table4" / "model" / "training" / "log.jsonl"
        jobs.append(Job(name, directory, "parsing_grid", events, directory / LOG))
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}

    def finished(ended: Ended, number: int) -> None:
        name, path = ended.job.label, ended.job.directory / RESULT
        if ended.code == 0 and path.exists():
            found[name] = json.loads(path.read_text(encoding="utf-8"))
            console.note(f"{number} of {len(jobs)}: {row(name, found[name])}")
        else:
            failed[name] = tail(ended.job.log)
            console.note(f"{number} of {len(jobs)}: {name} failed:\n{failed[name]}")

    Sweep(jobs, arguments.jobs, console).run(finished)
    return found, failed


def described(device: torch.device) -> str:
    """Machine and versions in a line."""
    where, what = machine(device), versions()
    return f"{where['device']}, {where['num_cores']} cores; {', '.join(f'{name} {one}' for name, one in what.items())}."


def main() -> None:
    from heedful.build_model import resolve_device

    device = resolve_device("auto")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="treebanks: folders with train, valid and test")
    parser.add_argument("--variants", default=",".join(USUAL), help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--minutes", type=float, help="budget of each variant")
    parser.add_argument("--epochs", type=float, help="budget of each variant")
    parser.add_argument("--jobs", type=int, default=default_jobs(device.type), help="variants at once")
    parser.add_argument("--sentences", type=int, default=1000, help="number of sentences of each treebank to score")
    parser.add_argument("--part", choices=("valid", "test"), default="valid", help="what to score on")
    parser.add_argument("--brackets", choices=("forced", "free", "both"), default="forced", help="which search")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="for all variants")
    parser.add_argument("--output", type=Path, default=Path("parsing-grid"), help="folder for the runs")
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/parsing_grid_DATE_<device>.md")
    arguments = parser.parse_args()
    found, failed = run(arguments)
    command = shlex.join(["python", "benchmarks/quality/parsing_grid.py", *sys.argv[1:]])
    page = (
        f"# Recipes for parsing\n\nF1 on up to {arguments.sentences:,} sentences of each treebank's "
        f"{arguments.part}, greedy. Up to {arguments.jobs} variants ran at once, so their times are not comparable.\n\n"
        f"{table(found, failed)}\n{described(device)}\n\n```bash\n{command}\n```\n"
    )
    sys.stdout.write(page)
    if arguments.write:
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        kind = machine(device)["device"].split()[-1].lower() if device.type == "cuda" else "cpu"
        (folder / f"parsing_grid_{arguments.write}_{kind}.md").write_text(page, encoding="utf-8")
        results = {"command": command, "results": found, "failed": failed}
        write_json(folder / f"parsing_grid_{arguments.write}_{kind}.json", results)
    if failed or not found:
        sys.exit(1)


if __name__ == "__main__":
    try:
        if len(sys.argv) == 2 and (Path(sys.argv[1]) / ORDER).exists():
            work(Path(sys.argv[1]))
        else:
            main()
    except HeedfulError as error:
        sys.exit(f"error: {error}")
