"""Filter the lines of the training corpora: keep, drop for a reason, or hold out for validation.

Worker processes check single lines (`heedful.text.line_filters`). `CorpusFilter` then finds duplicates among all
corpora and selects the held-out pairs. Pairs are held out by a hash of the source and the seed: the sources with the
smallest hashes are held out with all their translations, so that no source is in both training and validation. The
selection does not depend on the order of the corpus and hardly on its other sentences.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.corpus import (
    EARLY_CHECK_LINES,
    BadLine,
    BadLineCounter,
    Direction,
    TrainingPair,
    direction,
)
from heedful.text.corpus_chunks import Chunk, Workers, read_chunks
from heedful.text.line_filters import DROP_REASONS, HINTS, FilteredLines, FilterLines, Verdict, hash_of
from heedful.text.preflight_report import (
    CorpusProfile,
    CorpusReport,
    EvenSample,
    PreflightReport,
    describe_corpus,
    format_dropped,
)

_MAX_HELD_OUT = 2000
_NO_USABLE_TEXT = (Verdict.WRONG_ENCODING, Verdict.EMPTY, Verdict.TOO_LONG)
_UNTAGGED = Direction(None, None)
_HASHES_PER_SORT = 1 << 21  # sorting takes several times the memory of the hashes, so many are sorted in parts


# ---- held-out pairs --------------------------------------------------------------------------------------------------


class HeldOutPair(NamedTuple):
    """A pair that may be held out, and its position."""

    source: str
    target: str
    corpus_index: int
    line_index: int
    reverse: bool
    """Whether source and target are swapped (in a corpus used in both directions)."""


class HeldOutSelection:
    """Collects the pairs of the sources with the smallest hashes while the corpora are read."""

    def __init__(self, *, limit: int, seed: int) -> None:
        self._num_sources = 2 * limit + 16  # more than needed: some turn out to be duplicates
        self._largest_group = limit + 2000  # larger groups are never held out, which bounds memory
        self._seed = seed
        self._groups: dict[int, list[HeldOutPair]] = {}
        self._heap: list[int] = []

    def salt(self, target_language: str | None) -> str:
        """The prefix for hashing a source, different for each target language."""
        return f"{self._seed}|{target_language or ''}|"

    @property
    def threshold(self) -> int:
        """The largest source hash whose pairs may still be held out."""
        return -self._heap[0] if len(self._heap) == self._num_sources else (1 << 64) - 1

    def add(self, source_hash: int, pair: HeldOutPair) -> None:
        """Add a pair whose source hash is at most the threshold."""
        group = self._groups.get(source_hash)
        if group is not None:
            if len(group) <= self._largest_group:
                group.append(pair)
        elif len(self._heap) < self._num_sources:
            heapq.heappush(self._heap, -source_hash)
            self._groups[source_hash] = [pair]
        else:
            del self._groups[-heapq.heapreplace(self._heap, -source_hash)]
            self._groups[source_hash] = [pair]

    def groups(self) -> list[list[HeldOutPair]]:
        """Pairs grouped by source, smallest hash first, without groups too large to hold out."""
        return [group for _, group in sorted(self._groups.items()) if len(group) <= self._largest_group]


def take_groups(groups: list[list[HeldOutPair]], *, num_pairs: int, available: int) -> list[HeldOutPair]:
    """Whole groups, in order, up to `num_pairs` pairs; at least the smallest group if that leaves pairs to train on."""
    selected: list[HeldOutPair] = []
    for group in groups:
        if group and len(selected) + len(group) <= min(num_pairs, available - 1):
            selected.extend(group)
    if not selected and num_pairs > 0:
        selected = min((group for group in groups if group), key=len, default=[])
    return selected if len(selected) < available else []


# ---- all corpora -----------------------------------------------------------------------------------------------------


def first_occurrences(hashes: npt.NDArray[np.uint64], per_sort: int = _HASHES_PER_SORT) -> npt.NDArray[np.bool_]:
    """True where a hash occurs for the first time; sorts about `per_sort` hashes, with equal low bits, at a time."""
    first = np.ones(len(hashes), dtype=np.bool_)
    num_parts = 1 << max(0, (len(hashes) - 1) // per_sort).bit_length()
    low_bits = np.uint64(num_parts - 1)
    for part in range(num_parts if len(hashes) else 0):
        starts = range(0, len(hashes), per_sort)
        selected = [start + np.flatnonzero(hashes[start : start + per_sort] & low_bits == part) for start in starts]
        members = np.concatenate(selected)
        order = np.argsort(hashes[members], kind="stable")
        ordered = hashes[members[order]]
        first[members[order[1:]]] = ordered[1:] != ordered[:-1]
    return first


def _count_verdicts(verdicts: npt.NDArray[np.uint8]) -> Counter[Verdict]:
    """How many lines got each verdict."""
    counts = np.bincount(verdicts, minlength=len(Verdict)).tolist()
    return Counter({verdict: counts[verdict] for verdict in Verdict if counts[verdict]})


def _dropped(verdicts: Counter[Verdict]) -> dict[str, int]:
    """The number of dropped lines for each reason."""
    return {reason: verdicts[verdict] for verdict, reason in DROP_REASONS.items() if verdicts[verdict]}


def record_verdicts(report: CorpusReport, verdicts: Counter[Verdict]) -> None:
    """Write the counts of one corpus into its report."""
    report.num_read = verdicts.total()
    report.num_kept = verdicts[Verdict.KEPT]
    report.num_held_out = verdicts[Verdict.HELD_OUT]
    report.dropped = _dropped(verdicts)


class CorpusFilter:
    """The verdicts on all lines of the training corpora."""

    def __init__(
        self,
        data: DataConfig,
        evaluation_pairs: dict[str, list[TrainingPair]],
        *,
        seed: int,
        has_tags: bool,
        progress: Callable[[int], None],
    ) -> None:
        """`evaluation_pairs`: the pairs of "valid" and "test", which should not be in training."""
        self.data = data
        self.verdicts: list[npt.NDArray[np.uint8]] = []
        self._has_tags = has_tags
        self._reports: list[CorpusReport] = []
        self._hashes = array("Q")
        self._progress = progress
        self._evaluation_pairs = {role: pairs for role, pairs in evaluation_pairs.items() if pairs}
        self._overlap: Counter[str] = Counter()
        self._shared_sources: Counter[str] = Counter()
        limit = _MAX_HELD_OUT if data.num_valid_pairs is None else data.num_valid_pairs
        self._selection = HeldOutSelection(limit=limit, seed=seed) if not data.valid and limit else None

    def read(self, index: int, corpus: CorpusConfig, report: PreflightReport, workers: Workers) -> CorpusProfile:
        """Filter the lines of one corpus; duplicates are found later, among all corpora."""
        languages = direction(corpus, self.data)
        corpus_report = describe_corpus("train", corpus, languages)
        report.corpora.insert(index, corpus_report)
        self._reports.append(corpus_report)
        salt = np.uint64(hash_of((languages.target or "").encode()) if self._has_tags else 0)
        sample, bad_lines, verdicts = EvenSample(), BadLineCounter(), bytearray()
        chunks = ((chunk, chunk) for chunk in read_chunks(corpus))
        for chunk, arrays in workers.map_in_order(self._filter_lines(corpus), chunks):
            filtered = FilteredLines(*arrays)
            if (filtered.verdicts == Verdict.WRONG_ENCODING).any():
                for line in chunk.pairs(corpus):
                    if isinstance(line, BadLine):
                        bad_lines.add(line)
                        corpus_report.first_bad_line = corpus_report.first_bad_line or str(line)
            verdicts += filtered.verdicts.tobytes()
            if len(verdicts) == EARLY_CHECK_LINES:
                bad_lines.refuse_too_many(len(verdicts))
            usable = np.flatnonzero(~np.isin(filtered.verdicts, _NO_USABLE_TEXT))
            sentences = chunk.select(corpus, usable[sample.candidates(len(usable))].tolist())
            for position in sample.positions(len(usable)):
                sample.pairs.append(sentences[int(usable[position])])
            self._hashes.frombytes((filtered.pair_hashes ^ salt).tobytes())
            self._count_overlap(filtered.overlap)
            self._collect_held_out(index, chunk, filtered)
            self._progress(len(chunk))
        bad_lines.refuse_too_many(len(verdicts))
        self.verdicts.append(np.frombuffer(verdicts, dtype=np.uint8))
        return CorpusProfile(corpus_report.name, languages, sample.pairs)

    def _filter_lines(self, corpus: CorpusConfig) -> FilterLines:
        languages = direction(corpus, self.data) if self._has_tags else _UNTAGGED
        targets = [languages.target, languages.source] if corpus.both_directions else [languages.target]
        evaluation_sets = self._evaluation_pairs.values()
        return FilterLines(
            corpus=corpus,
            max_characters=self.data.max_characters,
            max_length_ratio=self.data.max_length_ratio,
            drop_identical=self.data.drop_identical,
            drop_overlap=self.data.drop_overlap,
            evaluation_hashes=[sorted(_pair_hashes(pairs, self.data)) for pairs in evaluation_sets],
            evaluation_sources=[sorted({pair.source for pair in pairs}) for pairs in evaluation_sets],
            salts=[] if self._selection is None else [self._selection.salt(language) for language in targets],
        )

    def _count_overlap(self, overlap: npt.NDArray[np.int64]) -> None:
        for role, (pairs, sources) in zip(self._evaluation_pairs, overlap.reshape(-1, 2).tolist(), strict=True):
            if pairs:
                self._overlap[role] += pairs
            if sources:
                self._shared_sources[role] += sources

    def _collect_held_out(self, index: int, chunk: Chunk, filtered: FilteredLines) -> None:
        """Add the pairs of a chunk with the smallest source hashes to the held-out selection."""
        selection, hashes = self._selection, filtered.source_hashes
        if selection is None or not hashes.size:
            return
        kept = np.flatnonzero(filtered.verdicts == Verdict.KEPT)
        num_directions = hashes.size // kept.size
        small = np.flatnonzero(hashes <= selection.threshold)
        lines, reverse = kept[small // num_directions].tolist(), (small % num_directions).tolist()
        sentences = chunk.select(self.data.train[index], lines)
        for source_hash, line, is_reverse in zip(hashes[small].tolist(), lines, reverse, strict=True):
            if source_hash <= selection.threshold:  # it decreases as pairs are added
                source, target = sentences[line][::-1] if is_reverse else sentences[line]
                line_index = chunk.first_number - 1 + line
                selection.add(source_hash, HeldOutPair(source, target, index, line_index, reverse=bool(is_reverse)))

    def drop_duplicates(self) -> None:
        """Keep the first of equal pairs."""
        if not self.data.deduplicate or not self._hashes:
            return
        first = first_occurrences(np.frombuffer(self._hashes, dtype=np.uint64))
        self._hashes = array("Q")
        start = 0
        for index, verdicts in enumerate(self.verdicts):
            kept = np.flatnonzero(verdicts == Verdict.KEPT)
            changed = verdicts.copy()
            changed[kept[~first[start : start + len(kept)]]] = Verdict.DUPLICATE
            self.verdicts[index] = changed
            start += len(kept)

    def require_pairs(self) -> None:
        """Raise `CorpusError` with the reasons if no pair is left."""
        if any((verdicts == Verdict.KEPT).any() for verdicts in self.verdicts):
            return
        counts: Counter[Verdict] = Counter()
        for verdicts in self.verdicts:
            counts.update(_count_verdicts(verdicts))
        names = ", ".join(report.name for report in self._reports)
        hint = HINTS.get(counts.most_common(1)[0][0])
        raise CorpusError(
            f"{names}: none of {counts.total():,} pairs can be used: {format_dropped(_dropped(counts))}."
            f"{f' {hint}' if hint else ''}"
        )

    def hold_out(self) -> list[HeldOutPair]:
        """Take pairs for validation out of training: `data.num_valid_pairs`, or by default 2 %, at most 2,000."""
        if self._selection is None:
            return []
        available = sum(int((verdicts == Verdict.KEPT).sum()) for verdicts in self.verdicts)
        num_pairs = self.data.num_valid_pairs or min(_MAX_HELD_OUT, max(1, round(0.02 * available)))
        if num_pairs >= available and self.data.num_valid_pairs is not None:
            raise ConfigError(
                f"data.num_valid_pairs={num_pairs} would leave nothing to train on: only {available:,} pairs are "
                f"usable."
            )
        groups = [
            [pair for pair in group if self.verdicts[pair.corpus_index][pair.line_index] == Verdict.KEPT]
            for group in self._selection.groups()
        ]
        held_out = take_groups(groups, num_pairs=num_pairs, available=available)
        self.verdicts = [verdicts.copy() for verdicts in self.verdicts]
        for pair in held_out:
            self.verdicts[pair.corpus_index][pair.line_index] = Verdict.HELD_OUT
        return held_out

    def write_report(self, report: PreflightReport, *, num_valid: int, num_test: int) -> None:
        """Write the counts of all corpora into the report."""
        for corpus, corpus_report, verdicts in zip(self.data.train, self._reports, self.verdicts, strict=True):
            record_verdicts(corpus_report, _count_verdicts(verdicts))
            report.num_pairs += corpus_report.num_kept * (2 if corpus.both_directions else 1)
        report.num_valid_pairs = num_valid
        report.num_test_pairs = num_test
        report.overlap = dict(self._overlap)
        report.shared_sources = dict(self._shared_sources)


def _pair_hashes(pairs: list[TrainingPair], data: DataConfig) -> set[int]:
    """Hashes of evaluation pairs, also reversed if a model of several directions could train on them reversed."""
    directions = {direction(corpus, data) for corpus in data.train}
    several = len(directions) > 1 or any(corpus.both_directions for corpus in data.train)
    hashes = {hash_of(pair.source.encode() + b"\n" + pair.target.encode()) for pair in pairs}
    if several:
        hashes |= {hash_of(pair.target.encode() + b"\n" + pair.source.encode()) for pair in pairs}
    return hashes
