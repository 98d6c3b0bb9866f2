"""The script that has a teacher translate the text of the model in the box, with a teacher that only copies."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "configs" / "box-distil.sh"
TEACHER = """#!/usr/bin/env bash
while [ $# -gt 0 ]; do case $1 in -i) from=$2;; -o) to=$2;; esac; shift; done
echo "$to" >> calls
if [ "$(basename "$to")" = "${UNABLE:-}" ]; then exit 3; fi
tr a-z A-Z < "$from" > "$to"
"""

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(TEACHER, encoding="utf-8")
    (tmp_path / "bin" / "python3").chmod(0o755)
    texts = {
        "newstest/news.en": "news\n",
        "multi30k/test2016.en": "a test\n",
        "msdocs-en-zh/valid.en": "a valid line\n",
        "msdocs-en-zh/test.en": "a test\n",
        "europarl-en-de/train.en": "one\ntwo\na test\n",
        "europarl-en-de/train.de": "eins\nzwei\nein test\n",
        "tatoeba-en-de/train.en": "hello\ntwo\nhello\nnews\n",
        "msdocs-en-zh/train.en": "click\na valid line\nclick\n",
    }
    for name, text in texts.items():
        (tmp_path / "my data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "my data" / name).write_text(text, encoding="utf-8")
    return tmp_path


def distil(folder: Path, **settings: str) -> int:
    (folder / "calls").write_text("", encoding="utf-8")
    environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", **settings}
    command = ["bash", str(SCRIPT), "my data", "teacher", "dis tilled"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode


def made(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text("utf-8").splitlines() for path in (folder / "dis tilled").iterdir()}


def test_each_file_has_the_lines_that_the_script_says(folder: Path) -> None:
    assert distil(folder) == 0
    found = made(folder)
    assert sorted(found.pop("held-out.en")) == ["a test", "a test", "a test", "a valid line", "news"]
    assert found == {
        "en-de.en": ["one", "two", "a test"],
        "en-de.de": ["ONE", "TWO", "A TEST"],
        "de-en.de": ["eins", "zwei", "ein test"],
        "de-en.en": ["EINS", "ZWEI", "EIN TEST"],
        "more-de.en": ["click"],
        "more-de.de": ["CLICK"],
        "more-zh.en": ["hello", "two", "one"],
        "more-zh.zh": ["HELLO", "TWO", "ONE"],
    }


def test_a_text_that_broke_off_is_not_taken_for_the_whole(folder: Path) -> None:
    corpus = folder / "my data" / "tatoeba-en-de" / "train.en"
    text = corpus.read_text("utf-8")
    corpus.unlink()
    assert distil(folder) != 0
    assert "en-de.en" in made(folder)
    assert "more-zh.en" not in made(folder)
    corpus.write_text(text, encoding="utf-8")
    assert distil(folder) == 0
    assert made(folder)["more-zh.zh"] == ["HELLO", "TWO", "ONE"]


def test_what_failed_is_told_and_what_is_whole_is_not_made_again(folder: Path) -> None:
    assert distil(folder, UNABLE="more-de.de") == 1
    assert "more-de.de" not in made(folder)
    assert distil(folder, MOST_LINES="1") == 0
    assert (folder / "calls").read_text("utf-8").split("\n") == ["dis tilled/more-de.de", ""]
    assert made(folder)["en-de.de"] == ["ONE", "TWO", "A TEST"]
