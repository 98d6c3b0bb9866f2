"""How fast the model of the box is on a few cores, how soon the program answers, and how large its files are."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from box_sets import lines_of

from heedful.checkpoint.directory import CHECKSUMS, is_known
from heedful.decoding.translator import Translator

ROOT = Path(__file__).resolve().parents[1]
SEARCHES: dict[str, dict[str, Any]] = {"beam 4": {"method": "beam", "beam_size": 4}, "greedy": {"method": "greedy"}}
TEXTS = (("newstest/newstest2014.en-de", "en", "de"), ("newstest/flores200-devtest", "zh", "en"))
FIRST_SENTENCE = "The weather is nice today, and we are going to the lake."


@contextmanager
def on_cores(number: int) -> Iterator[int]:
    """At most so many cores for this process and its children, where the system can do that; gives their number."""
    if not hasattr(os, "sched_setaffinity"):
        yield os.cpu_count() or 1
        return
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:number])
    try:
        yield len(os.sched_getaffinity(0))
    finally:
        os.sched_setaffinity(0, all_cores)


def speed(compact: Path, data: Path, *, num_lines: int | None, rounds: int) -> list[dict[str, Any]]:
    """Sentences a second in bulk and milliseconds of a sentence alone, for two directions and both searches."""
    translator = Translator.load(compact, device="cpu", engine="native", quantization="int8")
    results = []
    for path, source, target in TEXTS:
        texts = lines_of(data, f"{path}.{source}")[: num_lines or 1000]
        languages = {"source_language": source, "target_language": target}
        translator.translate(texts[:32], **languages)
        for search, settings in SEARCHES.items():
            rates = [len(texts) / seconds_of(translator, texts, languages | settings) for _ in range(rounds)]
            alone = [seconds_of(translator, [text], languages | settings) for text in texts[:100]]
            results.append(
                {
                    "text": path.split("/")[1].split(".")[0],
                    "direction": f"{source}-{target}",
                    "search": search,
                    "num_sentences": len(texts),
                    "words": sum(len(text.split()) for text in texts) if source != "zh" else None,
                    "sentences_per_second": {"best": max(rates), "median": statistics.median(rates)},
                    "alone_ms": {
                        "p50": 1e3 * statistics.median(alone),
                        "p95": 1e3 * sorted(alone)[-1 - len(alone) // 20],
                    },
                    "load": os.getloadavg()[0],
                }
            )
            print(f"speed, {source}-{target}, {search}: {max(rates):.0f} sentences/s", file=sys.stderr, flush=True)
    return results


def seconds_of(translator: Translator, texts: list[str], settings: dict[str, Any]) -> float:
    began = time.perf_counter()
    translator.translate(texts, **settings)
    return time.perf_counter() - began


def start(compact: Path, *, rounds: int) -> dict[str, Any]:
    """Seconds of the whole command for one sentence: the first time, when the engine's file is made, and later."""
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
                sys.exit(f"heedful translate ended with {process.returncode}")
    return {
        "first_seconds": taken[0],
        "median_seconds": statistics.median(taken[1:]),
        "best_seconds": min(taken[1:]),
        "rounds": rounds,
        "peak_mb": usage.ru_maxrss / (1e3 if sys.platform != "darwin" else 1e6),
        "load": os.getloadavg()[0],
    }


def size(compact: Path) -> dict[str, Any]:
    """Bytes of each file, and of all of them as a wheel compresses them."""
    files = own_files(compact)
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "wheel"
        with zipfile.ZipFile(packed, "w", compression=zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, file.name)
        zipped = packed.stat().st_size
    return {"files": {file.name: file.stat().st_size for file in files}, "zipped": zipped}


def own_files(directory: Path) -> list[Path]:
    """The files of a model directory that belong to its format."""
    return sorted(path for path in directory.iterdir() if path.name == CHECKSUMS or is_known(path.name))
