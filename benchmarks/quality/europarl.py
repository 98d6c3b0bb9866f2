"""English to German in ten minutes: training with `configs/europarl-en-de.yaml`, timed from raw text to scores.

    python benchmarks/quality/europarl.py path/of/data --write 2026-11-15
    python benchmarks/quality/europarl.py path/of/data --reuse --training.optimizer=muon --training.minutes=2

The folder contains the corpora under the names that the configuration gives them below `data/`, plain or .xz. Runs
`heedful train` in a separate process with empty caches of compiled kernels, and times its stages from the lines it
prints. Other arguments are passed to that command. With --reuse, the prepared corpora and the caches of an earlier run
are kept, to try another recipe.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from heedful.model_card import versions

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "europarl-en-de.yaml"
LIMIT = 600
AIMS = {"newstest2014": 21.0, "flores200": 27.0, "tatoeba": 43.5, "multi30k": 42.0}
STAGES = {
    "scanning the corpora": "scanning the corpora",
    "training the tokenizer": "training the tokenizer",
    "tokenising": "tokenising",
    "Training a ": "model, compiling, trial batch",
    "Translating the ": "translating and scoring the test sets",
}
"""Prefix of the line that begins a stage -> name of the stage."""
STARTING, TRAINING, SAVING = "start-up", "training, with validation", "last validation, weight selection, saving"

Line = tuple[float, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with europarl-en-de, msdocs-en-de, tatoeba-en-de, …")
    parser.add_argument("--config", type=Path, default=CONFIG, help="another recipe")
    parser.add_argument("--output", type=Path, default=Path("europarl-en-de"), help="model directory to write")
    parser.add_argument("--reuse", action="store_true", help="keep the prepared corpora and caches of an earlier run")
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/europarl_DATE_<device>.md")
    arguments, others = parser.parse_known_args()
    if arguments.output.exists() and not arguments.reuse:
        parser.error(
            f"{arguments.output} exists already, but the time is measured from raw text. Remove it, or add --reuse."
        )
    if not arguments.folder.is_dir():
        parser.error(f"{arguments.folder} is not a folder.")

    lines, wall = run(arguments, others)
    report = describe(arguments, others, lines, wall)
    sys.stdout.write(report)
    if arguments.write:
        kind = facts(arguments.output)["training"]["device"].split()[-1].lower()
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        (folder / f"europarl_{arguments.write}_{kind}.md").write_text(report, encoding="utf-8")


def run(arguments: argparse.Namespace, others: list[str]) -> tuple[list[Line], float]:
    """Run the command with the given `data` folder; returns its lines with their times, and the total seconds."""
    command = [sys.executable, "-m", "heedful", "train", str(arguments.config.resolve())]
    command += ["-o", str(arguments.output.resolve()), *(["--overwrite"] if arguments.reuse else []), *others]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "data").symlink_to(arguments.folder.resolve())
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
        if not arguments.reuse:
            environment |= {name: f"{directory}/{name}" for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        lines: list[Line] = []
        began = time.perf_counter()
        with subprocess.Popen(
            command, cwd=directory, env=environment, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        ) as program:
            assert program.stderr is not None
            for line in program.stderr:
                lines.append((time.perf_counter() - began, line.rstrip("\n")))
                sys.stderr.write(f"{lines[-1][0]:6.1f} s  {line}")
        wall = time.perf_counter() - began
    if program.returncode:
        raise SystemExit(f"the command failed with exit code {program.returncode} after {wall:.0f} s.")
    return lines, wall


def facts(output: Path) -> dict[str, Any]:
    """The training details of the model directory."""
    details: dict[str, Any] = json.loads((output / "config.json").read_text(encoding="utf-8"))["details"]
    return details


def stages(lines: list[Line], trained: list[dict[str, Any]], wall: float) -> dict[str, float]:
    """The seconds of each part of the command."""
    begins = {STARTING: 0.0}
    for second, line in lines:
        for beginning, name in STAGES.items():
            if line.startswith(beginning):
                begins.setdefault(name, second)
    # A line "step 50  1%  loss …" appears when that step ends; the log counts seconds from the first step.
    second, step = next(
        (second, int(found[1])) for second, line in lines if (found := re.match(r"step (\d+)  \d", line))
    )
    begins[TRAINING] = second - next(event["seconds"] for event in trained if event["step"] == step)
    begins[SAVING] = begins[TRAINING] + trained[-1]["seconds"]
    in_order = sorted(begins.items(), key=lambda item: item[1])
    ends = [begin for _, begin in in_order[1:]] + [wall]
    return {name: end - begin for (name, begin), end in zip(in_order, ends, strict=True)}


def describe(arguments: argparse.Namespace, others: list[str], lines: list[Line], wall: float) -> str:
    """The results page."""
    log = (arguments.output / "training" / "log.jsonl").read_text(encoding="utf-8").split("\n")
    events = [json.loads(line) for line in log if line]
    trained, valid = ([event for event in events if event["event"] == kind] for kind in ("train", "valid"))
    rates = sorted(event["tokens_per_second"] for event in trained)
    known = facts(arguments.output)
    training, last = known["training"], trained[-1]
    started = "prepared corpora and compiled kernels of an earlier run" if arguments.reuse else "raw text, empty caches"
    rows = [
        ("machine", f"{training['device']}, {os.cpu_count()} CPU cores; {platform.system()} {platform.machine()}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions().items())),
        ("command", f"`{written(arguments, others)}`"),
        ("starts from", started),
        ("total", f"**{wall:.0f} s** of {LIMIT}{'' if wall <= LIMIT else ': too long'}"),
        *((f"— {name}", f"{seconds:.0f} s") for name, seconds in stages(lines, trained, wall).items()),
        ("pairs, parameters", f"{known['data']['num_pairs']:,} and {known['num_parameters']:,}"),
        ("training", f"{last['step']:,} steps, {last['tokens']:,} target tokens, {last['epoch']:.1f} epochs"),
        ("validations", f"{len(valid)}, {sum(event['seconds'] for event in valid):.0f} s"),
        ("median rate", f"{rates[len(rates) // 2]:,.0f} target tokens/s"),
        (
            "published weights",
            f"{training['weights']} of step {training['steps']:,}, valid loss {training['valid_loss']:.4f}",
        ),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    heading = "# English to German in ten minutes, from 1.2 million pairs"
    how = "Beam 4, length penalty 0.6 (GNMT), detokenised, cased; `config.json` of the model has chrF and TER too."
    return f"{heading}\n\n{how}\n\n| | |\n|---|---|\n{table}\n\n{score_table(known['scores'])}\n"


def written(arguments: argparse.Namespace, others: list[str]) -> str:
    """The command line of this script."""
    own = ["--config", str(arguments.config)] if arguments.config != CONFIG else []
    own += ["--reuse"] if arguments.reuse else []
    return shlex.join(["python", "benchmarks/quality/europarl.py", "FOLDER", *own, *others]).replace("|", "\\|")


def score_table(scores: list[dict[str, Any]]) -> str:
    """BLEU on each test set, with the target."""
    rows = ["| test set | BLEU | 95 % | aim | sacreBLEU signature |", "|---|---:|---|---:|---|"]
    for score in scores:
        if score["name"] == "BLEU":
            interval, signature = score["interval"], score["signature"].replace("|", "\\|")
            aim = next((value for name, value in AIMS.items() if name in score["data"]), None)
            within = f"{interval['low']:.2f}–{interval['high']:.2f}"
            rows.append(f"| {score['data']} | {score['value']:.2f} | {within} | {aim or ''} | `{signature}` |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
