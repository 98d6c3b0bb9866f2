"""A full disk gives one message that names the path and exit code 2; complete files stay intact."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heedful.model_dir import verify
from heedful.model_dir.checkpoints import list_checkpoints

ROOT = Path(__file__).parents[2]
SHAPE = ["--preset", "tiny", "--model.d_model=16", "--model.num_heads=2", "--data.num_workers=1", "--steps", "6"]
SHAPE += ["--training.validate_every=2", "--training.num_bleu_sentences=4", "--training.average_last=2"]
SHAPE += ["--keep-checkpoints", "3"]


def heedful(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("corpus")
    for name, shift in (("a", 0), ("b", 7)):
        lines = "".join(f"{number + shift} {number} {number % 13} x\n" for number in range(1500))
        (folder / name).write_text(lines, encoding="utf-8")
    return ["--source", str(folder / "a"), "--target", str(folder / "b")]


@pytest.fixture(scope="module")
def model(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trained") / "model"
    done = heedful("train", *corpus, *SHAPE, "-o", output)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount an in-memory file system of the given size, if the system permits it."""
    mounted: list[Path] = []

    def make(size: int) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size // 4096 * 4096}", "tmpfs", str(place)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("cannot mount a small file system here")
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=False)


def refused(done: subprocess.CompletedProcess[str], place: Path) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and "No space left" in done.stderr and str(place) in done.stderr


@pytest.mark.slow
def test_full_disk_stops_training_with_one_message(corpus: list[str], disk: Callable[[int], Path]) -> None:
    """The disk may become full at any write, from the prepared corpus to the last save."""
    outcomes = set()
    for size in (60_000, 250_000, 700_000, 1_400_000):
        place = disk(size)
        done = heedful("train", *corpus, *SHAPE, "-o", place / "model")
        outcomes.add(done.returncode)
        if done.returncode:
            refused(done, place)
        if (place / "model/config.json").exists():
            verify(place / "model")
        for checkpoint in list_checkpoints(place / "model"):
            verify(checkpoint.directory)
    assert 2 in outcomes


def test_full_disk_stops_export_and_prepare_with_one_message(
    model: Path, corpus: list[str], disk: Callable[[int], Path]
) -> None:
    for form in ("compact", "ctranslate2"):
        place = disk(30_000)
        refused(heedful("export", "-m", model, "--to", form, "-o", place / "out"), place)
    place = disk(30_000)
    refused(heedful("prepare", *corpus, "-o", place / "prepared"), place)


def test_interrupted_file_translation_keeps_output(model: Path, disk: Callable[[int], Path], tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"{number} and {number + 1}\n" for number in range(4000)), encoding="utf-8")
    place = disk(24_000)
    refused(heedful("translate", "-m", model, "-i", text, "-o", place / "out", "--method", "greedy"), place)
    kept = (place / "out.partial").read_bytes()
    assert kept and (place / "out.manifest.json").exists()
