"""Run the program as users do: in a subprocess, or in this process for the many cheap cases."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}
COMMAND = [sys.executable, "-m", "heedful"]

TINY = (
    "--preset tiny --device cpu --model.d_model=32 --model.d_ff 64 --model.num_heads 2 --model.num_encoder_layers 1 "
    "--model.num_decoder_layers 1 --training.tokens_per_step=512 --training.learning_rate 0.01 "
    "--training.warmup_steps 10 --training.num_bleu_sentences=0 --training.tensorboard=false"
).split()
"""Flags of a small model; a hundred steps take two seconds."""


@dataclass(frozen=True)
class Ended:
    """The result of a run."""

    code: int
    out: str
    error: str

    def refused(self, *words: str) -> str:
        """Assert that the program printed exactly one message, which contains these words, and no traceback."""
        assert self.code == 2, self
        assert "Traceback" not in self.error
        lines = [line for line in self.error.splitlines() if line.startswith("heedful: ")]
        assert len(lines) == 1, self.error
        assert self.error.splitlines()[-1] == lines[0], self.error
        for word in words:
            assert word in lines[0], lines[0]
        return lines[0]


def run(*arguments: object, given: bytes = b"", check: bool = True, cwd: Path | None = None) -> Ended:
    """Run the program in a subprocess."""
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, env=ENVIRONMENT, cwd=cwd, timeout=120, check=False)
    ended = Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert not check or ended.code == 0, ended.error
    return ended


Inside = Callable[..., Ended]


@dataclass(frozen=True)
class Corpus:
    """Digits and the same digits reversed."""

    source: Path
    target: Path
    test_source: Path
    test_target: Path

    @property
    def flags(self) -> list[str]:
        return ["--source", str(self.source), "--target", str(self.target)]
