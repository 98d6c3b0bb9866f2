"""A corpus and a trained model shared by all tests of the program, and an in-process runner."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path

import pytest

from tests.cli.program import TINY, Corpus, Ended, Inside, run


@pytest.fixture
def inside(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Inside:
    """Run the program inside this process, in an empty working directory."""
    from heedful.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object, given: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(given))))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)

    return call


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    drawn = random.Random(1)
    sentences = {" ".join(drawn.choice("0123456789") for _ in range(drawn.randint(2, 6))) for _ in range(900)}
    sources = sorted(text for text in sentences if text != text[::-1])
    drawn.shuffle(sources)
    files = Corpus(folder / "train.aa", folder / "train.bb", folder / "test.aa", folder / "test.bb")
    for source, target, part in (
        (files.source, files.target, sources[40:]),
        (files.test_source, files.test_target, sources[:40]),
    ):
        source.write_text("".join(f"{text}\n" for text in part))
        target.write_text("".join(f"{text[::-1]}\n" for text in part))
    return files


@pytest.fixture(scope="session")
def model(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trained model shared by the tests that only read it."""
    directory = tmp_path_factory.mktemp("trained") / "model"
    test = ["--test-source", corpus.test_source, "--test-target", corpus.test_target]
    ended = run("train", *corpus.flags, *test, *TINY, "--steps", 150, "--name", "Digits reversed", "-o", directory)
    assert ended.out == ""
    return directory
