"""Memory and time by corpus size: preparing text, and reading an epoch of a store.

    python benchmarks/speed/corpus_scale.py --source train.en.xz --target train.de.xz
    python benchmarks/speed/corpus_scale.py --source … --target … --sizes 100000 1000000 --store-sizes 100000 10000000

Corpora of each size repeat the given lines with a running number after each sentence, so that no two
pairs are equal. Every measurement runs in a separate process; memory is the peak resident set of that process
(for preparing also that of its largest worker), and for reading the anonymous part, without pages of the mapped files.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from contextlib import suppress
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sentencepiece

from heedful.config import CorpusConfig, DataConfig, TokenizerConfig
from heedful.data.prepare import prepare
from heedful.data.store import PairStore, StoreWriter
from heedful.text.text_files import read_lines

if TYPE_CHECKING:
    from heedful.data.batch_stream import BatchStream

WIDTH, ROWS_PER_STEP, PAGE = 128, 196, 4096
VOCAB = 32_000
RANKS = (1, 8, 64)
CACHED_PAGES = 100_000
"""Pages of 4 KiB: 0.4 GB of page cache."""


def make_corpus(args: argparse.Namespace, num_pairs: int, folder: Path) -> DataConfig:
    """Write two files with this many distinct pairs."""
    for side in ("source", "target"):
        lines = list(read_lines(getattr(args, side)))
        with (folder / side).open("wb") as file:
            file.writelines(b"%s %d\n" % (line, n) for n, line in enumerate(islice(cycle(lines), num_pairs)))
    corpus = CorpusConfig(source=str(folder / "source"), target=str(folder / "target"))
    return DataConfig(train=(corpus,), num_workers=args.workers)


def measure_preparing(num_pairs: int, folder: Path, workers: int | None, vocab_size: int) -> dict[str, Any]:
    """Prepare the corpus in `folder`; returns seconds per stage, peak memory, and bytes on disk."""
    corpus = CorpusConfig(source=str(folder / "source"), target=str(folder / "target"))
    stages: dict[str, float] = {}
    last: list[Any] = ["scanning the corpora", time.perf_counter()]
    worker, writing = [0.0], [0.0]
    add_flat = StoreWriter.add_flat

    def timed(*arguments: Any, **settings: Any) -> None:
        began = time.thread_time()
        add_flat(*arguments, **settings)
        writing[0] += time.thread_time() - began

    StoreWriter.add_flat = timed  # type: ignore[method-assign]

    def report_stage(stage: str, done: int, total: int | None) -> None:
        now = time.perf_counter()
        stages[last[0]] = stages.get(last[0], 0.0) + now - last[1]
        last[:] = stage, now
        worker[0] = max(worker[0], largest_child_mb())

    start = time.perf_counter()
    before = status_mb("VmHWM")
    tokenizer = TokenizerConfig(vocab_size=vocab_size)
    prepared = prepare(
        DataConfig(train=(corpus,), num_workers=workers), tokenizer, folder / "prepared", seed=1, progress=report_stage
    )
    report_stage("end", 0, None)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    disk = sum(path.stat().st_size for path in (folder / "prepared" / "train").iterdir())
    return {
        "pairs": num_pairs,
        "seconds": time.perf_counter() - start,
        "core_seconds": [one.ru_utime + one.ru_stime for one in usage],
        "writing": writing[0],
        "stages": stages,
        "before_mb": before,
        "peak_mb": status_mb("VmHWM"),
        "worker_mb": worker[0],
        "bytes_on_disk": disk / len(prepared.train),
        "tokens": (prepared.train.source.num_tokens + prepared.train.target.num_tokens) / len(prepared.train),
    }


def write_synthetic(folder: Path, num_pairs: int, chunk: int = 200_000) -> None:
    """A store of random ids with realistic lengths: about 28 tokens per side."""
    generator = np.random.default_rng(1)
    with StoreWriter(folder, VOCAB, VOCAB) as writer:
        for start in range(0, num_pairs, chunk):
            count = min(chunk, num_pairs - start)
            centre = generator.lognormal(np.log(28) - 0.18, 0.6, count)
            source, target = (
                np.clip(centre * generator.lognormal(0, 0.13, count), 1, WIDTH).astype(np.int64) for _ in range(2)
            )
            flat = [generator.integers(4, VOCAB, int(side.sum()), dtype=np.uint16) for side in (source, target)]
            writer.add_flat(flat[0], source, flat[1], target, corpus_index=0)


def status_mb(field: str, process: str = "self") -> float:
    """A memory value of a process: VmHWM is its peak, RssAnon the part that is not mapped from files."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0) / 1024


def largest_child_mb() -> float:
    """The peak memory of the largest child process."""
    children = [word for path in Path("/proc/self/task").glob("*/children") for word in path.read_text().split()]
    sizes = [0.0]
    for child in children:
        with suppress(OSError):  # it may have ended
            sizes.append(status_mb("VmHWM", child))
    return max(sizes)


def measure_reading(num_pairs: int, folder: Path, max_steps: int, order: str) -> dict[str, Any]:
    """Open a store, read batches, resume at the end of the epoch; memory, rates, pages to read, the work of a rank."""
    import torch

    from heedful.data.packing import prepack

    torch.set_num_threads(1)
    store = PairStore.open(folder)
    start = time.process_time()
    prepacked = prepack(folder, store, WIDTH) if order == "blocks" else None
    arranging = time.process_time() - start
    start = time.perf_counter()
    stream = open_stream(store, prepacked)
    next(stream.batches())
    first_batch = time.perf_counter() - start
    start, highest, tokens, steps = time.process_time(), 0.0, 0, 0
    for (epoch, step), batch in stream.batches():
        if epoch or step >= max_steps:
            break
        tokens += int((batch.target_segments > 0).sum())
        steps += 1
        highest = max(highest, status_mb("RssAnon")) if step % 50 == 0 else highest
    reading = time.process_time() - start
    return {
        "pairs": num_pairs,
        "order": order,
        "arranging": arranging,
        "first_batch": first_batch,
        "steps": steps,
        "target_tokens_per_core_second": tokens / reading,
        "anonymous_mb": max(highest, status_mb("RssAnon")),
        "resuming": resume_seconds(store, prepacked),
        "pages": pages_per_step(stream, max_steps),
        "rank_ms": {ranks: rank_ms(store, prepacked, ranks) for ranks in RANKS},
    }


def open_stream(store: PairStore, prepacked: Any, ranks: int = 1) -> BatchStream:
    from heedful.data.batch_stream import BatchStream

    shares = {"rows_per_step": ROWS_PER_STEP * ranks, "world_size": ranks, "prepacked": prepacked}
    return BatchStream(store, width=WIDTH, seed=1, bos_id=2, pad_id=0, **shares)


def resume_seconds(store: PairStore, prepacked: Any) -> list[float]:
    """Core seconds to reach the last batch of the epoch: without row counts, and with those of a resume state."""
    from heedful.data.batch_stream import Position

    seconds, cache = [], None
    for _ in range(2):
        stream = open_stream(store, prepacked)
        start = time.process_time()
        stream.load_resume_cache(cache)
        last = Position(0, stream.steps_in_epoch(0) - 1)
        stream.batch(*last)
        seconds.append(time.process_time() - start)
        cache = json.loads(json.dumps(stream.resume_cache(last)))
    return seconds


def rank_ms(store: PairStore, prepacked: Any, ranks: int, least_pairs: int = 400_000) -> float:
    """Core milliseconds per step of one rank's thread: its rows, and the tokens of all ranks."""
    stream = open_stream(store, prepacked, ranks)
    steps = min(max(3, least_pairs // (ranks * ROWS_PER_STEP * 4)), stream.steps_in_epoch(0) - 1)
    stream = open_stream(store, prepacked, ranks)
    start = time.process_time()
    for step in range(steps):
        stream.batch(0, step)
        if ranks > 1:
            stream.num_tokens(0, step)
    return 1000 * (time.process_time() - start) / max(steps, 1)


def pages_per_step(stream: BatchStream, max_steps: int) -> dict[str, float]:
    """Pages of the store that a step touches; pages that its pairs fill; pages to read with CACHED_PAGES in memory.

    The least recently used page is evicted first, as in a page cache.
    """
    cached: OrderedDict[int, None] = OrderedDict()
    touched, needed, read = 0, 0.0, 0
    steps = min(max_steps, stream.steps_in_epoch(0))
    for step in range(steps):
        rows = step * ROWS_PER_STEP + np.arange(
            min(ROWS_PER_STEP, stream.rows.count_rows(0, None) - step * ROWS_PER_STEP)
        )
        pairs = stream.rows.placement(0, rows, rows).pair
        pages = []
        for number, side in enumerate((stream.store.source, stream.store.target)):
            begin, end, size = side.offsets[pairs], side.offsets[pairs + 1], side.ids.itemsize
            first, last = begin * size // PAGE, (end * size - 1) // PAGE
            pages += [array + (number << 50) for array in (first, last, (pairs * 8 // PAGE) + (1 << 40))]
            needed += float((end - begin).sum() * size + 8 * pairs.size) / PAGE
        distinct = np.unique(np.concatenate(pages)).tolist()
        touched += len(distinct)
        for page in distinct:
            if page in cached:
                cached.move_to_end(page)
                continue
            read += 1
            cached[page] = None
            if len(cached) > CACHED_PAGES:
                cached.popitem(last=False)
    return {"steps": steps, "touched": touched / steps, "if_neighbours": needed / steps, "read": read / steps}


def in_own_process(*words: object) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def report(prepared: list[dict[str, Any]], read: list[dict[str, Any]], args: argparse.Namespace) -> str:
    stages = list(prepared[0]["stages"]) if prepared else []
    lines = [f"# Corpora of growing size{f', {args.write}' if args.write else ''}\n", "## Preparing\n"]
    lines += [
        "Text (plain files, a running number after each sentence) to ids, "
        f"{args.vocab_size:,} subwords, {args.workers or os.cpu_count()} workers. Core seconds: of the workers, of the "
        "main process, which reads, trains the tokenizer and writes, and its share for writing the ids.\n",
        f"| pairs | seconds | core seconds: workers | main process | of that, writing "
        f"| {' | '.join(stages)} | peak MB | MB before | MB per worker | bytes per pair "
        "on disk | tokens per pair |",
        "|---:" * (10 + len(stages)) + "|",
    ]
    for one in prepared:
        by_stage = " | ".join(f"{one['stages'][stage]:.1f}" for stage in stages)
        own, workers = one["core_seconds"]
        lines.append(
            f"| {one['pairs']:,} | {one['seconds']:.1f} | {workers:.1f} | {own:.1f} | {one['writing']:.1f} "
            f"| {by_stage} | {one['peak_mb']:.0f} | {one['before_mb']:.0f} "
            f" | {one['worker_mb']:.0f} | {one['bytes_on_disk']:.0f} | {one['tokens']:.1f} |"
        )
    lines += [
        "\n## Reading\n",
        f"A store of random ids, about 28 tokens per side, written through `StoreWriter`; rows of {WIDTH}, "
        f"{ROWS_PER_STEP} rows per step, one core; both orders of an epoch (`data.shuffle`). Memory without the pages "
        "of mapped files. Seconds are CPU time of one core. *Resuming*: opening the stream at the last step of the "
        "epoch, all row counts unknown / with those of the resume state. Pages of 4 KiB per step: touched / read from "
        f"disk with {CACHED_PAGES * PAGE / 1e9:.1f} GB of memory for them, counted over the steps read / if the pairs "
        "were contiguous. *Per rank*: CPU milliseconds of its thread for a step, with 1, 8 and 64 ranks of "
        f"{ROWS_PER_STEP} rows.\n",
        "| pairs | order | shuffling (s) | MB | first batch (s) | steps read | M target tokens/core s | resuming (s) "
        "| pages per step | per rank (ms) |",
        "|---:|---" + "|---:" * 8 + "|",
    ]
    for one in read:
        pages = one["pages"]
        lines.append(
            f"| {one['pairs']:,} | {one['order']} | {one['arranging']:.1f} | {one['anonymous_mb']:.0f} "
            f"| {one['first_batch']:.2f} | {one['steps']:,} | {one['target_tokens_per_core_second'] / 1e6:.2f} | "
            f"{one['resuming'][0]:.2f} / {one['resuming'][1]:.2f} | "
            f"{pages['touched']:,.0f} / {pages['read']:,.0f} / {pages['if_neighbours']:,.0f} | "
            f"{' / '.join(format(value, '.1f') for value in one['rank_ms'].values())} |"
        )
    versions = f"numpy {np.__version__}, sentencepiece {sentencepiece.__version__}, torch {version('torch')}"
    lines += [
        f"\nMachine: {processor()}, {os.cpu_count()} cores. {args.note}",
        f"Versions: Python {platform.python_version()}, {versions}.",
        f"Command: `python benchmarks/speed/corpus_scale.py --source FILE --target FILE --vocab-size {args.vocab_size} "
        f"--sizes {' '.join(map(str, args.sizes))} --store-sizes {' '.join(map(str, args.store_sizes))} "
        f"--max-steps {args.max_steps}`\n",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source")
    parser.add_argument("--target")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--store-sizes", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--max-steps", type=int, default=2000, help="batches to read of each store")
    parser.add_argument("--directory", help="where to write the corpora (default: a temporary directory)")
    parser.add_argument("--note", default="", help="a sentence about the machine for the report")
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/corpus_scale_DATE_cpu.md")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "PAIRS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        what, num_pairs = args.measure[0], int(args.measure[1])
        if what == "preparing":
            result = measure_preparing(num_pairs, Path(args.directory), args.workers, args.vocab_size)
        else:
            result = measure_reading(num_pairs, Path(args.directory), args.max_steps, what)
        print(json.dumps(result))
        return
    prepared, read = [], []
    with tempfile.TemporaryDirectory(dir=args.directory) as temporary:
        own: list[object] = ["--vocab-size", args.vocab_size, "--max-steps", args.max_steps]
        own += ["--workers", args.workers] if args.workers else []
        for size in args.sizes:
            folder = Path(temporary, f"text{size}")
            folder.mkdir()
            make_corpus(args, size, folder)
            prepared.append(in_own_process("--measure", "preparing", size, "--directory", folder, *own))
            print(json.dumps(prepared[-1]), file=sys.stderr)
            shutil.rmtree(folder)
        for size in args.store_sizes:
            folder = Path(temporary, f"store{size}")
            write_synthetic(folder, size)
            for order in ("pairs", "blocks"):
                read.append(in_own_process("--measure", order, size, "--directory", folder, *own))
                print(json.dumps(read[-1]), file=sys.stderr)
            shutil.rmtree(folder)
    text = report(prepared, read, args)
    print(text)
    if args.write:
        results = Path(__file__).resolve().parents[1] / "results"
        (results / f"corpus_scale_{args.write}_cpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
