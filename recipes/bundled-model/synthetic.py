"""Shared by the scripts that generate sentence pairs: random choices, output files, and the command line."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


def pick(rng: Random, items: Sequence[Item]) -> Item:
    """A random item."""
    return items[int(rng.random() * len(items))]


def between(rng: Random, low: int, high: int) -> int:
    """A random integer from low to high, both included."""
    return low + int(rng.random() * (high - low + 1))


def write(folder: Path, name: str, languages: tuple[str, str], pairs: Iterable[Sequence[str]]) -> None:
    """Write pairs into one file per language."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, lines in zip(languages, zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")


def run(main: Callable[[Path], None], usage: str | None) -> None:
    """Call `main` with the folder from the command line; errors are one line."""
    program, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(usage or "")
        return
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write(f"{program}: give one output folder, such as text.\n")
        sys.exit(2)
    try:
        main(Path(arguments[0]))
    except OSError as error:
        name = error.filename or arguments[0]
        sys.stderr.write(f"{program}: {name}: {error.strerror}. Name a folder that can be written to.\n")
        sys.exit(2)
