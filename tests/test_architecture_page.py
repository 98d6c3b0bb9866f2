"""docs/architecture.md is current, and its two walks name functions that are called."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"

RECORD_CALLS = """
import sys, threading
calls = set()
def record(frame, event, argument):
    if event == "call":
        calls.add((frame.f_code.co_filename, frame.f_code.co_qualname))
from heedful.cli import main
threading.setprofile(record)
sys.setprofile(record)
try:
    main(sys.argv[2:])
except SystemExit as ended:
    sys.setprofile(None)
    assert not ended.code, ended.code
finally:
    sys.setprofile(None)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.writelines(f"{name}\\t{function}\\n" for name, function in calls)
"""


@pytest.mark.parametrize("made", ["docs/architecture.md", "docs/architecture.zh-CN.md", "docs/images/imports.svg"])
def test_generated_architecture_is_current(made: str) -> None:
    command = [sys.executable, str(ROOT / ".ci" / "architecture_page.py"), made]
    printed = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    assert printed == (ROOT / made).read_text(encoding="utf-8"), "run: python .ci/architecture_page.py"


def steps_of(heading: str) -> list[str]:
    """The numbered steps of a section of the page."""
    [section] = re.findall(rf"^## {heading}\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    steps = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    assert len(steps) >= 10
    return steps


def names_in(step: str) -> list[tuple[str, str]]:
    """File and name of every link of a step to something that a Python file defines, or to a whole file (`*.py`)."""
    return [(path, name) for name, path in re.findall(r"\[`([\w.]+)`\]\(\.\./(heedful/[\w/]+\.py)\)", step)]


def is_called(calls: set[tuple[str, str]], path: str, name: str) -> bool:
    """Whether a function, some method of a class, or anything in a file is called."""
    functions = [function for file, function in calls if file == path]
    return any(name.endswith(".py") or f".{name}." in f".{function}." for function in functions)


def record_calls(folder: Path, *arguments: str) -> set[tuple[str, str]]:
    """File and name of every function of the package that a command calls."""
    record = folder / "calls.txt"
    command = [sys.executable, "-c", RECORD_CALLS, str(record), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    calls = [line.split("\t") for line in record.read_text(encoding="utf-8").splitlines()]
    return {
        (Path(name).relative_to(ROOT).as_posix(), function)
        for name, function in calls
        if Path(name).is_relative_to(ROOT / "heedful")
    }


def check_walk(heading: str, calls: set[tuple[str, str]]) -> None:
    """Every function that a step names is called."""
    missing = [
        f"step {number}: {name} in {path}"
        for number, step in enumerate(steps_of(heading), 1)
        for path, name in names_in(step)
        if not is_called(calls, path, name)
    ]
    assert not missing, f"“{heading}” names functions that are never called: {missing}"


def test_walk_of_translate_matches_recorded_calls(tmp_path: Path) -> None:
    calls = record_calls(tmp_path, "translate", "--to", "de", "Where is the train station?")
    check_walk("A sentence through translate", calls)


@pytest.mark.slow
def test_walk_of_train_matches_recorded_calls(tmp_path: Path) -> None:
    for side in ("en", "de"):
        lines = (ROOT / "examples" / "data" / f"tatoeba.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / f"train.{side}").write_text("".join(lines[:300]), encoding="utf-8")
    files = ("--source", "train.en", "--target", "train.de", "-o", "model")
    calls = record_calls(tmp_path, "train", *files, "--preset", "tiny", "--steps", "2")
    check_walk("A corpus through train", calls)
