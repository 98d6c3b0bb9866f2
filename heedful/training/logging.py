"""Reporting of a run: progress on the console, a JSON-lines log, TensorBoard, and the time until the first update."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from heedful.atomic_files import replace_file
from heedful.console import Console, clock

INITIAL = "initial"
"""The kind of the weights of `training.init_from`, before the first update."""


@dataclass(frozen=True)
class Sample:
    """A sentence of valid and its current translation."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Evaluation:
    """The score of translations of part of valid, its signature, and a few samples."""

    bleu: float
    """BLEU, or the score that `name` names; larger is better."""
    signature: str
    samples: tuple[Sample, ...]
    name: str = "BLEU"


@dataclass(frozen=True)
class TrainRecord:
    """Measurements of the updates since the last record."""

    step: int
    epoch: float
    progress: float
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int
    tokens_per_second: float
    seconds: float
    skipped_steps: int


@dataclass(frozen=True)
class ValidRecord:
    """Results of one validation; the loss is the mean negative log-likelihood of a token, without smoothing."""

    step: int
    weights: str
    loss: float
    perplexity: float
    bleu: float | None
    signature: str | None
    is_best: bool
    seconds: float
    score_name: str = "BLEU"
    """The metric of `bleu`."""
    perplexity_name: str = "perplexity"
    """What `perplexity` is: that of all tokens, or of the masked ones."""
    character_perplexity: float | None = None
    """The same for each character, which models with other vocabularies can be compared by; None where undefined."""


OMITTED = {"perplexity_name": "perplexity", "character_perplexity": None}
"""Fields of `ValidRecord` that the log omits at these values."""


class Reporter(Protocol):
    """Receives the events of a run."""

    def note(self, message: str) -> None:
        """A message for the user."""
        ...

    def started(self, record: FirstStep) -> None:
        """The first update is complete."""
        ...

    def trained(self, record: TrainRecord) -> None:
        """Some updates are complete."""
        ...

    def validated(self, record: ValidRecord, samples: tuple[Sample, ...]) -> None:
        """A validation is complete."""
        ...

    def close(self) -> None:
        """The run has ended or was interrupted."""
        ...


class ConsoleReporter(Console):
    """A console that shows training: a progress bar on a terminal, plain lines elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self._bar: Any = None
        self._task: Any = None
        self._last_line = 0.0

    def started(self, record: FirstStep) -> None:
        self.rich.print(str(record), markup=False, soft_wrap=not self.is_terminal)

    def trained(self, record: TrainRecord) -> None:
        if self.is_terminal:
            self._show_bar(record)
        elif time.monotonic() - self._last_line >= 10 or record.progress >= 1:
            self._last_line = time.monotonic()
            self.rich.print(
                f"step {record.step}  {min(1, record.progress):.0%}  loss {record.loss:.3f}  "
                f"{record.tokens_per_second:,.0f} tok/s  {clock(time_left(record))} left",
                soft_wrap=True,
            )

    def _show_bar(self, record: TrainRecord) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        if self._bar is None:
            self._bar = Progress(
                TextColumn("step {task.fields[step]}"),
                BarColumn(bar_width=None),
                TextColumn(
                    "{task.percentage:>3.0f}%  loss {task.fields[loss]}  "
                    "{task.fields[rate]} tok/s  {task.fields[left]} left"
                ),
                console=self.rich,
                transient=True,
            )
            self._task = self._bar.add_task("", total=1.0, step=0, loss="", rate="", left="")
            self._bar.start()
        self._bar.update(
            self._task,
            completed=min(1.0, record.progress),
            step=record.step,
            loss=f"{record.loss:.3f}",
            rate=f"{record.tokens_per_second:,.0f}",
            left=clock(time_left(record)),
        )

    def validated(self, record: ValidRecord, samples: tuple[Sample, ...]) -> None:
        bleu = "" if record.bleu is None else f"  {record.score_name} {record.bleu:.1f}"
        best = "  (best so far)" if record.is_best else ""
        best = "  (before training)" if record.weights == INITIAL else best
        per_character = record.character_perplexity
        characters = "" if per_character is None else f" ({per_character:.3f} per character)"
        self.rich.print(
            f"step {record.step}  valid loss {record.loss:.3f}  "
            f"{record.perplexity_name} {record.perplexity:.2f}{characters}{bleu}{best}",
            style="bold",
            soft_wrap=True,
        )
        for sample in samples:
            self.rich.print(f"   {sample.source}\n → {sample.translation}", markup=False, soft_wrap=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class FileReporter:
    """Writes `log.jsonl`, one event per line, and TensorBoard files; resuming truncates the log to the checkpoint.

    `log.sha256` has the length and the SHA-256 of the log at the last validation, to detect damage.
    """

    def __init__(
        self,
        directory: Path,
        *,
        resumed_step: int | None,
        tensorboard: bool,
        note: Callable[[str], None] = lambda message: None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "log.jsonl"
        self._path, self._seal_path = path, directory / "log.sha256"
        if resumed_step is not None and not self._is_sealed():
            note(f"{path} was modified or damaged (SHA-256); the run continues, because it does not depend on the log.")
        kept = [] if resumed_step is None else [line for line in _lines(path) if _step(line) <= resumed_step]
        self._seen = {_validation(line) for line in kept} - {None}
        replace_file(path, "".join(line + "\n" for line in kept))
        self._file = path.open("a", encoding="utf-8")
        self._seal()
        self._board: Any = None
        if tensorboard:
            from torch.utils.tensorboard.writer import SummaryWriter

            new = 0 if resumed_step is None else resumed_step + 1
            self._board = SummaryWriter(str(directory / "tensorboard"), purge_step=new)

    def note(self, message: str) -> None:
        self._write("note", {"message": message})

    def started(self, record: FirstStep) -> None:
        self._write("first_step", asdict(record))

    def trained(self, record: TrainRecord) -> None:
        self._write("train", asdict(record))
        for name in ("loss", "learning_rate", "gradient_norm", "tokens_per_second"):
            self._plot(f"train/{name}", getattr(record, name), record.step)

    def validated(self, record: ValidRecord, samples: tuple[Sample, ...]) -> None:
        if (
            record.step,
            record.weights,
        ) in self._seen:  # resuming a completed run validates again
            return
        plain = asdict(record)
        plain = {name: value for name, value in plain.items() if name not in OMITTED or value != OMITTED[name]}
        self._write("valid", {**plain, "samples": [asdict(sample) for sample in samples]})
        self._seal()
        self._plot("valid/loss", record.loss, record.step)
        if record.bleu is not None:
            self._plot(f"valid/{record.score_name.lower()}", record.bleu, record.step)
        if self._board is not None and samples:
            text = "\n\n".join(f"{s.source}\n\n→ {s.translation}\n\n= {s.reference}" for s in samples)
            self._board.add_text("valid/samples", text, record.step)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._seal()
        if self._board is not None:
            self._board.close()

    def _seal(self) -> None:
        contents = self._path.read_bytes()
        replace_file(self._seal_path, f"{len(contents)} {hashlib.sha256(contents).hexdigest()}\n")

    def _is_sealed(self) -> bool:
        """Whether the log starts with the sealed contents; a killed run may have written more after them."""
        try:
            length, digest = self._seal_path.read_text(encoding="ascii").split()
            with self._path.open("rb") as file:
                return hashlib.sha256(file.read(int(length))).hexdigest() == digest
        except (OSError, ValueError):
            return False

    def _write(self, event: str, values: dict[str, Any]) -> None:
        if not self._file.closed:
            plain = {name: None if _is_not_finite(value) else value for name, value in values.items()}
            self._file.write(json.dumps({"event": event, **plain}, ensure_ascii=False) + "\n")
            self._file.flush()

    def _plot(self, name: str, value: float, step: int) -> None:
        if self._board is not None:
            self._board.add_scalar(name, value, step)


class Reporters:
    """Forwards events to several reporters."""

    def __init__(self, *reporters: Reporter) -> None:
        self.reporters = reporters

    def note(self, message: str) -> None:
        for reporter in self.reporters:
            reporter.note(message)

    def started(self, record: FirstStep) -> None:
        for reporter in self.reporters:
            reporter.started(record)

    def trained(self, record: TrainRecord) -> None:
        for reporter in self.reporters:
            reporter.trained(record)

    def validated(self, record: ValidRecord, samples: tuple[Sample, ...]) -> None:
        for reporter in self.reporters:
            reporter.validated(record, samples)

    def close(self) -> None:
        for reporter in self.reporters:
            reporter.close()


def time_left(record: TrainRecord) -> float:
    """Estimated seconds until the budget is used."""
    return record.seconds * (1 - record.progress) / record.progress if 0 < record.progress < 1 else 0.0


def _lines(path: Path) -> list[str]:
    """Lines, split at line feeds only: samples may contain other characters at which `splitlines` splits."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []


def _is_not_finite(value: Any) -> bool:
    """Whether a value is infinite or NaN, which JSON cannot represent."""
    return isinstance(value, float) and not math.isfinite(value)


def _validation(line: str) -> tuple[Any, Any] | None:
    """Step and weights of a validation event; None for other lines."""
    plain = json.loads(line)
    return (plain.get("step"), plain.get("weights")) if plain.get("event") == "valid" else None


def _step(line: str) -> int:
    try:
        return int(json.loads(line).get("step", 0))
    except (ValueError, AttributeError, TypeError):
        return 1 << 62


@dataclass(frozen=True)
class FirstStep:
    """Time until the first update since the program was started, in total and by stage."""

    step: int
    """Number of the update: 1, or the one after the checkpoint that was resumed."""
    seconds: float
    parts: dict[str, float]
    """Seconds of each stage that occurred, in order."""

    def __str__(self) -> str:
        parts = ", ".join(f"{name.replace('_', ' ')} {seconds:.1f}" for name, seconds in self.parts.items())
        return f"First update after {self.seconds:.1f} s: {parts}."


class StartupTimer:
    """Measures the stages until the first update; a stage lasts until the next is entered."""

    def __init__(self, stage: str) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = stage
        self._stage_start = time.perf_counter()
        self.first_step: FirstStep | None = None

    def enter(self, stage: str) -> None:
        """End the current stage and start another, which may have occurred before."""
        now = time.perf_counter()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._stage_start
        self._stage = stage
        self._stage_start = now

    def stop(self, step: int) -> FirstStep:
        """End the last stage: the first update is complete."""
        self.enter("")
        parts = {name.replace(" ", "_"): round(seconds, 3) for name, seconds in self._seconds.items()}
        self.first_step = FirstStep(step, round(sum(parts.values()), 3), parts)
        return self.first_step
