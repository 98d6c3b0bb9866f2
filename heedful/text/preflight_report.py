"""What the preflight found, as plain data for the model card and as one table for people."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from heedful.config import CorpusConfig
from heedful.text.corpus import Direction, corpus_files, corpus_name

if TYPE_CHECKING:
    from rich.table import Table

REASONS = (
    "wrong encoding",
    "empty",
    "too long",
    "length ratio",
    "source = target",
    "also in valid or test",
    "duplicate",
)
"""Why a pair is dropped; a pair with several faults counts for the first of this list that it has."""


@dataclass(frozen=True)
class FileReport:
    """One file as it lies on the disk."""

    path: str
    num_bytes: int
    sha256: str


@dataclass
class CorpusReport:
    """What became of the lines of one corpus: read = kept + held out + all that was dropped."""

    role: Literal["train", "valid", "test"]
    name: str
    files: tuple[FileReport, ...]
    source_language: str | None
    target_language: str | None
    weight: float
    both_directions: bool
    num_read: int = 0
    num_kept: int = 0
    num_held_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    first_bad_line: str | None = None


@dataclass
class PreflightReport:
    """What the preflight found in all corpora."""

    corpora: list[CorpusReport] = field(default_factory=list)
    num_pairs: int = 0
    """Training pairs, those the other way round included."""
    num_valid_pairs: int = 0
    num_test_pairs: int = 0
    valid_is_held_out: bool = False
    overlap: dict[str, int] = field(default_factory=dict)
    """Training pairs that also stand in "valid" or "test", whether dropped or not."""
    shared_sources: dict[str, int] = field(default_factory=dict)
    """Training pairs that share only their source with a pair of "valid" or "test"; they are kept."""
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return dataclasses.asdict(self)


def describe_corpus(
    role: Literal["train", "valid", "test"], corpus: CorpusConfig, languages: Direction
) -> CorpusReport:
    """The report of a corpus before its first line is read: names, sizes, checksums."""
    return CorpusReport(
        role=role,
        name=corpus_name(corpus),
        files=tuple(_describe_file(path) for path in corpus_files(corpus)),
        source_language=languages.source,
        target_language=languages.target,
        weight=corpus.weight,
        both_directions=corpus.both_directions,
    )


def _describe_file(path: str) -> FileReport:
    with open(path, "rb") as file:
        return FileReport(path, Path(path).stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def table(report: PreflightReport) -> Table:
    """The report as one table for `rich`: a row a corpus, a column a reason, and below it all that needs a word."""
    from rich.markup import escape
    from rich.table import Table

    heading, *rows = _cells(report)
    result = Table(title="Corpora", caption=escape("\n".join(_notes(report))), caption_justify="left")
    for index, name in enumerate(heading):
        result.add_column(name, justify="left" if index < 2 else "right", overflow="fold")
    for row in rows:
        result.add_row(*map(escape, row))
    return result


def plain_table(report: PreflightReport) -> str:
    """The same table as plain text."""
    cells = _cells(report)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = []
    for row in cells:
        padded = (c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(padded).rstrip())
    return "\n".join([*lines, *_notes(report)])


def _cells(report: PreflightReport) -> list[list[str]]:
    """Heading and rows; columns of reasons that dropped nothing are left out."""
    reasons = [reason for reason in REASONS if any(corpus.dropped.get(reason) for corpus in report.corpora)]
    held_out = ["held out"] if report.valid_is_held_out else []
    cells = [["", "corpus", "read", "kept", *held_out, *reasons]]
    for corpus in report.corpora:
        counts = [corpus.num_read, corpus.num_kept, *([corpus.num_held_out] if held_out else [])]
        counts += [corpus.dropped.get(reason, 0) for reason in reasons]
        cells.append([corpus.role, corpus.name, *(f"{count:,}" for count in counts)])
    return cells


def _notes(report: PreflightReport) -> list[str]:
    notes = [
        f"{report.num_pairs:,} training pairs, {report.num_valid_pairs:,} valid"
        f"{' (held out of train)' if report.valid_is_held_out else ''}, {report.num_test_pairs:,} test."
    ]
    for role in ("valid", "test"):
        pairs, sources = report.overlap.get(role, 0), report.shared_sources.get(role, 0)
        if pairs or sources:
            notes.append(f"Overlap with {role}: {pairs:,} training pairs; {sources:,} more share only the source.")
    notes += [f"First wrong line: {corpus.first_bad_line}" for corpus in report.corpora if corpus.first_bad_line]
    return notes + [f"Warning: {warning}" for warning in report.warnings]
