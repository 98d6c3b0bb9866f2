"""Preparing corpora: contents of the directory, reuse, determinism, and damaged files."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.config import CorpusConfig, DataConfig, TokenizerConfig
from heedful.data import prepare as prepare_module
from heedful.data.prepare import (
    MANIFEST,
    Prepared,
    choose_width,
    is_prepared,
    prepare,
    prepared_fingerprint,
    resolve_shuffle,
)
from heedful.errors import ConfigError, CorpusError, ModelDirectoryError
from heedful.text.corpus import TrainingPair

WORDS = "red blue green cat dog bird runs sits eats one two three".split()
TOKENIZER = TokenizerConfig(vocab_size=320)


def write_corpus(folder: Path, num_pairs: int = 120, *, seed: int = 0, name: str = "train") -> CorpusConfig:
    """Sentences of a few words, and the same words in capitals."""
    chance = random.Random(seed)
    lines = {" ".join(chance.choices(WORDS, k=chance.randint(3, 9))): None for _ in range(num_pairs)}
    source, target = folder / f"{name}.a", folder / f"{name}.b"
    source.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    target.write_text("".join(line.upper() + "\n" for line in lines), encoding="utf-8")
    return CorpusConfig(source=str(source), target=str(target))


def stamps(directory: Path) -> dict[str, int]:
    """The modification time of each file."""
    return {str(path): path.stat().st_mtime_ns for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture
def data(tmp_path: Path) -> DataConfig:
    return DataConfig(train=(write_corpus(tmp_path),), num_valid_pairs=10)


def test_prepared_directory_is_complete(tmp_path: Path, data: DataConfig) -> None:
    stages: list[str] = []
    prepared = prepare(
        data, TOKENIZER, tmp_path / "out", seed=1, progress=lambda stage, done, total: stages.append(stage)
    )
    assert len(prepared.valid) == len(prepared.valid_pairs) == 10
    assert len(prepared.train) == prepared.report["num_pairs"] > 90
    assert not prepared.test_pairs
    assert prepared.row_width == 128
    assert prepared.report["longer_than_a_row"] == {"train": 0, "valid": 0}
    assert prepared.tokenizer.source_vocab_size <= 320
    assert "tokenising" in stages
    texts = {
        (
            prepared.tokenizer.decode_source(prepared.train.source.sentence(i)),
            prepared.tokenizer.decode(prepared.train.target.sentence(i)),
        )
        for i in range(len(prepared.train))
    }
    assert all(source.upper() == target for source, target in texts)
    assert not texts & {(pair.source, pair.target) for pair in prepared.valid_pairs}
    lengths = prepared.train.source.lengths(np.arange(len(prepared.train)))
    assert prepared.lengths["source_mean"] == pytest.approx(lengths.mean(), abs=0.01)
    assert prepared.lengths["row_width"] == 128


def test_second_call_reuses_the_directory(tmp_path: Path, data: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    before = stamps(tmp_path / "out")
    monkeypatch.setattr(prepare_module, "preflight", lambda *arguments, **settings: pytest.fail("read again"))
    second = prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    assert stamps(tmp_path / "out") == before
    assert second.valid_pairs == first.valid_pairs
    assert second.report == first.report
    assert second.lengths == first.lengths


@pytest.mark.parametrize("change", ["corpus", "tokenizer", "data", "seed"])
def test_any_change_prepares_again(tmp_path: Path, data: DataConfig, change: str) -> None:
    first = prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    num_pairs = len(first.train)
    tokenizer, seed = TOKENIZER, 1
    if change == "corpus":
        write_corpus(tmp_path, 150)
    elif change == "tokenizer":
        tokenizer = TokenizerConfig(vocab_size=310)
    elif change == "data":
        data = DataConfig(train=data.train, num_valid_pairs=20)
    else:
        seed = 2
    assert not is_prepared(tmp_path / "out", prepared_fingerprint(data, tokenizer, seed))
    second = prepare(data, tokenizer, tmp_path / "out", seed=seed)
    assert is_prepared(tmp_path / "out", prepared_fingerprint(data, tokenizer, seed))
    differs = {
        "corpus": len(second.train) > num_pairs,
        "tokenizer": second.tokenizer.source_vocab_size <= 310,
        "data": len(second.valid) == 20,
        "seed": second.valid_pairs != first.valid_pairs,
    }
    assert differs[change]


def test_preparing_is_deterministic(tmp_path: Path, data: DataConfig) -> None:
    for name in ("one", "two"):
        prepare(data, TOKENIZER, tmp_path / name, seed=1)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(files) > 6
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path


def test_number_of_workers_changes_no_byte(tmp_path: Path) -> None:
    first, second = write_corpus(tmp_path, 9500), write_corpus(tmp_path, 1300, seed=5, name="more")
    bad = Path(str(second.source))
    bad.write_bytes(bad.read_bytes().replace(b"red", b"\xffred", 3))
    languages: dict[str, Any] = {"source_language": "xx", "target_language": "yy"}
    corpora = (
        CorpusConfig(source=first.source, target=first.target, both_directions=True, **languages),
        CorpusConfig(source=second.source, target=second.target, weight=2, **languages),
    )
    test = write_corpus(tmp_path, 20, name="test")
    for workers in (1, 3):
        data = DataConfig(train=corpora, test=(test,), num_workers=workers, **languages)
        prepared = prepare(data, TokenizerConfig(vocab_size=320, max_sentences=900), tmp_path / str(workers), seed=1)
        assert prepared.report["corpora"][1]["dropped"]["wrong encoding"] == 3
    assert is_prepared(
        tmp_path / "1", prepared_fingerprint(data, TokenizerConfig(vocab_size=320, max_sentences=900), 1)
    )
    files = [path.relative_to(tmp_path / "1") for path in (tmp_path / "1").rglob("*") if path.is_file()]
    assert len(files) > 6
    for path in files:
        assert (tmp_path / "1" / path).read_bytes() == (tmp_path / "3" / path).read_bytes(), path


def test_joint_and_separate_vocabularies(tmp_path: Path, data: DataConfig) -> None:
    joint = prepare(data, TOKENIZER, tmp_path / "joint", seed=1).tokenizer
    separate = prepare(data, TokenizerConfig(vocab_size=300, joint=False), tmp_path / "separate", seed=1).tokenizer
    assert joint.joint
    assert not separate.joint
    assert (tmp_path / "joint" / "tokenizer.model").exists()
    assert (tmp_path / "separate" / "source.model").exists()
    assert (tmp_path / "separate" / "target.model").exists()
    assert len(separate.encode_target("CAT DOG")) < len(separate.encode_target("cat dog"))  # never seen on this side
    assert len(separate.encode_source("cat dog")) < len(separate.encode_source("CAT DOG"))


def test_both_directions_with_tags(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, 60)
    both = CorpusConfig(
        source=corpus.source, target=corpus.target, source_language="xx", target_language="yy", both_directions=True
    )
    prepared = prepare(DataConfig(train=(both,), num_valid_pairs=6), TOKENIZER, tmp_path / "out", seed=1)
    tokenizer = prepared.tokenizer
    assert tokenizer.tags == ("xx", "yy")
    tags = {language: tokenizer.encode_source("cat", language)[0] for language in ("xx", "yy")}
    counts = dict.fromkeys(tags, 0)
    for index in range(len(prepared.train)):
        source = list(prepared.train.source.sentence(index))
        text, translation = tokenizer.decode_source(source), tokenizer.decode(prepared.train.target.sentence(index))
        language = "yy" if text.islower() else "xx"
        assert source[0] == tags[language]
        assert translation == (text.upper() if language == "yy" else text.lower())
        counts[language] += 1
    assert counts["xx"] == counts["yy"] > 20
    assert {pair.target_language for pair in prepared.valid_pairs} <= {"xx", "yy"}


def test_row_width_is_chosen_for_the_sentences(tmp_path: Path, data: DataConfig) -> None:
    tokenizer = prepare(data, TOKENIZER, tmp_path / "out", seed=1).tokenizer
    short = [TrainingPair("cat", "CAT", 0, None)] * 99
    long = [TrainingPair("cat " * 50, "CAT", 0, None)]
    assert choose_width(tokenizer, short) == 128
    assert choose_width(tokenizer, short + long) == 128  # one in a hundred may be left out
    assert choose_width(tokenizer, short + 2 * long) == 256
    assert choose_width(tokenizer, [TrainingPair("cat " * 4000, "CAT", 0, None)]) == 1024


def test_pairs_longer_than_a_row_are_counted_and_dropped(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, 60)
    assert corpus.source is not None
    assert corpus.target is not None
    for path in (corpus.source, corpus.target):
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(f"cat {index} " + "dog " * 40 + "\n" for index in range(3)))
    data = DataConfig(train=(corpus,), valid=(corpus,), row_width=40, drop_overlap=False, drop_identical=False)
    prepared = prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    assert prepared.report["longer_than_a_row"] == {"train": 3, "valid": 3}
    assert len(prepared.train) == prepared.report["num_pairs"] - 3
    assert max(prepared.train.source.longest, prepared.train.target.longest) <= 40
    assert len(prepared.valid_pairs) == len(prepared.valid) + 3  # they are still translated and scored
    with pytest.raises(CorpusError, match="no pair fits in a row of 2 tokens"):
        prepare(DataConfig(train=(corpus,), row_width=2, drop_identical=False), TOKENIZER, tmp_path / "two", seed=1)


def test_corpus_weights_are_stored(tmp_path: Path) -> None:
    first, second = write_corpus(tmp_path, 40), write_corpus(tmp_path, 30, seed=5, name="more")
    doubled = CorpusConfig(source=second.source, target=second.target, weight=2.5)
    prepared = prepare(DataConfig(train=(first, doubled), num_valid_pairs=5), TOKENIZER, tmp_path / "out", seed=1)
    assert tuple(prepared.train.corpus_weights) == (1.0, 2.5)


@pytest.mark.parametrize("text", ["{", "[]", '{"format_version": 99}', ""])
def test_damaged_manifest_is_refused_by_open_and_rewritten_by_prepare(
    tmp_path: Path, data: DataConfig, text: str
) -> None:
    prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    (tmp_path / "out" / MANIFEST).write_text(text)
    with pytest.raises(CorpusError, match=r"prepared\.json.*run `heedful prepare` again"):
        Prepared.open(tmp_path / "out")
    prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    assert Prepared.open(tmp_path / "out").row_width == 128


def test_unfinished_directory_is_refused(tmp_path: Path, data: DataConfig) -> None:
    with pytest.raises(CorpusError, match="not a prepared directory"):
        Prepared.open(tmp_path / "nowhere")
    prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    (tmp_path / "out" / MANIFEST).unlink()
    with pytest.raises(CorpusError, match="not a prepared directory"):
        Prepared.open(tmp_path / "out")
    prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    assert Prepared.open(tmp_path / "out")


def test_damaged_sentences_are_refused(tmp_path: Path, data: DataConfig) -> None:
    prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    (tmp_path / "out" / "valid.jsonl").write_text('{"source": "a"}\n')
    with pytest.raises(CorpusError, match=r"valid\.jsonl: the contents have changed since they were written"):
        Prepared.open(tmp_path / "out")


@pytest.mark.parametrize("name", ["train/source.ids", "valid/store.json", "valid.jsonl", "tokenizer.model", MANIFEST])
def test_damaged_directory_is_prepared_again(tmp_path: Path, data: DataConfig, name: str) -> None:
    whole = prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    damaged = tmp_path / "out" / name
    if name == MANIFEST:
        manifest = json.loads(damaged.read_text())
        damaged.write_text(json.dumps({**manifest, "row_width": None}))
    else:
        damaged.write_bytes(damaged.read_bytes()[:-3])
    with pytest.raises((CorpusError, ModelDirectoryError)):
        Prepared.open(tmp_path / "out")
    assert not is_prepared(tmp_path / "out", prepared_fingerprint(data, TOKENIZER, 1))
    assert prepare(data, TOKENIZER, tmp_path / "out", seed=1).train.pair(0) == whole.train.pair(0)


def test_interrupted_preparation_is_not_reused(
    tmp_path: Path, data: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(data, TOKENIZER, tmp_path / "out", seed=1)

    def die(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "write_store", die)
        with pytest.raises(KeyboardInterrupt):
            prepare(data, TOKENIZER, tmp_path / "out", seed=2)
    assert not is_prepared(tmp_path / "out", prepared_fingerprint(data, TOKENIZER, 1))
    assert not is_prepared(tmp_path / "out", prepared_fingerprint(data, TOKENIZER, 2))


def test_existing_tokenizer_is_used(tmp_path: Path, data: DataConfig) -> None:
    first = prepare(data, TOKENIZER, tmp_path / "one", seed=1)
    other = DataConfig(train=(write_corpus(tmp_path, 50, seed=9, name="other"),), num_valid_pairs=5)
    second = prepare(other, TokenizerConfig(path=str(tmp_path / "one")), tmp_path / "two", seed=1)
    assert (tmp_path / "one" / "tokenizer.model").read_bytes() == (tmp_path / "two" / "tokenizer.model").read_bytes()
    assert second.tokenizer.encode_source("red cat") == first.tokenizer.encode_source("red cat")


def test_changed_tokenizer_prepares_again(tmp_path: Path, data: DataConfig) -> None:
    prepare(data, TOKENIZER, tmp_path / "one", seed=1)
    borrowed = TokenizerConfig(path=str(tmp_path / "one"))
    prepare(data, borrowed, tmp_path / "two", seed=1)
    assert is_prepared(tmp_path / "two", prepared_fingerprint(data, borrowed, 1))
    prepare(data, TokenizerConfig(vocab_size=310), tmp_path / "one", seed=1)
    assert not is_prepared(tmp_path / "two", prepared_fingerprint(data, borrowed, 1))


def test_tokenizer_without_the_tags_is_refused(tmp_path: Path, data: DataConfig) -> None:
    prepare(data, TOKENIZER, tmp_path / "one", seed=1)
    tagged = DataConfig(train=data.train, target_language="yy", target_tags=True)
    with pytest.raises(ConfigError, match=r"tokenizer\.path.*no tag for yy"):
        prepare(tagged, TokenizerConfig(path=str(tmp_path / "one")), tmp_path / "two", seed=1)


def test_tokenizer_with_tags_requires_target_tags(tmp_path: Path, data: DataConfig) -> None:
    both = replace(data.train[0], source_language="xx", target_language="yy", both_directions=True)
    prepare(DataConfig(train=(both,)), TOKENIZER, tmp_path / "both", seed=1)
    one_way, borrowed = replace(both, both_directions=False), TokenizerConfig(path=str(tmp_path / "both"))
    with pytest.raises(ConfigError, match=r"tag for the target language \(xx, yy\).*set data\.target_tags=true"):
        prepare(DataConfig(train=(one_way,)), borrowed, tmp_path / "one", seed=1)
    made = prepare(DataConfig(train=(one_way,), target_tags=True), borrowed, tmp_path / "one", seed=1)
    assert made.train.source.sentence(0)[0] == made.tokenizer.encode_source("", "yy")[0]


def test_missing_validation_pairs_are_refused(tmp_path: Path, data: DataConfig) -> None:
    with pytest.raises(ConfigError, match="no pairs to validate on"):
        prepare(DataConfig(train=data.train, num_valid_pairs=0), TOKENIZER, tmp_path / "out", seed=1)


def test_missing_corpus_is_named(tmp_path: Path) -> None:
    corpus = CorpusConfig(source=str(tmp_path / "none.a"), target=str(tmp_path / "none.b"))
    with pytest.raises(CorpusError, match=r"none\.a"):
        prepare(DataConfig(train=(corpus,)), TOKENIZER, tmp_path / "out", seed=1)


def test_test_sentences_are_stored_as_text(tmp_path: Path, data: DataConfig) -> None:
    test = write_corpus(tmp_path, 12, seed=3, name="test")
    prepared = prepare(DataConfig(train=data.train, test=(test,)), TOKENIZER, tmp_path / "out", seed=1)
    assert [pair.source for pair in prepared.test_pairs] == Path(test.source or "").read_text().splitlines()
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert [corpus["role"] for corpus in manifest["report"]["corpora"]] == ["train", "test"]


def test_rows_are_prepacked_for_shuffle_blocks(
    tmp_path: Path, data: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing directory is not prepared again for them."""
    first = prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    assert not (first.directory / "train" / "rows.json").exists()
    written = (first.directory / "train" / "store.json").stat().st_mtime_ns
    stages: set[str] = set()
    monkeypatch.setattr(prepare_module, "MAX_PAIRS_TO_SHUFFLE", len(first.train) - 1)
    again = prepare(data, TOKENIZER, tmp_path / "out", seed=1, progress=lambda stage, done, total: stages.add(stage))
    assert stages == {"packing rows"}
    assert again.open_prepacked().members.size == len(first.train)
    assert (first.directory / "train" / "store.json").stat().st_mtime_ns == written
    (first.directory / "train" / "rows.json").unlink()
    (first.directory / "train" / "rows.offsets.partial").mkdir()
    with pytest.raises(CorpusError, match=r"cannot write.*data\.shuffle=pairs does not need them"):
        prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    assert not (first.directory / "train" / "rows.blocks.partial").exists()
    assert resolve_shuffle("pairs", 1 << 40) == "pairs"
    assert resolve_shuffle(None, len(first.train) - 1) == "pairs"


def test_flipped_bit_in_any_file_is_detected(tmp_path: Path, data: DataConfig) -> None:
    prepare(data, TOKENIZER, tmp_path / "out", seed=1)
    files = sorted(path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.stat().st_size)
    assert {"source.ids", "target.offsets", "corpora", "tokenizer.model", "prepared.json"} <= {p.name for p in files}
    for path in files:
        whole = path.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 2):
            damaged = bytearray(whole)
            damaged[place] ^= 1
            path.write_bytes(damaged)
            if path.name != "prepared.json" or json.loads(whole) != _json(bytes(damaged)):
                with pytest.raises(CorpusError):
                    Prepared.open(tmp_path / "out")
        path.write_bytes(whole)
    before = {path: path.read_bytes() for path in files}
    files[1].write_bytes(b"damaged")
    prepare(data, TOKENIZER, tmp_path / "out", seed=1)  # which writes the same bytes
    assert {path: path.read_bytes() for path in files} == before


def _json(contents: bytes) -> object:
    try:
        return json.loads(contents)
    except ValueError:
        return None
