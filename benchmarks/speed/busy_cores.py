"""One and two threads on shared cores: does a second thread slow translation down on busy cores?

    python benchmarks/speed/busy_cores.py --rounds 3 > benchmarks/results/busy_cores_DATE_cpu.md

Each task is a `heedful` command in a separate process, start-up included, pinned to two cores. It runs with one thread,
with two threads that spin while they wait (OpenMP's default), and with two threads that sleep (Heedful's setting), in
turn; first on idle cores, then beside a busy loop on each core. Only ratios within a round are meaningful.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOP = "while True: pass"
SPINNING = {"GOMP_SPINCOUNT": "300000"}
"""The default of GNU OpenMP."""
WAYS: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, {}),
    "2 threads, spinning": (2, SPINNING),
    "2 threads, sleeping": (2, {}),
}
SET = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def tasks(folder: Path, *, steps: int, lines: int) -> dict[str, list[str]]:
    """The measured commands and their labels."""
    data = ROOT / "examples" / "data"
    text = folder / "text.en"
    text.write_bytes(b"".join((data / "tatoeba.en").read_bytes().splitlines(keepends=True)[:lines]))
    train = ["train", "--source", f"{data}/tatoeba.en", "--target", f"{data}/tatoeba.de", "--preset", "tiny"]
    train += ["--steps", str(steps), "-o", f"{folder}/model", "--overwrite", "--quiet", "--device", "cpu"]
    program = [sys.executable, "-m", "heedful"]
    found = {
        f"torch's operations: paper figures --only norm_training --steps {steps // 10}": [
            *("paper", "figures", "--only", "norm_training", "--steps", str(steps // 10), "-o", f"{folder}/figures")
        ],
        f"training: train --preset tiny --steps {steps}": train,
        f"native engine: translate --to de, {lines:,} lines": ["translate", "--to", "de", "-i", str(text)],
    }
    small = [sys.executable, __file__, "--updates", str(steps)]
    return {f"{steps} updates of a small encoder": small, **{name: [*program, *rest] for name, rest in found.items()}}


def seconds_of(command: list[str], threads: int, extra: dict[str, str], limit: float) -> float:
    """Seconds of a command; infinite above `limit`."""
    environment = {name: value for name, value in os.environ.items() if name not in SET}
    environment |= {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT), **extra}
    began = time.perf_counter()
    try:
        subprocess.run(
            command,
            env=environment,
            check=True,
            timeout=limit,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return float("inf")
    return time.perf_counter() - began


def update_small_encoder(count: int) -> None:
    """Updates with operations so short that a second thread gains nothing: the worst case for waiting."""
    from heedful.cpu_count import configure_openmp

    configure_openmp()
    import torch
    from torch import nn

    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 6)
    rows, optimizer = torch.randn(16, 16, 64), torch.optim.Adam(model.parameters())
    for _ in range(count):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


def main() -> None:
    """Measure everything and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument(
        "--beside", choices=("nothing", "2 busy loops"), help="measure only this; default: both in turn"
    )
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a command is stopped")
    parser.add_argument("--updates", type=int, help="only run this number of updates of a small encoder")
    chosen = parser.parse_args()
    if chosen.updates:
        update_small_encoder(chosen.updates)
        return
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    rows = ["| task | beside | " + " | ".join(WAYS) + " | sleeping / 1 thread |", "|---|---|---:|---:|---:|---:|"]
    with tempfile.TemporaryDirectory() as name:
        for task, command in tasks(Path(name), steps=chosen.steps, lines=chosen.lines).items():
            for beside in [chosen.beside] if chosen.beside else ("nothing", "2 busy loops"):
                loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in cores if beside != "nothing"]
                try:
                    found: dict[str, list[float]] = {way: [] for way in WAYS}
                    for _ in range(chosen.rounds):
                        for way, (threads, extra) in WAYS.items():
                            shutil.rmtree(Path(name) / "model", ignore_errors=True)
                            found[way].append(seconds_of(command, threads, extra, chosen.limit))
                            print(task, beside, way, f"{found[way][-1]:.1f}", file=sys.stderr, flush=True)
                finally:
                    for loop in loops:
                        loop.kill()
                        loop.wait()
                pairs = zip(found["2 threads, sleeping"], found["1 thread"], strict=True)
                ratios = [two / one for two, one in pairs]
                cells = [f"{statistics.median(times):.1f} s" for times in found.values()]
                cells = [cell.replace("inf s", f"over {chosen.limit:g} s") for cell in cells]
                shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
                rows.append(f"| `{task}` | {beside} | {' | '.join(cells)} | {shown} |")
    import torch

    print("# One and two threads on busy cores\n")
    print(f"{platform.processor() or platform.machine()}, {platform.system()} {platform.release()}, two cores; Python")
    print(f"{platform.python_version()}, torch {torch.__version__}. Medians of {chosen.rounds} interleaved rounds; in")
    print("parentheses the smallest and the largest ratio of a round.\n")
    print(f"    python benchmarks/speed/busy_cores.py {' '.join(sys.argv[1:])}\n")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
