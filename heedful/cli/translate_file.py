"""`heedful translate -i FILE -o FILE`: a whole file, with lines a second and the time left, resumable."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.language_prompt import Asking, Remarks
from heedful.cli.line_io import chunks_of, naming, refuse_no_place, refuse_same_file
from heedful.errors import ConfigError, CorpusError
from heedful.text.text_files import is_compressed

if TYPE_CHECKING:
    from heedful.decoding.files.job import Task
    from heedful.decoding.files.resumable_output import Record
    from heedful.decoding.files.translate_file import Step

SECONDS_BETWEEN_LINES = 10.0
LINES_WORTH_A_WORKER = 1024
"""With fewer lines for each, starting another process takes longer than it saves."""


@dataclass(frozen=True)
class WholeFile:
    """How a file is to be gone through: what the flags for whole files say."""

    device: str
    num_workers: int | None
    portion_lines: int | None
    shard: str | None
    overwrite: bool
    quiet: bool = False
    """Whether nothing but errors is written to stderr."""

    def refuse_without_files(self, input_file: str | None, output: Path | None) -> None:
        """What is for whole files needs a file on both sides: a pipe can be neither divided nor gone on with."""
        named = (self.num_workers, self.portion_lines, self.shard, self.overwrite or None)
        for flag, value in zip(("--workers", "--chunk-lines", "--shard", "--overwrite"), named, strict=True):
            if value is not None and not is_bulk(input_file, output):
                raise ConfigError(
                    f"{flag} is for whole files; give one -i FILE and -o FILE each, no pipe, device or words."
                )

    def refuse_document(self, format: str) -> None:
        """A document is translated as a whole."""
        named = (self.num_workers, self.portion_lines, self.shard)
        for flag, value in zip(("--workers", "--chunk-lines", "--shard"), named, strict=True):
            if value is not None:
                raise ConfigError(f"{flag} is for lines of text, and this is a document ({format}); add --format text.")


def is_bulk(input_file: str | None, output: Path | None) -> bool:
    """Whether a file goes into a file: what can be gone on with, and divided among processes."""
    if input_file is None or input_file == "-" or output is None or (output.exists() and not output.is_file()):
        return False
    return Path(input_file).is_file() or not Path(input_file).exists()


def translate_bulk(task: Task, input_file: str, output: Path, whole: WholeFile) -> None:
    """Translate a file, or one shard of it, into a file; go on where an earlier run of the same was stopped."""
    from heedful.decoding.files.devices import choose_places, device_kind, most_of_use
    from heedful.decoding.files.resumable_output import Made, load_record, partial_of, record_of
    from heedful.decoding.files.shards import parse_shard
    from heedful.decoding.files.translate_file import portion_sizes, translate_file

    shard = parse_shard(whole.shard)
    if is_compressed(output) and not shard.is_whole:
        raise ConfigError(
            f"-o {output}: shards are merged line by line, so they are written plain; leave the ending out, and "
            f"compress what heedful merge writes."
        )
    target, engine = shard.file(output), task.engine_name(whole.device)
    task = replace(task.with_codes(), engine=engine)  # all workers have the engine that the record tells of
    refuse_no_place(target)
    if not Path(input_file).exists():
        raise CorpusError(f"{input_file}: there is no such file.")
    for path in (target, partial_of(target)):
        refuse_same_file(path, input_file)
    begun = None if whole.overwrite else load_record(record_of(target))
    if begun is not None:  # a line that was put right since, or other first lines, must not change the rest
        task = replace(task, likely_language=begun.made.identity.get("likely_language"))
    else:
        task = task.with_language_of(input_file)
    task = ask_first(task, input_file)
    kind = device_kind(engine, whole.device)
    sizes = portion_sizes(target, whole.portion_lines, kind, overwrite=whole.overwrite)
    share = whole.portion_lines or max(sizes.most, LINES_WORTH_A_WORKER)
    most = max(1, most_of_use(input_file, share) // shard.count)
    places = choose_places(engine, whole.device, wanted=whole.num_workers or 0, most=most, model=task.model)
    made = Made(task.identity(kind), sizes.most, str(shard), sizes.first)
    with naming(target), BulkProgress(input_file, target, quiet=whole.quiet) as progress:
        record = translate_file(
            task, input_file, target, made, places, shard=shard, overwrite=whole.overwrite, listener=progress
        )
        progress.ended(record)


def ask_first(task: Task, input_file: str) -> Task:
    """The task, with target languages that the user was asked for after a look at the beginning of the file."""
    from heedful.decoding.files.job import LINES_FOR_LANGUAGE
    from heedful.model_dir.fingerprint import read_directions

    if task.target_language is not None or not sys.stdin.isatty():
        return task
    asking = Asking(task, read_directions(task.model))
    return asking.task_for(next(chunks_of(input_file), [])[:LINES_FOR_LANGUAGE]) if asking.is_possible else task


class BulkProgress:
    """Lines, lines a second and the time left, on stderr: as a bar on a terminal, elsewhere as a line now and then.

    The time left is judged by the bytes of the input: nobody need count its lines.
    """

    def __init__(self, input_file: str, target: Path, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.total = max(1, os.path.getsize(input_file))
        self.target = target
        self.remarks = Remarks()
        self.started = self.last_line = time.monotonic()
        self.goes_on_after: Record | None = None
        self.before: tuple[float, int, int] = (self.started, 0, 0)
        """When, after how many lines and at which place of the input the speed began to count."""
        self.is_first = True
        self.bar: Any = None

    def __enter__(self) -> BulkProgress:
        if sys.stderr.isatty() and not self.quiet:
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
            self.say(" ".join(["Stopped.", *getattr(error, "__notes__", [])]))

    def goes_on(self, record: Record) -> None:
        """Tell that an earlier run is gone on with."""
        self.goes_on_after = record
        what = "is finished already," if record.finished else "goes on after"
        self.say(f"{self.target} {what} {record.lines:,} lines.")

    def begins(self, step: Step) -> None:
        """What earlier runs did counts for the share that is done, not for the speed."""
        self.before = (time.monotonic(), step.lines, step.position)

    def wrote(self, step: Step) -> None:
        """Show how far it is."""
        from heedful.console import clock

        self.remarks.add(step.remarks, self.say)
        now, (since, lines, position) = time.monotonic(), self.before
        seconds = max(now - since, 1e-3)
        left = seconds * (self.total - step.position) / max(1, step.position - position)
        told = f"{step.lines:,} lines  {(step.lines - lines) / seconds:,.0f} lines/s  {clock(left)} left"
        if self.is_first:  # the model was being loaded until now, which says nothing of what is to come
            self.is_first, self.before = False, (now, step.lines, step.position)
        if self.bar:
            self.bar.update(self.task, completed=step.position, description=told)
        elif now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            self.say(f"{step.position / self.total:.0%}  {told}")

    def ended(self, record: Record) -> None:
        """Tell what was done, if it took a while."""
        from heedful.console import clock

        self.remarks.end(self.say)
        seconds = time.monotonic() - self.started
        if seconds >= SECONDS_BETWEEN_LINES or (self.goes_on_after and not self.goes_on_after.finished):
            rate = (record.lines - (self.goes_on_after.lines if self.goes_on_after else 0)) / max(seconds, 1e-3)
            self.say(f"{self.target}: {record.lines:,} lines; {rate:,.0f} lines/s, {clock(seconds)}.")

    def say(self, message: str) -> None:
        """One line on stderr."""
        if self.quiet:
            return
        if self.bar:
            self.bar.console.print(message, markup=False, highlight=False, soft_wrap=True)
        else:
            print(message, file=sys.stderr)
