"""Broken corpora and broken model directories: one message, exit code 2, no traceback."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from heedful.model_dir.files import sha256
from tests.cli.program import TINY, Corpus, Inside

DIGITS = b"".join(b"%d %d\n" % (number, number + 7) for number in range(100))
OTHERS = b"".join(b"%d %d\n" % (number + 7, number) for number in range(100))


@pytest.mark.parametrize("verb", ["train", "prepare"])
@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (DIGITS, OTHERS + b"one more\n", ["100", "101"]),
        (b"", OTHERS, ["bad.aa", "empty"]),
        (b"\xff\xfe" + "words\n".encode("utf-16-le") * 100, OTHERS, ["bad.aa", "UTF-16"]),
        (b"\xe9t\xe9\n" * 100, OTHERS, ["bad.aa", "line 1", "UTF-8", "iconv"]),
        (b"\0\0\n" * 100, OTHERS, ["bad.aa", "NUL"]),
        (b"\n" * 100, OTHERS, ["empty"]),
        (DIGITS, DIGITS, ["source = target"]),
        (None, OTHERS, ["bad.aa", "no such file"]),
    ],
    ids=["unequal", "empty", "utf-16", "latin-1", "nul", "empty lines", "identical", "missing"],
)
def test_broken_corpora_are_refused(
    inside: Inside, tmp_path: Path, verb: str, source: bytes | None, target: bytes, words: Sequence[str]
) -> None:
    if source is not None:
        (tmp_path / "bad.aa").write_bytes(source)
    (tmp_path / "bad.bb").write_bytes(target)
    budget = ["--steps", 1, *TINY] if verb == "train" else []
    message = inside(verb, "--source", "bad.aa", "--target", "bad.bb", "-o", "out", *budget).refused()
    assert all(word.lower() in message.lower() for word in words), message


@pytest.mark.parametrize("kind", ["directory", "cut gzip", "no gzip", "hidden gzip"])
@pytest.mark.parametrize("verb", ["prepare", "translate", "score"])
def test_files_that_cannot_be_read(inside: Inside, tmp_path: Path, model: Path, kind: str, verb: str) -> None:
    bad = tmp_path / ("bad.txt" if kind == "hidden gzip" else "bad.gz")
    packed = gzip.compress(b"".join(b"%d\n" % (number * number) for number in range(3000)))
    if kind == "directory":
        bad.mkdir()
    else:
        bad.write_bytes({"cut gzip": packed[:2000], "no gzip": DIGITS, "hidden gzip": packed}[kind])
    (tmp_path / "good").write_bytes(OTHERS)
    command: Sequence[object] = {
        "prepare": ("prepare", "--source", bad, "--target", "good", "-o", "out"),
        "translate": ("translate", "-m", model, "-i", bad, "-o", "translated"),
        "score": ("score", bad, "-r", "good"),
    }[verb]
    inside(*command).refused("bad.")
    assert not (tmp_path / "translated").exists()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.tsv", "only one column\n", ["a.tsv:1", "column"]),
        ("a.jsonl", '{"source": "a"}\n', ["a.jsonl:1", "target"]),
        ("a.jsonl", "{\n", ["a.jsonl:1", "JSON"]),
        ("a.txt", "words\n", ["a.txt", ".tsv"]),
    ],
)
def test_broken_single_files_are_refused(
    inside: Inside, tmp_path: Path, name: str, text: str, words: Sequence[str]
) -> None:
    (tmp_path / name).write_text(text)
    inside("prepare", "--data", name, "-o", "out").refused(*words)


def test_prepare_refuses_foreign_files(inside: Inside, tmp_path: Path, corpus: Corpus) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "mine").write_text("precious")
    (tmp_path / "notes").write_text("precious")
    inside("prepare", *corpus.flags, "-o", ".", "--overwrite").refused("notes")
    assert (tmp_path / "train" / "mine").read_text() == "precious"
    inside("prepare", *corpus.flags, "-o", "notes").refused("notes", "file")


def break_model(directory: Path, how: str) -> None:
    config = directory / "config.json"
    weights = directory / "model.safetensors"
    if how == "empty":
        shutil.rmtree(directory)
        directory.mkdir()
    elif how == "a file":
        shutil.rmtree(directory)
        directory.write_text("not a directory")
    elif how == "altered weights":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    elif how == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-10])
    elif how == "other version":
        (directory / "checksums.json").write_text(json.dumps({"format_version": 99, "files": {}}))
    elif how == "altered config":
        config.write_text(config.read_text().replace("digits", "letters").replace('"beam_size": 4', '"beam_size": 5'))
    else:
        (directory / how).unlink()


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "a file",
        "altered weights",
        "cut weights",
        "other version",
        "altered config",
        "config.json",
        "model.safetensors",
        "tokenizer.model",
        "tokenizer.json",
        "checksums.json",
    ],
)
def test_broken_models_are_refused(inside: Inside, tmp_path: Path, model: Path, how: str) -> None:
    shutil.copytree(model, tmp_path / "broken", ignore=shutil.ignore_patterns("training"))
    break_model(tmp_path / "broken", how)
    inside("translate", "-m", "broken", "1 2 3").refused("broken")
    inside("info", "broken", "--verify").refused("broken")
    inside("average", model, "broken", "-o", "out").refused("broken")
    assert not (tmp_path / "out").exists()


def test_invalid_shortlist_numbers(inside: Inside, model: Path) -> None:
    for flag, value in (
        ("--no-repeat-ngram-size", 2147483648),
        ("--beam-size", 4294967300),
        ("--min-length", 2147483648),
    ):
        inside("translate", "-m", model, flag, value, "7").refused("must be at most")


def test_escape_sequences_of_a_model_are_not_printed(inside: Inside, model: Path, tmp_path: Path) -> None:
    """A terminal would execute these sequences."""
    shutil.copytree(model, tmp_path / "copy")
    path = tmp_path / "copy/config.json"
    record = json.loads(path.read_text("utf-8"))
    record["config"]["name"] = record["config"]["licence"] = "\x1b]0;owned\x07\x9b2J"
    path.write_text(json.dumps(record), "utf-8")
    sums = json.loads((tmp_path / "copy/checksums.json").read_text("utf-8"))
    sums["files"]["config.json"] = {"size": path.stat().st_size, "sha256": sha256(path)}
    (tmp_path / "copy/checksums.json").write_text(json.dumps(sums), "utf-8")
    shown = inside("info", tmp_path / "copy").out
    assert "\\x1b]0;owned" in shown and not any(character in shown for character in "\x1b\x07\x9b")


@pytest.mark.parametrize("to_file", [False, True])
def test_gzip_bomb_is_refused(inside: Inside, model: Path, tmp_path: Path, to_file: bool) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"7\n8\n")
        for _ in range(40):
            file.write(bytes(1 << 20))
    output = ["-o", tmp_path / "out"] if to_file else []
    ended = inside("translate", "-m", model, "-i", path, *output)
    ended.refused("bomb.gz:3", "break it into lines")
    if to_file:
        assert (tmp_path / "out.partial").read_bytes().count(b"\n") == 2
    else:
        assert ended.out.count("\n") == 2
