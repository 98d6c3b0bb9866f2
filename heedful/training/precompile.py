"""What is done while the corpora are prepared: the device is started, and the training step compiled beforehand.

Compiling happens in a process of its own, `python -m heedful.training.precompile`, which makes the same step for a
model of the same shape and lets it work once: torch and Triton keep what they compile on disk, where training finds
it. The run itself is not touched: neither its random numbers nor its device, whatever becomes of that process.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any

from heedful.config import Config, TrainingConfig
from heedful.config_loading import settle, to_mapping
from heedful.process_pool import kill, read_messages, start_module
from heedful.training.compile_cache import is_compiled

MIN_CORPUS_BYTES = 32 << 20
"""Corpora of less are prepared before another process could have compiled anything."""
MIN_ELAPSED_SECONDS = 20.0
"""Seconds of a job: when the corpora are ready earlier, compiling here is quicker than waiting for its end."""
MAX_WAIT_SECONDS = 300.0
"""Seconds: one that is not done by then is stuck."""
DEVICE_START_TIMEOUT = 2.0
"""Seconds for the device to have started, so that the program does not end in the middle of that."""
DONE = b"done\n"


class Background:
    """Work beside the preparing, within a `with` block. At its end nothing of it is left but what is warm or on disk.

    Only a rank that is alone compiles beforehand: what several compile depends on how they are connected.
    """

    def __init__(self, training: TrainingConfig, device: Any, *, alone: bool) -> None:
        self.training, self.device, self.alone = training, device, alone
        self.is_compiled = is_compiled(training, on_gpu=device.type == "cuda")
        self.compiler: Compiler | None = None
        self._thread = threading.Thread(target=self._start_here, name="starting the device", daemon=True)

    def __enter__(self) -> Background:
        if self.is_compiled:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.compiler is not None and kind is None:
                self.compiler.wait()
        finally:
            if self.compiler is not None:
                self.compiler.end()
            if self.is_compiled:
                self._thread.join(None if kind is None else DEVICE_START_TIMEOUT)

    def begin(self, num_bytes: int) -> None:
        """Start the other process if corpora of so many bytes give it time enough."""
        if self.is_compiled and self.alone and num_bytes >= MIN_CORPUS_BYTES:
            with suppress(OSError):  # then the step is compiled when it is needed
                self.compiler = Compiler()

    def compile(self, config: Config, rows: int, width: int) -> None:
        """Have the step compiled for this model and batches of so many rows, as far as is known now."""
        if self.compiler is not None:
            with suppress(OSError):
                self.compiler.ask({"config": to_mapping(config), "rows": rows, "width": width})

    def _start_here(self) -> None:
        """Start the device in this process, and load what training and compiling need. Errors come again, later."""
        with suppress(Exception):
            import torch

            torch.zeros((), device=self.device)
            for name in ("heedful.training.loop", "torch._inductor.compile_fx"):
                import_module(name)


class Compiler:
    """The other process, seen from this one. It has one job at a time: the one asked for last."""

    def __init__(self) -> None:
        self.job: dict[str, Any] | None = None
        self._start()

    def _start(self) -> None:
        self.process = start_module("heedful.training.precompile", stderr=subprocess.DEVNULL)
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(self.process.stdout, self._answers), daemon=True).start()
        self.is_done = False

    def ask(self, job: dict[str, Any]) -> None:
        """Have a job done; if another one is still being done, it is left."""
        if job == self.job:
            return
        if self.job is not None and not self._is_done(0.0):
            self.end()
            self._start()
        self.job, self.is_done, self.began = job, False, time.monotonic()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self) -> None:
        """Wait until the job is done or the process has ended, unless the job has hardly begun."""
        if self.job is not None and time.monotonic() - self.began >= MIN_ELAPSED_SECONDS:
            self._is_done(MAX_WAIT_SECONDS)

    def _is_done(self, timeout: float) -> bool:
        """Whether the job is done, after waiting for so many seconds."""
        with suppress(queue.Empty):
            while not self.is_done and (answer := self._answers.get(timeout=timeout)):
                self.is_done = answer == DONE
        return self.is_done

    def end(self) -> None:
        """End the process; it has nothing that could be lost."""
        self.job = None
        kill(self.process)


def _listen(pipe: Any, lines: queue.SimpleQueue[bytes]) -> None:
    """Pass lines on as they come; an empty one is the end."""
    with suppress(OSError, ValueError):
        for line in pipe:
            lines.put(line)
    lines.put(b"")


# ---------------------------------------------------------------------- the other process


def compile_step(config: Config, rows: int, width: int) -> None:
    """One update of a new model by the step that training will use, on the largest batch there can be."""
    from heedful.build_model import resolve_device
    from heedful.data.batch_stream import worst_batch
    from heedful.training.distributed import World
    from heedful.training.logging import Reporters
    from heedful.training.model_setup import set_up_model
    from heedful.training.step import TrainingStep

    world = World(resolve_device(config.training.device))
    step = TrainingStep(set_up_model(config, world, Reporters()), config.training, world.device, world)
    sizes = (config.model.source_vocab_size, config.model.target_vocab_size)
    batch = worst_batch(rows, width, *sizes)
    step.try_largest_batch(batch)
    result = step(batch, batch.num_tokens, 1e-6)
    result.loss_sum.item()  # waits for the device


def main() -> None:
    """Be the other process: do what is asked on standard input, a line each; end when whoever asks is gone."""
    lines, answers = read_messages(lambda pipe: pipe.readline())
    import_module("heedful.training.step")
    while True:
        job: Mapping[str, Any] = json.loads(lines.get())
        compile_step(settle(job["config"], "base"), job["rows"], job["width"])
        answers.write(DONE)
        answers.flush()


if __name__ == "__main__":
    main()
