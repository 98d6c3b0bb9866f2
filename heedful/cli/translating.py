"""`heedful translate`: words, files or a pipe through a model; stdout is the translation and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from heedful.cli import options
from heedful.cli.bulk import WholeFile, is_bulk, translate_bulk
from heedful.cli.flags import model_directory, search_settings
from heedful.cli.languages import Remarks, forgiving, say, translating
from heedful.cli.lines import chunks_of, destination, refuse_same_file
from heedful.decoding.bulk.portions import Sizes
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.decoding.bulk.task import Task
    from heedful.decoding.hypothesis import Translation

LINES_AT_ONCE = Sizes(1024, first=8)
"""Of a file or a pipe that is ahead of the translation: the first lines are seen at once."""
SEARCH_FLAGS = (
    "method beam_size num_best length_penalty length_penalty_alpha max_length min_length no_repeat_ngram "
    "temperature top_k top_p seed split fast shortlist"
).split()
"""Flags that are keys of the section decoding."""


def translate(
    words: options.Texts = None,
    model: options.ModelDirectory = None,
    input_file: options.InputFile = None,
    output: options.OutputFile = None,
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
    no_repeat_ngram: options.NoRepeatNgram = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.SamplingSeed = None,
    split: options.Split = None,
    fast: options.Fast = None,
    shortlist: options.Shortlist = None,
    prefix: options.Prefix = None,
    align: options.Align = False,
    device: options.Device = None,
    engine: options.Engine = None,
    quantization: options.Quantization = None,
    num_workers: options.NumWorkers = None,
    portion_lines: options.PortionLines = None,
    shard: options.ShardOf = None,
    overwrite: options.BeginAnew = False,
    settings: options.Settings = None,
) -> None:
    """Translate text: exactly one line out for each line in.

    \b
    heedful translate --to de "A sentence." "Another one."
    heedful translate -m model "A sentence."
    heedful translate -m model -i text.en -o text.de
    heedful translate -m model -i corpus.en.xz -o corpus.de --shard 3/16
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
    check_request(words, input_file, output, search, as_json=as_json, align=align)
    whole = WholeFile(device or "auto", num_workers, portion_lines, shard, overwrite)
    whole.refuse_without_files(None if words else input_file, output)
    directory = model_directory(model)
    from heedful.decoding.bulk.task import Task

    task = Task(
        model=str(directory),
        engine=engine or "auto",
        quantization=quantization,
        target_language=target_language,
        source_language=source_language,
        prefix=prefix,
        align=align,
        as_json=as_json,
        search=search,
    )
    tell_first(task, whole.device, words, input_file)
    if input_file and output and is_bulk(input_file, output):
        translate_bulk(task, input_file, output, whole)
        return
    translate_stream(task, whole.device, words, input_file, output)


def translate_stream(
    task: Task, device: str, words: Sequence[str] | None, input_file: str | None, output: Path | None
) -> None:
    """Translate words, or lines as they arrive, onto stdout or into a file."""
    remarks = Remarks("text" if words else "line")
    run, may_ask = translating(task, device, remarks)
    if not words and input_file in (None, "-") and sys.stdin.isatty():
        run = forgiving(run)
    chunks = iter([_readable(words)]) if words else chunks_of(input_file)
    shown = not may_ask and (output is not None or not sys.stdout.isatty())  # no question amid a spinner
    with destination(output) as file, progress(wanted=shown) as tell:
        write_translations(chunks, run, file, tell, as_json=task.as_json, one_line=not words)
    remarks.end(say)


def check_request(
    words: Sequence[str] | None,
    input_file: str | None,
    output: Path | None,
    search: dict[str, Any],
    *,
    as_json: bool,
    align: bool,
) -> None:
    """Refuse what cannot be meant, before the model is loaded."""
    if words and input_file is not None:
        raise ConfigError("give texts as arguments or a file with -i, not both.")
    if not as_json and str(search.get("num_best", 1)) != "1":
        raise ConfigError("--num-best gives several translations of a line, and a line out is one; add --json.")
    if not as_json and align:
        raise ConfigError("--align has no place in a line of translation; add --json.")
    refuse_same_file(output, input_file)


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
        while texts := chunk[start : start + LINES_AT_ONCE[number]]:
            number, start = number + 1, start + len(texts)
            for text, translation in zip(texts, run(texts), strict=True):
                line = translation.to_json(text) if as_json else translation.text
                if one_line:
                    line = line.replace("\r", " ").replace("\n", " ")
                file.write(line.encode("utf-8", errors="replace") + b"\n")
            file.flush()
            tell(len(texts))


def tell_first(task: Task, device: str, words: Sequence[str] | None, input_file: str | None) -> None:
    """What the user should know before the work begins."""
    for name in (word for word in words or () if is_file(word)):
        say(f"note: {name} is translated as text; -i {name} translates the lines of the file.")
    if reason := task.lacks_native(device):
        say(f"note: torch translates, which takes many times as long: {reason}.")
    if not words and input_file is None and sys.stdin.isatty():
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
