"""Start-up time with the bundled model, and the size of its files."""

from __future__ import annotations

import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from heedful.model_dir.files import CHECKSUMS, is_known

ROOT = Path(__file__).resolve().parents[2]
FIRST_SENTENCE = "The weather is nice today, and we are going to the lake."


def start(compact: Path, *, rounds: int) -> dict[str, Any]:
    """Seconds of the command for one sentence: the first time, when the engine's weight file is written, and later."""
    compileall.compile_dir(ROOT / "heedful", quiet=1)  # compile to bytecode, as pip does
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "en-de-zh"
        copied.mkdir()
        for file in own_files(compact):
            shutil.copy2(file, copied)
        command = [sys.executable, "-m", "heedful", "translate", "-m", "en-de-zh", "--to", "de", FIRST_SENTENCE]
        changed = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": folder, "HEEDFUL_MODELS": folder}
        taken = []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **changed}, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            taken.append(time.perf_counter() - began)
            if process.returncode:
                sys.exit(f"heedful translate failed with exit code {process.returncode}")
    return {
        "first_seconds": taken[0],
        "median_seconds": statistics.median(taken[1:]),
        "best_seconds": min(taken[1:]),
        "rounds": rounds,
        "peak_mb": usage.ru_maxrss / (1e3 if sys.platform != "darwin" else 1e6),
        "load": os.getloadavg()[0],
    }


def size(compact: Path) -> dict[str, Any]:
    """Size of each file, and of all files compressed as in a wheel."""
    files = own_files(compact)
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "wheel"
        with zipfile.ZipFile(packed, "w", compression=zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, file.name)
        zipped = packed.stat().st_size
    return {"files": {file.name: file.stat().st_size for file in files}, "zipped": zipped}


def own_files(directory: Path) -> list[Path]:
    """The files of a model directory that are part of the format."""
    return sorted(path for path in directory.iterdir() if path.name == CHECKSUMS or is_known(path.name))
