"""Speed of batching on one core: shuffling, packing and assembling, against a plain Python loop over sentences.

    OMP_NUM_THREADS=1 python benchmarks/speed/packing_speed.py --write 2026-11-15

Lengths are synthetic but realistic (log-normal, mean 28 tokens, the sides correlated), the ids random, the store a
temporary one. Both produce the same seven (rows, width) tensors of all pairs; their repeats alternate.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch are imported

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from heedful.data.batch_stream import BatchStream
from heedful.data.packing import Batch, pack
from heedful.data.store import PairStore, StoreWriter

WIDTH, ROWS_PER_STEP, VOCAB, BOS, PAD = 128, 196, 32_000, 1, 0


def realistic_lengths(num_pairs: int, mean: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    lengths = np.exp(generator.normal(np.log(mean) - 0.55**2 / 2, 0.55, size=num_pairs))
    other = lengths * np.exp(generator.normal(0, 0.18, size=num_pairs))
    return np.rint(lengths).astype(int).clip(1, WIDTH), np.rint(other).astype(int).clip(1, WIDTH)


def write_store(directory: str, num_pairs: int, mean: float) -> PairStore:
    generator = np.random.default_rng(7)
    source_lengths, target_lengths = realistic_lengths(num_pairs, mean, seed=1)
    with StoreWriter(directory, VOCAB, VOCAB) as writer:
        for start in range(0, num_pairs, 10_000):
            sides = []
            for lengths in (source_lengths[start : start + 10_000], target_lengths[start : start + 10_000]):
                flat = generator.integers(4, VOCAB, size=int(lengths.sum())).tolist()
                ends = np.cumsum(lengths).tolist()
                sides.append([flat[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)])
            writer.add(sides[0], sides[1], [0] * len(sides[0]))
    return PairStore.open(directory)


def heedful_batches(store: PairStore, epoch: int) -> tuple[int, int]:
    """Build one epoch of batches; returns real target tokens and rows."""
    stream = BatchStream(store, width=WIDTH, rows_per_step=ROWS_PER_STEP, seed=1, bos_id=BOS, pad_id=PAD)
    steps = 0
    for position, _ in stream.batches(epoch, 0):
        if position.epoch > epoch:
            break
        steps += 1
    return store.target.num_tokens, steps * ROWS_PER_STEP


def loop_batches(store: PairStore, epoch: int, *, num_pairs: int, num_open: int = 32) -> tuple[int, int]:
    """The baseline: shuffle, and copy each sentence pair into the first open row with space."""
    order = np.random.default_rng(epoch).permutation(len(store))[:num_pairs].tolist()
    open_rows: list[tuple[dict[str, np.ndarray], list[int]]] = []
    finished: list[dict[str, np.ndarray]] = []
    tokens = rows = 0
    for index in order:
        source = store.source.ids[store.source.offsets[index] : store.source.offsets[index + 1]]
        target = store.target.ids[store.target.offsets[index] : store.target.offsets[index + 1]]
        fitting = (
            (row, used) for row, used in open_rows if used[0] + len(source) <= WIDTH and used[1] + len(target) <= WIDTH
        )
        found = next(fitting, None)
        if found is None:
            if len(open_rows) == num_open:
                fullest = max(range(num_open), key=lambda number: open_rows[number][1][1])
                finished.append(open_rows.pop(fullest)[0])
            found = {name: np.full(WIDTH, PAD) for name in Batch.__dataclass_fields__}, [0, 0, 0]
            open_rows.append(found)
            rows += 1
        put(*found, source, target)
        tokens += len(target)
        if len(finished) >= ROWS_PER_STEP:
            stack(finished)
            finished = []
    for start in range(0, len(left := finished + [row for row, _ in open_rows]), ROWS_PER_STEP):
        stack(left[start : start + ROWS_PER_STEP])
    return tokens, rows


def put(row: dict[str, np.ndarray], used: list[int], source: np.ndarray, target: np.ndarray) -> None:
    used[2] += 1
    first, second = slice(used[0], used[0] + len(source)), slice(used[1], used[1] + len(target))
    row["source"][first] = source
    row["source_segments"][first] = used[2]
    row["source_positions"][first] = np.arange(len(source))
    row["target_input"][second.start] = BOS
    row["target_input"][second.start + 1 : second.stop] = target[:-1]
    row["target_output"][second] = target
    row["target_segments"][second] = used[2]
    row["target_positions"][second] = np.arange(len(target))
    used[0], used[1] = first.stop, second.stop


def stack(rows: list[dict[str, np.ndarray]]) -> Batch:
    return Batch(**{name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]})


class Measured(NamedTuple):
    """Target tokens per second by wall clock and by CPU time, and how full the target side is."""

    speed: float
    core_speed: float
    fill: float


def measured(work: Callable[[], tuple[int, int]]) -> Measured:
    start, core_start = time.perf_counter(), time.process_time()
    tokens, rows = work()
    seconds, core_seconds = time.perf_counter() - start, time.process_time() - core_start
    return Measured(tokens / seconds, tokens / core_seconds, tokens / (rows * WIDTH))


def fill_of(mean: float) -> tuple[float, float]:
    """How full the rows of one block of pairs are, source and target."""
    source, target = realistic_lengths(65_536, mean, seed=2)
    room = pack(source, target, WIDTH).num_rows * WIDTH
    return float(source.sum() / room), float(target.sum() / room)


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def report(fast: list[Measured], slow: list[Measured], args: argparse.Namespace) -> str:
    def line(name: str, results: list[Measured]) -> str:
        speeds = sorted(result.speed / 1e6 for result in results)
        core = statistics.median(result.core_speed / 1e6 for result in results)
        fill = statistics.median(result.fill for result in results)
        spread = f"{speeds[0]:.2f} – {speeds[-1]:.2f}"
        return f"| {name} | {statistics.median(speeds):.2f} | {spread} | {core:.2f} | {fill:.1%} |"

    ratios = sorted(one.speed / other.speed for one, other in zip(fast, slow, strict=True))
    fills = [f"| {mean} | {source:.1%} | {target:.1%} |" for mean in (9, 28, 60) for source, target in [fill_of(mean)]]
    return f"""# Batching on one core{f", {args.write}" if args.write else ""}

Shuffling, packing and assembling into tensors, {args.pairs:,} pairs of {args.mean:g} tokens a side on average, rows of
{WIDTH}, {ROWS_PER_STEP} rows a batch. {args.repeats} alternating repeats; the loop over sentences does
{args.loop_pairs:,} of the pairs each time.

| method | M target tokens/s (median) | lowest – highest | per second of CPU time | target side full |
|---|---|---|---|---|
{line("heedful", fast)}
{line("Python loop over sentences", slow)}

Ratio: {statistics.median(ratios):.1f} (of the repeats: {ratios[0]:.1f} – {ratios[-1]:.1f}).

How full rows are, one block of 65,536 pairs (log-normal lengths, sides differing by a factor of e^±0.18):

| mean tokens | source | target |
|---|---|---|
{chr(10).join(fills)}

Machine: {processor()}, one of its {os.cpu_count()} cores. {args.note}
Versions: Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}.
Command: `OMP_NUM_THREADS=1 python benchmarks/speed/packing_speed.py --pairs {args.pairs} --repeats {args.repeats}`
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--loop-pairs", type=int, default=40_000)
    parser.add_argument("--mean", type=float, default=28)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--note", default="", help="a sentence about the machine for the report")
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/packing_speed_DATE_cpu.md")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as directory:
        store = write_store(directory, args.pairs, args.mean)
        heedful_batches(store, 0)  # warm: files in the page cache, code loaded
        loop_batches(store, 0, num_pairs=1000)
        fast, slow = [], []
        for repeat in range(1, args.repeats + 1):
            fast.append(measured(lambda epoch=repeat: heedful_batches(store, epoch)))  # type: ignore[misc]
            slow.append(measured(lambda epoch=repeat: loop_batches(store, epoch, num_pairs=args.loop_pairs)))  # type: ignore[misc]
    text = report(fast, slow, args)
    print(text)
    if args.write:
        results = Path(__file__).resolve().parents[1] / "results"
        results.mkdir(exist_ok=True)
        (results / f"packing_speed_{args.write}_cpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
