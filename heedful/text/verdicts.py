"""The verdict on every line of the training corpora: kept, dropped and why, or held out for validation."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.corpus import BadLine, Direction, SentencePair, TrainingPair, direction, read_pairs
from heedful.text.heldout import HeldOutChoice, HeldOutPair, take_groups
from heedful.text.languages import EvenSample, Profile
from heedful.text.report import REASONS, CorpusReport, PreflightReport, describe_corpus

KEPT = 0  # the verdict on a line: 0, or 1 + its place in REASONS, or HELD_OUT
WRONG_ENCODING, EMPTY, TOO_LONG, LENGTH_RATIO, IDENTICAL, OVERLAP, DUPLICATE = range(1, 1 + len(REASONS))
HELD_OUT = DUPLICATE + 1
_PROGRESS_EVERY = 10_000
_MOST_HELD_OUT = 2000
_UNTAGGED = Direction(None, None)


def fault_of_text(pair: SentencePair, data: DataConfig) -> int:
    """The verdict on what a pair shows by itself: KEPT, EMPTY or TOO_LONG."""
    if not pair.source or not pair.target:
        return EMPTY
    if len(pair.source) > data.max_characters or len(pair.target) > data.max_characters:
        return TOO_LONG
    return KEPT


def _hash(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _first_occurrences(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """True where a number appears for the first time."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    first = np.ones(len(hashes), dtype=np.bool_)
    first[order[1:]] = ordered[1:] != ordered[:-1]
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
        self._sources = {role: {pair.source for pair in pairs} for role, pairs in scored.items() if pairs}
        self._known = {role: _pair_hashes(pairs, data) for role, pairs in scored.items() if pairs}
        self._overlap: Counter[str] = Counter()
        self._shared_sources: Counter[str] = Counter()
        limit = _MOST_HELD_OUT if data.valid_pairs is None else data.valid_pairs
        self._choice = HeldOutChoice(limit=limit, seed=seed) if not data.valid and limit else None

    def read(self, index: int, corpus: CorpusConfig, report: PreflightReport) -> Profile:
        """Judge the lines of one corpus; duplicates are found later, among all corpora."""
        languages = direction(corpus, self.data)
        described = describe_corpus("train", corpus, languages)
        report.corpora.insert(index, described)
        self._reports.append(described)
        salt = _hash((languages.target or "").encode()) if self._has_tags else 0
        sample = EvenSample()
        verdicts = bytearray()
        line = 0
        for line, pair in enumerate(read_pairs(corpus)):
            if line % _PROGRESS_EVERY == _PROGRESS_EVERY - 1:
                self._progress(_PROGRESS_EVERY)
            if isinstance(pair, BadLine):
                described.first_bad_line = described.first_bad_line or str(pair)
                verdicts.append(WRONG_ENCODING)
                continue
            verdict = fault_of_text(pair, self.data)
            if verdict == KEPT:
                sample.add(pair)
                source, target = pair.source.encode(), pair.target.encode()
                number = _hash(source + b"\n" + target)
                verdict = self._fault_of_pair(pair, source, target, number)
                if verdict == KEPT:
                    self._hashes.append(number ^ salt)
                    self._offer(pair, index, line, source, target)
            verdicts.append(verdict)
        self._progress((line + 1) % _PROGRESS_EVERY)
        self.verdicts.append(np.frombuffer(verdicts, dtype=np.uint8))
        return Profile(described.name, languages, sample.pairs)

    def _fault_of_pair(self, pair: SentencePair, source: bytes, target: bytes, number: int) -> int:
        short, long = sorted((len(source) + 20, len(target) + 20))
        if long > short * self.data.max_length_ratio:
            return LENGTH_RATIO
        if self.data.drop_identical and pair.source == pair.target:
            return IDENTICAL
        verdict = KEPT
        for role, known in self._known.items():
            if number in known:
                self._overlap[role] += 1
                verdict = OVERLAP if self.data.drop_overlap else verdict
            elif pair.source in self._sources[role]:
                self._shared_sources[role] += 1
        return verdict

    def _offer(self, pair: SentencePair, index: int, line: int, source: bytes, target: bytes) -> None:
        if self._choice is None:
            return
        corpus = self.data.train[index]
        languages = direction(corpus, self.data) if self._has_tags else _UNTAGGED
        if (number := self._choice.wants(source, languages.target)) is not None:
            self._choice.offer(number, HeldOutPair(pair.source, pair.target, index, line, reverse=False))
        if corpus.both_directions and (number := self._choice.wants(target, languages.source)) is not None:
            self._choice.offer(number, HeldOutPair(pair.target, pair.source, index, line, reverse=True))

    def drop_duplicates(self) -> None:
        """Of pairs that say the same, keep the first."""
        if not self.data.deduplicate or not self._hashes:
            return
        first = _first_occurrences(np.frombuffer(self._hashes, dtype=np.uint64))
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
        """Take pairs for validation out of training: `data.valid_pairs`, or two in a hundred but at most 2,000."""
        if self._choice is None:
            return []
        available = sum(int((verdicts == KEPT).sum()) for verdicts in self.verdicts)
        wanted = self.data.valid_pairs or min(_MOST_HELD_OUT, max(1, round(0.02 * available)))
        if wanted >= available and self.data.valid_pairs is not None:
            raise ConfigError(
                f"data.valid_pairs={wanted} would leave nothing to train on: only {available:,} pairs are usable."
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
    straight = {_hash(pair.source.encode() + b"\n" + pair.target.encode()) for pair in pairs}
    turned = {_hash(pair.target.encode() + b"\n" + pair.source.encode()) for pair in pairs} if several else set()
    return straight | turned
