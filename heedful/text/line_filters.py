"""Filters for single lines of a corpus, applied to chunks of lines in worker processes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.config import CorpusConfig
from heedful.text.corpus import BadLine, SentencePair
from heedful.text.line_chunks import Arrays, Chunk
from heedful.text.preflight_report import REASONS

KEPT = 0  # the verdict on a line: 0, or 1 + its index in REASONS, or HELD_OUT
WRONG_ENCODING, EMPTY, TOO_LONG, LENGTH_RATIO, IDENTICAL, OVERLAP, DUPLICATE = range(1, 1 + len(REASONS))
HELD_OUT = DUPLICATE + 1


def hash_of(text: bytes) -> int:
    """A 64-bit hash."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def check_text(pair: SentencePair, max_characters: int) -> int:
    """The verdict on the text alone: KEPT, EMPTY or TOO_LONG."""
    if not pair.source or not pair.target:
        return EMPTY
    if len(pair.source) > max_characters or len(pair.target) > max_characters:
        return TOO_LONG
    return KEPT


class FilteredLines(NamedTuple):
    """The result of `FilterLines` for one chunk."""

    verdicts: npt.NDArray[np.uint8]
    """One for each line."""
    pair_hashes: npt.NDArray[np.uint64]
    """One for each kept pair: of both sentences."""
    source_hashes: npt.NDArray[np.uint64]
    """One for each kept pair and salt: of the source (or the target, the source of the reversed pair) to hold out."""
    overlap: npt.NDArray[np.int64]
    """Two for each of valid and test: pairs that are in it, and others whose source is in it."""


@dataclass(frozen=True)
class FilterLines:
    """Gives every line of a chunk its verdict: a `Work`."""

    name: ClassVar[str] = "filter"
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
                verdicts.append(WRONG_ENCODING)
                continue
            verdict = check_text(pair, self.max_characters)
            if verdict == KEPT:
                sides = pair.source.encode(), pair.target.encode()
                pair_hash = hash_of(sides[0] + b"\n" + sides[1])
                verdict = self._check_pair(pair, len(sides[0]), len(sides[1]), pair_hash, overlap)
                if verdict == KEPT:
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
    ) -> int:
        short, long = sorted((source_bytes + 20, target_bytes + 20))
        if long > short * self.max_length_ratio:
            return LENGTH_RATIO
        if self.drop_identical and pair.source == pair.target:
            return IDENTICAL
        verdict = KEPT
        for role, (hashes, sources) in enumerate(self._evaluation_sets):
            if pair_hash in hashes:
                overlap[2 * role] += 1
                verdict = OVERLAP if self.drop_overlap else verdict
            elif pair.source in sources:
                overlap[2 * role + 1] += 1
        return verdict
