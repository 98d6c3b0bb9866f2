"""Language detection of lines in files, pipes and lists: short lines get the language of their context."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import heedful
from heedful.errors import TextError
from heedful.text.corpus import Direction
from heedful.text.language_routing import Directions, LanguageEvidence
from tests.cli.program import Inside, run

MAIL = """Guten Tag,
ich möchte gerne zwei Karten für morgen Abend bestellen.
Hi Tom,

Merci beaucoup
42
Können Sie mir bitte sagen, was sie kosten?
This is a long English sentence in the middle of it.
Wir freuen uns auf den Abend mit Ihnen.
Team Support
"""
BUNDLED = ["translate", "-m", "en-de-zh", "--method", "greedy", "--max-length", "12"]
DIRECTIONS = Directions(
    (Direction("en", "de"), Direction("de", "en"), Direction("en", "zh"), Direction("zh", "en")), ("de", "en", "zh")
)


@pytest.fixture
def mail(tmp_path: Path) -> Path:
    path = tmp_path / "mail.de"
    path.write_text(MAIL, encoding="utf-8")
    return path


def test_short_line_in_other_language_is_translated(inside: Inside, mail: Path, tmp_path: Path) -> None:
    shown = inside(*BUNDLED, "-i", mail)
    assert shown.code == 0 and shown.out.count("\n") == MAIL.count("\n")
    assert "warning: line 10 may be in 'en'" in shown.error and "taken as 'de'" in shown.error
    assert "line 8 seems to be in 'en' already" in shown.error
    lines = shown.out.splitlines()
    expected = inside(*BUNDLED, "--from", "de", "-i", mail).out.splitlines()
    assert lines == expected and lines[9] == "Team Support"
    assert inside(*BUNDLED, given=MAIL.encode()).out == shown.out  # a pipe
    assert inside(*BUNDLED, "-i", mail, "-o", "out").code == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == shown.out
    about = [json.loads(line) for line in inside(*BUNDLED, "--json", "-i", mail).out.splitlines()]
    assert [one.get("source_language") for one in about] == ["de", "de", "de", None, "de", None, "de", "en", "de", "de"]


def test_quiet_prints_only_errors(inside: Inside, mail: Path) -> None:
    assert inside(*BUNDLED, "-i", mail, "-q").error == ""
    assert inside(*BUNDLED, "-i", mail, "-o", "out", "--quiet").error == ""
    assert inside(*BUNDLED, "--to", "de", "-q", "Das ist ein Satz auf Deutsch.", "mail.de").error == ""
    inside(*BUNDLED, "--quiet", "This is a sentence in English.").refused("--to")


def test_likely_language_of_shards_and_resumed_runs(inside: Inside, mail: Path, tmp_path: Path) -> None:
    """Without context, the last batches would be detected as English, which has no direction."""
    whole = inside(*BUNDLED, "-i", mail).out
    (tmp_path / "mail.gz").write_bytes(gzip.compress(mail.read_bytes()))
    for index in (2, 3, 1):
        assert inside(*BUNDLED, "-i", "mail.gz", "-o", "out", "--chunk-lines", 1, "--shard", f"{index}/3").code == 0
    assert inside("merge", "out", "-i", mail).code == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == whole
    many = [*BUNDLED, "-i", mail, "-o", "parts", "--chunk-lines", 2, "--workers", 2]
    assert run(*many, cwd=tmp_path).code == 0
    assert (tmp_path / "parts").read_text(encoding="utf-8") == whole
    lines = MAIL.encode().splitlines(keepends=True)
    mail.write_bytes(b"".join([*lines[:2], b"\xff\n"]))
    stopped = [*BUNDLED, "-i", mail, "-o", "again", "--chunk-lines", 1]
    inside(*stopped).refused("mail.de:3", "UTF-8")
    assert (
        json.loads((tmp_path / "again.manifest.json").read_bytes())["settings"]["identity"]["likely_language"] == "de"
    )
    mail.write_bytes(b"".join([*lines[:2], *[b"This is a long sentence in English, and not the last one.\n"] * 9]))
    assert inside(*stopped).code == 0  # the language of the file is fixed by the first run
    assert (tmp_path / "again").read_bytes().count(b"\n") == 11


def test_ambiguous_target_language_needs_flag(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "mail.en").write_text("Hello,\nI would like to order two tickets for the evening.\nDanke\n")
    inside(*BUNDLED, "-i", "mail.en").refused("line 1 is in 'en' and can be translated into de, zh", "--to")
    inside(*BUNDLED, "-i", "mail.en", "-o", "out").refused("mail.en:1", "--to")
    inside(*BUNDLED, given=b"Hello\n").refused("--to")


def test_uncertain_language_prints_no_warning() -> None:
    for text in ("Dear Ms. Schneider,", "Hi Tom,", "</div>"):
        assert DIRECTIONS.choose(text, target="de").remark is None
    assert "already" in (DIRECTIONS.choose("Das ist ein Satz.", target="de").remark or "")
    assert "already" in (DIRECTIONS.choose("你好", target="zh").remark or "")


def test_language_evidence_of_file() -> None:
    evidence = LanguageEvidence(DIRECTIONS)
    assert evidence.language is None
    evidence.read(["Team Support", "", "123"])
    assert evidence.language == "en"
    evidence.read(["Das ist ein langer Satz in deutscher Sprache.", "Und noch einer davon."])
    assert evidence.language == "de"
    target = {"de": "zh", "en": "de"}
    assert DIRECTIONS.choose("Team Support", target=target, likely_language="de")[:2] == ("de", "zh")
    assert DIRECTIONS.choose("This is a clear sentence in English.", target=target, likely_language="de")[:2] == (
        "en",
        "de",
    )
    assert DIRECTIONS.choose("你好", likely_language="de")[:2] == ("zh", "en")
    assert DIRECTIONS.choose("", likely_language="de").target == "en"
    evidence.read(["Je ne sais pas ce que vous avez dit dans la maison avec les autres enfants."] * 4)
    assert evidence.language is None


def test_translator_uses_other_texts_only_for_undetected() -> None:
    translator = heedful.Translator.load("en-de-zh")
    with pytest.raises(TextError, match="text 1 is in 'en'"):
        translator.translate(["Team Support"], max_length=4)
    found = translator.translate(["Wir freuen uns auf den Abend mit Ihnen.", "Team Support", "你好"], max_length=4)
    assert [one.source_language for one in found] == ["de", "de", "zh"]
    assert "like the rest" in (found[1].remark or "")
    with pytest.raises(TextError, match="text 2 is in 'en'"):
        translator.translate(["Wir freuen uns auf den Abend.", "This is a long sentence in English."], max_length=4)
    shown = translator.translate(["Team Support"], likely_language="de", max_length=4)[0]
    assert (shown.source_language, shown.target_language) == ("de", "en")
    lines = list(translator.translate_lines(iter(MAIL.splitlines()), chunk_size=3, max_length=4))
    assert [one.target_language for one in lines] == ["en"] * 10


@pytest.mark.parametrize("name", ["DE", "de-DE", "de_DE", "german", "Deutsch", "ger", "deu"])
def test_language_codes_and_names_are_normalized(name: str) -> None:
    translator = heedful.Translator.load("en-de-zh")
    shown = translator.translate(["Good morning."], target_language=name, source_language="English")[0]
    assert (shown.text, shown.source_language, shown.target_language) == ("Guten Morgen!", "en", "de")


def test_program_accepts_language_names(inside: Inside, tmp_path: Path) -> None:
    expected = inside("translate", "--to", "zh", "Good morning.").out
    assert expected.strip() and inside("translate", "--to", "中文", "--from", "EN", "Good morning.").out == expected
    assert inside("translate", "--to", "zh-CN", "Good morning.").out == expected
    inside("translate", "--to", "zh-TW", "Good morning.").refused("traditional characters", "'zh'")
    inside("translate", "--to", "Klingon", "Good morning.").refused("'Klingon'", "de, en, zh")
    (tmp_path / "in").write_text("Good morning.\n" * 3)
    whole = ["translate", "-i", "in", "-o", "out", "--chunk-lines", 1, "--shard", "1/2", "--to"]
    assert inside(*whole, "zh-Hans").code == 0
    assert "already complete" in inside(*whole, "zh").error
    (tmp_path / "reference").write_text(expected * 3, encoding="utf-8")
    scores = [inside("evaluate", "-s", "in", "-t", "reference", "--to", name).out for name in ("zh", "Chinesisch")]
    assert scores[0] == scores[1] and "tok:zh" in scores[0]
