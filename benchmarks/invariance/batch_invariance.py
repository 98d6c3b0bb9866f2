"""Whether a sentence's translation depends on the other sentences in its batch, compared bit by bit.

    python benchmarks/invariance/batch_invariance.py model examples/data/tatoeba.en --count 10000 --write 2026-11-15

The reference translates all sentences together, in order. Then they are shuffled, put into smaller batches, and sent in
chunks of random size; the native engine also translates them one by one, on one thread and with each instruction set of
the processor. With `--engine torch` on a CPU the last rows are those of `--decoding.batch_invariant false`, which
promises no invariance; `--device cuda` is for GPUs. The tables count sentences whose text differs, and those that
differ in any bit: tokens, log-probabilities and scores of all hypotheses.
"""

from __future__ import annotations

import argparse
import lzma
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import run_metadata
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.native.bindings import kernel_names
from heedful.paper.text_tables import markdown_table

ROOT = Path(__file__).resolve().parents[2]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"method": "greedy"},
    "beam 4, 4 best": {"beam_size": 4, "num_best": 4},
}
Translate = Callable[[list[str]], list[Translation]]


def read_sentences(path: Path, count: int) -> list[str]:
    """The first distinct lines of a file."""
    data = path.read_bytes()
    lines = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8").split("\n")
    found = dict.fromkeys(line.strip() for line in lines if line.strip())
    if len(found) < count:
        raise SystemExit(f"{path} has {len(found):,} distinct lines, not {count:,}")
    return list(found)[:count]


def shuffled(texts: list[str], translate: Translate, *, seed: int) -> list[Translation]:
    """All sentences together, in another order."""
    order = random.Random(seed).sample(range(len(texts)), len(texts))
    found = dict(zip(order, translate([texts[i] for i in order]), strict=True))
    return [found[i] for i in range(len(texts))]


def in_chunks(texts: list[str], translate: Translate, *, max_size: int, seed: int) -> list[Translation]:
    """In another order, in chunks of 1 to `max_size` sentences."""
    rng = random.Random(seed)
    order = rng.sample(range(len(texts)), len(texts))
    found: dict[int, Translation] = {}
    while order:
        chunk, order = order[: (size := rng.randint(1, max_size))], order[size:]
        found.update(zip(chunk, translate([texts[i] for i in chunk]), strict=True))
    return [found[i] for i in range(len(texts))]


def batchings(
    texts: list[str], load: Callable[..., Translator], settings: dict[str, Any], *, kind: str
) -> Iterator[tuple[str, list[Translation]]]:
    """Every batching and its translations, for all sentences or every tenth."""
    translator = load()

    def run(texts: list[str], **more: Any) -> list[Translation]:
        return translator.translate(texts, **settings, **more)

    yield "shuffled", shuffled(texts, run, seed=1)
    yield "shuffled, chunks of 1 to 64", in_chunks(texts, run, max_size=64, seed=3)
    if kind == "torch on a CPU":
        yield "not batch-invariant", run(texts, batch_invariant=False)
        yield (
            "not batch-invariant, shuffled, chunks of 1 to 64",
            in_chunks(texts, lambda t: run(t, batch_invariant=False), max_size=64, seed=3),
        )
        return
    yield "shuffled, batches of 1,000 tokens", shuffled(texts, lambda t: run(t, tokens_per_batch=1000), seed=2)
    if kind != "native":
        yield "every tenth alone", in_chunks(texts[::10], run, max_size=1, seed=4)
        return
    yield "each alone", in_chunks(texts, run, max_size=1, seed=4)
    translator = load(num_threads=1)
    yield "shuffled, one thread", shuffled(texts, run, seed=5)
    for name in kernel_names():
        translator = load(kernels=name)
        yield f"shuffled, {name} kernels", shuffled(texts, run, seed=6)


def loader(model: Path, engine: str, quantization: str | None, device: str) -> Callable[..., Translator]:
    """Load the model; for the native engine with the given threads and kernels."""

    def load(**options: Any) -> Translator:
        translator = Translator.load(model, device=device, engine=engine, quantization=quantization)
        if options:
            from heedful.decoding.engines.native_engine import NativeDecodingEngine
            from heedful.native import NativeEngine

            made = NativeEngine.load(model, precision=quantization or "int8", **options)
            assert isinstance(translator.engine, NativeDecodingEngine)
            translator.engine.engine = made
        return translator

    return load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path, help="sentences, one per line; may be compressed (.xz)")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--engine", default="native")
    parser.add_argument("--quantization")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/batch_invariance_DATE_….md")
    chosen = parser.parse_args()
    texts = read_sentences(chosen.source, chosen.count)
    load = loader(chosen.model, chosen.engine, chosen.quantization, chosen.device)
    on_gpu = chosen.device.startswith("cuda")
    kind = "native" if chosen.engine == "native" else "torch on a GPU" if on_gpu else "torch on a CPU"
    rows = []
    for search, settings in SEARCHES.items():
        began = time.perf_counter()
        expected = load().translate(texts, **settings)
        rows.append([search, "all together, in order", "", "", f"{time.perf_counter() - began:.0f}"])
        began = time.perf_counter()
        for batching, found in batchings(texts, load, settings, kind=kind):
            seconds, compared = time.perf_counter() - began, expected[:: len(expected) // len(found)]
            pairs = list(zip(compared, found, strict=True))
            counts = [sum(one.text != other.text for one, other in pairs), sum(one != other for one, other in pairs)]
            rows.append([search, batching, *(f"{count:,}" for count in counts), f"{seconds:.0f}"])
            began = time.perf_counter()
            print(f"{time.strftime('%H:%M:%S')} {' | '.join(rows[-1])}", file=sys.stderr, flush=True)
    name, weights = load().engine_for()
    page = (
        f"# Does a translation depend on the other sentences in the batch?\n\n"
        f"Engine {name}, weights {weights}: {len(texts):,} sentences of {chosen.source.name}, each compared with its "
        f"translation when all are translated at once.\n\n"
        f"{markdown_table(['search', 'batching', 'other text', 'any other bit', 'seconds'], rows)}\n\n"
        f"{run_metadata(chosen.device)}"
    )
    sys.stdout.write(page)
    if chosen.write:
        engine, where = "" if name == "native" else f"_{name}", f"gpu_{weights}" if on_gpu else "cpu"
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        (folder / f"batch_invariance_{chosen.write}{engine}_{where}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
