"""The script that has teachers translate the text of the model in the box, with a teacher that only copies."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
FIRST = ("first", "my data", "teacher", "dis tilled")
SECOND = ("second", "my data", "teacher", "dis tilled", "plain text")
TEACHER = """#!/usr/bin/env bash
if [ "$1" != -m ]; then exec "$REAL_PYTHON" "$@"; fi
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
        "tatoeba-en-de/train.de": "hallo\nzwei\nservus\nneues\n",
        "msdocs-en-zh/train.en": "click\na valid line\nclick\n",
    }
    (tmp_path / "plain text").mkdir()
    (tmp_path / "plain text" / "parliament.en").write_text("plain one\nplain two\na test\n", encoding="utf-8")
    for name, text in texts.items():
        (tmp_path / "my data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "my data" / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    (folder / "calls").write_text("", encoding="utf-8")
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "REAL_PYTHON": sys.executable, **settings}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)


def distil(folder: Path, *arguments: str, **settings: str) -> int:
    return run(folder, "bash", str(CONFIGS / "box-distil.sh"), *(arguments or FIRST), **settings).returncode


def made(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text("utf-8").splitlines() for path in (folder / "dis tilled").iterdir()}


def test_each_file_of_the_first_lesson_has_the_lines_that_the_script_says(folder: Path) -> None:
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


def test_each_file_of_the_second_lesson_has_the_lines_that_the_script_says(folder: Path) -> None:
    assert distil(folder, *SECOND) == 0
    assert made(folder) == {
        "en-de-1.en": ["plain one", "plain two", "a test"],
        "en-de-1.de": ["PLAIN ONE", "PLAIN TWO", "A TEST"],
        "en-de-2.en": [],
        "en-de-2.de": [],
        "en-de-3.en": ["hello", "two", "hello", "news"],
        "en-de-3.de": ["HELLO", "TWO", "HELLO", "NEWS"],
        "de-en-1.de": ["eins", "zwei", "ein test"],
        "de-en-1.en": ["EINS", "ZWEI", "EIN TEST"],
        "de-en-2.de": [],
        "de-en-2.en": [],
        "de-en-3.de": ["hallo", "zwei", "servus", "neues"],
        "de-en-3.en": ["HALLO", "ZWEI", "SERVUS", "NEUES"],
    }


def test_the_second_lesson_takes_parliament_in_parts_that_follow_each_other(folder: Path) -> None:
    for name, lines in (("plain text/parliament.en", 450_000), ("my data/europarl-en-de/train.de", 310_000)):
        (folder / name).write_text("".join(f"{line}\n" for line in range(1, lines + 1)), encoding="utf-8")
    assert distil(folder, *SECOND) == 0
    found = made(folder)
    for name, half in (("en-de-{}.en", 200_000), ("de-en-{}.de", 150_000)):
        for part in (1, 2):
            assert found[name.format(part)] == [str(line) for line in range((part - 1) * half + 1, part * half + 1)]


def test_a_trial_of_the_second_lesson_takes_a_few_lines_of_each(folder: Path) -> None:
    assert distil(folder, *SECOND, MOST_LINES="1") == 0
    found = made(folder)
    assert len(found) == 12 and max(map(len, found.values())) == 1
    assert found["en-de-3.en"] == ["hello"] and found["en-de-1.de"] == ["PLAIN ONE"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say first DATA TEACHER OUT or second DATA TEACHER OUT TEXT, not ''"),
        (("third", *FIRST[1:]), "say first"),
        (FIRST[1:], "not 'my data teacher dis tilled'"),
        (SECOND[:-1], "say first"),
        ((*FIRST, "plain text"), "say first"),
        (("first", "nowhere", "teacher", "dis tilled"), "nowhere: there is no such folder"),
        ((*SECOND[:-1], "nowhere"), "python3 configs/box-text.py corpora my data nowhere"),
    ],
)
def test_a_wrong_lesson_or_folder_is_told_in_one_line(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(folder, "bash", str(CONFIGS / "box-distil.sh"), *arguments)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not (folder / "dis tilled").exists()


@pytest.mark.usefixtures("benchmarks")
def test_the_steps_of_the_recipe_make_every_text_that_a_recipe_names(folder: Path) -> None:
    """All steps of the header of box.yaml but those of the program, in their order."""
    (folder / "configs").symlink_to(CONFIGS)
    (folder / "my data").rename(folder / "data")
    header = (CONFIGS / "box.yaml").read_text("utf-8")
    steps = re.findall(r"^#   ((?:bash|python3) .*?)(?:  #.*)?$", header, flags=re.MULTILINE)
    assert len(steps) == 6
    for step in steps:
        done = run(folder, "bash", "-c", step)
        assert done.returncode == 0, (step, done.stderr)
    named = [name for name in importlib.import_module("box_sets").named_files() if not name.startswith("data/")]
    assert {name.partition("/")[0] for name in named} == {"distilled", "text"}
    assert [name for name in named if not (folder / name).exists()] == []
