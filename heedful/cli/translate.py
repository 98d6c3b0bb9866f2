"""`heedful translate`: translate arguments, files or a pipe. Only translations go to stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from heedful.cli import options
from heedful.cli.language_prompt import (
    LanguagePrompt,
    WarningReporter,
    make_translate_function,
    print_stderr,
    skip_untranslatable,
)
from heedful.cli.line_io import open_output, read_line_chunks, refuse_same_file
from heedful.cli.overrides import search_settings
from heedful.cli.translate_file import (
    DocumentOptions,
    FileOptions,
    is_file_to_file,
    translate_document_file,
    translate_whole_file,
)
from heedful.decoding.files.chunked_files import ChunkSizes
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.decoding.files.job import TranslationJob
    from heedful.decoding.translation import Translation

CHUNK_SIZES = ChunkSizes(1024, first=8)
"""Lines translated together; the first chunk is small so that output starts early."""
STDIO = "-"
"""Stands for standard input or output instead of a file name."""


@options.shared_options(after=("num_best", *options.SEARCH_OPTIONS, *options.SAMPLING_OPTIONS))
def translate(
    words: options.Texts = None,
    model: options.ModelDirectory = None,
    input_files: options.InputFiles = None,
    outputs: options.OutputFiles = None,
    as_json: options.AsJson = False,
    target_language: options.To = None,
    source_language: options.From = None,
    seed: options.SamplingSeed = None,
    prefix: options.Prefix = None,
    glossary: options.Glossary = None,
    align: options.Align = False,
    file_format: options.FileFormat = None,
    retranslate: options.Retranslate = False,
    mark_fuzzy: options.MarkFuzzy = True,
    device: options.Device = None,
    engine: options.Engine = None,
    quantization: options.Quantization = None,
    num_workers: options.NumWorkers = None,
    chunk_lines: options.ChunkLines = None,
    shard: options.Shard = None,
    overwrite: options.Restart = False,
    quiet: options.Quiet = False,
    settings: options.Settings = None,
    **search_flags: Any,
) -> None:
    """Translate text: one output line per input line.

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
    heedful translate --to de --glossary terms.tsv -i page.html -o page.de.html
    heedful translate -m model --engine ctranslate2 --quantization int8 "A sentence."

    A multilingual model detects the language of each line unless --from gives it; --to selects the target language.
    An interrupted translation of a file into a file resumes with the same command.
    Every configuration key of the section decoding is also a flag: --decoding.max_extra_length=20.
    """
    search = search_settings(settings, seed=seed, **search_flags)
    file_options = FileOptions(device or "auto", num_workers, chunk_lines, shard, overwrite, quiet)
    document_options = DocumentOptions(file_format, retranslate, mark_fuzzy, quiet)
    groups = [InputGroup(words, *files) for files in pair_files(input_files, outputs)]
    for group in groups:
        check_request(group, search, as_json=as_json, align=align)
        file_options.refuse_streams(group.only_input, group.output)
        document_options.check(group.words, group.inputs, file_options)
    from heedful.decoding.files.job import TranslationJob
    from heedful.model_dir.registry import default_models, find_model

    *preferred, directory = default_models() if model is None else [find_model(model)]
    job = TranslationJob(
        model=str(directory),
        preferred=tuple(map(str, preferred)),
        engine=engine or "auto",
        quantization=quantization,
        target_language=target_language,
        source_language=source_language,
        prefix=prefix,
        glossary=read_glossary(glossary),
        align=align,
        as_json=as_json,
        search=search,
    )
    if not quiet:
        print_notes(job, file_options.device, words, input_files)
    for group in groups:
        translate_group(job, group, file_options, document_options)


class InputGroup(NamedTuple):
    """Texts or files that are translated into one output."""

    words: Sequence[str] | None
    inputs: Sequence[str]
    """Files that are translated one after another; if empty, `words` or standard input."""
    output: Path | None
    """None: standard output."""

    @property
    def only_input(self) -> str | None:
        """The input file, if there is exactly one."""
        return self.inputs[0] if len(self.inputs) == 1 and not self.words else None


def pair_files(inputs: Sequence[str] | None, outputs: Sequence[Path] | None) -> list[tuple[list[str], Path | None]]:
    """Input files with their output: all into one, or each into a separate file."""
    input_files, output_files = list(inputs or ()), list(outputs or ())
    paths = [None if str(path) == STDIO else path for path in output_files]
    if input_files.count(STDIO) > 1:
        raise ConfigError("-i - (standard input) can be given once only.")
    if len(output_files) <= 1:
        return [(input_files, paths[0] if paths else None)]
    if len(output_files) != len(input_files):
        raise ConfigError(
            f"-i is given {len(input_files)} times and -o {len(output_files)} times; give -o once, or once for each -i."
        )
    if len(set(output_files)) < len(output_files):
        raise ConfigError("the same output (-o) is given twice; give a different file for each -i.")
    return [([name], path) for name, path in zip(input_files, paths, strict=True)]


def translate_group(
    job: TranslationJob, group: InputGroup, file_options: FileOptions, document_options: DocumentOptions
) -> None:
    """Translate texts, lines, a whole file or a document."""
    if (kind := document_options.format_for(group.words, group.inputs)) != "text":
        translate_document_file(
            job, file_options.device, group.only_input, group.output, file_format=kind, options=document_options
        )
    elif group.only_input and group.output and is_file_to_file(group.only_input, group.output):
        translate_whole_file(job, group.only_input, group.output, file_options)
    else:
        translate_stream(job, file_options.device, group, quiet=file_options.quiet)


def translate_stream(job: TranslationJob, device: str, group: InputGroup, *, quiet: bool = False) -> None:
    """Translate arguments, or lines as they arrive, to stdout or into a file."""
    translator = job.load_translator(device)
    reporters: list[WarningReporter] = []
    has_progress = not quiet and (group.output is not None or not sys.stdout.isatty())
    if LanguagePrompt(job, translator.directions).is_enabled:  # a spinner would hide the question
        has_progress = False
    with open_output(group.output) as file, line_counter(is_enabled=has_progress) as advance:
        for name in (*group.inputs,) or (None,):
            unit = f"{name}: line" if len(group.inputs) > 1 else "text" if group.words else "line"
            reporters.append(WarningReporter(unit, quiet=quiet))
            is_typed = not group.words and name in (None, STDIO) and sys.stdin.isatty()
            file_task = job.with_detected_language(name) if name is not None and Path(name).is_file() else job
            is_one_text = not group.words and not is_typed
            translate_texts = make_translate_function(file_task, translator, reporters[-1], is_one_text=is_one_text)
            if is_typed:
                translate_texts = skip_untranslatable(translate_texts)
            chunks = iter([_decode_arguments(group.words)]) if group.words else read_line_chunks(name, keep_cr=True)
            write_translations(chunks, translate_texts, file, advance, as_json=job.as_json, one_line=not group.words)
    for reporter in reporters:
        reporter.summarize(print_stderr)


def read_glossary(path: Path | None) -> tuple[tuple[str, str], ...]:
    """The entries of a glossary file."""
    from heedful.text.glossary import Glossary

    return Glossary.read(path).entries if path is not None else ()


def check_request(group: InputGroup, search: dict[str, Any], *, as_json: bool, align: bool) -> None:
    """Raise `ConfigError` for contradictory flags, before the model is loaded."""
    if group.words and group.inputs:
        raise ConfigError("give texts as arguments or a file with -i, not both.")
    if not as_json and str(search.get("num_best", 1)) != "1":
        raise ConfigError("--num-best gives several translations per line; add --json.")
    if not as_json and align:
        raise ConfigError("--align needs --json.")
    refuse_same_file(group.output, *group.inputs)


def write_translations(
    chunks: Iterator[list[str]],
    translate_texts: Callable[[Sequence[str]], list[Translation]],
    file: BinaryIO,
    advance: Callable[[int], None],
    *,
    as_json: bool,
    one_line: bool,
) -> None:
    """Translate chunk by chunk and flush each, so that a pipe gets translations as soon as they exist."""
    number = 0
    for chunk in chunks:
        start = 0
        while originals := chunk[start : start + CHUNK_SIZES[number]]:
            number, start = number + 1, start + len(originals)
            texts = [text.removesuffix("\r") for text in originals] if one_line else originals
            for original, text, translation in zip(originals, texts, translate_texts(texts), strict=True):
                line = translation.to_json(text) if as_json else translation.text
                if one_line:
                    line = line.replace("\r", " ").replace("\n", " ")
                end = b"\r\n" if one_line and not as_json and original.endswith("\r") else b"\n"
                file.write(line.encode("utf-8", errors="replace") + end)
            file.flush()
            advance(len(texts))


def print_notes(job: TranslationJob, device: str, words: Sequence[str] | None, inputs: Sequence[str] | None) -> None:
    """Print what the user should know before translation starts."""
    for name in (word for word in words or () if is_file(word)):
        print_stderr(f"note: {name} is translated as text; use -i {name} to translate the file.")
    if reason := job.native_unavailable_reason(device):
        print_stderr(f"note: the torch engine is used, which is many times slower: {reason}.")
    if not words and not inputs and sys.stdin.isatty():
        print_stderr("Type lines to translate; Ctrl-D ends.")


def is_file(word: str) -> bool:
    """Whether an argument is the name of an existing file."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # not a valid file name
        return False


def _decode_arguments(words: Sequence[str]) -> list[str]:
    """Arguments decoded as UTF-8 in any locale."""
    texts = []
    for number, text in enumerate(words, start=1):
        try:
            texts.append(os.fsencode(text).decode())
        except UnicodeError:
            raise ConfigError(f"text {number} on the command line is not UTF-8.") from None
    return texts


@contextmanager
def line_counter(*, is_enabled: bool) -> Iterator[Callable[[int], None]]:
    """A running count of lines on stderr, on a terminal only."""
    if not is_enabled or not sys.stderr.isatty():
        yield lambda lines: None
        return
    from heedful.console import Console

    with Console().progress("spinner", "{task.completed:,.0f} lines", "elapsed") as bar:
        task = bar.add_task("", total=None)
        yield lambda lines: bar.advance(task, lines)
