"""`heedful translate -i FILE -o FILE`: translate a whole file, resumably and with progress."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.language_prompt import LanguagePrompt, WarningReporter
from heedful.cli.line_io import file_in_errors, read_line_chunks, refuse_same_file, require_writable
from heedful.errors import ConfigError, CorpusError
from heedful.text.text_files import is_compressed

if TYPE_CHECKING:
    from heedful.decoding.files.chunked_files import Manifest
    from heedful.decoding.files.job import TranslationJob
    from heedful.decoding.files.translate_file import RunProgress

SECONDS_BETWEEN_LINES = 10.0
MIN_LINES_PER_WORKER = 1024
"""With fewer lines, starting another process takes longer than it saves."""


@dataclass(frozen=True)
class FileOptions:
    """Flags that apply to whole files."""

    device: str
    num_workers: int | None
    chunk_lines: int | None
    shard: str | None
    overwrite: bool
    quiet: bool = False
    """Whether only errors are written to stderr."""

    def refuse_streams(self, input_file: str | None, output: Path | None) -> None:
        """Raise `ConfigError` if a flag for whole files is given for a pipe, which can be neither split nor resumed."""
        values = (self.num_workers, self.chunk_lines, self.shard, self.overwrite or None)
        for flag, value in zip(("--workers", "--chunk-lines", "--shard", "--overwrite"), values, strict=True):
            if value is not None and not is_file_to_file(input_file, output):
                raise ConfigError(
                    f"{flag} applies to whole files; give -i FILE and -o FILE, not a pipe, a device or texts."
                )

    def refuse_document(self, file_format: str) -> None:
        """Raise `ConfigError` if a flag for lines is given for a document."""
        values = (self.num_workers, self.chunk_lines, self.shard)
        for flag, value in zip(("--workers", "--chunk-lines", "--shard"), values, strict=True):
            if value is not None:
                raise ConfigError(
                    f"{flag} applies to lines of text, and this is a document ({file_format}); add --format text."
                )


def is_file_to_file(input_file: str | None, output: Path | None) -> bool:
    """Whether a regular file is translated into a file, so that the work can be resumed and split."""
    if input_file is None or input_file == "-" or output is None or (output.exists() and not output.is_file()):
        return False
    return Path(input_file).is_file() or not Path(input_file).exists()


def translate_whole_file(job: TranslationJob, input_file: str, output: Path, options: FileOptions) -> None:
    """Translate a file, or one shard of it, into a file; resume an interrupted run."""
    from heedful.decoding.files.chunked_files import RunSettings, load_manifest, manifest_path, partial_path
    from heedful.decoding.files.shards import parse_shard
    from heedful.decoding.files.translate_file import (
        assign_devices,
        choose_chunk_sizes,
        device_kind,
        max_useful_workers,
        translate_file,
    )

    shard = parse_shard(options.shard)
    if is_compressed(output) and not shard.is_whole:
        raise ConfigError(
            f"-o {output}: shards are written uncompressed so that they can be merged; choose a name without this "
            f"extension, and compress the merged file."
        )
    target, engine = shard.path(output), job.engine_name(options.device)
    job = replace(job.with_language_codes(), engine=engine)  # all workers use the engine in the manifest
    require_writable(target)
    if not Path(input_file).exists():
        raise CorpusError(f"{input_file}: there is no such file.")
    for path in (target, partial_path(target)):
        refuse_same_file(path, input_file)
    earlier = None if options.overwrite else load_manifest(manifest_path(target))
    if earlier is not None:  # a changed input must not change the language of the remaining lines
        job = replace(job, likely_language=earlier.settings.identity.get("likely_language"))
    else:
        job = job.with_detected_language(input_file)
    job = ask_target_languages(job, input_file)
    kind = device_kind(engine, options.device)
    sizes = choose_chunk_sizes(target, options.chunk_lines, kind, overwrite=options.overwrite)
    lines_per_worker = options.chunk_lines or max(sizes.most, MIN_LINES_PER_WORKER)
    max_workers = max(1, max_useful_workers(input_file, lines_per_worker) // shard.count)
    devices = assign_devices(
        engine, options.device, num_workers=options.num_workers or 0, max_workers=max_workers, model=job.model
    )
    settings = RunSettings(job.identity(kind), sizes.most, str(shard), sizes.first)
    with file_in_errors(target), FileProgress(input_file, target, quiet=options.quiet) as progress:
        manifest = translate_file(
            job, input_file, target, settings, devices, shard=shard, overwrite=options.overwrite, listener=progress
        )
        progress.finish(manifest)


def ask_target_languages(job: TranslationJob, input_file: str) -> TranslationJob:
    """The job with target languages that the user was asked for, based on the first lines of the file."""
    from heedful.decoding.files.job import LANGUAGE_SAMPLE_LINES
    from heedful.model_dir.fingerprint import read_directions

    if job.target_language is not None or not sys.stdin.isatty():
        return job
    prompt = LanguagePrompt(job, read_directions(job.model))
    if not prompt.is_enabled:
        return job
    return prompt.job_for(next(read_line_chunks(input_file), [])[:LANGUAGE_SAMPLE_LINES])


class FileProgress:
    """Lines, lines per second and remaining time on stderr: a bar on a terminal, elsewhere a line every ten seconds.

    The remaining time is estimated from the bytes of the input, so that its lines need not be counted.
    """

    def __init__(self, input_file: str, target: Path, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.total = max(1, os.path.getsize(input_file))
        self.target = target
        self.warnings = WarningReporter()
        self.started = self.last_line = time.monotonic()
        self.resumed_from: Manifest | None = None
        self.speed_start: tuple[float, int, int] = (self.started, 0, 0)
        """Time, lines and input position from which the speed is measured."""
        self.is_first = True
        self.bar: Any = None

    def __enter__(self) -> FileProgress:
        if sys.stderr.isatty() and not self.quiet:
            from heedful.console import Console

            self.bar = Console().progress("bar", "{task.percentage:>3.0f} %  {task.description}")
            self.task = self.bar.add_task("", total=self.total)
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.bar:
            self.bar.stop()
        if kind is KeyboardInterrupt:
            self.print_line(" ".join(["Stopped.", *getattr(error, "__notes__", [])]))

    def on_resume(self, manifest: Manifest) -> None:
        """Report that an earlier run is resumed."""
        self.resumed_from = manifest
        if manifest.finished:
            self.print_line(f"{self.target} is already complete: {manifest.lines:,} lines.")
        else:
            self.print_line(f"{self.target}: resuming after {manifest.lines:,} lines.")

    def on_start(self, progress: RunProgress) -> None:
        """Lines of earlier runs count as progress but not for the speed."""
        self.speed_start = (time.monotonic(), progress.lines, progress.position)

    def on_chunk_written(self, progress: RunProgress) -> None:
        """Report progress."""
        from heedful.console import clock

        self.warnings.add(progress.remarks, self.print_line)
        now, (since, lines, position) = time.monotonic(), self.speed_start
        seconds = max(now - since, 1e-3)
        left = seconds * (self.total - progress.position) / max(1, progress.position - position)
        message = f"{progress.lines:,} lines  {(progress.lines - lines) / seconds:,.0f} lines/s  {clock(left)} left"
        if self.is_first:  # the time so far includes loading the model
            self.is_first, self.speed_start = False, (now, progress.lines, progress.position)
        if self.bar:
            self.bar.update(self.task, completed=progress.position, description=message)
        elif now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            self.print_line(f"{progress.position / self.total:.0%}  {message}")

    def finish(self, manifest: Manifest) -> None:
        """Print a summary, if the run took more than a few seconds."""
        from heedful.console import clock

        self.warnings.summarize(self.print_line)
        seconds = time.monotonic() - self.started
        if seconds >= SECONDS_BETWEEN_LINES or (self.resumed_from and not self.resumed_from.finished):
            rate = (manifest.lines - (self.resumed_from.lines if self.resumed_from else 0)) / max(seconds, 1e-3)
            self.print_line(f"{self.target}: {manifest.lines:,} lines; {rate:,.0f} lines/s, {clock(seconds)}.")

    def print_line(self, message: str) -> None:
        """Print one line on stderr."""
        if self.quiet:
            return
        if self.bar:
            self.bar.console.print(message, markup=False, highlight=False, soft_wrap=True)
        else:
            print(message, file=sys.stderr)
