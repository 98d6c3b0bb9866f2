"""`heedful translate -i page.html`: a document in one format, translated as a whole, its markup kept."""

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

from heedful.cli.language_prompt import Asking, ask, say
from heedful.cli.line_io import STANDARD_INPUT, destination
from heedful.errors import ConfigError, CorpusError, DecodingError, DocumentError
from heedful.text.documents import format_of, translate_document
from heedful.text.text_files import open_file

if TYPE_CHECKING:
    from heedful.cli.translate_file import WholeFile
    from heedful.decoding.files.job import TranslationJob
    from heedful.text.documents.document import MarkedText
    from heedful.text.documents.gettext_format import Catalogue
    from heedful.text.language_routing import Choice, Directions

SECONDS_BETWEEN_LINES = 10.0
MOST_BYTES = 100_000_000
"""Of a document, which is read as a whole; a compressed one could fill the memory."""


@dataclass(frozen=True)
class DocumentFlags:
    """What the flags say about documents."""

    format: str | None
    retranslate: bool
    mark_fuzzy: bool
    quiet: bool

    def format_for(self, words: Sequence[str] | None, inputs: Sequence[str]) -> str:
        """The format of an input; "text" is translated line by line as ever."""
        formats = {format_of(name, self.format or "auto") for name in inputs or (None,)}
        return "text" if words else min(formats - {"text"}, default="text")

    def check(self, words: Sequence[str] | None, inputs: Sequence[str], whole: WholeFile) -> None:
        """Refuse what does not go together."""
        if words and self.format not in (None, "auto", "text"):
            raise ConfigError("--format is for files and pipes; give the document with -i.")
        found = self.format_for(words, inputs)
        if found != "text":
            whole.refuse_document(found)
        if found != "text" and len(inputs) > 1:
            raise ConfigError(f"documents ({found}) cannot be joined; give -o once for each -i, or add --format text.")
        if found != "po" and (self.retranslate or not self.mark_fuzzy):
            flag = "--retranslate" if self.retranslate else "--no-fuzzy"
            raise ConfigError(f"{flag} is for gettext catalogues; add --format po if this is one.")

    @property
    def catalogue(self) -> Catalogue:
        """How a catalogue is filled."""
        from heedful.text.documents.gettext_format import Catalogue

        return Catalogue(retranslate=self.retranslate, mark_fuzzy=self.mark_fuzzy)


def translate_file(
    task: TranslationJob, device: str, input_file: str | None, output: Path | None, format: str, flags: DocumentFlags
) -> None:
    """Translate one document into a file, which gets its name when it is complete, or onto stdout."""
    for flag, value in (("--json", task.as_json), ("--align", task.align), ("--prefix", task.prefix)):
        if value:
            raise ConfigError(f"{flag} is for lines of text, and this is a document ({format}); add --format text.")
    name = STANDARD_INPUT if input_file in (None, "-") else str(input_file)
    document = read_bytes(input_file)
    left: list[str] = []
    with destination(output) as file, progress(wanted=not flags.quiet) as tell:

        def translate(texts: Sequence[MarkedText]) -> tuple[Sequence[MarkedText], str | None]:
            from heedful.decoding.document_translation import translate_texts

            if not texts and not flags.quiet:
                say(f"note: {name} has nothing to translate.")
            if not texts:
                return texts, task.target_language if isinstance(task.target_language, str) else None
            translator = task.load_translator(device)
            choice = languages_of(task, translator.directions, [text.text for text in texts])
            if choice.remark and not flags.quiet:
                say(f"warning: {name} {choice.remark}; it is translated all the same.")
            found = translate_texts(translator.translate, texts, choice, progress=tell, left=left, **task.search)
            return found, choice.target

        try:
            file.write(cast(bytes, translate_document(document, format, translate, catalogue=flags.catalogue)))
        except DocumentError as error:
            raise error.at(name) from None
        except DecodingError as error:
            raise DecodingError(f"{name} {error}") from None
    if left:
        from heedful.decoding.document_translation import too_long

        say(f"warning: {name}: {too_long(left)}.")


def read_bytes(input_file: str | None) -> bytes:
    """All of a file, compressed or not, or of standard input."""
    if input_file in (None, "-"):
        return bounded(sys.stdin.buffer, STANDARD_INPUT)
    assert input_file is not None
    try:
        with open_file(input_file) as file:
            return bounded(file, input_file)
    except FileNotFoundError:
        raise CorpusError(f"{input_file}: there is no such file.") from None


def bounded(file: BinaryIO, name: str) -> bytes:
    """All that a file has, unless that is too much for a document."""
    try:
        content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CorpusError(f"{name}: cannot be read: {error}. The file is damaged, cut off or not readable.") from None
    if len(content) > MOST_BYTES:
        raise CorpusError(f"{name}: a document may have {MOST_BYTES:,} bytes; divide it.")
    return content


def languages_of(task: TranslationJob, directions: Directions, texts: Sequence[str]) -> Choice:
    """The languages of a document; the user is asked for the target where flags and model leave it open."""
    from heedful.decoding.document_translation import document_languages, document_source

    source = directions.source_code(task.source_language) or document_source(directions, texts)
    target = task.target_language
    if source is not None and Asking(task, directions).is_possible and directions.is_ambiguous(source):
        target = ask(source, directions.targets_for(source))
    return document_languages(directions, texts, source_language=source, target_language=target)


@contextmanager
def progress(*, wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """How many texts of a document are done: a bar on a terminal, elsewhere a line every ten seconds."""
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if wanted and done < total and time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            say(f"{done / total:.0%}  {done:,} of {total:,} texts")

    if not wanted or not sys.stderr.isatty():
        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.completed:,.0f} of {task.total:,.0f} texts"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("", total=None, visible=False)
        yield lambda done, total: bar.update(shown, completed=done, total=total, visible=True)
