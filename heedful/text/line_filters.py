"""The verdict that a line gets by itself, before it is compared with all others; a chunk of lines at a time."""

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

KEPT = 0  # the verdict on a line: 0, or 1 + its place in REASONS, or HELD_OUT
WRONG_ENCODING, EMPTY, TOO_LONG, LENGTH_RATIO, IDENTICAL, OVERLAP, DUPLICATE = range(1, 1 + len(REASONS))
HELD_OUT = DUPLICATE + 1


def hash_of(text: bytes) -> int:
    """A 64-bit hash."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def fault_of_text(pair: SentencePair, max_characters: int) -> int:
    """The verdict on what a pair shows at once: KEPT, EMPTY or TOO_LONG."""
    if not pair.source or not pair.target:
        return EMPTY
    if len(pair.source) > max_characters or len(pair.target) > max_characters:
        return TOO_LONG
    return KEPT


class Judged(NamedTuple):
    """What judging one chunk gives."""

    verdicts: npt.NDArray[np.uint8]
    """One for each line."""
    hashes: npt.NDArray[np.uint64]
    """One for each kept pair, of both its sentences."""
    numbers: npt.NDArray[np.uint64]
    """One for each kept pair and salt: what a source (or a target, as the source of the turned pair) is held out by."""
    overlap: npt.NDArray[np.int64]
    """Two for each scored corpus: pairs that stand in it, and others whose source does."""


@dataclass(frozen=True)
class Judging:
    """Judges every line of a chunk: a `Work`."""

    name: ClassVar[str] = "judging"
    corpus: CorpusConfig
    max_characters: int
    max_length_ratio: float
    drop_identical: bool
    drop_overlap: bool
    scored_hashes: list[list[int]]
    """Of valid and of test, where they are given: the hashes of their pairs."""
    scored_sources: list[list[str]]
    """And their sources."""
    salts: list[str]
    """What is put before a source, and before a target, to get its number; empty: nothing is held out."""

    def __call__(self, chunk: Chunk) -> Arrays:
        """The arrays of `Judged`."""
        verdicts = bytearray()
        hashes: list[int] = []
        digests: list[bytes] = []
        overlap = [0] * (2 * len(self._scored))
        salts = [salt.encode() for salt in self.salts]
        for pair in chunk.pairs(self.corpus):
            if isinstance(pair, BadLine):
                verdicts.append(WRONG_ENCODING)
                continue
            verdict = fault_of_text(pair, self.max_characters)
            if verdict == KEPT:
                sides = pair.source.encode(), pair.target.encode()
                number = hash_of(sides[0] + b"\n" + sides[1])
                verdict = self._fault_of_pair(pair, len(sides[0]), len(sides[1]), number, overlap)
                if verdict == KEPT:
                    hashes.append(number)
                    for salt, side in zip(salts, sides, strict=False):
                        digests.append(hashlib.blake2b(salt + side, digest_size=8).digest())
            verdicts.append(verdict)
        return list(
            Judged(
                verdicts=np.frombuffer(verdicts, dtype=np.uint8),
                hashes=np.array(hashes, dtype=np.uint64),
                numbers=np.frombuffer(b"".join(digests), dtype="<u8"),
                overlap=np.array(overlap, dtype=np.int64),
            )
        )

    @cached_property
    def _scored(self) -> list[tuple[set[int], set[str]]]:
        scored = zip(self.scored_hashes, self.scored_sources, strict=True)
        return [(set(hashes), set(sources)) for hashes, sources in scored]

    def _fault_of_pair(
        self, pair: SentencePair, source_bytes: int, target_bytes: int, number: int, overlap: list[int]
    ) -> int:
        short, long = sorted((source_bytes + 20, target_bytes + 20))
        if long > short * self.max_length_ratio:
            return LENGTH_RATIO
        if self.drop_identical and pair.source == pair.target:
            return IDENTICAL
        verdict = KEPT
        for role, (hashes, sources) in enumerate(self._scored):
            if number in hashes:
                overlap[2 * role] += 1
                verdict = OVERLAP if self.drop_overlap else verdict
            elif pair.source in sources:
                overlap[2 * role + 1] += 1
        return verdict
