"""Every error a user can cause, drawn once. The program prints the message alone and exits with code 2.

HeedfulError
├── ConfigError           a key, a value or a combination of flags that cannot be
├── MissingPackageError   a package of an extra that is not installed
├── CorpusError           a text file that is missing, damaged, misaligned or empty
├── DocumentError         a document that cannot be read in its format, or needs a package that is missing
├── ModelDirectoryError   a model directory that is incomplete, altered or from another format
├── TrainingError         training that cannot start or cannot go on (memory, numbers, a state of another run)
├── DecodingError         a request to the search or the translator that cannot be met
│   └── TextError         one text of several that cannot be translated as asked
└── ElsewhereError        of several ranks another one failed and tells why; this one ends without a word
"""

import errno

OPEN_FILES = "raise the limit on open files (`ulimit -n`)"


class HeedfulError(Exception):
    """Base of all errors that a user can put right; its text says what is wrong, where, and what to do."""


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


class ModelDirectoryError(HeedfulError):
    """A model directory that is missing, incomplete, damaged or of an unknown format."""


class TrainingError(HeedfulError):
    """Training that cannot start or cannot continue."""


class DecodingError(HeedfulError):
    """A translation request that the model or the search cannot meet."""


class TextError(DecodingError):
    """One text of several that cannot be translated as asked: which one, and what is wrong with it."""

    def __init__(self, number: int, problem: str, place: str | None = None) -> None:
        super().__init__(number, problem, place)
        self.number, self.problem = number, problem
        """Its number among the texts that were given together, from 1; and what is wrong with it."""
        self.place = place or f"text {number}"

    def __str__(self) -> str:
        return f"{self.place} {self.problem}"

    def at(self, place: str) -> "TextError":
        """The same error, told of the place where the text stands."""
        return TextError(self.number, self.problem, place)


class ElsewhereError(HeedfulError):
    """Another rank met an error that a user can put right, and tells it."""


def remedy_for(error: OSError, otherwise: str) -> str:
    """What to do about an error of the system: about a limit on open files, or `otherwise`."""
    return OPEN_FILES if error.errno in (errno.EMFILE, errno.ENFILE) else otherwise
