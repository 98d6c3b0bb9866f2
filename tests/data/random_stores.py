"""Small stores of random pairs, streams of them, and functions to read pairs back from rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from heedful.data.batch_stream import BatchStream
from heedful.data.packing import Batch
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
    """A store of distinct pairs: the first source id and the first target id encode the number of the pair."""
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
    """The pairs of a batch, row by row, read back from the segments."""
    pairs: list[Pair] = []
    for row in range(batch.num_rows):
        for segment in range(1, int(batch.target_segments[row].max()) + 1):
            source = batch.source[row][batch.source_segments[row] == segment]
            target = batch.target_output[row][batch.target_segments[row] == segment]
            pairs.append((tuple(source.tolist()), tuple(target.tolist())))
    return pairs


def pairs_of(store: PairStore, indices: Sequence[int]) -> list[Pair]:
    """Pairs of a store, in the form that `unpacked` returns."""
    return [(tuple(store.source.sentence(index)), tuple(store.target.sentence(index))) for index in indices]


def equal(one: Batch, other: Batch) -> bool:
    """Whether two batches are equal in every tensor."""
    return all(tensor.equal(vars(other)[name]) for name, tensor in vars(one).items())


def epoch_pairs(batches: BatchStream, epoch: int) -> list[Any]:
    """All pairs of an epoch, in order."""
    return [pair for step in range(batches.steps_in_epoch(epoch)) for pair in unpacked(batches.batch(epoch, step))]


@st.composite
def mixed_corpora(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """The corpus of each pair, in runs of any length, and a weight for each corpus."""
    runs = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), min_size=1, max_size=6))
    weights = draw(st.lists(st.sampled_from([1.0, 0.5, 2.0, 0.25, 1.5]), min_size=3, max_size=3))
    return [corpus for corpus, length in runs for _ in range(length)], weights
