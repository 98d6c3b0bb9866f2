"""Translating, scoring and training open no socket."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"):
        print(f"SOCKET {event} {arguments!r}", file=sys.stderr, flush=True)

sys.addaudithook(watch)
from heedful.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("verb", ["translate", "score", pytest.param("train", marks=pytest.mark.slow)])
def test_no_verb_opens_a_socket(tmp_path: Path, verb: str) -> None:
    for name, shift in (("a", 0), ("b", 3)):
        lines = "".join(f"{number + shift} {number} {number % 7} x\n" for number in range(400))
        (tmp_path / name).write_text(lines, encoding="utf-8")
    files = ["--source", str(tmp_path / "a"), "--target", str(tmp_path / "b"), "-o", str(tmp_path / "model")]
    arguments = {
        "translate": ["translate", "--to", "de", "Where is the train station?"],
        "score": ["score", str(tmp_path / "a"), "-r", str(tmp_path / "b")],
        "train": ["train", *files, "--preset", "tiny", "--steps", "2", "--model.d_model=16", "--data.num_workers=1"],
    }[verb]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "SOCKET" not in done.stderr
