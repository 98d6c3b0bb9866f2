"""The preflight report: how many pairs were kept or dropped and why, and warnings about whole corpora.

Warnings cover what no single line shows: swapped sides, a wrong language, lines that are not translations of each
other. They are based on a few thousand pairs of each corpus and never stop a run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from heedful.config import CorpusConfig
from heedful.text.corpus import Direction, SentencePair, corpus_files, corpus_name
from heedful.text.language_id import FREQUENT_WORDS, SCRIPTS_BY_LANGUAGE
from heedful.text.line_filters import DROP_REASONS

if TYPE_CHECKING:
    from rich.table import Table

_MIN_PAIRS = 50  # smaller samples get no warnings


# ---- counts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileReport:
    """A file of a corpus."""

    path: str
    num_bytes: int
    sha256: str


@dataclass
class CorpusReport:
    """The lines of one corpus: read = kept + held out + dropped."""

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
    is_text: bool = False
    """Whether it is the text of a language model."""


@dataclass
class PreflightReport:
    """The result of the preflight for all corpora."""

    corpora: list[CorpusReport] = field(default_factory=list)
    num_pairs: int = 0
    """Training pairs, reversed ones included."""
    num_valid_pairs: int = 0
    num_test_pairs: int = 0
    valid_is_held_out: bool = False
    overlap: dict[str, int] = field(default_factory=dict)
    """Training pairs that are also in "valid" or "test", whether dropped or not."""
    shared_sources: dict[str, int] = field(default_factory=dict)
    """Training pairs that share only their source with a pair of "valid" or "test"; they are kept."""
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; only a text has the key `is_text`."""
        plain = dataclasses.asdict(self)
        for corpus in plain["corpora"]:
            if not corpus["is_text"]:
                del corpus["is_text"]
        return plain


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
        is_text=corpus.text is not None,
    )


def _describe_file(path: str) -> FileReport:
    with open(path, "rb") as file:
        return FileReport(path, Path(path).stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def format_dropped(dropped: dict[str, int]) -> str:
    """The dropped pairs as a phrase: "3 empty, 2 duplicate"."""
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.items()) or "nothing was read"


def table(report: PreflightReport) -> Table:
    """The report as a `rich` table: a row for each corpus, a column for each reason, and notes below."""
    from rich.markup import escape
    from rich.table import Table

    header, *rows = _cells(report)
    result = Table(title="Corpora", caption=escape("\n".join(_notes(report))), caption_justify="left")
    for index, name in enumerate(header):
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
    """Header and rows, without columns of reasons that dropped nothing."""
    reasons = [
        reason for reason in DROP_REASONS.values() if any(corpus.dropped.get(reason) for corpus in report.corpora)
    ]
    held_out = ["held out"] if report.valid_is_held_out else []
    cells = [["", "corpus", "read", "kept", *held_out, *reasons]]
    for corpus in report.corpora:
        counts = [corpus.num_read, corpus.num_kept, *([corpus.num_held_out] if held_out else [])]
        counts += [corpus.dropped.get(reason, 0) for reason in reasons]
        cells.append([corpus.role, corpus.name, *(f"{count:,}" for count in counts)])
    return cells


def _notes(report: PreflightReport) -> list[str]:
    unit = "lines" if any(corpus.is_text for corpus in report.corpora) else "pairs"
    notes = [
        f"{report.num_pairs:,} training {unit}, {report.num_valid_pairs:,} valid"
        f"{' (held out of train)' if report.valid_is_held_out else ''}, {report.num_test_pairs:,} test."
    ]
    for role in ("valid", "test"):
        pairs, sources = report.overlap.get(role, 0), report.shared_sources.get(role, 0)
        if pairs or sources:
            more = "" if unit == "lines" else f"; {sources:,} more share only the source"
            notes.append(f"Overlap with {role}: {pairs:,} training {unit}{more}.")
    notes += [f"First wrong line: {corpus.first_bad_line}" for corpus in report.corpora if corpus.first_bad_line]
    return notes + [f"Warning: {warning}" for warning in report.warnings]


# ---- warnings --------------------------------------------------------------------------------------------------------


class EvenSample:
    """At most a few thousand pairs, evenly spaced over a stream of any length."""

    def __init__(self, limit: int = 2000) -> None:
        self._limit = limit
        self._stride = 1
        self._count = 0
        self.pairs: list[SentencePair] = []

    def add(self, pair: SentencePair) -> None:
        """Offer the next pair of the stream."""
        for _ in self.positions(1):
            self.pairs.append(pair)

    def candidates(self, count: int) -> slice:
        """Which of the next `count` pairs `positions` may yield; it yields fewer if the sample becomes full."""
        return slice(-self._count % self._stride, count, self._stride)

    def positions(self, count: int) -> Iterator[int]:
        """Positions of those of the next `count` pairs to append to `pairs`, each before the next is yielded."""
        position = -self._count % self._stride
        while position < count:
            yield position
            position += self._stride
            if len(self.pairs) == 2 * self._limit:
                self.pairs = self.pairs[::2]
                self._stride *= 2
                position = -(-(self._count + position) // self._stride) * self._stride - self._count
        self._count += count


class CorpusProfile:
    """Statistics of the two sides of a corpus sample: character trigrams, words and lengths."""

    def __init__(self, name: str, languages: Direction, pairs: Sequence[SentencePair]) -> None:
        self.name = name
        self.languages = languages
        self.pairs = [SentencePair(source[:300], target[:300]) for source, target in pairs]
        self.lengths = [(len(source), len(target)) for source, target in pairs]

    @cached_property
    def trigrams(self) -> tuple[Counter[str], Counter[str]]:
        """Counts of character trigrams of source and target."""
        return _trigrams(pair.source for pair in self.pairs), _trigrams(pair.target for pair in self.pairs)

    def texts(self) -> tuple[str, str]:
        """The sampled text of source and target."""
        return " ".join(pair.source for pair in self.pairs), " ".join(pair.target for pair in self.pairs)


def corpus_warnings(profiles: Sequence[CorpusProfile]) -> list[str]:
    """Warnings about these corpora."""
    large = [profile for profile in profiles if len(profile.pairs) >= _MIN_PAIRS]
    warnings: list[str] = []
    for index, profile in enumerate(large):
        wrong_languages = _wrong_languages(profile)
        warnings += wrong_languages + _unrelated_lengths(profile)
        reference = next((other for other in large[:index] if _same_languages(other, profile)), None)
        if not wrong_languages and reference is not None and _is_swapped(reference, profile):
            warnings.append(
                f"{profile.name}: source and target look swapped: its source resembles the target of {reference.name}, "
                f"and its target that one's source. If so, swap the two files."
            )
    return warnings


def _trigrams(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        padded = f" {text.lower()} "
        counts.update(padded[i : i + 3] for i in range(len(padded) - 2))
    return counts


def cosine(first: Counter[str], second: Counter[str]) -> float:
    """Cosine similarity of two vectors of counts."""
    product = sum(count * second[key] for key, count in first.items() if key in second)
    norms = sum(c * c for c in first.values()) ** 0.5 * sum(c * c for c in second.values()) ** 0.5
    return product / norms if norms else 0.0


def _same_languages(first: CorpusProfile, second: CorpusProfile) -> bool:
    return first.languages in (second.languages, second.languages[::-1])


def _is_swapped(reference: CorpusProfile, profile: CorpusProfile) -> bool:
    """Whether the swapped sides are clearly more similar to those of the other corpus."""
    source, target = profile.trigrams
    if reference.languages != profile.languages:
        source, target = target, source
    straight = cosine(reference.trigrams[0], source) + cosine(reference.trigrams[1], target)
    crossed = cosine(reference.trigrams[0], target) + cosine(reference.trigrams[1], source)
    return crossed > straight + 0.1


def _wrong_languages(profile: CorpusProfile) -> list[str]:
    codes = [(code or "").lower().replace("_", "-").split("-")[0] for code in profile.languages]
    texts = profile.texts()
    misfits = [not _in_script(text, code) for text, code in zip(texts, codes, strict=True)]
    fit_swapped = _in_script(texts[0], codes[1]) and _in_script(texts[1], codes[0]) and all(codes)
    if (all(misfits) and fit_swapped) or (not any(misfits) and _words_are_swapped(texts, codes)):
        return [
            f"{profile.name}: source and target look swapped: the source reads like {profile.languages.target}, "
            f"the target like {profile.languages.source}. Swap the files or the language codes."
        ]
    sides = zip(("source", "target"), profile.languages, misfits, strict=True)
    return [
        f"{profile.name}: little of the {side} is in the script of {code!r}." for side, code, misfit in sides if misfit
    ]


def _in_script(text: str, code: str) -> bool:
    """Whether at least a fifth of the letters are in a script of the language (true for unknown languages)."""
    scripts = SCRIPTS_BY_LANGUAGE.get(code)
    letters = Counter(character for character in text if character.isalpha())
    if scripts is None or letters.total() < 100:
        return True
    num_fitting = sum(n for letter, n in letters.items() if unicodedata.name(letter, "").split(" ")[0] in scripts)
    return 5 * num_fitting >= letters.total()


def _words_are_swapped(texts: tuple[str, str], codes: list[str]) -> bool:
    """Whether each side has far more frequent words of the other side's language than of its declared one."""
    if codes[0] == codes[1] or any(code not in FREQUENT_WORDS for code in codes):
        return False
    own, other = 0, 0
    for text, code, other_code in zip(texts, codes, codes[::-1], strict=True):
        words = Counter(re.findall(r"\w+", text.lower()))
        own_count = sum(words[word] for word in FREQUENT_WORDS[code])
        other_count = sum(words[word] for word in FREQUENT_WORDS[other_code])
        if own_count >= other_count:
            return False
        own, other = own + own_count, other + other_count
    return other > 2 * own + 20


def _unrelated_lengths(profile: CorpusProfile) -> list[str]:
    """Long sentences have long translations; where lengths are unrelated, the lines do not match."""
    if len(profile.lengths) < 4 * _MIN_PAIRS:
        return []
    import numpy as np

    logs = np.log(np.asarray(profile.lengths, dtype=np.float64) + 1)
    if logs.std(axis=0).min() < 0.05:
        return []
    correlation = float(np.corrcoef(logs.T)[0, 1])
    if correlation >= 0.15:
        return []
    return [
        f"{profile.name}: lengths of source and target hardly correlate ({correlation:.2f}): "
        f"the lines may not be translations of each other. Check some of them."
    ]
