"""Background work while the corpora are prepared: initialising the device and compiling the training step.

The step is compiled in another process, `python -m heedful.training.precompile`, which builds the same step for a model
of the same shape and runs it once. torch and Triton cache what they compile on disk, where training finds it. Random
numbers and device of the training process are unaffected, even if the other process fails.
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
from heedful.config_loading import build_config, to_mapping
from heedful.process_pool import kill, read_messages, start_module
from heedful.training.compile_cache import is_compiled

MIN_CORPUS_BYTES = 32 << 20
"""Smaller corpora are prepared before the other process could compile anything."""
MIN_ELAPSED_SECONDS = 20.0
"""If a job has run for less time when the corpora are ready, compiling here is faster than waiting for it."""
MAX_WAIT_SECONDS = 300.0
"""Maximum wait for a job that does not end."""
DEVICE_START_TIMEOUT = 2.0
"""Seconds to wait for the device after an error: the program must not end during its initialisation."""
DONE = b"done\n"


class Background:
    """Runs the background work inside a `with` block; its thread and process have ended afterwards.

    Only a single rank compiles in advance: with several, the compiled code depends on their connections.
    """

    def __init__(self, training: TrainingConfig, device: Any, *, single_rank: bool) -> None:
        self.training, self.device, self.single_rank = training, device, single_rank
        self.is_compiled = is_compiled(training, on_gpu=device.type == "cuda")
        self.compiler: CompilerProcess | None = None
        self._thread = threading.Thread(target=self._initialise_device, name="starting the device", daemon=True)

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
        """Start the compiler process if corpora of this size take long enough to prepare."""
        if self.is_compiled and self.single_rank and num_bytes >= MIN_CORPUS_BYTES:
            with suppress(OSError):  # without the process, the step is compiled when it is needed
                self.compiler = CompilerProcess()

    def compile(self, config: Config, rows: int, width: int) -> None:
        """Compile the step for this model and batches of `rows` rows; replaces an earlier job."""
        if self.compiler is not None:
            with suppress(OSError):
                self.compiler.submit({"config": to_mapping(config), "rows": rows, "width": width})

    def _initialise_device(self) -> None:
        """Initialise the device and import modules that training needs. Errors recur later, where they are handled."""
        with suppress(Exception):
            import torch

            torch.zeros((), device=self.device)
            for name in ("heedful.training.loop", "torch._inductor.compile_fx"):
                import_module(name)


class CompilerProcess:
    """The process that compiles. It has one job at a time, the last one submitted."""

    def __init__(self) -> None:
        self.job: dict[str, Any] | None = None
        self._start()

    def _start(self) -> None:
        self.process = start_module("heedful.training.precompile", stderr=subprocess.DEVNULL)
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_forward_lines, args=(self.process.stdout, self._answers), daemon=True).start()
        self.is_done = False

    def submit(self, job: dict[str, Any]) -> None:
        """Start a job; one that is still running is cancelled."""
        if job == self.job:
            return
        if self.job is not None and not self._is_done(0.0):
            self.end()
            self._start()
        self.job = job
        self.is_done = False
        self.start_time = time.monotonic()
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self) -> None:
        """Wait until the job is done or the process has ended, unless the job has only just started."""
        if self.job is not None and time.monotonic() - self.start_time >= MIN_ELAPSED_SECONDS:
            self._is_done(MAX_WAIT_SECONDS)

    def _is_done(self, timeout: float) -> bool:
        """Whether the job is done, after waiting for at most `timeout` seconds."""
        with suppress(queue.Empty):
            while not self.is_done and (answer := self._answers.get(timeout=timeout)):
                self.is_done = answer == DONE
        return self.is_done

    def end(self) -> None:
        """Kill the process."""
        self.job = None
        kill(self.process)


def _forward_lines(pipe: Any, lines: queue.SimpleQueue[bytes]) -> None:
    """Put the lines of a pipe into a queue; an empty line marks the end."""
    with suppress(OSError, ValueError):
        for line in pipe:
            lines.put(line)
    lines.put(b"")


# ---------------------------------------------------------------------- the compiler process


def compile_step(config: Config, rows: int, width: int) -> None:
    """Compile by running one update of a new model on the largest possible batch, with the step of training."""
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
    result.loss_sum.item()  # wait for the device


def main() -> None:
    """Run jobs from standard input, one per line; end when the training process has ended."""
    lines, answers = read_messages(lambda pipe: pipe.readline())
    import_module("heedful.training.step")
    while True:
        job: Mapping[str, Any] = json.loads(lines.get())
        compile_step(build_config(job["config"], "base"), job["rows"], job["width"])
        answers.write(DONE)
        answers.flush()


if __name__ == "__main__":
    main()
