"""The distillation script, with a teacher that copies its input."""

from __future__ import annotations

import importlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "bundled-model"
FIRST = ("first", "my data", "teacher", "dis tilled")
SECOND, THIRD, FOURTH = (
    (round, "my data", "teacher", "dis tilled", "plain text") for round in ("second", "third", "fourth")
)
TEACHER = """#!/usr/bin/env bash
if [ "$1" != -m ]; then exec "$REAL_PYTHON" "$@"; fi
most=1
while [ $# -gt 0 ]; do
  case $1 in -i) from=$2;; -o) to=$2;; --to) language=$2;; --json) json=yes;; --num-best) most=$2;; esac
  shift
done
echo "$to" >> calls
if [ "$(basename "$to")" = "${UNABLE:-}" ]; then exit 3; fi
if [ "${json:-}" ]; then exec "$REAL_PYTHON" bin/several.py "$most" "$language" < "$from" > "$to"; fi
tr a-z A-Z < "$from" > "$to"
"""
SEVERAL = """import json, sys
for line in map(str.rstrip, sys.stdin):
    found = [line.upper(), line, line.capitalize(), line.lower(), ""][: int(sys.argv[1])]
    n_best = [{"text": one} for one in found]
    print(json.dumps({"source": line, "target_language": sys.argv[2], "text": found[0], "n_best": n_best}))
"""

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(TEACHER, encoding="utf-8")
    (tmp_path / "bin" / "python3").chmod(0o755)
    (tmp_path / "bin" / "several.py").write_text(SEVERAL, encoding="utf-8")
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
        "tatoeba-en-zh/train.en": "tea\nnews\ntea\n",
        "tatoeba-en-zh/train.zh": "茶\n新闻\n喝茶\n",
        "3am-en-zh/train.en": "a boat\ntea\na test\na train\n",
        "3am-en-zh/train.zh": "船\n茶\n考试\n火车\n",
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
    return run(folder, "bash", str(RECIPE / "distill.sh"), *(arguments or FIRST), **settings).returncode


def made(folder: Path, part: str = "dis tilled") -> dict[str, list[str]]:
    return {path.name: path.read_text("utf-8").splitlines() for path in (folder / part).iterdir()}


def number_lines(folder: Path, **lengths: int) -> None:
    """Write a Europarl file with the given number of lines, each containing its line number."""
    for language, length in lengths.items():
        name = "plain text/parliament.en" if language == "en" else f"my data/europarl-en-de/train.{language}"
        (folder / name).write_text("".join(f"{line}\n" for line in range(1, length + 1)), encoding="utf-8")


def numbers(first: int, last: int) -> list[str]:
    return [str(line) for line in range(first, last + 1)]


def test_first_round_file_contents(folder: Path) -> None:
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


def test_unfinished_file_is_written_again(folder: Path) -> None:
    corpus = folder / "my data" / "tatoeba-en-de" / "train.en"
    text = corpus.read_text("utf-8")
    corpus.unlink()
    assert distil(folder) != 0
    assert "en-de.en" in made(folder)
    assert "more-zh.en" not in made(folder)
    corpus.write_text(text, encoding="utf-8")
    assert distil(folder) == 0
    assert made(folder)["more-zh.zh"] == ["HELLO", "TWO", "ONE"]


def test_failed_translation_is_reported_and_finished_files_are_kept(folder: Path) -> None:
    assert distil(folder, UNABLE="more-de.de") == 1
    assert "more-de.de" not in made(folder)
    assert distil(folder, MOST_LINES="1") == 0
    assert (folder / "calls").read_text("utf-8").split("\n") == ["dis tilled/more-de.de", ""]
    assert made(folder)["en-de.de"] == ["ONE", "TWO", "A TEST"]


def test_second_round_file_contents(folder: Path) -> None:
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


def test_second_round_parts_are_consecutive(folder: Path) -> None:
    number_lines(folder, en=450_000, de=310_000)
    assert distil(folder, *SECOND) == 0
    found = made(folder)
    for name, half in (("en-de-{}.en", 200_000), ("de-en-{}.de", 150_000)):
        for part in (1, 2):
            assert found[name.format(part)] == numbers((part - 1) * half + 1, part * half)


def test_second_round_trial_run(folder: Path) -> None:
    assert distil(folder, *SECOND, MOST_LINES="1") == 0
    found = made(folder)
    assert len(found) == 12 and max(map(len, found.values())) == 1
    assert found["en-de-3.en"] == ["hello"] and found["en-de-1.de"] == ["PLAIN ONE"]


# ---- the third and the fourth round ----------------------------------------------------------------------------------


def four_of(lines: list[str], language: str) -> list[dict[str, object]]:
    """The JSON output of the copying teacher for each line, best translation first."""
    return [
        {
            "source": line,
            "target_language": language,
            "text": line.upper(),
            "n_best": [{"text": one} for one in (line.upper(), line, line.capitalize(), line.lower())],
        }
        for line in lines
    ]


def test_third_round_file_contents(folder: Path) -> None:
    assert distil(folder, *THIRD) == 0
    found = made(folder)
    assert sorted(found.pop("held-out.en")) == ["a test", "a test", "a test", "a valid line", "news"]
    everyday = ["hallo", "zwei", "servus", "neues"]
    assert [json.loads(line) for line in found.pop("own-3.json")] == four_of(everyday, "en")
    assert found == {
        "own-1.de": [],  # parliament is too short here for any of these
        "own-1.json": [],
        "own-2.de": [],
        "own-2.json": [],
        "own-3.de": everyday,
        "own-4.en": ["hello", "two"],  # no duplicates, and no line of a test set
        "own-4.zh": ["HELLO", "TWO"],
        "own-5.en": [],
        "own-5.zh": [],
    }


def test_fourth_round_file_contents(folder: Path) -> None:
    assert distil(folder, *FOURTH) == 0
    found = made(folder)
    assert sorted(found.pop("held-out.en")) == ["a test", "a test", "a test", "a valid line", "news"]
    everyday = ["hello", "two", "hello", "news"]
    assert [json.loads(line) for line in found.pop("late-4.json")] == four_of(everyday, "de")
    assert found == {
        "late-1.en": ["plain one", "plain two", "a test"],
        "late-1.de": ["PLAIN ONE", "PLAIN TWO", "A TEST"],
        "late-2.en": [],
        "late-2.de": [],
        "late-3.en": [],
        "late-3.de": [],
        "late-4.en": everyday,
        "late-5.en": ["tea", "a boat", "a train"],  # no duplicates, and no line of a test set
        "late-5.de": ["TEA", "A BOAT", "A TRAIN"],
    }


@pytest.mark.parametrize(
    ("round", "parts", "translated"),
    [
        (
            THIRD,
            {"own-1.de": (300_001, 450_000), "own-2.de": (450_001, 600_000), "own-5.en": (300_001, 450_000)},
            ("own-1.json", "own-2.json", "own-5.zh"),
        ),
        (
            FOURTH,
            {"late-1.en": (1, 250_000), "late-2.en": (250_001, 500_000), "late-3.en": (500_001, 610_000)},
            ("late-1.de", "late-2.de", "late-3.de"),
        ),
    ],
)
def test_later_round_parts_are_consecutive(
    folder: Path, round: tuple[str, ...], parts: dict[str, tuple[int, int]], translated: tuple[str, ...]
) -> None:
    number_lines(folder, en=610_000, de=610_000)
    (folder / "dis tilled").mkdir()
    for name in translated:  # as if it were finished, to save time
        (folder / "dis tilled" / name).touch()
    assert distil(folder, *round) == 0
    found = made(folder)
    assert all(found[name] == numbers(*part) for name, part in parts.items())


@pytest.mark.parametrize(
    ("round", "name", "lines"),
    [(THIRD, "own-2.de", ["450001", "450002"]), (FOURTH, "late-3.en", ["500001", "500002"])],
)
def test_later_round_trial_run(folder: Path, round: tuple[str, ...], name: str, lines: list[str]) -> None:
    number_lines(folder, en=500_005, de=450_005)
    assert distil(folder, *round, MOST_LINES="2") == 0
    found = made(folder)
    assert found[name] == lines
    assert len(found.pop("held-out.en")) == 5, "a trial run omits the same lines"
    assert len(found) == 10 and {len(text) for text in found.values()} == {2}


def test_later_rounds_keep_finished_files_after_failure(folder: Path) -> None:
    assert distil(folder, *THIRD, UNABLE="own-3.json") == 1
    assert "own-3.json" not in made(folder) and "own-4.zh" in made(folder)
    assert distil(folder, *THIRD) == 0
    assert (folder / "calls").read_text("utf-8").splitlines() == ["dis tilled/own-3.json"]
    assert distil(folder, *FOURTH, UNABLE="late-5.de") == 1
    assert "late-4.json" in made(folder) and "late-5.de" not in made(folder)


def box_text(folder: Path, command: str) -> None:
    done = run(folder, sys.executable, str(RECIPE / "training_text.py"), command, "my data", "dis tilled", "plain text")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_stage3_translations_are_compared_with_references(folder: Path) -> None:
    number_lines(folder, en=450_003, de=450_003)
    corpus = folder / "my data" / "europarl-en-de" / "train.de"
    corpus.with_name("train.de.xz").write_bytes(lzma.compress(corpus.read_bytes(), preset=0))
    corpus.unlink()
    (folder / "my data" / "tatoeba-en-de" / "train.en").write_text("HALLO\nzwei\nServus\nnew\n", encoding="utf-8")
    assert distil(folder, *THIRD, MOST_LINES="3") == 0
    box_text(folder, "own")
    found = made(folder, "plain text")
    speeches = ["300001", "300002", "300003", "450001", "450002", "450003"]
    assert found["own.de"] == [*speeches, "hallo", "zwei", "servus"]
    assert found["own.en"] == [*speeches, "HALLO", "zwei", "Servus"]
    assert found["home.en"] == made(folder)["own-4.en"] and found["home.zh"] == made(folder)["own-4.zh"]
    assert found["halls.en"] == found["halls.zh"] == speeches[:3]


def test_teacher3_translations_are_compared_with_references(folder: Path) -> None:
    (folder / "my data" / "tatoeba-en-de" / "train.de").write_text("hello\nTWO\nHello\nneues\n", encoding="utf-8")
    number_lines(folder, en=500_002)
    assert distil(folder, *FOURTH, MOST_LINES="3") == 0
    box_text(folder, "late")
    found = made(folder, "plain text")
    assert found["late.en"] == found["late.de"] == [*numbers(1, 3), *numbers(250_001, 250_003), "500001", "500002"]
    assert found["fresh.en"] == ["tea", "a boat", "a train"] and found["fresh.de"] == ["TEA", "A BOAT", "A TRAIN"]
    assert found["late-everyday.en"] == ["hello", "two", "hello"]
    assert found["late-everyday.de"] == ["hello", "TWO", "Hello"]


# ---- errors, and the whole chain -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give first DATA TEACHER OUT, or second, third or fourth DATA TEACHER OUT TEXT, not ''"),
        (("fifth", *SECOND[1:]), "give first"),
        (FIRST[1:], "not 'my data teacher dis tilled'"),
        (SECOND[:-1], "give first"),
        (THIRD[:-1], "give first"),
        ((*FOURTH, "more"), "give first"),
        ((*FIRST, "plain text"), "give first"),
        (("first", "nowhere", "teacher", "dis tilled"), "nowhere: there is no such folder"),
        (("fourth", "nowhere", *FOURTH[2:]), "nowhere: there is no such folder"),
        *(
            ((*round[:-1], "nowhere"), "python3 recipes/bundled-model/training_text.py corpora my data nowhere")
            for round in (SECOND, THIRD, FOURTH)
        ),
    ],
)
def test_wrong_round_or_folder_is_one_line(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(folder, "bash", str(RECIPE / "distill.sh"), *arguments)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not (folder / "dis tilled").exists()


def test_pipeline_writes_all_recipe_texts(folder: Path) -> None:
    """All steps of run.sh in order, without those that run heedful, and with few synthetic pairs."""
    shutil.copytree(RECIPE, folder / "recipes/bundled-model")
    for script in (folder / "recipes/bundled-model").glob("synthetic_*.py"):
        few = re.sub(
            r"^PAIRS = .*", lambda found: found[0].replace("_000", "0"), script.read_text("utf-8"), flags=re.MULTILINE
        )
        script.write_text(few, encoding="utf-8")
    (folder / "my data").rename(folder / "data")
    commands = run(folder, "bash", "recipes/bundled-model/run.sh", "--dry-run", "stage4").stdout.splitlines()
    steps = [command for command in commands if command.startswith(("bash ", "python3 "))]
    assert len(steps) == 13
    for step in steps:
        done = run(folder, "bash", "-c", step)
        assert done.returncode == 0, (step, done.stderr)
    named = [
        name
        for name in importlib.import_module("benchmarks.quality.bundled_model_sets").named_files()
        if not name.startswith("data/")
    ]
    assert {name.partition("/")[0] for name in named} == {"distilled", "text"}
    assert [name for name in named if not (folder / name).exists()] == []
