"""`heedful translate --glossary`: arguments, pipes, files with worker processes, documents, and refused files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heedful.native import available
from tests.cli.program import Inside

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)

INTO_GERMAN = ("translate", "-m", "en-de-zh", "--from", "en", "--to", "de", "--device", "cpu")
LINES = ["The server sends the page.", "The weather is nice today.", "Please restart the server."]


@pytest.fixture
def terms(tmp_path: Path) -> Path:
    path = tmp_path / "terms.tsv"
    path.write_text("en\tde\n# machines\nserver\tRechner\n", encoding="utf-8")
    return path


def test_arguments_pipes_files_and_workers_agree(inside: Inside, terms: Path, tmp_path: Path) -> None:
    plain = inside(*INTO_GERMAN, *LINES).out.splitlines()
    asked = (*INTO_GERMAN, "--glossary", terms)
    found = inside(*asked, *LINES).out.splitlines()
    assert "Rechner" in found[0] and "Rechner" in found[2] and found[1] == plain[1]
    text = tmp_path / "text.en"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert inside(*asked, given=text.read_bytes()).out.splitlines() == found
    inside(*asked, "-i", text, "-o", "out.de", "--workers", 2, "--chunk-lines", 1)
    assert (tmp_path / "out.de").read_text("utf-8").splitlines() == found
    inside(*INTO_GERMAN, "-i", text, "-o", "out.de", "--workers", 2, "--chunk-lines", 1)
    assert (tmp_path / "out.de").read_text("utf-8").splitlines() == plain  # another glossary is another translation
    record = json.loads(inside(*asked, "--json", LINES[0]).out)
    assert record["text"] == found[0]


def test_documents(inside: Inside, terms: Path, tmp_path: Path) -> None:
    page = tmp_path / "subtitles.srt"
    page.write_text("1\n00:00:01,000 --> 00:00:02,000\nPlease restart the server.\n", encoding="utf-8")
    assert "Rechner" in inside(*INTO_GERMAN, "--glossary", terms, "-i", page).out


def test_bad_glossaries_and_engines_are_refused(inside: Inside, terms: Path) -> None:
    inside(*INTO_GERMAN, "--glossary", "none.tsv", "a").refused("none.tsv", "no such file")
    inside(*INTO_GERMAN, "--glossary", terms, "--method", "sampling", "a").refused("glossary needs the engine native")
    inside(*INTO_GERMAN, "--glossary", terms, "--engine", "torch", "a").refused("glossary needs the engine native")
    terms.write_text("server Rechner\n", encoding="utf-8")
    inside(*INTO_GERMAN, "--glossary", terms, "a").refused("terms.tsv:1", "no tab")
