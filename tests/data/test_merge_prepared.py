"""Merging prepared directories: byte for byte the result of preparing all corpora at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heedful.config import CorpusConfig, DataConfig, TokenizerConfig
from heedful.data import prepare as prepare_module
from heedful.data.prepare import Prepared, merge_prepared, prepare
from heedful.errors import ConfigError, CorpusError
from tests.data.test_prepare import TOKENIZER, write_corpus


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[CorpusConfig]:
    """Three without a common pair, the second of weight 2."""
    folder = tmp_path_factory.mktemp("corpora")
    made = [write_corpus(folder, 90, seed=seed, name=f"train{seed}") for seed in range(3)]
    seen: set[str] = set()
    for corpus in made:
        for path, change in ((corpus.source, str), (corpus.target, str.upper)):
            lines = [line for line in Path(str(path)).read_text().splitlines() if line.lower() not in seen]
            Path(str(path)).write_text("".join(f"{change(line)}\n" for line in lines))
        seen |= {line.lower() for line in lines}
    return [made[0], replace(made[1], weight=2.0), made[2]]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, corpora: list[CorpusConfig]) -> dict[str, Any]:
    """Settings that all parts share."""
    folder = tmp_path_factory.mktemp("shared")
    valid = tuple(write_corpus(folder, 12, seed=9, name=name) for name in ("valid", "test"))
    given = prepare(DataConfig(train=(corpora[0],), num_valid_pairs=5), TOKENIZER, folder / "tokenizer", seed=1)
    return {
        "data": {"valid": valid[:1], "test": valid[1:], "row_width": 64},
        "tokenizer": TokenizerConfig(path=str(given.directory)),
    }


def part(folder: Path, settings: dict[str, Any], *train: CorpusConfig, **changes: Any) -> Prepared:
    data = DataConfig(train=train, **{**settings["data"], **changes})
    return prepare(data, settings["tokenizer"], folder, seed=1)


@pytest.fixture(scope="module")
def parts(
    tmp_path_factory: pytest.TempPathFactory, corpora: list[CorpusConfig], settings: dict[str, Any]
) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    made = [part(folder / "one", settings, *corpora[:2]), part(folder / "two", settings, corpora[2])]
    return [one.directory for one in made]


def test_merged_equals_prepared_at_once(
    tmp_path: Path,
    parts: list[Path],
    corpora: list[CorpusConfig],
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepare_module, "PAIRS_PER_MERGE_STEP", 50)
    num_done: list[int] = []
    whole = part(tmp_path / "whole", settings, *corpora)
    merged = merge_prepared(parts, tmp_path / "merged", progress=lambda stage, done, total: num_done.append(done))
    assert sum(num_done) == len(whole.train) == len(merged.train)
    files = [path.relative_to(whole.directory) for path in whole.directory.rglob("*") if path.is_file()]
    assert len(files) > 12
    for name in files:
        if name.name != "prepared.json":
            assert (merged.directory / name).read_bytes() == (whole.directory / name).read_bytes(), name
    assert merged.report == whole.report
    assert merged.lengths == whole.lengths


def test_merging_again_replaces_the_directory(tmp_path: Path, parts: list[Path]) -> None:
    one = merge_prepared(parts, tmp_path / "merged").train.pair(0)
    merged = merge_prepared(parts[::-1], tmp_path / "merged")
    assert merged.train.pair(0) == Prepared.open(parts[1]).train.pair(0) != one
    manifest = json.loads((tmp_path / "merged" / "prepared.json").read_text())
    fingerprint = prepare_module.merged_fingerprint
    assert manifest["fingerprint"] == fingerprint(parts[::-1]) != fingerprint(parts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row_width": 128}, "rows of 128 tokens and .* of 64.*data.row_width"),
        ({"valid": ()}, "valid.jsonl differs .* same data.valid"),
        ({"test": ()}, "test.jsonl differs .* same data.test"),
    ],
)
def test_incompatible_parts_are_refused(
    tmp_path: Path, parts: list[Path], corpora: list[CorpusConfig], settings: dict[str, Any], changes: Any, message: str
) -> None:
    other = part(tmp_path / "other", settings, corpora[2], **changes)
    with pytest.raises(ConfigError, match=message):
        merge_prepared([parts[0], other.directory], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_other_tokenizers_and_missing_parts_are_refused(
    tmp_path: Path, parts: list[Path], corpora: list[CorpusConfig], settings: dict[str, Any]
) -> None:
    other = part(tmp_path / "other", {**settings, "tokenizer": TOKENIZER}, corpora[2])
    with pytest.raises(ConfigError, match=r"same tokenizer\.path"):
        merge_prepared([parts[0], other.directory], tmp_path / "merged")
    with pytest.raises(CorpusError, match="not a prepared directory"):
        merge_prepared([parts[0], tmp_path], tmp_path / "merged")
