"""Filters for single lines of a corpus; worker processes apply them to chunks of lines.

A filter is a `Verdict`, its label and hint, and a check in `check_text` or `FilterLines`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig
from heedful.text.corpus import BadLine, SentencePair
from heedful.text.corpus_chunks import Arrays, Chunk


class Verdict(IntEnum):
    """The outcome for a line. A line with several problems gets the first verdict that applies, in this order."""

    KEPT = 0
    WRONG_ENCODING = 1
    EMPTY = 2
    TOO_LONG = 3
    LENGTH_RATIO = 4
    IDENTICAL = 5
    OVERLAP = 6
    DUPLICATE = 7
    HELD_OUT = 8
    """Kept for validation."""


DROP_REASONS = {
    Verdict.WRONG_ENCODING: "wrong encoding",
    Verdict.EMPTY: "empty",
    Verdict.TOO_LONG: "too long",
    Verdict.LENGTH_RATIO: "length ratio",
    Verdict.IDENTICAL: "source = target",
    Verdict.OVERLAP: "also in valid or test",
    Verdict.DUPLICATE: "duplicate",
}
"""The verdicts that drop a line, with their names in reports."""
HINTS = {
    Verdict.IDENTICAL: "To learn to copy, spell or normalise, set data.drop_identical=false.",
    Verdict.TOO_LONG: "Raise data.max_characters, or split the text into sentences.",
    Verdict.LENGTH_RATIO: "Raise data.max_length_ratio if these pairs are correct.",
    Verdict.OVERLAP: "Train on other text than valid and test, or set data.drop_overlap=false.",
}
"""What to do if a filter drops all lines."""


def hash_of(text: bytes) -> int:
    """A 64-bit hash."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def check_text(pair: SentencePair, max_characters: int) -> Verdict:
    """The verdict on the text alone: kept, empty or too long."""
    if not pair.source or not pair.target:
        return Verdict.EMPTY
    if len(pair.source) > max_characters or len(pair.target) > max_characters:
        return Verdict.TOO_LONG
    return Verdict.KEPT


class FilteredLines(NamedTuple):
    """The result of `FilterLines` for one chunk."""

    verdicts: npt.NDArray[np.uint8]
    """The `Verdict` on each line."""
    pair_hashes: npt.NDArray[np.uint64]
    """For each kept pair, a hash of both sentences."""
    source_hashes: npt.NDArray[np.uint64]
    """For each kept pair and salt, a hash of the source (second salt: of the target)."""
    overlap: npt.NDArray[np.int64]
    """For each of valid and test: the pairs that are in it, and other pairs whose source is in it."""


@dataclass(frozen=True)
class FilterLines:
    """Gives every line of a chunk its verdict: a `Work`."""

    corpus: CorpusConfig
    max_characters: int
    max_length_ratio: float
    drop_identical: bool
    drop_overlap: bool
    evaluation_hashes: list[list[int]]
    """Hashes of the pairs of valid and of test, where given."""
    evaluation_sources: list[list[str]]
    """Source sentences of valid and of test, where given."""
    salts: list[str]
    """Prefixes for hashing a source, and a target; empty if nothing is held out."""

    def __call__(self, chunk: Chunk) -> Arrays:
        """The arrays of `FilteredLines`."""
        verdicts = bytearray()
        pair_hashes: list[int] = []
        source_digests: list[bytes] = []
        overlap = [0] * (2 * len(self._evaluation_sets))
        salts = [salt.encode() for salt in self.salts]
        for pair in chunk.pairs(self.corpus):
            if isinstance(pair, BadLine):
                verdicts.append(Verdict.WRONG_ENCODING)
                continue
            verdict = check_text(pair, self.max_characters)
            if verdict == Verdict.KEPT:
                sides = pair.source.encode(), pair.target.encode()
                pair_hash = hash_of(sides[0] + b"\n" + sides[1])
                verdict = self._check_pair(pair, len(sides[0]), len(sides[1]), pair_hash, overlap)
                if verdict == Verdict.KEPT:
                    pair_hashes.append(pair_hash)
                    for salt, side in zip(salts, sides, strict=False):
                        source_digests.append(hashlib.blake2b(salt + side, digest_size=8).digest())
            verdicts.append(verdict)
        return list(
            FilteredLines(
                verdicts=np.frombuffer(verdicts, dtype=np.uint8),
                pair_hashes=np.array(pair_hashes, dtype=np.uint64),
                source_hashes=np.frombuffer(b"".join(source_digests), dtype="<u8"),
                overlap=np.array(overlap, dtype=np.int64),
            )
        )

    @cached_property
    def _evaluation_sets(self) -> list[tuple[set[int], set[str]]]:
        pairs = zip(self.evaluation_hashes, self.evaluation_sources, strict=True)
        return [(set(hashes), set(sources)) for hashes, sources in pairs]

    def _check_pair(
        self, pair: SentencePair, source_bytes: int, target_bytes: int, pair_hash: int, overlap: list[int]
    ) -> Verdict:
        short, long = sorted((source_bytes + 20, target_bytes + 20))
        if long > short * self.max_length_ratio:
            return Verdict.LENGTH_RATIO
        if self.drop_identical and not self.corpus.text and pair.source == pair.target:
            return Verdict.IDENTICAL
        verdict = Verdict.KEPT
        for role, (hashes, sources) in enumerate(self._evaluation_sets):
            if pair_hash in hashes:
                overlap[2 * role] += 1
                verdict = Verdict.OVERLAP if self.drop_overlap else verdict
            elif pair.source in sources:
                overlap[2 * role + 1] += 1
        return verdict
