"""The store: reading back what was added, and refusing incomplete or damaged stores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.store import PairStore, StoreWriter
from heedful.errors import CorpusError
from tests.data.random_stores import random_store

FILES = ("source.ids", "source.offsets", "target.ids", "target.offsets", "corpora")


@given(
    parts=st.lists(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, 69_999), min_size=1, max_size=9),
                st.lists(st.integers(0, 65_535), min_size=1, max_size=9),
                st.integers(0, 2),
            ),
            max_size=6,
        ),
        max_size=4,
    )
)
def test_pairs_come_back_as_added(tmp_path_factory: pytest.TempPathFactory, parts: list) -> None:
    directory = tmp_path_factory.mktemp("store")
    with StoreWriter(directory, 70_000, 65_536, corpus_weights=[1, 2, 0.5]) as writer:
        for part in parts:
            writer.add([s for s, _, _ in part], [t for _, t, _ in part], [c for _, _, c in part])
    store = PairStore.open(directory)
    added = [pair for part in parts for pair in part]
    assert len(store) == len(added)
    assert [(*store.pair(index), int(store.corpora[index])) for index in range(len(store))] == added
    assert store.source.ids.dtype == np.uint32
    assert store.target.ids.dtype == np.uint16
    assert store.source.num_tokens == sum(len(source) for source, _, _ in added)
    assert store.target.longest == max((len(target) for _, target, _ in added), default=0)
    assert store.corpus_weights == (1.0, 2.0, 0.5)


def test_the_store_stays_on_disk(tmp_path: Path) -> None:
    store = random_store(tmp_path, 50)
    for array in (store.source.ids, store.source.offsets, store.target.ids, store.corpora):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


def test_sparse_file_larger_than_memory_opens_and_reads_at_its_end(tmp_path: Path) -> None:
    """2^39 tokens on each side (a terabyte of ids in a sparse file): offsets must not be cut to 32 bits."""
    tokens = 1 << 39
    side = {"vocab_size": 32_000, "dtype": "uint16", "num_tokens": tokens, "longest": 5}
    manifest = {"format_version": 1, "num_pairs": 2, "corpus_weights": [1.0], "source": side, "target": side}
    for name in ("source", "target"):
        np.array([0, tokens - 3, tokens], dtype="<i8").tofile(tmp_path / f"{name}.offsets")
        with open(tmp_path / f"{name}.ids", "wb") as file:
            try:
                file.seek(2 * (tokens - 3))
                file.write(np.array([7, 8, 9], dtype="<u2").tobytes())
            except OSError:
                pytest.skip("this file system has no sparse files of this size")
    np.zeros(2, dtype="<u2").tofile(tmp_path / "corpora")
    (tmp_path / "store.json").write_text(json.dumps(manifest))
    store = PairStore.open(tmp_path)
    assert store.pair(1) == ([7, 8, 9], [7, 8, 9])
    assert store.source.lengths(np.array([1, 0])).tolist() == [3, tokens - 3]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["cut", "longer", "gone"])
def test_a_damaged_file_is_named_with_a_remedy(tmp_path: Path, name: str, change: str) -> None:
    random_store(tmp_path, 20)
    content = (tmp_path / name).read_bytes()
    if change == "gone":
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content[:-1] if change == "cut" else content + b"\0\0")
    with pytest.raises(CorpusError, match=rf"{name}.*heedful prepare"):
        PairStore.open(tmp_path)


def test_offsets_of_another_store_are_refused(tmp_path: Path) -> None:
    random_store(tmp_path / "one", 20, seed=1)
    random_store(tmp_path / "two", 20, seed=2)
    (tmp_path / "one" / "source.offsets").write_bytes((tmp_path / "two" / "source.offsets").read_bytes())
    with pytest.raises(CorpusError, match=r"source\.offsets.*heedful prepare"):
        PairStore.open(tmp_path / "one")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "format version None"),
        ('{"format_version": 99}', "format version 99"),
        ('{"format_version": 1}', "num_pairs"),
        ('{"format_version": 1, "num_pairs": 20, "corpus_weights": [1.0], "source": 3, "target": 4}', "damaged"),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: str, said: str) -> None:
    random_store(tmp_path, 20)
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(CorpusError, match=rf"store\.json.*{said}.*heedful prepare"):
        PairStore.open(tmp_path)


def test_nothing_is_a_store_before_it_is_closed(tmp_path: Path) -> None:
    random_store(tmp_path, 20)
    writer = StoreWriter(tmp_path, 100, 100)  # overwriting a finished store: it no longer exists
    writer.add([[5, 6]], [[7]], [0])
    with pytest.raises(CorpusError, match=r"store\.json.*heedful prepare"):
        PairStore.open(tmp_path)
    writer.close()
    assert PairStore.open(tmp_path).pair(0) == ([5, 6], [7])
    assert not list(tmp_path.glob("*.partial"))


def test_an_error_while_writing_leaves_no_store(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), StoreWriter(tmp_path, 100, 100) as writer:
        writer.add([[5]], [[7]], [0])
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "target", "corpora"),
    [
        ([[5]], [[100]], [0]),
        ([[-1]], [[5]], [0]),
        ([[]], [[5]], [0]),
        ([[5]], [[5]], [2]),
        ([[5], [6]], [[5]], [0]),
    ],
)
def test_impossible_pairs_are_refused_whole(tmp_path: Path, source: list, target: list, corpora: list) -> None:
    with StoreWriter(tmp_path, 100, 100, corpus_weights=[1.0, 1.0]) as writer:
        with pytest.raises(ValueError, match=r"ids|corpus|sources"):
            writer.add(source, target, corpora)
        writer.add([[5]], [[6]], [1])
    assert PairStore.open(tmp_path).pair(0) == ([5], [6])


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CorpusError, match=r"file.*cannot write"):
        StoreWriter(tmp_path / "file", 10, 10)
