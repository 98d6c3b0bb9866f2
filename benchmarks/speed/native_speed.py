"""Speed of the native engine on this machine, with CTranslate2 and torch in the same run.

    OMP_NUM_THREADS=2 python benchmarks/speed/native_speed.py --write 2026-11-15

The base model (512/8/2048/6+6, 32,000 ids) with random weights; 25 source tokens, 25 target tokens, so that all engines
do the same work whatever the weights. The engines are interleaved, each with a warm-up, and the best round of each
counts, since other programs on a shared machine slow down the others. `--ctranslate2 DIRECTORY`, the same
model exported for CTranslate2 in int8, adds CTranslate2 in both thread layouts; `--keep DIRECTORY` keeps the model
directory to export from.
"""

from __future__ import annotations

import argparse
import json
import os
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

from heedful.config import Config, DecodingConfig, ModelConfig, TokenizerConfig
from heedful.cpu_count import usable_cores
from heedful.decoding.constraints import SpecialTokens
from heedful.decoding.engines.torch_engine import pad
from heedful.decoding.search import beam_search
from heedful.model.transformer import Transformer
from heedful.model_dir import load_model, save_model
from heedful.native import NativeEngine
from heedful.text.tokenizer import train_tokenizer

VOCAB, LENGTH = 32_000, 25
SPECIAL = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,))
Sources = list[list[int]]
Run = Callable[[Sources, int], int]
"""(sources, beam size) -> number of target tokens."""


class Task(NamedTuple):
    name: str
    batch: int
    beam: int
    repeats: int


TASKS = [
    Task("batch 32, greedy", 32, 1, 2),
    Task("batch 32, beam 4", 32, 4, 1),
    Task("batch 1, greedy", 1, 1, 8),
    Task("batch 1, beam 4", 1, 4, 8),
]


def make_model(directory: Path) -> None:
    """A base model with random weights, and a matching tokenizer."""
    examples = Path(__file__).resolve().parents[2] / "examples" / "data"
    sides = [(examples / name).read_text(encoding="utf-8").splitlines()[:3000] for name in ("tatoeba.en", "tatoeba.de")]
    tokenizer = train_tokenizer(zip(*sides, strict=True), TokenizerConfig(vocab_size=1000))
    torch.manual_seed(1)
    config = Config(model=ModelConfig(source_vocab_size=VOCAB, target_vocab_size=VOCAB))
    save_model(directory, weights=Transformer(config.model), config=config, tokenizer=tokenizer)


def search_settings(beam_size: int) -> DecodingConfig:
    return DecodingConfig(beam_size=beam_size, min_length=LENGTH - 1)


def native(engine: NativeEngine) -> Run:
    def run(sources: Sources, beam_size: int) -> int:
        limits = [LENGTH - 1] * len(sources)
        found = engine.translate_ids(sources, search_settings(beam_size), SPECIAL, max_lengths=limits)
        return sum(len(hypotheses[0].tokens) for hypotheses in found)

    return run


def with_torch(directory: Path) -> Run:
    model = load_model(directory).model

    def run(sources: Sources, beam_size: int) -> int:
        source, mask = pad([tuple(ids) for ids in sources], pad_id=0, device=torch.device("cpu"))
        limits = [LENGTH - 1] * len(sources)
        found = beam_search(model, source, mask, search_settings(beam_size), SPECIAL, max_lengths=limits)
        return sum(len(hypotheses[0].tokens) for hypotheses in found)

    return run


def with_ctranslate2(directory: Path, *, workers: int, threads: int, use_map: bool = False) -> Run:
    import ctranslate2

    translator = ctranslate2.Translator(
        str(directory), device="cpu", compute_type="int8", inter_threads=workers, intra_threads=threads
    )
    vocabulary = json.loads((directory / "shared_vocabulary.json").read_text(encoding="utf-8"))

    def run(sources: Sources, beam_size: int) -> int:
        texts = [[vocabulary[token] for token in source[:-1]] for source in sources]
        found = translator.translate_batch(
            texts,
            beam_size=beam_size,
            max_batch_size=max(1, len(sources) // workers),
            min_decoding_length=LENGTH,
            max_decoding_length=LENGTH,
            return_scores=beam_size > 1,
            use_vmap=use_map,
        )
        return sum(len(result.hypotheses[0]) for result in found)

    return run


class Spent(NamedTuple):
    seconds: float
    core_seconds: float
    """CPU time of all threads, busy waiting included: least affected by other programs on the machine."""


def measure(runs: dict[str, Run], *, rounds: int, given: Sources | None = None) -> dict[str, dict[str, list[Spent]]]:
    """Time of a call for every task and engine, with engines interleaved; on given or random sentences."""
    random = np.random.default_rng(1)
    times: dict[str, dict[str, list[Spent]]] = {task.name: {name: [] for name in runs} for task in TASKS}
    for task in TASKS:
        sources = [[*random.integers(4, VOCAB, LENGTH - 1).tolist(), 3] for _ in range(task.batch)]
        sources = given[: task.batch] if given else sources
        for _ in range(rounds):
            for name, run in runs.items():
                time.sleep(0.3)  # until the threads of the previous engine stop busy waiting
                run(sources, task.beam)  # the caches hold the weights of the previous engine
                start, core_start = time.perf_counter(), time.process_time()
                for _ in range(task.repeats):
                    made = run(sources, task.beam)
                spent, core_spent = time.perf_counter() - start, time.process_time() - core_start
                assert made == task.batch * LENGTH, f"{name} made {made} tokens"
                times[task.name][name].append(Spent(spent / task.repeats, core_spent / task.repeats))
    return times


def table(times: dict[str, dict[str, list[Spent]]], ours: str = "native int8") -> str:
    lines = [
        f"| task | engine | best, ms | median, ms | tokens/s at best | least CPU ms | speed-up of {ours} |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        fastest = min(times[task.name][ours]).seconds
        for name, turns in times[task.name].items():
            best, median = min(turns).seconds, statistics.median(turn.seconds for turn in turns)
            core = min(turn.core_seconds for turn in turns)
            cells = [
                f"{best * 1e3:.1f}",
                f"{median * 1e3:.1f}",
                f"{task.batch * LENGTH / best:,.0f}",
                f"{core * 1e3:.0f}",
            ]
            faster = f"{best / fastest:.1f}×" if name != ours else ""
            lines.append(f"| {task.name} | {name} | {' | '.join(cells)} | {faster} |")
    return "\n".join(lines)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--keep", type=Path, help="where to write the model directory, or where it was written before")
    parser.add_argument("--ctranslate2", type=Path, help="the same model, exported for CTranslate2 in int8")
    parser.add_argument("--without-torch", action="store_true", help="without torch, which is slow")
    parser.add_argument("--write", metavar="DATE", help="write the table to benchmarks/results")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = chosen.keep or Path(folder) / "model"
        if not (directory / "config.json").exists():
            make_model(directory)
        start = time.perf_counter()
        NativeEngine.load(directory, num_threads=chosen.threads).close()
        converted = time.perf_counter()
        engine = NativeEngine.load(directory, num_threads=chosen.threads)
        opened = time.perf_counter()
        runs = {"native int8": native(engine)}
        if chosen.ctranslate2:
            for workers, threads in ((chosen.threads, 1), (1, chosen.threads)):
                name = f"CTranslate2 int8, {workers} × {threads} threads"
                runs[name] = with_ctranslate2(chosen.ctranslate2, workers=workers, threads=threads)
        if not chosen.without_torch:
            torch.set_num_threads(chosen.threads)
            runs["torch float32"] = with_torch(directory)
        times = measure(runs, rounds=chosen.rounds)
    summary = (
        f"{processor()}, {chosen.threads} threads, {engine.kernels} kernels, load {os.getloadavg()[1]:.1f}; "
        f"torch {torch.__version__}, Python {platform.python_version()}. Best of {chosen.rounds} rounds. Native "
        f"weights loaded or converted in {converted - start:.1f} s and opened in {(opened - converted) * 1e3:.0f} ms."
    )
    page = f"# Translation on a CPU, native engine\n\n`python {' '.join(sys.argv)}`\n\n{summary}\n\n{table(times)}\n"
    print(page)
    if chosen.write:
        path = Path(__file__).resolve().parents[1] / "results" / f"native_speed_{chosen.write}_cpu.md"
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
