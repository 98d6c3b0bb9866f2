"""`heedful translate -i FILE -o FILE` and `heedful merge`: whole files, resumably and in shards, and documents.

A document, such as a page of HTML, keeps its markup.
"""

from __future__ import annotations

import lzma
import os
import shlex
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from heedful.cli.language_prompt import LanguagePrompt, WarningReporter, ask_target_language, print_stderr
from heedful.cli.line_io import (
    STANDARD_INPUT,
    file_in_errors,
    open_output,
    read_line_chunks,
    refuse_same_file,
    require_writable,
)
from heedful.errors import ConfigError, CorpusError, DecodingError, DocumentError
from heedful.text.documents import format_of, translate_document
from heedful.text.text_files import is_compressed, open_file

if TYPE_CHECKING:
    from heedful.decoding.files.chunked_files import Manifest
    from heedful.decoding.files.job import TranslationJob
    from heedful.decoding.files.translate_file import RunProgress
    from heedful.text.documents.document import MarkedText
    from heedful.text.documents.gettext_format import Catalogue
    from heedful.text.language_routing import Choice, Directions


SECONDS_BETWEEN_LINES = 10.0
MIN_LINES_PER_WORKER = 1024
"""With fewer lines, starting another process takes longer than it saves."""
MAX_DOCUMENT_BYTES = 100_000_000
"""Documents are read into memory; this bounds compressed ones too."""


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
    lines_per_worker = options.chunk_lines or max(sizes.maximum, MIN_LINES_PER_WORKER)
    max_workers = max(1, max_useful_workers(input_file, lines_per_worker) // shard.count)
    devices = assign_devices(
        engine, options.device, num_workers=options.num_workers or 0, max_workers=max_workers, model=job.model
    )
    settings = RunSettings(job.identity(kind), sizes.maximum, str(shard), sizes.first)
    with file_in_errors(target), FileProgress(input_file, target, quiet=options.quiet) as progress:
        manifest = translate_file(
            job, input_file, target, settings, devices, shard=shard, overwrite=options.overwrite, listener=progress
        )
        progress.finish(manifest)


def ask_target_languages(job: TranslationJob, input_file: str) -> TranslationJob:
    """The job with target languages that the user was asked for, based on the first lines of the file."""
    from heedful.decoding.files.job import LANGUAGE_SAMPLE_LINES

    if job.target_language is not None or not sys.stdin.isatty():
        return job
    prompt = LanguagePrompt(job, job.directions)
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


def merge(
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="The file given as -o to translate --shard.")],
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input", "-i", metavar="FILE", help="Also check that the shards were translated from this file."
        ),
    ] = None,
) -> None:
    """Merge the shards of a translation into one file.

    \b
    heedful translate -m model -i corpus.en -o corpus.de --shard 1/2
    heedful translate -m model -i corpus.en -o corpus.de --shard 2/2
    heedful merge corpus.de

    All shards must exist, be complete, and have the same input, model and settings; otherwise nothing is written and
    the error names the shards at fault. The shards are kept.
    """
    require_writable(output)
    refuse_same_file(output, input_file)
    from heedful.console import Console
    from heedful.decoding.files.shards import merge_shards

    console = Console()
    num_reported = 0

    with file_in_errors(output), console.stages() as advance:

        def report(num_done: int, total: int) -> None:
            nonlocal num_reported
            advance("merging", num_done - num_reported, total)
            num_reported = num_done

        num_lines = merge_shards(output, input_file=input_file, progress=report)
    console.note(f"{output}: {num_lines:,} lines. To delete the shards: rm {shlex.quote(str(output))}.part-*")


@dataclass(frozen=True)
class DocumentOptions:
    """Flags that apply to documents."""

    format: str | None
    retranslate: bool
    mark_fuzzy: bool
    quiet: bool

    def format_for(self, words: Sequence[str] | None, inputs: Sequence[str]) -> str:
        """The format of the inputs; "text" is translated line by line."""
        formats = {format_of(name, self.format or "auto") for name in inputs or (None,)}
        return "text" if words else min(formats - {"text"}, default="text")

    def check(self, words: Sequence[str] | None, inputs: Sequence[str], file_options: FileOptions) -> None:
        """Raise `ConfigError` for contradictory flags."""
        if words and self.format not in (None, "auto", "text"):
            raise ConfigError("--format applies to files and pipes; give the document with -i.")
        file_format = self.format_for(words, inputs)
        if file_format != "text":
            file_options.refuse_document(file_format)
        if file_format != "text" and len(inputs) > 1:
            raise ConfigError(
                f"documents ({file_format}) cannot be concatenated; give -o once for each -i, or add --format text."
            )
        if file_format != "po" and (self.retranslate or not self.mark_fuzzy):
            flag = "--retranslate" if self.retranslate else "--no-fuzzy"
            raise ConfigError(f"{flag} applies to gettext catalogues; add --format po if this is one.")

    @property
    def catalogue(self) -> Catalogue:
        """How gettext catalogues are filled."""
        from heedful.text.documents.gettext_format import Catalogue

        return Catalogue(retranslate=self.retranslate, mark_fuzzy=self.mark_fuzzy)


def translate_document_file(
    job: TranslationJob,
    device: str,
    input_file: str | None,
    output: Path | None,
    *,
    file_format: str,
    options: DocumentOptions,
) -> None:
    """Translate one document into a file or to stdout."""
    for flag, value in (("--json", job.as_json), ("--align", job.align), ("--prefix", job.prefix)):
        if value:
            raise ConfigError(
                f"{flag} applies to lines of text, and this is a document ({file_format}); add --format text."
            )
    name = STANDARD_INPUT if input_file in (None, "-") else str(input_file)
    document = read_bytes(input_file)
    untranslated: list[str] = []
    with open_output(output) as file, progress_bar(is_enabled=not options.quiet) as report:

        def translate(texts: Sequence[MarkedText]) -> tuple[Sequence[MarkedText], str | None]:
            from heedful.decoding.document_translation import translate_texts

            if not texts and not options.quiet:
                print_stderr(f"note: {name} contains no text to translate.")
            if not texts:
                return texts, job.target_language if isinstance(job.target_language, str) else None
            translator = job.load_translator(device)
            choice = choose_languages(job, translator.directions, [text.text for text in texts])
            if choice.remark and not options.quiet:
                print_stderr(f"warning: {name} {choice.remark}; it is translated all the same.")
            translated = translate_texts(
                translator.translate,
                texts,
                choice,
                progress=report,
                copied=untranslated,
                glossary=job.terms,
                **job.search,
            )
            return translated, choice.target

        try:
            file.write(cast(bytes, translate_document(document, file_format, translate, catalogue=options.catalogue)))
        except DocumentError as error:
            raise error.at(name) from None
        except DecodingError as error:
            raise DecodingError(f"{name} {error}") from None
    if untranslated:
        from heedful.decoding.document_translation import too_long_warning

        print_stderr(f"warning: {name}: {too_long_warning(untranslated)}.")


def read_bytes(input_file: str | None) -> bytes:
    """The contents of a file, compressed or not, or of standard input."""
    if input_file in (None, "-"):
        return read_bounded(sys.stdin.buffer, STANDARD_INPUT)
    assert input_file is not None
    try:
        with open_file(input_file) as file:
            return read_bounded(file, input_file)
    except FileNotFoundError:
        raise CorpusError(f"{input_file}: there is no such file.") from None


def read_bounded(file: BinaryIO, name: str) -> bytes:
    """The contents of a file; `CorpusError` if it is larger than `MAX_DOCUMENT_BYTES`."""
    try:
        content = file.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CorpusError(f"{name}: cannot be read: {error}. The file is damaged, truncated or not readable.") from None
    if len(content) > MAX_DOCUMENT_BYTES:
        raise CorpusError(f"{name}: a document may have at most {MAX_DOCUMENT_BYTES:,} bytes; split it.")
    return content


def choose_languages(job: TranslationJob, directions: Directions, texts: Sequence[str]) -> Choice:
    """The languages of a document; asks for the target if flags and model leave a choice."""
    from heedful.decoding.document_translation import detect_document_language, document_languages

    source = directions.source_code(job.source_language) or detect_document_language(directions, texts)
    target = job.target_language
    if source is not None and LanguagePrompt(job, directions).is_enabled and directions.is_ambiguous(source):
        target = ask_target_language(source, directions.targets_for(source))
    return document_languages(directions, texts, source_language=source, target_language=target)


@contextmanager
def progress_bar(*, is_enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """Progress in texts of a document: a bar on a terminal, elsewhere a line every ten seconds."""
    last_report = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last_report
        if is_enabled and done < total and time.monotonic() - last_report >= SECONDS_BETWEEN_LINES:
            last_report = time.monotonic()
            print_stderr(f"{done / total:.0%}  {done:,} of {total:,} texts")

    if not is_enabled or not sys.stderr.isatty():
        yield report
        return
    from heedful.console import Console

    with Console().progress("bar", "{task.completed:,.0f} of {task.total:,.0f} texts", "remaining") as bar:
        bar_task = bar.add_task("", total=None, visible=False)
        yield lambda done, total: bar.update(bar_task, completed=done, total=total, visible=True)
