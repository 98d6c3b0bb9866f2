"""The order of an epoch as a formula: which pair comes n-th, without a list of all pairs in memory.

A permutation of [0, size) is computed element by element with a keyed Feistel network: an index is split into a
quotient and a remainder, and each in turn is shifted by a hash of the other, which can be undone and so is one-to-one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from heedful.data.store import PairStore
from heedful.errors import ConfigError, CorpusError

Integers = NDArray[np.int64]

_64_BITS = (1 << 64) - 1
_MULTIPLIERS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_FEISTEL_ROUNDS = 4


def combined_key(*numbers: int) -> int:
    """One 64-bit key from several numbers, such as seed, epoch and a purpose; any change changes it entirely."""
    key = 0
    for number in numbers:
        key = _scrambled_number((key + number + 0x9E3779B97F4A7C15) & _64_BITS)
    return key


def _scrambled_number(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit moves half of the output bits."""
    value = (value ^ (value >> 30)) * _MULTIPLIERS[0] & _64_BITS
    value = (value ^ (value >> 27)) * _MULTIPLIERS[1] & _64_BITS
    return value ^ (value >> 31)


def _scrambled(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`_scrambled_number` of each value; 64-bit arithmetic of numpy arrays wraps as it must here."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MULTIPLIERS[0])
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MULTIPLIERS[1])
    return values ^ (values >> np.uint64(31))


def permuted(indices: Integers, size: int, key: int) -> Integers:
    """The image of each index under a permutation of [0, size) that the key chooses."""
    columns = max(math.isqrt(size), 1)
    rows = -(-size // columns)
    values = _feistel(indices.astype(np.uint64), rows, columns, key)
    # rows * columns can exceed size a little: what falls outside walks on until it is inside again
    outside = np.flatnonzero(values >= size)
    while outside.size:
        values[outside] = _feistel(values[outside], rows, columns, key)
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def _feistel(values: NDArray[np.uint64], rows: int, columns: int, key: int) -> NDArray[np.uint64]:
    high, low = np.divmod(values, np.uint64(columns))
    for turn in range(_FEISTEL_ROUNDS):
        high = (high + _scrambled(low + np.uint64(combined_key(key, turn, 0))) % np.uint64(rows)) % np.uint64(rows)
        low = (low + _scrambled(high + np.uint64(combined_key(key, turn, 1))) % np.uint64(columns)) % np.uint64(columns)
    return high * np.uint64(columns) + low


class EpochOrder:
    """Which pair of a store is the n-th of an epoch: a pure function of seed, epoch and n.

    A corpus of weight 2 is shown twice an epoch; of weight 0.5 half of it, and the other half in the next epoch.
    Memory does not grow with the pairs, only with the number of times the corpus changes from one pair to the next.
    """

    def __init__(self, store: PairStore, *, weights: Sequence[float] | None, seed: int) -> None:
        self.seed = seed
        corpora = _corpus_groups(store, store.corpus_weights if weights is None else weights)
        self.corpora = [corpus for corpus in corpora if corpus.num_pairs and corpus.weight]
        if not self.corpora:
            raise CorpusError("there are no pairs to learn from: the prepared corpora are empty or all have weight 0.")

    def size(self, epoch: int) -> int:
        """How many pairs the epoch shows."""
        return sum(corpus.size(epoch) for corpus in self.corpora)

    def pairs(self, epoch: int, start: int, stop: int) -> Integers:
        """Pairs number start to stop of the epoch, as indices into the store."""
        sizes = np.array([corpus.size(epoch) for corpus in self.corpora])
        ends = np.cumsum(sizes)
        shown = permuted(np.arange(start, stop), int(ends[-1]), combined_key(self.seed, epoch, 1))
        which = np.searchsorted(ends, shown, side="right")
        pairs = np.empty_like(shown)
        for number, corpus in enumerate(self.corpora):
            members = which == number
            local = shown[members] - (ends[number] - sizes[number])
            pairs[members] = corpus.pairs(epoch, local, combined_key(self.seed, number, 2))
        return pairs

    def mark(self) -> str:
        """Changes with the places and the weights of the corpora."""
        digest = hashlib.sha256()
        for corpus in self.corpora:
            digest.update(str(corpus.weight).encode() + corpus.ends.tobytes() + corpus.shift.tobytes())
        return digest.hexdigest()


class _Corpus:
    """The pairs of one corpus, as runs of neighbours in the store, and its weight."""

    def __init__(self, starts: Integers, lengths: Integers, weight: float) -> None:
        self.ends = np.cumsum(lengths)
        self.shift = starts - (self.ends - lengths)
        self.num_pairs = int(lengths.sum())
        self.weight = Fraction(weight).limit_denominator(1_000_000)
        self.repeats = int(self.weight)
        self.part = self.weight - self.repeats

    def _part_start(self, epoch: int) -> int:
        """How many pairs the parts of all earlier epochs have used up."""
        return int(self.part * epoch * self.num_pairs)

    def size(self, epoch: int) -> int:
        """How many pairs of this corpus the epoch shows."""
        return self.repeats * self.num_pairs + self._part_start(epoch + 1) - self._part_start(epoch)

    def pairs(self, epoch: int, shown: Integers, key: int) -> Integers:
        """Store indices of what an epoch shows: first the whole corpus `repeats` times, then the part that is due."""
        in_part = shown >= self.repeats * self.num_pairs
        member = shown % self.num_pairs
        due = (self._part_start(epoch) + shown[in_part] - self.repeats * self.num_pairs) % self.num_pairs
        member[in_part] = permuted(due, self.num_pairs, key)
        return np.asarray(member + self.shift[np.searchsorted(self.ends, member, side="right")])


def _corpus_groups(store: PairStore, weights: Sequence[float]) -> list[_Corpus]:
    """The corpora of a store; where all weights are 1, the whole store is one."""
    require_weights(weights)
    if all(weight == 1 for weight in weights):
        return [_Corpus(np.zeros(1, dtype=np.int64), np.array([len(store)]), 1.0)]
    starts = run_starts(store)
    lengths = np.diff(starts, append=len(store))
    corpus = store.corpora[starts]
    if corpus.size and int(corpus.max()) >= len(weights):
        raise ConfigError(f"data.train has {len(weights)} weights, but the prepared pairs come from more corpora.")
    return [_Corpus(starts[corpus == n], lengths[corpus == n], weight) for n, weight in enumerate(weights)]


def run_starts(store: PairStore, step: int = 1 << 20) -> Integers:
    """Where the corpus differs from that of the pair before, read in pieces to keep memory flat."""
    parts = [np.zeros(min(len(store), 1), dtype=np.int64)]
    for start in range(1, len(store), step):
        piece = store.corpora[start - 1 : start + step]
        parts.append(start + np.flatnonzero(piece[1:] != piece[:-1]))
    return np.concatenate(parts)


def require_weights(weights: Sequence[float]) -> None:
    """Raise `ConfigError` for a weight that cannot be."""
    for number, weight in enumerate(weights):
        if not (weight >= 0 and math.isfinite(weight)):
            raise ConfigError(f"data.train[{number}].weight must be a number of at least 0, not {weight}.")
