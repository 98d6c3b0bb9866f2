"""Measurements: memory, decoding speed, loss curves, the operations of an update, and timings.

A timing shows whether other programs disturbed it. Two signs: CPU time well below wall time, because the process waited
for a processor, and repeats that disagree.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from heedful.build_model import build_model
from heedful.config import Config, ModelConfig
from heedful.model.transformer import Transformer
from heedful.run_plan import rows_per_step

if TYPE_CHECKING:
    import torch

    from heedful.decoding.translator import Translator
    from heedful.text.preflight import TrainingPair

ON_GPU, ON_CPU, UNKNOWN = "cuda_max_memory_allocated", "resident_memory_growth", "not_measured"
"""How memory was measured: peak of the tensors on the GPU; growth of the process in RAM; not measured."""
SAMPLE_INTERVAL = 0.02
WARM_UP_SENTENCES = 8
MIN_TOTAL_SECONDS, MAX_PASSES = 1.0, 5


@dataclass
class MemoryUsage:
    """Memory used by some work, and how it was measured."""

    num_bytes: int | None = None
    kind: str = UNKNOWN


@contextmanager
def measure_memory(device: torch.device) -> Iterator[MemoryUsage]:
    """Measure the memory used inside the block; the result is set when the block ends."""
    import torch

    memory = MemoryUsage()
    gc.collect()  # memory of the previous system must not count
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        try:
            yield memory
        finally:
            memory.num_bytes, memory.kind = torch.cuda.max_memory_allocated(device), ON_GPU
        return
    _trim_heap()
    before = resident_bytes()
    if before is None or device.type != "cpu":
        yield memory
        return
    peak = [0]
    try:
        with _sampled_peak() as peak:
            yield memory
    finally:
        memory.num_bytes, memory.kind = max(0, peak[0] - before), ON_CPU


@contextmanager
def _sampled_peak() -> Iterator[list[int]]:
    """The peak of the resident memory, sampled by a thread."""
    peak, finished = [0], threading.Event()

    def sample() -> None:
        is_finished = False
        while not is_finished:
            is_finished = finished.wait(SAMPLE_INTERVAL)
            peak[0] = max(peak[0], resident_bytes() or 0)  # also once at the end, for very short work

    thread = threading.Thread(target=sample, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        finished.set()
        thread.join()


def resident_bytes() -> int | None:
    """Resident memory of this process in bytes; None if /proc does not provide it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _trim_heap() -> None:
    """Return freed memory to the system (glibc only); otherwise its reuse would not count as growth."""
    with suppress(AttributeError, OSError, TypeError):  # not glibc: growth may be underestimated
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True)
class DecodingResult:
    """Translations of sentence pairs, and the time of the fastest pass."""

    texts: list[str]
    num_sentences: int
    """Distinct sentences; duplicates are translated once."""
    num_tokens: int
    """Their target tokens, including the end tokens."""
    seconds: float


def decode(translator: Translator, pairs: Sequence[TrainingPair]) -> DecodingResult:
    """Translate the sources in batches: a warm-up, then repeated passes until the total time is long enough."""
    decode_once(translator, pairs[:WARM_UP_SENTENCES])
    passes = [decode_once(translator, pairs)]
    while len(passes) < MAX_PASSES and sum(item.seconds for item in passes) < MIN_TOTAL_SECONDS:
        passes.append(decode_once(translator, pairs))
    return min(passes, key=lambda item: item.seconds)


def decode_once(translator: Translator, pairs: Sequence[TrainingPair]) -> DecodingResult:
    """Translate the sources, each into its target language, and measure the time."""
    by_language: dict[str | None, list[int]] = {}
    for index, pair in enumerate(pairs):
        by_language.setdefault(pair.target_language, []).append(index)
    texts, lengths = [""] * len(pairs), dict[tuple[str | None, str], int]()
    began = time.perf_counter()
    for tag, indices in by_language.items():
        sources = [pairs[index].source for index in indices]
        for index, translation in zip(indices, translator.translate(sources, target_language=tag), strict=True):
            texts[index] = translation.text
            lengths[tag, pairs[index].source] = len(translation.tokens) + translation.num_sentences
    return DecodingResult(texts, len(lengths), sum(lengths.values()), time.perf_counter() - began)


@dataclass(frozen=True)
class LossPoint:
    """One point of a loss curve; seconds count training and validation."""

    step: int
    tokens: float
    seconds: float
    loss: float


@dataclass(frozen=True)
class TrainingCurves:
    """Loss curves and throughput of a training run, read from its log."""

    train: list[LossPoint] = field(default_factory=list)
    """Training loss, including label smoothing and dropout."""
    valid: list[LossPoint] = field(default_factory=list)
    """Mean negative log-likelihood per token on valid."""
    tokens_per_second: float | None = None
    """Target tokens per second of training, without validation and without the first log line if there are more."""


def read_training_curves(log: Path) -> TrainingCurves:
    """Read the loss curves and the throughput from a run's `log.jsonl`."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    events = [json.loads(line) for line in lines]
    trained = [event for event in events if event["event"] == "train"]
    valid: dict[int, float] = {}
    for event in events:
        if event["event"] == "valid" and event["loss"] is not None:
            valid.setdefault(event["step"], event["loss"])  # later ones are of other weights
    return TrainingCurves(
        [
            LossPoint(item["step"], item["tokens"], item["seconds"], item["loss"])
            for item in trained
            if item["loss"] is not None
        ],
        [LossPoint(step, *_tokens_and_seconds(trained, step), loss) for step, loss in sorted(valid.items())],
        _training_rate(trained),
    )


def _tokens_and_seconds(trained: Sequence[dict[str, Any]], step: int) -> tuple[float, float]:
    """Tokens and seconds at a step, interpolated linearly between the log lines around it."""
    before = {"step": 0, "tokens": 0, "seconds": 0.0}
    for after in trained:
        if after["step"] >= step:
            share = (step - before["step"]) / max(1, after["step"] - before["step"])
            tokens, seconds = (before[key] + share * (after[key] - before[key]) for key in ("tokens", "seconds"))
            return tokens, seconds
        before = after
    return before["tokens"], before["seconds"]


def _training_rate(trained: Sequence[dict[str, Any]]) -> float | None:
    tokens = seconds = 0.0
    earlier = trained[0]["tokens"] if len(trained) > 1 else 0
    for event in trained[1:] or trained:
        tokens += event["tokens"] - earlier
        seconds += (event["tokens"] - earlier) / event["tokens_per_second"] if event["tokens_per_second"] else 0.0
        earlier = event["tokens"]
    return tokens / seconds if seconds else None


def row_flops(config: ModelConfig, width: int) -> int:
    """Floating-point operations of the matrix products of one row of `width` source and `width` target tokens.

    Forward and backward, two operations per multiply-add, counted by torch on the meta device. All rows have the same
    width and all steps the same number of rows, so a run takes this number times rows times steps, padding included.
    Norms, softmax, dropout, optimizer, validation and decoding are not counted; they are small in comparison.
    """
    with torch.device("meta"):
        model = build_model(config).eval()
        row = torch.zeros(1, width, dtype=torch.long)
    assert isinstance(model, Transformer)
    model.use_attention("explicit")  # the counter does not see the products inside fused kernels
    with FlopCounterMode(display=False) as counter:
        model(row, row).sum().backward()
    return counter.get_total_flops()


def step_flops(config: Config) -> int:
    """Floating-point operations of the matrix products of one update."""
    width = config.data.row_width
    assert width is not None
    rows = rows_per_step(config, width)
    return row_flops(config.model, width) * rows * (2 if config.training.r_drop else 1)


# ---- timings

MIN_CPU_SHARE = 0.9
"""Below this ratio of CPU time to wall time, the machine counts as busy. On an idle one it is 1 per busy thread."""
MAX_EXPONENT_SPREAD = 0.2
"""Fitted exponents that differ by more than this between repeats are not reliable."""


@dataclass(frozen=True)
class Clock:
    """Functions that return the wall time and the CPU time of this process, in seconds."""

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time


@dataclass(frozen=True)
class Timing:
    """The median time of a run, and CPU time divided by wall time over all runs."""

    seconds: float
    cpu_share: float


@dataclass
class CpuShare:
    """CPU time divided by wall time of a block; None until it ends."""

    value: float | None = None


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def time_runs(
    run: Callable[[], object], device: torch.device, *, min_seconds: float, clock: Clock | None = None
) -> Timing:
    """Time `run`: three warm-up runs, then at least five runs and at least `min_seconds` in total."""
    clock = clock or Clock()

    def timed() -> tuple[float, float]:
        synchronize(device)
        wall, cpu = clock.wall(), clock.cpu()
        run()
        synchronize(device)
        return clock.wall() - wall, clock.cpu() - cpu

    with torch.inference_mode():
        warm = min(timed()[0] for _ in range(3))
        runs: list[tuple[float, float]] = []
        while len(runs) < 5 or sum(wall for wall, _ in runs) < min(min_seconds, 100 * warm):
            runs.append(timed())
    walls = sorted(wall for wall, _ in runs)
    return Timing(walls[len(walls) // 2], sum(cpu for _, cpu in runs) / max(sum(walls), 1e-12))


@contextmanager
def measure_cpu_share(clock: Clock | None = None) -> Iterator[CpuShare]:
    """Measure CPU time divided by wall time inside the block."""
    clock, share = clock or Clock(), CpuShare()
    wall, cpu = clock.wall(), clock.cpu()
    try:
        yield share
    finally:
        share.value = (clock.cpu() - cpu) / max(clock.wall() - wall, 1e-12)


def is_busy(cpu_share: float | None) -> bool:
    """Whether other programs took the processor from timed work; None: unknown, as for work on a GPU."""
    return cpu_share is not None and cpu_share < MIN_CPU_SHARE


def spread(values: Sequence[float]) -> float:
    """The difference between the largest and the smallest value."""
    return max(values) - min(values)
