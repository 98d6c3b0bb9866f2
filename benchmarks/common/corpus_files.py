"""Files of corpora and test sets: locating them, plain or compressed, and checksums of their text."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from heedful.text.text_files import open_file, read_lines


class TestSet(NamedTuple):
    """Sentences and their translations, in one direction."""

    name: str
    path: str
    """Path relative to the corpus folder, without the language suffix."""
    source: str
    target: str

    @property
    def key(self) -> str:
        return f"{self.name} {self.source}-{self.target}"

    @property
    def files(self) -> tuple[str, str]:
        return f"{self.path}.{self.source}", f"{self.path}.{self.target}"


def candidate_paths(folder: Path, name: str) -> list[Path]:
    """Possible paths of a file, plain or compressed."""
    return [folder / f"{name}{suffix}" for suffix in ("", ".xz", ".gz")]


def found(folder: Path, name: str) -> Path:
    """A file of the folder, or its compressed form."""
    paths = candidate_paths(folder, name)
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        sys.exit(f"{paths[0]}: no such file, plain or with .xz or .gz after its name")
    return path


def lines_of(folder: Path, name: str) -> list[str]:
    """The lines of a file, plain or compressed."""
    return [line.decode("utf-8") for line in read_lines(found(folder, name))]


def text_sha256(path: Path) -> str:
    """The SHA-256 of a file's text, whether it is compressed or not."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
