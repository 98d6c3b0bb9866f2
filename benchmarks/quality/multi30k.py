"""Multi30k English to German from scratch: the recipe `configs/multi30k.yaml`, timed and scored.

    python benchmarks/quality/multi30k.py path/of/multi30k --write 2026-11-15

Trains once with that configuration on the plain or .xz files in the folder, scores the model on both test sets with
beam 4, length penalty 0.6 and sacreBLEU, and writes machine, versions, command, time and scores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from heedful import training_pipeline
from heedful.config_loading import read_request, set_key
from heedful.model_card import versions

ROOT = Path(__file__).resolve().parents[2]


def corpus(folder: Path, name: str) -> dict[str, str]:
    """The two files of one part of the corpus, compressed or not."""
    sides = {}
    for side, language in (("source", "en"), ("target", "de")):
        plain = folder / f"{name}.{language}"
        sides[side] = str(plain if plain.exists() else plain.with_suffix(plain.suffix + ".xz"))
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with train, valid, test2016 and test2017 in .en and .de")
    parser.add_argument("--output", default="multi30k-en-de", help="model directory to write")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="change a setting of the recipe"
    )
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/multi30k_DATE_<device>.md")
    arguments = parser.parse_args()

    request: dict[str, Any] = read_request(ROOT / "configs" / "multi30k.yaml")
    parts = {"train": ["train"], "valid": ["valid"], "test": ["test2016", "test2017"]}
    for part, names in parts.items():
        request["data"][part] = [corpus(arguments.folder, name) for name in names]
    request["output"] = arguments.output
    for change in arguments.set:
        key, _, value = change.partition("=")
        set_key(request, key, value)

    began = time.perf_counter()
    result = training_pipeline.train(request, overwrite=True)
    wall = time.perf_counter() - began
    report = describe(result, wall, Path(arguments.output), arguments.set)
    sys.stdout.write(report)
    if arguments.write:
        kind = torch.cuda.get_device_name().split()[-1].lower() if torch.cuda.is_available() else "cpu"
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        (folder / f"multi30k_{arguments.write}_{kind}.md").write_text(report, encoding="utf-8")


def escaped(text: str) -> str:
    """Text escaped for a table cell."""
    return text.replace("|", "\\|")


def describe(result: training_pipeline.TrainingResult, wall: float, output: Path, changes: list[str]) -> str:
    """The results page."""
    lines = (output / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    trained = [event for event in events if event["event"] == "train"]
    valid = [event for event in events if event["event"] == "valid"]
    validating = sum(event["seconds"] for event in valid)
    rates = sorted(event["tokens_per_second"] for event in trained)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"
    details = json.loads((output / "config.json").read_text(encoding="utf-8"))["details"]
    rows = [
        ("machine", f"{device}; {platform.system()} {platform.machine()}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions().items())),
        (
            "command",
            " ".join(["python benchmarks/quality/multi30k.py FOLDER", *(f"--set {change}" for change in changes)]),
        ),
        ("parameters", f"{details['num_parameters']:,}"),
        ("steps", f"{result.steps:,}"),
        ("training, with validations", f"{details['training']['minutes'] * 60:.0f} s to the published weights"),
        ("training loop", f"{trained[-1]['seconds']:.0f} s, of which validations {validating:.0f} s"),
        ("total", f"{wall:.0f} s (corpora, tokenizer, compilation, training, scoring)"),
        ("median rate", f"{rates[len(rates) // 2]:,.0f} target tokens/s"),
        (
            "published weights",
            f"{details['training']['weights']}, valid BLEU {max(e['bleu'] for e in valid):.2f} (greedy)",
        ),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    header = "| test set | metric | value | 95 % | sacreBLEU signature |\n|---|---|---|---|---|"
    scores = "\n".join(
        f"| {name} | {score.name} | {score.value:.2f} | {score.interval.low:.2f}–{score.interval.high:.2f} "
        f"| `{escaped(score.signature)}` |"
        for name, score in zip(["test2016"] * 3 + ["test2017"] * 3, result.scores, strict=True)
        if score.interval is not None
    )
    heading = (
        "# Multi30k English to German, from 29,000 pairs\n\nBeam 4, length penalty 0.6 (GNMT), detokenised, cased.\n"
    )
    return f"{heading}\n| | |\n|---|---|\n{table}\n\n{header}\n{scores}\n"


if __name__ == "__main__":
    main()
