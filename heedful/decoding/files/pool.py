"""Processes that translate portions, each on a place of its own, with results in the order of the portions.

They are plain programs, `python -m heedful.decoding.files.pool`, that get texts through a pipe and give lines back
through another; what they do is a `Task`, which travels as JSON. One that is alone is this process itself.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import IO, Any

import heedful.errors
from heedful.decoding.files.devices import Place
from heedful.decoding.files.job import Task, remarks_of, with_line_ends
from heedful.decoding.files.line_chunks import Portion
from heedful.errors import CorpusError, DecodingError, HeedfulError, TextError
from heedful.text.chunk_workers import receive, send, start_module


@dataclass(frozen=True)
class Translated:
    """What became of a portion."""

    portion: Portion
    lines: bytes
    """One line for each line of the portion that is text."""
    trouble: CorpusError | None
    """Why not all lines of the portion are among them."""
    remarks: Sequence[tuple[int, str]] = ()
    """What is odd about some of its lines, with their places in it."""


class Workers:
    """A worker for each place, started when there is a portion for it; they end with the `with` block."""

    def __init__(self, task: Task, places: Sequence[Place], input_file: str) -> None:
        self.task, self.places, self.input_file = task, places, input_file
        self._stack = ExitStack()
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._num_started = 0

    def __enter__(self) -> Workers:
        if len(self.places) > 1:
            self._threads = self._stack.enter_context(ThreadPoolExecutor(len(self.places), "worker"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def in_order(self, portions: Iterable[Portion]) -> Iterator[Translated]:
        """The portions, translated; a few are read ahead, never all."""
        if len(self.places) == 1:
            yield from self._alone(portions)
            return
        waiting: deque[Future[Translated]] = deque()
        try:
            for portion in portions:
                if self._num_started < len(self.places):
                    self._start_another()
                waiting.append(self._threads.submit(self._ask, portion))
                if len(waiting) >= 2 * len(self.places):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _start_another(self) -> None:
        place, self._num_started = self.places[self._num_started], self._num_started + 1
        name = f"worker {self._num_started} of {len(self.places)} ({place})"
        # on the stack it stands above the threads: it ends before those that wait for it
        self._idle.put(self._stack.enter_context(_Process(name, self.task, place)))

    def _alone(self, portions: Iterable[Portion]) -> Iterator[Translated]:
        translate = None
        for portion in portions:
            texts, trouble = portion.texts(self.input_file)
            translate = translate or self.task.load(self.places[0].device)
            with _placing(portion, self.input_file):
                translations = translate(texts)
            lines = self._finished(portion, self.task.write(texts, translations))
            yield Translated(portion, lines, trouble, remarks_of(translations))

    def _finished(self, portion: Portion, lines: bytes) -> bytes:
        return lines if self.task.as_json else with_line_ends(lines, portion.lines)

    def _ask(self, portion: Portion) -> Translated:
        texts, trouble = portion.texts(self.input_file)
        process = self._idle.get()
        try:
            with _placing(portion, self.input_file):
                lines, remarks = process.ask(texts)
                return Translated(portion, self._finished(portion, lines), trouble, remarks)
        finally:
            self._idle.put(process)


@contextmanager
def _placing(portion: Portion, input_file: str) -> Iterator[None]:
    """Tell where in the file the text stands that an error is about."""
    try:
        yield
    except TextError as error:
        raise error.at(f"{input_file}:{portion.first_line + error.number - 1}") from None


class _Process:
    """One worker that is a process."""

    def __init__(self, name: str, task: Task, place: Place) -> None:
        environment = {"OMP_NUM_THREADS": str(place.num_threads)} if place.num_threads else {}
        if place.visible_gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = place.visible_gpu
        self.name = name
        self._process = start_module("heedful.decoding.files.pool", environment)
        self._first: list[bytes] | None = [json.dumps({"task": asdict(task), "place": asdict(place)}).encode()]

    def ask(self, texts: Sequence[str]) -> tuple[bytes, list[tuple[int, str]]]:
        """Have texts translated; also told is what is odd about some."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            if self._first:
                send(self._process.stdin, self._first)
                self._first = None
            send(self._process.stdin, [json.dumps(texts).encode()])
            answer = receive(self._process.stdout)
        except OSError:
            answer = []
        if not answer:
            raise DecodingError(f"{self.name} {_end_of(self._process.wait())}")
        said: dict[str, Any] = json.loads(answer[0])
        if "error" in said:
            raise getattr(heedful.errors, said["error"])(*said["arguments"])
        return answer[1], [(place, remark) for place, remark in said["remarks"]]

    def __enter__(self) -> _Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # it has nothing that could be lost
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def _end_of(code: int) -> str:
    """How a worker ended, and what to do."""
    if code >= 0:
        return f"ended with exit code {code}; its message stands above."
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return f"was ended by {name}; if nobody did that, memory was short: use fewer with --workers."


def main() -> None:
    """Be a worker: the first message is what to do and where, each after it texts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the one that started this ends it
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what any library prints must not get between the lines
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    described = json.loads(requests.get())
    task, place = Task(**described["task"]), Place(**described["place"])
    if place.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, place.cores)
    translate = None
    while True:
        texts = json.loads(requests.get())
        try:
            translate = translate or task.load(place.device)
            translations = translate(texts)
            remarks = json.dumps({"remarks": remarks_of(translations)}).encode()
            answer = [remarks, task.write(texts, translations)]
        except HeedfulError as error:
            answer = [json.dumps({"error": type(error).__name__, "arguments": error.args}).encode()]
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            advice = "use a smaller decoding.tokens_per_batch, which may change between runs, or fewer --workers"
            message = f"{place} has not enough memory; {advice}."
            answer = [json.dumps({"error": "DecodingError", "arguments": [message]}).encode()]
        send(results, answer)


def _listen(pipe: IO[bytes], requests: queue.SimpleQueue[bytes]) -> None:
    """Take in messages; when there can be no more, end at once: who started this is gone and wants no result."""
    while message := receive(pipe):
        requests.put(message[0])
    os._exit(1)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # who started this is gone
        os._exit(1)
