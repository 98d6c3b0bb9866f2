"""Synthetic pairs with names: the files written, and German and Chinese grammar."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "recipes/bundled-model/synthetic_names.py"
FILES = ("chinese-names.en", "chinese-names.zh", "german-names.de", "german-names.en")

sys.path.insert(0, str(SCRIPT.parent))  # the modules that the scripts share
spec = importlib.util.spec_from_file_location("synthetic_names", SCRIPT)
assert spec is not None and spec.loader is not None
names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(names)


def run(*arguments: str | Path, hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    done = run(folder, hash_seed=1)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_output_does_not_depend_on_hash_seed(written: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "new" / "folder", hash_seed=2).returncode == 0
    for folder in (written, tmp_path / "new" / "folder"):
        assert sorted(path.name for path in folder.iterdir()) == list(FILES)
    for name in FILES:
        assert (written / name).read_bytes() == (tmp_path / "new" / "folder" / name).read_bytes()


@pytest.mark.parametrize(("prefix", "language", "count"), [("german", "de", 25_000), ("chinese", "zh", 45_000)])
def test_number_of_distinct_pairs(written: Path, prefix: str, language: str, count: int) -> None:
    english, other = ((written / f"{prefix}-names.{side}").read_text("utf-8").split("\n") for side in ("en", language))
    assert english.pop() == other.pop() == ""
    assert len(english) == len(other) == len(set(zip(english, other, strict=True))) == count
    for line in (*english, *other):
        assert line and line == line.strip() and not set(line) & set("{}<>|=/"), line
        assert "  " not in line


def test_templates_have_equal_slots() -> None:
    rng = Random(1)
    for template in (*names.PHRASES, *names.SENTENCES, *names.CHINESE_SENTENCES):
        slots = [sorted(kind + number for kind, number, _ in names.SLOT.findall(text)) for text in template if text]
        assert all(other == slots[0] for other in slots), template
        assert set(names.draw_all(rng, template)) == set(slots[0])
    assert all(template.de for template in (*names.PHRASES, *names.SENTENCES))
    assert len(names.SENTENCES) >= 120


def test_glossary_entries_match() -> None:
    entries = defaultdict(set)
    for name in {name for group in names.NAMES.values() for name in group}:
        for english in name.en.split("/"):
            entries[english].update((de, zh) for de in name.de.split("/") for zh in name.zh.split("/"))
    rng = Random(2)
    made_up = ("person", "chinese", "western", "titled", "day", "era", "date", "year")
    for template in (*names.PHRASES, *names.SENTENCES, *names.CHINESE_SENTENCES) * 5:
        drawn = names.draw_all(rng, template)
        filled = names.fill(template, drawn)
        for kind, name in drawn.items():
            assert name.en.lower() in filled.en.lower()
            assert name.zh in filled.zh
            assert kind.rstrip("23") in made_up or (name.de, name.zh) in entries[name.en], name
            if template.de:
                assert name.de.split()[-1].removesuffix("e") in filled.de, (name, filled)


def test_invented_names_match_pinyin() -> None:
    assert names.pinyin("晓明") == "Xiaoming"
    surnames = {name.zh: name.en for name in names.NAMES["Chinese surname"]}
    rng = Random(3)
    for _ in range(500):
        person = names.draw_chinese(rng)
        surname = person.zh[:2] if person.zh[:2] in surnames else person.zh[0]
        given = person.zh.removeprefix(surname)
        spelled = "".join(names.SYLLABLES[character] for character in given).capitalize()
        assert person.en == person.de == f"{surnames[surname]} {spelled}"


@pytest.mark.parametrize("glossary", list(names.NAMES))
def test_glossary_is_valid(glossary: str) -> None:
    for name in names.NAMES[glossary]:
        assert all(part and part == part.strip() for part in name), name
        assert not any("\u4e00" <= letter <= "\u9fff" for letter in name.en + name.de), name


@pytest.mark.parametrize(
    ("name", "to", "dative", "of"),
    [
        ("Polen", "nach Polen", "Polen", "von Polen"),
        ("die Schweiz", "in die Schweiz", "der Schweiz", "der Schweiz"),
        ("der Iran", "in den Iran", "dem Iran", "des Irans"),
        ("pl Niederlande", "in die Niederlande", "den Niederlanden", "der Niederlande"),
        ("das Vereinigte Königreich", "in das Vereinigte Königreich", "dem Vereinigten Königreich",
         "des Vereinigten Königreichs"),
        ("der Nahe Osten", "in den Nahen Osten", "dem Nahen Osten", "des Nahen Ostens"),
        ("das Rote Kreuz", "in das Rote Kreuz", "dem Roten Kreuz", "des Roten Kreuzes"),
        ("der IWF", "in den IWF", "dem IWF", "des IWF"),
    ],
)  # fmt: skip
def test_german_names_are_declined(name: str, to: str, dative: str, of: str) -> None:
    entry = names.Name("name", name, "名")
    assert [names.in_german(entry, case) for case in ("to", "dative", "of")] == [to, dative, of]


def test_german_agreement() -> None:
    assert names.decline("Karl der Große", "accusative") == "Karl den Großen"
    assert names.decline("Katharina die Große", "dative") == "Katharina der Großen"
    assert names.decline("Herr Smith", "dative") == "Herrn Smith"
    assert names.agree("Die USA <hat/haben> an dem Rhein", plural=True) == "Die USA haben am Rhein"
    assert names.agree("Die WHO <hat/haben>", plural=False) == "Die WHO hat"
    assert names.agree("die Minister von Polen und von Ungarn", plural=False) == "die Minister von Polen und Ungarn"


@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("--fast",)])
def test_invalid_arguments_are_one_line(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "give one output folder" in done.stderr


def test_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(tmp_path / "file")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "Name a folder that can be written to." in done.stderr
    assert run("--help").stdout == names.__doc__
