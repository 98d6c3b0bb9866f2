"""Small stores of random pairs, and the way back from rows to pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heedful.data.batch import Batch
from heedful.data.store import PairStore, StoreWriter

PAD, BOS = 0, 1
VOCAB = 1000

Pair = tuple[tuple[int, ...], tuple[int, ...]]


def random_store(
    directory: Path,
    num_pairs: int,
    *,
    longest: int = 12,
    seed: int = 0,
    corpora: Sequence[int] | None = None,
    corpus_weights: Sequence[float] | None = None,
) -> PairStore:
    """A store whose pairs all differ: the first source id and the first target id spell the pair's number."""
    generator = np.random.default_rng(seed)
    sides: list[list[list[int]]] = [[], []]
    for number in range(num_pairs):
        for side, first in zip(sides, divmod(number, VOCAB - 10), strict=True):
            length = int(generator.integers(1, longest + 1))
            side.append([first + 4, *generator.integers(4, VOCAB, size=length - 1).tolist()])
    with StoreWriter(directory, VOCAB, VOCAB, corpus_weights=corpus_weights) as writer:
        writer.add(sides[0], sides[1], corpora if corpora is not None else [0] * num_pairs)
    return PairStore.open(directory)


def number_of(pair: Pair) -> int:
    """The number of a pair of `random_store`."""
    return (pair[0][0] - 4) * (VOCAB - 10) + pair[1][0] - 4


def unpacked(batch: Batch) -> list[Pair]:
    """The pairs that stand in a batch, row by row, read back from segments; one by one, as slowly as it is plain."""
    pairs: list[Pair] = []
    for row in range(batch.num_rows):
        for segment in range(1, int(batch.target_segments[row].max()) + 1):
            source = batch.source[row][batch.source_segments[row] == segment]
            target = batch.target_output[row][batch.target_segments[row] == segment]
            pairs.append((tuple(source.tolist()), tuple(target.tolist())))
    return pairs


def pairs_of(store: PairStore, indices: Sequence[int]) -> list[Pair]:
    """The same pairs as the store has them."""
    return [(tuple(store.source.sentence(index)), tuple(store.target.sentence(index))) for index in indices]


def equal(one: Batch, other: Batch) -> bool:
    """Whether two batches agree in every tensor."""
    return all(tensor.equal(vars(other)[name]) for name, tensor in vars(one).items())
