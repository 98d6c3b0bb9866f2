"""What is measured on a system: memory while it trains, how fast it learns and translates, how its loss went."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from heedful.decoding.translator import Translator
    from heedful.text.preflight import TrainingPair

ON_GPU, ON_CPU, UNKNOWN = "cuda_max_memory_allocated", "resident_memory_growth", "not_measured"
"""How memory was measured: the peak of what tensors took on the GPU; how much the process grew in RAM; not at all."""
SECONDS_BETWEEN_LOOKS = 0.02
WARM_UP_SENTENCES = 8
ENOUGH_SECONDS, MOST_PASSES = 1.0, 5


@dataclass
class Memory:
    """The memory that some work took, and how that was measured."""

    num_bytes: int | None = None
    kind: str = UNKNOWN


@contextmanager
def measured_memory(device: torch.device) -> Iterator[Memory]:
    """Measure the memory of the work inside the block; the result is filled in at its end."""
    import torch

    memory = Memory()
    gc.collect()  # what the system before left must not count, nor hide what this one needs
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        yield memory
        memory.num_bytes, memory.kind = torch.cuda.max_memory_allocated(device), ON_GPU
        return
    _give_back_freed_memory()
    before = resident_bytes()
    if before is None or device.type != "cpu":
        yield memory
        return
    with _watched() as peak:
        yield memory
    memory.num_bytes, memory.kind = max(0, peak[0] - before), ON_CPU


@contextmanager
def _watched() -> Iterator[list[int]]:
    """The largest resident memory seen so far, looked at from a thread of its own."""
    peak, over = [0], threading.Event()

    def look() -> None:
        is_over = False
        while not is_over:
            is_over = over.wait(SECONDS_BETWEEN_LOOKS)
            peak[0] = max(peak[0], resident_bytes() or 0)  # once more at the end, however short the work was

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM now; None where the system does not tell it in /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _give_back_freed_memory() -> None:
    """Freed memory that the allocator keeps would be reused, and so not count as growth; glibc can let go of it."""
    with suppress(AttributeError, OSError, TypeError):  # another C library: later systems' growth is told too small
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True)
class Decoded:
    """Translations of some pairs, and how fast they came, at the best of the passes."""

    texts: list[str]
    num_sentences: int
    """Different sentences: equal ones are translated once."""
    num_tokens: int
    """Target tokens of these, end tokens included."""
    seconds: float


def decode(translator: Translator, pairs: Sequence[TrainingPair]) -> Decoded:
    """Translate the pairs' sources in batches: a warm-up, then passes until they are long enough to be timed well."""
    decode_once(translator, pairs[:WARM_UP_SENTENCES])
    passes = [decode_once(translator, pairs)]
    while len(passes) < MOST_PASSES and sum(one.seconds for one in passes) < ENOUGH_SECONDS:
        passes.append(decode_once(translator, pairs))
    return min(passes, key=lambda one: one.seconds)


def decode_once(translator: Translator, pairs: Sequence[TrainingPair]) -> Decoded:
    """Translate the pairs' sources, each into its own target language, and look at the clock."""
    by_language: dict[str | None, list[int]] = {}
    for place, pair in enumerate(pairs):
        by_language.setdefault(pair.target_language, []).append(place)
    texts, lengths = [""] * len(pairs), dict[tuple[str | None, str], int]()
    began = time.perf_counter()
    for tag, places in by_language.items():
        sources = [pairs[place].source for place in places]
        for place, translation in zip(places, translator.translate(sources, target_language=tag), strict=True):
            texts[place] = translation.text
            lengths[tag, pairs[place].source] = len(translation.tokens) + translation.sentences
    return Decoded(texts, len(lengths), sum(lengths.values()), time.perf_counter() - began)


@dataclass(frozen=True)
class Point:
    """One point of a loss curve; seconds are those of the budget's clock, looks at valid included."""

    step: int
    tokens: float
    seconds: float
    loss: float


@dataclass(frozen=True)
class Course:
    """How a training run went, read from its log."""

    train: list[Point] = field(default_factory=list)
    """Training loss, as optimised: label smoothing and dropout included."""
    valid: list[Point] = field(default_factory=list)
    """Mean negative log-likelihood of a token on valid."""
    tokens_per_second: float | None = None
    """Target tokens a second of training alone, without the looks at valid and, if there are more, the first line."""


def read_course(log: Path) -> Course:
    """The loss curves and the training rate out of a run's `log.jsonl`."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    events = [json.loads(line) for line in lines]
    trained = [event for event in events if event["event"] == "train"]
    valid: dict[int, float] = {}
    for event in events:
        if event["event"] == "valid" and event["loss"] is not None:
            valid.setdefault(event["step"], event["loss"])  # later ones are other weights of the same step
    return Course(
        [Point(one["step"], one["tokens"], one["seconds"], one["loss"]) for one in trained if one["loss"] is not None],
        [Point(step, *_place(trained, step), loss) for step, loss in sorted(valid.items())],
        _rate(trained),
    )


def _place(trained: Sequence[dict[str, Any]], step: int) -> tuple[float, float]:
    """Tokens and seconds at a step, by a straight line between the lines of the log around it."""
    before = {"step": 0, "tokens": 0, "seconds": 0.0}
    for after in trained:
        if after["step"] >= step:
            share = (step - before["step"]) / max(1, after["step"] - before["step"])
            tokens, seconds = (before[key] + share * (after[key] - before[key]) for key in ("tokens", "seconds"))
            return tokens, seconds
        before = after
    return before["tokens"], before["seconds"]


def _rate(trained: Sequence[dict[str, Any]]) -> float | None:
    tokens = seconds = 0.0
    earlier = trained[0]["tokens"] if len(trained) > 1 else 0
    for event in trained[1:] or trained:
        tokens += event["tokens"] - earlier
        seconds += (event["tokens"] - earlier) / event["tokens_per_second"] if event["tokens_per_second"] else 0.0
        earlier = event["tokens"]
    return tokens / seconds if seconds else None
