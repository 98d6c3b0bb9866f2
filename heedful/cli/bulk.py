"""`heedful translate -i FILE -o FILE`: a whole file, with lines a second and the time left, resumable."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.lines import naming, refuse_no_place
from heedful.errors import CorpusError

if TYPE_CHECKING:
    from heedful.decoding.bulk.record import Record
    from heedful.decoding.bulk.run import Step
    from heedful.decoding.bulk.task import Task

SECONDS_BETWEEN_LINES = 10.0


def is_bulk(input_file: str | None, output: Path | None) -> bool:
    """Whether a file goes into a file: what can be gone on with, and divided among processes."""
    if input_file in (None, "-") or output is None or (output.exists() and not output.is_file()):
        return False
    return not Path(str(input_file)).exists() or Path(str(input_file)).is_file()


def translate_bulk(
    task: Task,
    input_file: str,
    output: Path,
    *,
    device: str,
    num_workers: int,
    portion_lines: int | None,
    shard: str | None,
    overwrite: bool,
) -> None:
    """Translate a file, or one shard of it, into a file; go on where an earlier run of the same was stopped."""
    from heedful.decoding.bulk.places import choose_places, device_kind, most_of_use
    from heedful.decoding.bulk.record import Made
    from heedful.decoding.bulk.run import portion_lines_of, translate_file
    from heedful.decoding.bulk.shards import parse_shard

    part = parse_shard(shard)
    refuse_no_place(output)
    if not Path(input_file).exists():
        raise CorpusError(f"{input_file}: there is no such file.")
    target, engine = part.file(output), task.engine_name()
    kind = device_kind(engine, device)
    size = portion_lines_of(target, portion_lines, kind, overwrite=overwrite)
    most = max(1, most_of_use(input_file, size) // part.count)
    places = choose_places(engine, device, wanted=num_workers, most=most, model=task.model)
    made = Made(task.identity(kind), size, str(part))
    with naming(target), BulkProgress(input_file, target) as progress:
        record = translate_file(
            task, input_file, target, made, places, shard=part, overwrite=overwrite, listener=progress
        )
        progress.ended(record)


class BulkProgress:
    """Lines, lines a second and the time left, on stderr: as a bar on a terminal, elsewhere as a line now and then.

    The time left is judged by the bytes of the input: nobody need count its lines.
    """

    def __init__(self, input_file: str, target: Path) -> None:
        self.total = max(1, os.path.getsize(input_file))
        self.target = target
        self.started = self.last_line = time.monotonic()
        self.lines_before = self.position_before = 0
        self.goes_on_after: Record | None = None
        self.bar: Any = None

    def __enter__(self) -> BulkProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (BarColumn(), TextColumn("{task.percentage:>3.0f} %  {task.description}"))
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("", total=self.total)
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.bar:
            self.bar.stop()
        if kind is KeyboardInterrupt:
            self.say(" ".join(["stopped.", *getattr(error, "__notes__", [])]))

    def goes_on(self, record: Record) -> None:
        """Tell that an earlier run is gone on with."""
        self.goes_on_after = record
        what = "is finished already," if record.finished else "goes on after"
        self.say(f"{self.target} {what} {record.lines:,} lines.")

    def begins(self, step: Step) -> None:
        """What earlier runs did counts for the share that is done, not for the speed."""
        self.lines_before, self.position_before = step.lines, step.position
        self.started = self.last_line = time.monotonic()

    def wrote(self, step: Step) -> None:
        """Show how far it is."""
        from heedful.training.report import clock

        now = time.monotonic()
        seconds = max(now - self.started, 1e-3)
        rate = (step.lines - self.lines_before) / seconds
        left = seconds * (self.total - step.position) / max(1, step.position - self.position_before)
        told = f"{step.lines:,} lines  {rate:,.0f} lines/s  {clock(left)} left"
        if self.bar:
            self.bar.update(self.task, completed=step.position, description=told)
        elif now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            self.say(f"{step.position / self.total:.0%}  {told}")

    def ended(self, record: Record) -> None:
        """Tell what was done, if it took a while."""
        from heedful.training.report import clock

        seconds = time.monotonic() - self.started
        if seconds >= SECONDS_BETWEEN_LINES or (self.goes_on_after and not self.goes_on_after.finished):
            rate = (record.lines - self.lines_before) / max(seconds, 1e-3)
            self.say(f"{self.target}: {record.lines:,} lines; {rate:,.0f} lines/s, {clock(seconds)}.")

    def say(self, message: str) -> None:
        """One line on stderr."""
        if self.bar:
            self.bar.console.print(message, markup=False, highlight=False, soft_wrap=True)
        else:
            print(message, file=sys.stderr)
