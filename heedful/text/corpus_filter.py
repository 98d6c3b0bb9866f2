"""The verdict on every line of the training corpora: kept, dropped and why, or held out for validation."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.chunk_workers import Workers
from heedful.text.corpus import EARLY_LOOK, BadLine, BadLines, Direction, TrainingPair, direction
from heedful.text.corpus_language_checks import EvenSample, Profile
from heedful.text.line_chunks import Chunk, read_chunks
from heedful.text.line_filters import (
    DUPLICATE,
    EMPTY,
    HELD_OUT,
    KEPT,
    TOO_LONG,
    WRONG_ENCODING,
    Judged,
    Judging,
    hash_of,
)
from heedful.text.preflight_report import REASONS, CorpusReport, PreflightReport, describe_corpus
from heedful.text.valid_split import HeldOutChoice, HeldOutPair, take_groups

_MOST_HELD_OUT = 2000
_UNTAGGED = Direction(None, None)
_SORTED_AT_ONCE = 1 << 21  # hashes: sorting takes several times their memory, so many are sorted in parts


def first_occurrences(hashes: npt.NDArray[np.uint64], at_once: int = _SORTED_AT_ONCE) -> npt.NDArray[np.bool_]:
    """True where a number appears for the first time; some `at_once`, with equal last bits, are sorted at a time."""
    first = np.ones(len(hashes), dtype=np.bool_)
    num_parts = 1 << max(0, (len(hashes) - 1) // at_once).bit_length()
    last_bits = np.uint64(num_parts - 1)
    for part in range(num_parts if len(hashes) else 0):
        slices = range(0, len(hashes), at_once)
        chosen = [start + np.flatnonzero(hashes[start : start + at_once] & last_bits == part) for start in slices]
        members = np.concatenate(chosen)
        order = np.argsort(hashes[members], kind="stable")
        ordered = hashes[members[order]]
        first[members[order[1:]]] = ordered[1:] != ordered[:-1]
    return first


def fill(report: CorpusReport, verdicts: Counter[int]) -> None:
    """Write the numbers of one corpus into its report."""
    report.num_read = verdicts.total()
    report.num_kept = verdicts[KEPT]
    report.num_held_out = verdicts[HELD_OUT]
    report.dropped = {reason: verdicts[code] for code, reason in enumerate(REASONS, start=1) if verdicts[code]}


def in_words(dropped: dict[str, int]) -> str:
    """What was dropped, as a phrase: "3 empty, 2 duplicate"."""
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.items()) or "nothing was read"


class Judge:
    """Gives every line of the training corpora its verdict."""

    def __init__(
        self,
        data: DataConfig,
        scored: dict[str, list[TrainingPair]],
        *,
        seed: int,
        has_tags: bool,
        progress: Callable[[int], None],
    ) -> None:
        """`scored`: the pairs of "valid" and "test", which training should not see."""
        self.data = data
        self._has_tags = has_tags
        self.verdicts: list[npt.NDArray[np.uint8]] = []
        self._reports: list[CorpusReport] = []
        self._hashes = array("Q")
        self._progress = progress
        self._scored = {role: pairs for role, pairs in scored.items() if pairs}
        self._overlap: Counter[str] = Counter()
        self._shared_sources: Counter[str] = Counter()
        limit = _MOST_HELD_OUT if data.num_valid_pairs is None else data.num_valid_pairs
        self._choice = HeldOutChoice(limit=limit, seed=seed) if not data.valid and limit else None

    def read(self, index: int, corpus: CorpusConfig, report: PreflightReport, workers: Workers) -> Profile:
        """Judge the lines of one corpus; duplicates are found later, among all corpora."""
        languages = direction(corpus, self.data)
        described = describe_corpus("train", corpus, languages)
        report.corpora.insert(index, described)
        self._reports.append(described)
        salt = np.uint64(hash_of((languages.target or "").encode()) if self._has_tags else 0)
        sample, bad, verdicts = EvenSample(), BadLines(), bytearray()
        chunks = ((chunk, chunk) for chunk in read_chunks(corpus))
        for chunk, arrays in workers.in_order(self._judging(corpus), chunks):
            judged = Judged(*arrays)
            if (judged.verdicts == WRONG_ENCODING).any():
                for line in chunk.pairs(corpus):
                    if isinstance(line, BadLine):
                        bad.add(line)
                        described.first_bad_line = described.first_bad_line or str(line)
            verdicts += judged.verdicts.tobytes()
            if len(verdicts) == EARLY_LOOK:
                bad.refuse_too_many(len(verdicts))
            sound = np.flatnonzero(~np.isin(judged.verdicts, (WRONG_ENCODING, EMPTY, TOO_LONG)))
            sentences = chunk.some(corpus, sound[sample.candidates(len(sound))].tolist())
            for place in sample.places(len(sound)):
                sample.pairs.append(sentences[int(sound[place])])
            self._hashes.frombytes((judged.hashes ^ salt).tobytes())
            self._count_overlap(judged.overlap)
            self._offer(index, chunk, judged)
            self._progress(len(chunk))
        bad.refuse_too_many(len(verdicts))
        self.verdicts.append(np.frombuffer(verdicts, dtype=np.uint8))
        return Profile(described.name, languages, sample.pairs)

    def _judging(self, corpus: CorpusConfig) -> Judging:
        languages = direction(corpus, self.data) if self._has_tags else _UNTAGGED
        targets = [languages.target, languages.source] if corpus.both_directions else [languages.target]
        return Judging(
            corpus=corpus,
            max_characters=self.data.max_characters,
            max_length_ratio=self.data.max_length_ratio,
            drop_identical=self.data.drop_identical,
            drop_overlap=self.data.drop_overlap,
            scored_hashes=[sorted(_pair_hashes(pairs, self.data)) for pairs in self._scored.values()],
            scored_sources=[sorted({pair.source for pair in pairs}) for pairs in self._scored.values()],
            salts=[] if self._choice is None else [self._choice.salt(language) for language in targets],
        )

    def _count_overlap(self, overlap: npt.NDArray[np.int64]) -> None:
        for role, (pairs, sources) in zip(self._scored, overlap.reshape(-1, 2).tolist(), strict=True):
            if pairs:
                self._overlap[role] += pairs
            if sources:
                self._shared_sources[role] += sources

    def _offer(self, index: int, chunk: Chunk, judged: Judged) -> None:
        """Offer the pairs with the smallest numbers, in their order, to be held out."""
        if self._choice is None or not judged.numbers.size:
            return
        corpus = self.data.train[index]
        kept = np.flatnonzero(judged.verdicts == KEPT)
        ways = judged.numbers.size // kept.size
        small = np.flatnonzero(judged.numbers <= self._choice.threshold)
        sentences = chunk.some(corpus, kept[small // ways].tolist())
        for number, line, way in zip(judged.numbers[small].tolist(), kept[small // ways], small % ways, strict=True):
            if number <= self._choice.threshold:  # it falls as pairs are offered
                source, target = sentences[int(line)][::-1] if way else sentences[int(line)]
                where = chunk.first_number - 1 + int(line)
                self._choice.offer(number, HeldOutPair(source, target, index, where, reverse=bool(way)))

    def drop_duplicates(self) -> None:
        """Of pairs that say the same, keep the first."""
        if not self.data.deduplicate or not self._hashes:
            return
        first = first_occurrences(np.frombuffer(self._hashes, dtype=np.uint64))
        self._hashes = array("Q")
        start = 0
        for index, verdicts in enumerate(self.verdicts):
            kept = np.flatnonzero(verdicts == KEPT)
            changed = verdicts.copy()
            changed[kept[~first[start : start + len(kept)]]] = DUPLICATE
            self.verdicts[index] = changed
            start += len(kept)

    def refuse_nothing_usable(self) -> None:
        """An error that says where all pairs went, if none is left."""
        if any((verdicts == KEPT).any() for verdicts in self.verdicts):
            return
        dropped: Counter[str] = Counter()
        for verdicts in self.verdicts:
            counts = np.bincount(verdicts, minlength=HELD_OUT + 1)
            dropped.update({reason: int(counts[code]) for code, reason in enumerate(REASONS, start=1) if counts[code]})
        hints = {
            "source = target": " To learn to copy, spell or normalise, set data.drop_identical=false.",
            "too long": " Raise data.max_characters, or split the text into sentences.",
            "length ratio": " Raise data.max_length_ratio if these pairs are meant so.",
            "also in valid or test": " Train on other text than valid and test, or set data.drop_overlap=false.",
        }
        names = ", ".join(report.name for report in self._reports)
        worst = dropped.most_common(1)[0][0]
        raise CorpusError(
            f"{names}: none of {dropped.total():,} pairs can be used: {in_words(dropped)}.{hints.get(worst, '')}"
        )

    def hold_out(self) -> list[HeldOutPair]:
        """Take pairs for validation out of training: `data.num_valid_pairs`, or two in a hundred but at most 2,000."""
        if self._choice is None:
            return []
        available = sum(int((verdicts == KEPT).sum()) for verdicts in self.verdicts)
        wanted = self.data.num_valid_pairs or min(_MOST_HELD_OUT, max(1, round(0.02 * available)))
        if wanted >= available and self.data.num_valid_pairs is not None:
            raise ConfigError(
                f"data.num_valid_pairs={wanted} would leave nothing to train on: only {available:,} pairs are usable."
            )
        groups = [
            [pair for pair in group if self.verdicts[pair.corpus_index][pair.line_index] == KEPT]
            for group in self._choice.groups()
        ]
        chosen = take_groups(groups, wanted=wanted, available=available)
        self.verdicts = [verdicts.copy() for verdicts in self.verdicts]
        for pair in chosen:
            self.verdicts[pair.corpus_index][pair.line_index] = HELD_OUT
        return chosen

    def count(self, report: PreflightReport, *, num_valid: int, num_test: int) -> None:
        """Write the numbers into the report."""
        for corpus, described, verdicts in zip(self.data.train, self._reports, self.verdicts, strict=True):
            counts = np.bincount(verdicts, minlength=HELD_OUT + 1)
            fill(described, Counter({code: int(count) for code, count in enumerate(counts)}))
            report.num_pairs += described.num_kept * (2 if corpus.both_directions else 1)
        report.num_valid_pairs, report.num_test_pairs = num_valid, num_test
        report.overlap, report.shared_sources = dict(self._overlap), dict(self._shared_sources)


def _pair_hashes(pairs: list[TrainingPair], data: DataConfig) -> set[int]:
    """Hashes of scored pairs; both ways round where a model of several directions could learn them turned round."""
    directions = {direction(corpus, data) for corpus in data.train}
    several = len(directions) > 1 or any(corpus.both_directions for corpus in data.train)
    straight = {hash_of(pair.source.encode() + b"\n" + pair.target.encode()) for pair in pairs}
    turned = {hash_of(pair.target.encode() + b"\n" + pair.source.encode()) for pair in pairs} if several else set()
    return straight | turned
