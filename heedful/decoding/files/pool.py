"""Processes that translate portions, each on a place of its own, with results in the order of the portions.

Each process runs `python -m heedful.decoding.files.pool`. It receives a `Task` as JSON and then texts, and answers with
lines. A single worker is this process itself.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType

from heedful.decoding.files.devices import Place
from heedful.decoding.files.job import Task, remarks_of, with_line_ends
from heedful.decoding.files.line_chunks import Portion
from heedful.decoding.translation import Translation
from heedful.errors import CorpusError, DecodingError, TextError
from heedful.process_pool import ProcessPool, WorkerDiedError, WorkerProcess, serve


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
    """A worker process for each place, started when there is a portion for it; a single one is this process."""

    def __init__(self, task: Task, places: Sequence[Place], input_file: str) -> None:
        self.task = task
        self.places = places
        self.input_file = input_file
        self._stack = ExitStack()

    def __enter__(self) -> Workers:
        count = len(self.places)
        if count > 1:
            workers = [
                _TranslationWorker(f"worker {number} of {count} ({place})", self.task, place)
                for number, place in enumerate(self.places, 1)
            ]
            self._pool = self._stack.enter_context(ProcessPool(workers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def in_order(self, portions: Iterable[Portion]) -> Iterator[Translated]:
        """The portions, translated; a few are read ahead, never all."""
        return self._alone(portions) if len(self.places) == 1 else self._pool.map_in_order(self._translate, portions)

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

    def _translate(self, worker: _TranslationWorker, portion: Portion) -> Translated:
        texts, trouble = portion.texts(self.input_file)
        with _placing(portion, self.input_file):
            lines, remarks = worker.translate(texts)
        return Translated(portion, self._finished(portion, lines), trouble, remarks)


@contextmanager
def _placing(portion: Portion, input_file: str) -> Iterator[None]:
    """Tell where in the file the text stands that an error is about."""
    try:
        yield
    except TextError as error:
        raise error.at(f"{input_file}:{portion.first_line + error.number - 1}") from None


class _TranslationWorker(WorkerProcess):
    """One worker process."""

    def __init__(self, name: str, task: Task, place: Place) -> None:
        environment = {"OMP_NUM_THREADS": str(place.num_threads)} if place.num_threads else {}
        if place.visible_gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = place.visible_gpu
        super().__init__("heedful.decoding.files.pool", environment)
        self.name = name
        self._setup: bytes | None = json.dumps({"task": asdict(task), "place": asdict(place)}).encode()

    def translate(self, texts: Sequence[str]) -> tuple[bytes, list[tuple[int, str]]]:
        """The translated lines, and remarks on some of them."""
        if self._setup is not None:
            self.post([self._setup])
            self._setup = None
        try:
            lines, remarks = self.request([json.dumps(texts).encode()])
        except WorkerDiedError as error:
            raise DecodingError(f"{self.name} {_end_of(error.exit_code)}") from None
        return lines, [(number, remark) for number, remark in json.loads(remarks)]


def _end_of(code: int) -> str:
    """How a worker ended, and what to do."""
    if code >= 0:
        return f"ended with exit code {code}; its message stands above."
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    return f"was ended by {name}; if nobody did that, memory was short: use fewer with --workers."


def main() -> None:
    """Run a worker: the first message is the task and the place, each later one holds texts."""
    task: Task | None = None
    place = Place("cpu")
    translate: Callable[[Sequence[str]], list[Translation]] | None = None

    def answer(message: list[bytes]) -> list[bytes] | None:
        nonlocal task, place, translate
        values = json.loads(message[0])
        if task is None:
            task = Task(**values["task"])
            place = Place(**values["place"])
            if place.cores and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, place.cores)
            return None
        try:
            translate = translate or task.load(place.device)
            translations = translate(values)
            return [task.write(values, translations), json.dumps(remarks_of(translations)).encode()]
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            advice = "use a smaller decoding.tokens_per_batch, which may change between runs, or fewer --workers"
            raise DecodingError(f"{place} has not enough memory; {advice}.") from None

    serve(answer)


if __name__ == "__main__":
    main()
