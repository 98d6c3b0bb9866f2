"""`heedful translate`: words, files or a pipe through a model; stdout is the translation and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from heedful.cli import options
from heedful.cli.language_prompt import Asking, Remarks, forgiving, say, translating
from heedful.cli.line_io import chunks_of, destination, refuse_same_file
from heedful.cli.overrides import model_directory, search_settings
from heedful.cli.translate_document import DocumentFlags, translate_file
from heedful.cli.translate_file import WholeFile, is_bulk, translate_bulk
from heedful.decoding.files.line_chunks import ChunkSizes
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.decoding.files.job import TranslationJob
    from heedful.decoding.translation import Translation

LINES_AT_ONCE = ChunkSizes(1024, first=8)
"""Of a file or a pipe that is ahead of the translation: the first lines are seen at once."""
STANDARD = "-"
"""Standard input or output, where a file is named."""
SEARCH_FLAGS = (
    "method beam_size num_best length_penalty length_penalty_alpha max_length min_length no_repeat_ngram_size "
    "temperature top_k top_p seed split batch_invariant shortlist protect"
).split()
"""Flags that are keys of the section decoding."""

TASK_FLAGS = "quantization target_language source_language prefix align as_json".split()
"""Flags that are fields of a task."""


def translate(
    words: options.Texts = None,
    model: options.ModelDirectory = None,
    input_files: options.InputFiles = None,
    outputs: options.OutputFiles = None,
    as_json: options.AsJson = False,
    target_language: options.To = None,
    source_language: options.From = None,
    method: options.Method = None,
    beam_size: options.BeamSize = None,
    num_best: options.NumBest = None,
    length_penalty: options.LengthPenalty = None,
    length_penalty_alpha: options.LengthPenaltyAlpha = None,
    max_length: options.MaxLength = None,
    min_length: options.MinLength = None,
    no_repeat_ngram_size: options.NoRepeatNgram = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.SamplingSeed = None,
    split: options.Split = None,
    batch_invariant: options.BatchInvariant = None,
    shortlist: options.Shortlist = None,
    protect: options.Protect = None,
    prefix: options.Prefix = None,
    align: options.Align = False,
    file_format: options.FileFormat = None,
    retranslate: options.Retranslate = False,
    mark_fuzzy: options.MarkFuzzy = True,
    device: options.Device = None,
    engine: options.Engine = None,
    quantization: options.Quantization = None,
    num_workers: options.NumWorkers = None,
    chunk_lines: options.ChunkLines = None,
    shard: options.ShardOf = None,
    overwrite: options.BeginAnew = False,
    quiet: options.Quiet = False,
    settings: options.Settings = None,
) -> None:
    """Translate text: exactly one line out for each line in.

    \b
    heedful translate --to de "A sentence." "Another one."
    heedful translate -m model "A sentence."
    heedful translate -m model -i text.en -o text.de
    heedful translate --to de -i page.html -o page.de.html
    heedful translate -m model -i corpus.en.xz -o corpus.de --shard 3/16
    heedful translate -m model -i one.en -i two.en -o both.de.gz
    cat text.en | heedful translate -m model | less
    heedful translate -m model --json --num-best 4 --align "A sentence."
    heedful translate -m model --method sampling --top-p 0.9 "A sentence."
    heedful translate -m model --engine ctranslate2 --quantization int8 "A sentence."

    A model with several languages detects that of each line; --from and --to say it.
    A file into a file goes on where it was stopped, by the same command.
    Every key of the section decoding is also a flag: --decoding.max_extra_length=20.
    """
    flags = dict(locals())
    search = search_settings(settings, **{name: flags[name] for name in SEARCH_FLAGS})
    whole = WholeFile(device or "auto", num_workers, chunk_lines, shard, overwrite, quiet)
    documents = DocumentFlags(file_format, retranslate, mark_fuzzy, quiet)
    jobs = [Job(words, *files) for files in pair_files(input_files, outputs)]
    for job in jobs:
        check_request(job, search, as_json=as_json, align=align)
        whole.refuse_without_files(job.only_input, job.output)
        documents.check(job.words, job.inputs, whole)
    task = task_of(flags, search)
    if not quiet:
        tell_first(task, whole.device, words, input_files)
    for job in jobs:
        if (kind := documents.format_for(job.words, job.inputs)) != "text":
            translate_file(task, whole.device, job.only_input, job.output, kind, documents)
        elif job.only_input and job.output and is_bulk(job.only_input, job.output):
            translate_bulk(task, job.only_input, job.output, whole)
        else:
            translate_stream(task, whole.device, job, quiet=quiet)


def task_of(flags: Mapping[str, Any], search: Mapping[str, Any]) -> TranslationJob:
    """What is done with every text, as the flags say it."""
    from heedful.decoding.files.job import TranslationJob

    return TranslationJob(
        model=str(model_directory(flags["model"])),
        engine=flags["engine"] or "auto",
        **{name: flags[name] for name in TASK_FLAGS},
        search=search,
    )


class Job(NamedTuple):
    """Texts or files, and the one place that their translations go to."""

    words: Sequence[str] | None
    inputs: Sequence[str]
    """Files whose lines are translated one after another; none: the words, or standard input."""
    output: Path | None
    """None: standard output."""

    @property
    def only_input(self) -> str | None:
        """The file, if it is exactly one."""
        return self.inputs[0] if len(self.inputs) == 1 and not self.words else None


def pair_files(inputs: Sequence[str] | None, outputs: Sequence[Path] | None) -> list[tuple[list[str], Path | None]]:
    """Which files go where: all into one output, or each into its own."""
    given, wanted = list(inputs or ()), list(outputs or ())
    places = [None if str(path) == STANDARD else path for path in wanted]
    if given.count(STANDARD) > 1:
        raise ConfigError("-i - (standard input) can be given once only.")
    if len(wanted) <= 1:
        return [(given, places[0] if places else None)]
    if len(wanted) != len(given):
        raise ConfigError(
            f"-i is given {len(given)} times and -o {len(wanted)} times; give -o once for all, or once for each -i."
        )
    if len(set(wanted)) < len(wanted):
        raise ConfigError("two of the outputs (-o) are the same file; name one for each -i.")
    return [([name], place) for name, place in zip(given, places, strict=True)]


def translate_stream(task: TranslationJob, device: str, job: Job, *, quiet: bool = False) -> None:
    """Translate words, or lines as they arrive, onto stdout or into a file."""
    translator = task.load_translator(device)
    remarks: list[Remarks] = []
    shown = not quiet and (job.output is not None or not sys.stdout.isatty())
    shown = shown and not Asking(task, translator.directions).is_possible  # no question amid a spinner
    with destination(job.output) as file, progress(wanted=shown) as tell:
        for name in (*job.inputs,) or (None,):
            kind = f"{name}: line" if len(job.inputs) > 1 else "text" if job.words else "line"
            remarks.append(Remarks(kind, quiet=quiet))
            is_typed = not job.words and name in (None, STANDARD) and sys.stdin.isatty()
            own = task.with_detected_language(name) if name is not None and Path(name).is_file() else task
            run = translating(own, translator, remarks[-1], is_one_text=not job.words and not is_typed)
            chunks = iter([_readable(job.words)]) if job.words else chunks_of(name, keep_cr=True)
            run = forgiving(run) if is_typed else run
            write_translations(chunks, run, file, tell, as_json=task.as_json, one_line=not job.words)
    for one in remarks:
        one.end(say)


def check_request(job: Job, search: dict[str, Any], *, as_json: bool, align: bool) -> None:
    """Refuse what cannot be meant, before the model is loaded."""
    if job.words and job.inputs:
        raise ConfigError("give texts as arguments or a file with -i, not both.")
    if not as_json and str(search.get("num_best", 1)) != "1":
        raise ConfigError("--num-best gives several translations of a line, and a line out is one; add --json.")
    if not as_json and align:
        raise ConfigError("--align has no place in a line of translation; add --json.")
    refuse_same_file(job.output, *job.inputs)


def write_translations(
    chunks: Iterator[list[str]],
    run: Callable[[Sequence[str]], list[Translation]],
    file: BinaryIO,
    tell: Callable[[int], None],
    *,
    as_json: bool,
    one_line: bool,
) -> None:
    """Translate portion by portion and write each at once, so that a pipe never waits for what is done."""
    number = 0
    for chunk in chunks:
        start = 0
        while given := chunk[start : start + LINES_AT_ONCE[number]]:
            number, start = number + 1, start + len(given)
            texts = [text.removesuffix("\r") for text in given] if one_line else given
            for original, text, translation in zip(given, texts, run(texts), strict=True):
                line = translation.to_json(text) if as_json else translation.text
                if one_line:
                    line = line.replace("\r", " ").replace("\n", " ")
                end = b"\r\n" if one_line and not as_json and original.endswith("\r") else b"\n"
                file.write(line.encode("utf-8", errors="replace") + end)
            file.flush()
            tell(len(texts))


def tell_first(task: TranslationJob, device: str, words: Sequence[str] | None, inputs: Sequence[str] | None) -> None:
    """What the user should know before the work begins."""
    for name in (word for word in words or () if is_file(word)):
        say(f"note: {name} is translated as text; -i {name} translates the lines of the file.")
    if reason := task.native_unavailable_reason(device):
        say(f"note: torch translates, which takes many times as long: {reason}.")
    if not words and not inputs and sys.stdin.isatty():
        say("Type lines to translate; Ctrl-D ends.")


def is_file(word: str) -> bool:
    """Whether a text of the command line is the name of a file: most likely its lines were meant."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # too long for a name, or with what no name may hold
        return False


def _readable(words: Sequence[str]) -> list[str]:
    """The texts of the command line, whatever the locale took their bytes for."""
    texts = []
    for number, text in enumerate(words, start=1):
        try:
            texts.append(os.fsencode(text).decode())
        except UnicodeError:
            raise ConfigError(f"text {number} on the command line is not UTF-8.") from None
    return texts


@contextmanager
def progress(*, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A count of lines on stderr, only on a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} lines"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda lines: bar.advance(task, lines)
