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
    from heedful.decoding.files.job import TranslationJob
    from heedful.decoding.files.resumable_output import Manifest
    from heedful.decoding.files.translate_file import RunProgress

SECONDS_BETWEEN_LINES = 10.0
LINES_WORTH_A_WORKER = 1024
"""With fewer lines for each, starting another process takes longer than it saves."""


@dataclass(frozen=True)
class WholeFile:
    """How a file is to be gone through: what the flags for whole files say."""

    device: str
    num_workers: int | None
    chunk_lines: int | None
    shard: str | None
    overwrite: bool
    quiet: bool = False
    """Whether nothing but errors is written to stderr."""

    def refuse_without_files(self, input_file: str | None, output: Path | None) -> None:
        """What is for whole files needs a file on both sides: a pipe can be neither divided nor gone on with."""
        named = (self.num_workers, self.chunk_lines, self.shard, self.overwrite or None)
        for flag, value in zip(("--workers", "--chunk-lines", "--shard", "--overwrite"), named, strict=True):
            if value is not None and not is_bulk(input_file, output):
                raise ConfigError(
                    f"{flag} is for whole files; give one -i FILE and -o FILE each, no pipe, device or words."
                )

    def refuse_document(self, format: str) -> None:
        """A document is translated as a whole."""
        named = (self.num_workers, self.chunk_lines, self.shard)
        for flag, value in zip(("--workers", "--chunk-lines", "--shard"), named, strict=True):
            if value is not None:
                raise ConfigError(f"{flag} is for lines of text, and this is a document ({format}); add --format text.")


def is_bulk(input_file: str | None, output: Path | None) -> bool:
    """Whether a file goes into a file: what can be gone on with, and divided among processes."""
    if input_file is None or input_file == "-" or output is None or (output.exists() and not output.is_file()):
        return False
    return Path(input_file).is_file() or not Path(input_file).exists()


def translate_bulk(task: TranslationJob, input_file: str, output: Path, whole: WholeFile) -> None:
    """Translate a file, or one shard of it, into a file; go on where an earlier run of the same was stopped."""
    from heedful.decoding.files.resumable_output import RunSettings, load_manifest, manifest_path, partial_path
    from heedful.decoding.files.shards import parse_shard
    from heedful.decoding.files.translate_file import choose_chunk_sizes, translate_file
    from heedful.decoding.files.workers import assign_devices, device_kind, max_useful_workers

    shard = parse_shard(whole.shard)
    if is_compressed(output) and not shard.is_whole:
        raise ConfigError(
            f"-o {output}: shards are merged line by line, so they are written plain; leave the ending out, and "
            f"compress what heedful merge writes."
        )
    target, engine = shard.path(output), task.engine_name(whole.device)
    task = replace(task.with_language_codes(), engine=engine)  # all workers have the engine that the manifest tells of
    refuse_no_place(target)
    if not Path(input_file).exists():
        raise CorpusError(f"{input_file}: there is no such file.")
    for path in (target, partial_path(target)):
        refuse_same_file(path, input_file)
    begun = None if whole.overwrite else load_manifest(manifest_path(target))
    if begun is not None:  # a line that was put right since, or other first lines, must not change the rest
        task = replace(task, likely_language=begun.settings.identity.get("likely_language"))
    else:
        task = task.with_detected_language(input_file)
    task = ask_first(task, input_file)
    kind = device_kind(engine, whole.device)
    sizes = choose_chunk_sizes(target, whole.chunk_lines, kind, overwrite=whole.overwrite)
    share = whole.chunk_lines or max(sizes.most, LINES_WORTH_A_WORKER)
    most = max(1, max_useful_workers(input_file, share) // shard.count)
    devices = assign_devices(
        engine, whole.device, num_workers=whole.num_workers or 0, max_workers=most, model=task.model
    )
    settings = RunSettings(task.identity(kind), sizes.most, str(shard), sizes.first)
    with naming(target), BulkProgress(input_file, target, quiet=whole.quiet) as progress:
        manifest = translate_file(
            task, input_file, target, settings, devices, shard=shard, overwrite=whole.overwrite, listener=progress
        )
        progress.ended(manifest)


def ask_first(task: TranslationJob, input_file: str) -> TranslationJob:
    """The task, with target languages that the user was asked for after a look at the beginning of the file."""
    from heedful.decoding.files.job import LANGUAGE_SAMPLE_LINES
    from heedful.model_dir.fingerprint import read_directions

    if task.target_language is not None or not sys.stdin.isatty():
        return task
    asking = Asking(task, read_directions(task.model))
    return asking.task_for(next(chunks_of(input_file), [])[:LANGUAGE_SAMPLE_LINES]) if asking.is_possible else task


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
        self.goes_on_after: Manifest | None = None
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

    def on_resume(self, manifest: Manifest) -> None:
        """Tell that an earlier run is gone on with."""
        self.goes_on_after = manifest
        what = "is finished already," if manifest.finished else "goes on after"
        self.say(f"{self.target} {what} {manifest.lines:,} lines.")

    def on_start(self, step: RunProgress) -> None:
        """What earlier runs did counts for the share that is done, not for the speed."""
        self.before = (time.monotonic(), step.lines, step.position)

    def on_chunk_written(self, step: RunProgress) -> None:
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

    def ended(self, manifest: Manifest) -> None:
        """Tell what was done, if it took a while."""
        from heedful.console import clock

        self.remarks.end(self.say)
        seconds = time.monotonic() - self.started
        if seconds >= SECONDS_BETWEEN_LINES or (self.goes_on_after and not self.goes_on_after.finished):
            rate = (manifest.lines - (self.goes_on_after.lines if self.goes_on_after else 0)) / max(seconds, 1e-3)
            self.say(f"{self.target}: {manifest.lines:,} lines; {rate:,.0f} lines/s, {clock(seconds)}.")

    def say(self, message: str) -> None:
        """One line on stderr."""
        if self.quiet:
            return
        if self.bar:
            self.bar.console.print(message, markup=False, highlight=False, soft_wrap=True)
        else:
            print(message, file=sys.stderr)
