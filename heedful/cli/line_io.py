"""Reading and writing lines of text: UTF-8 in any locale, and only LF ends a line."""

from __future__ import annotations

import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from heedful.atomic_files import rename_durably
from heedful.errors import ConfigError, CorpusError
from heedful.text.text_files import MAX_TRANSLATED_LINE_BYTES, compressing, open_file, read_lines

BLOCK_SIZE = 1 << 17  # bytes per read; a slow pipe returns fewer, so its lines are not delayed
STANDARD_INPUT = "standard input"


def read_line_chunks(path: str | None, *, keep_cr: bool = False) -> Iterator[list[str]]:
    """The lines of a file (None or "-": standard input), in chunks as they arrive.

    `keep_cr`: keep a CR before the LF.
    """
    if path in (None, "-"):
        yield from _decode(sys.stdin.buffer, STANDARD_INPUT, keep_cr=keep_cr)
        return
    assert path is not None
    try:
        with open_file(path) as file:
            yield from _decode(file, path, keep_cr=keep_cr)
    except FileNotFoundError:
        raise CorpusError(f"{path}: there is no such file.") from None


def _decode(file: BinaryIO, name: str, *, keep_cr: bool = False) -> Iterator[list[str]]:
    number = 0
    for lines in _read_blocks(file, name):
        texts: list[str] = []
        for line in lines:
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                texts.append((line if keep_cr else line.removesuffix(b"\r")).decode())
            except UnicodeDecodeError:
                yield texts
                raise CorpusError(f"{name}:{number}: this line is not UTF-8; convert the text (see `iconv`).") from None
        yield texts


def _read_blocks(file: BinaryIO, name: str) -> Iterator[list[bytes]]:
    """Complete lines without their LF, as many as have arrived; the last line may lack its LF."""
    rest: list[bytes] = []
    size = number = 0
    while block := _read(file, name):
        first, *others = block.split(b"\n")
        rest.append(first)
        size = len(others[-1]) if others else size + len(first)
        number += len(others)
        if size > MAX_TRANSLATED_LINE_BYTES:
            raise CorpusError(
                f"{name}:{number + 1}: this line has more than {MAX_TRANSLATED_LINE_BYTES:,} bytes; "
                f"break it into lines."
            )
        if others:
            yield [b"".join(rest), *others[:-1]]
            rest = [others[-1]]
    if last := b"".join(rest):
        yield [last]


def _read(file: BinaryIO, name: str) -> bytes:
    try:
        return cast(Any, file).read1(BLOCK_SIZE)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CorpusError(f"{name}: cannot be read: {error}. The file is damaged, truncated or not readable.") from None


def read_text(path: str) -> list[str]:
    """All lines of a text file ("-": of standard input), compressed or not."""
    if path == "-":
        return [text for chunk in read_line_chunks(None) for text in chunk]
    texts = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            raise CorpusError(f"{path}:{number}: this line is not UTF-8; convert the file (see `iconv`).") from None
    return texts


def refuse_same_file(output: Path | None, *inputs: str | Path | None) -> None:
    """Raise `ConfigError` if the output is one of the inputs."""
    for path in inputs:
        if output is None or path is None or not (output.is_file() and Path(path).is_file()):
            continue
        if os.path.samefile(output, path):
            raise ConfigError(f"-o {output} is also an input; choose another output file.")


def require_writable(path: Path) -> None:
    """Raise `ConfigError` if the path is a directory or its parent does not exist."""
    if path.is_dir():
        raise ConfigError(f"-o {path}: is a directory; name a file.")
    if not path.parent.is_dir():
        raise ConfigError(f"-o {path}: there is no directory {path.parent}; create it first.")


@contextmanager
def open_output(path: Path | None) -> Iterator[BinaryIO]:
    """A binary file to write lines to: standard output, or a file that gets its final name when it is complete.

    Until then, and after an error, the lines are in `<name>.partial`.
    """
    if path is None:
        with file_in_errors("standard output"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    require_writable(path)
    if path.exists() and not path.is_file():  # a pipe or a device cannot be renamed
        with file_in_errors(path), path.open("wb") as file:
            yield file
        return
    from heedful.decoding.files.chunked_files import locked, manifest_path, partial_path

    partial, manifest = partial_path(path), manifest_path(path)
    if manifest.exists():
        raise ConfigError(
            f"{partial} is an unfinished translation; rerun the original command to resume, delete it and "
            f"{manifest.name}, or choose another output."
        )
    with locked(partial):
        try:
            with file_in_errors(path), partial.open("wb") as file, compressing(file, path) as lines:
                yield lines
            rename_durably(partial, path)
        except BaseException as error:
            if partial.exists() and partial.stat().st_size:
                error.add_note(f"The lines translated so far are in {partial}.")
            elif partial.exists():
                partial.unlink()
            raise


@contextmanager
def file_in_errors(path: str | Path) -> Iterator[None]:
    """Add the file name to system errors that lack it, such as a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            error.filename = str(path)
        raise
