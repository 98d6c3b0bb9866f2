"""`heedful translate -i page.html`: translate a document and keep its markup."""

from __future__ import annotations

import lzma
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from heedful.cli.language_prompt import LanguagePrompt, ask_target_language, print_stderr
from heedful.cli.line_io import STANDARD_INPUT, open_output
from heedful.errors import ConfigError, CorpusError, DecodingError, DocumentError
from heedful.text.documents import format_of, translate_document
from heedful.text.text_files import open_file

if TYPE_CHECKING:
    from heedful.cli.translate_file import FileOptions
    from heedful.decoding.files.job import TranslationJob
    from heedful.text.documents.document import MarkedText
    from heedful.text.documents.gettext_format import Catalogue
    from heedful.text.language_routing import Choice, Directions

SECONDS_BETWEEN_LINES = 10.0
MAX_DOCUMENT_BYTES = 100_000_000
"""Documents are read into memory; this bounds compressed ones too."""


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
                translator.translate, texts, choice, progress=report, copied=untranslated, **job.search
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
