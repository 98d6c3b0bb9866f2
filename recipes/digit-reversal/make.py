"""Train the example of the page's view over time: a tiny model that reverses digits, and its checkpoints.

    python recipes/digit-reversal/make.py [FOLDER]

Writes heedful/web/examples/digit-reversal/, or FOLDER, and prints how many held-out strings each checkpoint reverses.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
NAME = "digit-reversal"
NUM_TRAIN, NUM_VALID, NUM_TEST = 20_000, 200, 1000


def make_sources() -> dict[str, list[str]]:
    """Different random strings of 3 to 8 digits for each set."""
    chance = random.Random(1)
    lines: dict[str, None] = {}
    while len(lines) < NUM_TRAIN + NUM_VALID + NUM_TEST:
        lines[" ".join(chance.choices("0123456789", k=chance.randint(3, 8)))] = None
    sources = list(lines)
    return {
        "train": sources[:NUM_TRAIN],
        "valid": sources[NUM_TRAIN:-NUM_TEST],
        "test": sources[-NUM_TEST:],
    }


def reverse(line: str) -> str:
    """The digits in the opposite order."""
    return line[::-1]


def exact_matches(model: Path, sources: list[str]) -> int:
    """How many sources the model reverses, with the engine and the weights of the page."""
    from heedful import Translator

    translations = Translator.load(model, engine="native").translate(sources)
    return sum(found.text == reverse(source) for source, found in zip(sources, translations, strict=True))


def main() -> None:
    """Train in a temporary folder and write the files of the page."""
    import torch

    from heedful import training_pipeline
    from heedful.interop.web import model_files, write_folder
    from heedful.interop.web_checkpoints import checkpoint_files
    from heedful.model_dir.checkpoints import list_checkpoints

    torch.set_num_threads(1)
    place = Path(sys.argv[1] if sys.argv[1:] else ROOT / "heedful" / "web" / "examples" / NAME).resolve()
    request = yaml.safe_load((ROOT / "recipes" / NAME / f"{NAME}.yaml").read_text("utf-8"))
    sources = make_sources()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # paths in the configuration are relative, and its checksum is part of the weight files
        for name, lines in sources.items():
            Path(f"{name}.source").write_text("".join(f"{line}\n" for line in lines))
            Path(f"{name}.target").write_text("".join(f"{reverse(line)}\n" for line in lines))
        for name in ("train", "valid"):
            request["data"][name] = [{"source": f"{name}.source", "target": f"{name}.target"}]
        training_pipeline.train({**request, "output": "run"}, quiet=True)
        checkpoints = list_checkpoints("run")
        for checkpoint in checkpoints:
            count = exact_matches(checkpoint.directory, sources["test"])
            sys.stdout.write(f"step {checkpoint.step:3}: {count:,} of {NUM_TEST:,} held-out strings\n")
        write_folder({**model_files(checkpoints[-1].directory, NAME), **checkpoint_files("run")}, place)
        os.chdir(ROOT)
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    sys.stdout.write(f"{place}: {size:,} bytes\n")


if __name__ == "__main__":
    main()
