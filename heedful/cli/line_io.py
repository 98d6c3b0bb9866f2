"""Lines in, lines out: exactly one for one, as bytes, whatever the locale says. A line ends at LF and nowhere else."""

from __future__ import annotations

import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from heedful.errors import ConfigError, CorpusError
from heedful.text.text_files import MAX_TRANSLATED_LINE_BYTES, compressing, open_file, read_lines

BLOCK = 1 << 17  # bytes that are asked for at once; a slow pipe gives fewer, and its lines are translated at once
STANDARD_INPUT = "standard input"


def chunks_of(path: str | None, *, keep_cr: bool = False) -> Iterator[list[str]]:
    """The lines of a file (None or "-": of standard input) in the portions in which they arrive.

    `keep_cr`: leave the CR that stands before a line's LF at its end.
    """
    if path in (None, "-"):
        yield from _decoded(sys.stdin.buffer, STANDARD_INPUT, keep_cr=keep_cr)
        return
    assert path is not None
    try:
        with open_file(path) as file:
            yield from _decoded(file, path, keep_cr=keep_cr)
    except FileNotFoundError:
        raise CorpusError(f"{path}: there is no such file.") from None


def _decoded(file: BinaryIO, name: str, *, keep_cr: bool = False) -> Iterator[list[str]]:
    number = 0
    for lines in _portions(file, name):
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


def _portions(file: BinaryIO, name: str) -> Iterator[list[bytes]]:
    """Whole lines without their LF, as many as have arrived; the last line may lack its LF."""
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
        return cast(Any, file).read1(BLOCK)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CorpusError(f"{name}: cannot be read: {error}. The file is damaged, cut off or not readable.") from None


def read_text(path: str) -> list[str]:
    """All lines of a text file ("-": of standard input), compressed or not."""
    if path == "-":
        return [text for chunk in chunks_of(None) for text in chunk]
    texts = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            raise CorpusError(f"{path}:{number}: this line is not UTF-8; convert the file (see `iconv`).") from None
    return texts


def refuse_same_file(output: Path | None, *inputs: str | Path | None) -> None:
    """An output may not be one of the inputs."""
    for path in inputs:
        if output is None or path is None or not (output.is_file() and Path(path).is_file()):
            continue
        if os.path.samefile(output, path):
            raise ConfigError(f"-o {output} is also an input; choose another file to write.")


def refuse_no_place(path: Path) -> None:
    """A file to write needs a name of its own and a directory."""
    if path.is_dir():
        raise ConfigError(f"-o {path}: this is a directory; name a file to write.")
    if not path.parent.is_dir():
        raise ConfigError(f"-o {path}: there is no directory {path.parent}; make it first.")


@contextmanager
def destination(path: Path | None) -> Iterator[BinaryIO]:
    """Where lines are written: standard output, or a file that gets its name when it is complete.

    Until then, and if anything goes wrong, all that was written stands in `<name>.partial`.
    """
    if path is None:
        with naming("standard output"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    refuse_no_place(path)
    if path.exists() and not path.is_file():  # a pipe or a device cannot be renamed
        with naming(path), path.open("wb") as file:
            yield file
        return
    from heedful.decoding.files.resumable_output import locked, manifest_path, partial_path

    partial, record = partial_path(path), manifest_path(path)
    if record.exists():
        raise ConfigError(
            f"{partial} is a whole file's translation that can be gone on with; finish it by its own command, "
            f"take it and {record.name} away, or choose another output."
        )
    with locked(partial):
        try:
            with naming(path), partial.open("wb") as file, compressing(file, path) as lines:
                yield lines
            partial.replace(path)
        except BaseException as error:
            if partial.exists() and partial.stat().st_size:
                error.add_note(f"What was done so far is in {partial}.")
            elif partial.exists():
                partial.unlink()
            raise


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Tell an error of the system, such as a full disk, which file it is about."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            error.filename = str(path)
        raise
