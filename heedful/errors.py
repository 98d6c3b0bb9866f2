"""The exceptions for all errors that a user can cause. The program prints only the message and exits with code 2.

HeedfulError
├── ConfigError           an invalid key, value or combination of flags
├── MissingPackageError   a package of an extra that is not installed
├── CorpusError           a text file that is missing, damaged, misaligned or empty
├── DocumentError         a document that cannot be read in its format, or needs a package that is missing
├── GlossaryError         a glossary that cannot be read
├── ModelDirectoryError   a model directory that is incomplete, damaged or of an unknown format
├── TrainingError         training that cannot start or continue (out of memory, NaN, another run's checkpoint)
├── DecodingError         an invalid request to the search or the translator
│   └── TextError         one of several texts that cannot be translated as requested
└── OtherRankError        another rank failed and reports why; this one exits silently
"""

from __future__ import annotations

import errno
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint " (did you mean 'x'?)" when a known word is close, else an empty text."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


OPEN_FILES = "raise the limit on open files (`ulimit -n`)"


class HeedfulError(Exception):
    """Base of all errors that a user can fix; the message says what is wrong, where, and what to do."""


class ConfigError(HeedfulError):
    """A configuration key, value or combination that cannot be used."""


class MissingPackageError(HeedfulError, ImportError):
    """A package of an extra that is not installed; the message has the command that installs it."""


class CorpusError(HeedfulError):
    """A text file that cannot be read as (one side of) an aligned corpus."""


class DocumentError(HeedfulError):
    """A document that cannot be read in its format."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.problem, self.line = problem, line

    def __str__(self) -> str:
        return self.problem if self.line is None else f"line {self.line}: {self.problem}"

    def at(self, name: str) -> "DocumentError":
        """The same error with the name of the file."""
        place = name if self.line is None else f"{name}:{self.line}"
        return DocumentError(f"{place}: {self.problem}")

    @classmethod
    def missing(cls, package: str) -> "DocumentError":
        """The error for a format whose parser is not installed."""
        return cls(f"this format needs the package {package}; install it with: pip install 'heedful[documents]'")


class GlossaryError(HeedfulError):
    """A glossary, or an entry of it, that cannot be used."""


class ModelDirectoryError(HeedfulError):
    """A model directory that is missing, incomplete, damaged or of an unknown format."""


class TrainingError(HeedfulError):
    """Training that cannot start or cannot continue."""


class DecodingError(HeedfulError):
    """A translation request that the model or the search cannot meet."""


class TextError(DecodingError):
    """One of several texts that cannot be translated as requested."""

    def __init__(self, number: int, problem: str, place: str | None = None) -> None:
        super().__init__(number, problem, place)
        self.number, self.problem = number, problem
        """The number of the text in the request, from 1, and what is wrong with it."""
        self.place = place or f"text {number}"

    def __str__(self) -> str:
        return f"{self.place} {self.problem}"

    def at(self, place: str) -> "TextError":
        """The same error with another description of where the text is, such as "line 3"."""
        return TextError(self.number, self.problem, place)


class OtherRankError(HeedfulError):
    """Another rank raised a `HeedfulError` and reports it."""


def remedy_for(error: OSError, otherwise: str) -> str:
    """What to do about a system error: raise the limit on open files, or `otherwise`."""
    return OPEN_FILES if error.errno in (errno.EMFILE, errno.ENFILE) else otherwise
