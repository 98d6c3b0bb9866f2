"""Prepacked rows are written once and verified when opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.data.packing import MANIFEST, PrepackedRows, prepack
from heedful.errors import CorpusError
from tests.data.random_stores import random_store

WIDTH = 24


def test_prepack_reuses_rows_and_repacks_for_another_width(tmp_path: Path) -> None:
    store, reported = random_store(tmp_path, 90), []
    first = prepack(tmp_path, store, WIDTH, progress=reported.append)
    assert sum(reported) == 90
    before = (tmp_path / MANIFEST).stat().st_mtime_ns
    prepack(tmp_path, store, WIDTH, progress=reported.append)
    assert sum(reported) == 90
    assert (tmp_path / MANIFEST).stat().st_mtime_ns == before
    with pytest.raises(CorpusError, match="another store, width"):
        PrepackedRows.open(tmp_path, store, 40)
    wide = prepack(tmp_path, store, 40, progress=reported.append)
    assert sum(reported) == 180
    assert wide.row_starts[-1] < first.row_starts[-1]
    assert not list(tmp_path.glob("*.partial"))


def test_rows_of_another_store_are_refused(tmp_path: Path) -> None:
    prepack(tmp_path, random_store(tmp_path, 90), WIDTH)
    other = random_store(tmp_path, 90, seed=1)
    with pytest.raises(CorpusError, match=r"another store.*heedful prepare"):
        PrepackedRows.open(tmp_path, other, WIDTH)
    assert prepack(tmp_path, other, WIDTH).tokens.sum() == other.target.num_tokens


@pytest.mark.parametrize("name", ["rows.json", "rows.blocks", "rows.offsets", "rows.members", "rows.tokens"])
def test_missing_or_truncated_files_are_named(tmp_path: Path, name: str) -> None:
    store = random_store(tmp_path, 90)
    prepack(tmp_path, store, WIDTH)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CorpusError, match=name):
        PrepackedRows.open(tmp_path, store, WIDTH)
    path.unlink()
    with pytest.raises(CorpusError, match=name):
        PrepackedRows.open(tmp_path, store, WIDTH)
    prepack(tmp_path, store, WIDTH)
    PrepackedRows.open(tmp_path, store, WIDTH)
