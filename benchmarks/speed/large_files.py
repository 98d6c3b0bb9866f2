"""Whole files: memory by file length, and lines per second by number of workers.

    python benchmarks/speed/large_files.py -m model -i text.en --sizes 100000 1000000 --engines native
    python benchmarks/speed/large_files.py -m model -i text.en --engines torch native --workers 1 2 --repeat 3

A text of each size repeats the given lines with a running number after each, so that no two are equal. The
command is `heedful translate -i FILE -o FILE`. Memory is the peak resident set of the program
and of its largest worker. Settings are interleaved, and all repeats are shown.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle, islice
from pathlib import Path

from heedful.text.text_files import read_lines


def make_text(given: str, num_lines: int, folder: Path) -> Path:
    """Write a file with this many distinct lines."""
    path = folder / f"text{num_lines}"
    with path.open("wb") as file:
        lines = list(read_lines(given))
        file.writelines(b"%s %d\n" % (line, number) for number, line in enumerate(islice(cycle(lines), num_lines)))
    return path


def highest_memory(process: int) -> float:
    """The peak resident set of a process in MB; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) / 1024 if found else 0.0


def measure(args: argparse.Namespace, text: Path, engine: str, workers: int) -> tuple[float, float, float]:
    """Seconds, and the peak memory of the program and of its largest worker in MB."""
    output = text.with_name("out")
    command = [sys.executable, "-m", "heedful", "translate", "-m", args.model, "-i", str(text), "-o", str(output)]
    command += ["--engine", engine, "--workers", str(workers), *args.flags]
    started = time.monotonic()
    program = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    own = largest = 0.0
    while program.poll() is None:
        own = max(own, highest_memory(program.pid))
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        try:
            largest = max([largest, *(highest_memory(int(child)) for child in children.read_text().split())])
        except (FileNotFoundError, ProcessLookupError):
            continue
        time.sleep(0.2)
    seconds = time.monotonic() - started
    if program.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit code {program.returncode}")
    output.unlink()
    return seconds, own, largest


def versions() -> str:
    """Versions of the relevant packages."""
    found = [f"Python {platform.python_version()}"]
    for name in ("torch", "ctranslate2", "sentencepiece"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    """Measure and print a Markdown page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-i", "--input", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--engines", nargs="+", default=["native"])
    parser.add_argument("--workers", type=int, nargs="+", default=[0])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument(
        "--flags", nargs=argparse.REMAINDER, default=[], help="further flags of translate; must come last"
    )
    args = parser.parse_args()
    print(f"# Whole files, {time.strftime('%Y-%m-%d')}\n")
    print(
        "| lines | engine | --workers | seconds, with start-up | lines/s | program, peak MB | largest worker, peak MB |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            text = make_text(args.input, size, Path(folder))
            for _ in range(args.repeat):
                for engine in args.engines:
                    for workers in args.workers:
                        seconds, own, largest = measure(args, text, engine, workers)
                        summary = f"{size:,} | {engine} | {workers} | {seconds:,.1f} | {size / seconds:,.0f}"
                        print(f"| {summary} | {own:,.0f} | {largest:,.0f} |", flush=True)
            text.unlink()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"\nMachine: {platform.machine()}, {cores} cores. Versions: {versions()}.")
    print(f"Command: `python benchmarks/speed/large_files.py {' '.join(sys.argv[1:])}`")


if __name__ == "__main__":
    main()
