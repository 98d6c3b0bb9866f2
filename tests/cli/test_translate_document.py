"""Documents in `heedful translate -i FILE`: formats by extension, errors with file and line, atomic output."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import docx
import pytest

from tests.cli.program import Inside

PAGE = '<html lang="de"><p>Guten <b>Morgen</b>!</p></html>\r\n'
CATALOGUE = (
    'msgid ""\nmsgstr ""\n"Language: \\n"\n\nmsgid "Good morning!"\nmsgstr ""\n\nmsgid "Thanks"\nmsgstr "Merci"\n'
)


def test_html_to_stdout_and_to_file(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(PAGE.encode())
    ended = inside("translate", "-i", "page.html")
    assert ended.code == 0 and ended.error == ""
    assert ended.out == '<html lang="en"><p>Good <b>morning</b>!</p></html>\r\n'
    assert inside("translate", "-i", "page.html", "-o", "out.html").code == 0
    assert (tmp_path / "out.html").read_bytes().decode() == ended.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "page.html"]
    assert inside("translate", "--format", "html", given=PAGE.encode()).out == ended.out
    (tmp_path / "page.html.gz").write_bytes(gzip.compress(PAGE.encode()))
    assert inside("translate", "-i", "page.html.gz").out == ended.out


def test_office_documents_are_bytes(inside: Inside, tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("Guten ").add_run("Morgen").bold = True
    document.save(str(tmp_path / "a.docx"))
    assert inside("translate", "-i", "a.docx", "-o", "b.docx").code == 0
    runs = docx.Document(str(tmp_path / "b.docx")).paragraphs[0].runs
    assert [(run.text, run.bold) for run in runs] == [("Good ", None), ("morning", True)]
    (tmp_path / "bad.docx").write_bytes((tmp_path / "a.docx").read_bytes()[:-100])
    inside("translate", "-i", "bad.docx", "-o", "c.docx").refused(
        "bad.docx: it is not a Word document (.docx), or damaged"
    )
    assert not (tmp_path / "c.docx").exists()


def test_text_format_is_line_by_line(inside: Inside, tmp_path: Path) -> None:
    for name in ("page.txt", "page.anything", "page"):
        (tmp_path / name).write_text("Guten Morgen!\n# Danke\n")
        lines = inside("translate", "-i", name).out
        assert lines == inside("translate", given=b"Guten Morgen!\n# Danke\n").out
    (tmp_path / "page.md").write_text("Guten Morgen!\n# Danke\n")
    assert inside("translate", "-i", "page.md", "--format", "text").out == lines
    assert inside("translate", "-i", "page.md").out.splitlines()[1].startswith("# ")


def test_gettext_flags_select_entries(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(CATALOGUE)
    ended = inside("translate", "--to", "de", "-i", "a.po")
    assert '#, fuzzy\nmsgid "Good morning!"\nmsgstr "Guten Morgen!"' in ended.out
    assert '"Language: de\\n"' in ended.out and 'msgstr "Merci"' in ended.out
    ended = inside("translate", "--to", "de", "-i", "a.po", "--no-fuzzy", "--retranslate")
    assert "fuzzy" not in ended.out and "Merci" not in ended.out
    inside("translate", "Some words", "--retranslate").refused("--retranslate applies to gettext catalogues")


def test_empty_document_prints_note(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text('{"a": 1}')
    ended = inside("translate", "--to", "de", "-i", "n.json")
    assert (ended.out, ended.error) == ('{"a": 1}', "note: n.json contains no text to translate.\n")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b'{"a": "Guten Morgen",\n "b" 1}', "a.json:2: not valid JSON"),
        ("a.md", b"Hallo\n\xff\n", "a.md:2: this line is not UTF-8"),
        ("a.srt", b"Hallo\n", "a.srt:1: no time code"),
        ("a.po", b'msgid "a"\nmsgstr "b" "c\n', "a.po:2: not a valid catalogue"),
        ("a.html", b"<p>Where is the train station?</p>", "a.html"),
    ],
)
def test_errors_name_file_and_line(inside: Inside, tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "out").write_text("as it was")
    inside("translate", "-i", name, "-o", "out").refused(words)
    assert (tmp_path / "out").read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, "out"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--workers", "2"], "--workers applies to lines of text"),
        (["--json"], "--json applies to lines of text"),
        (["--prefix", "Hallo"], "--prefix applies to lines of text"),
        (["--format", "pdf"], "there is no format 'pdf'"),
        (["--retranslate"], "--retranslate applies to gettext catalogues"),
        (["-o", "nowhere/out.html"], "there is no directory nowhere"),
        (["-o", "page.html"], "is also an input"),
    ],
)
def test_invalid_flag_combinations(inside: Inside, tmp_path: Path, flags: list[str], words: str) -> None:
    (tmp_path / "page.html").write_text(PAGE)
    inside("translate", "-i", "page.html", *(["-o", "out"] if "--workers" in flags else []), *flags).refused(words)


def test_missing_package_names_the_extra(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "justhtml", None)
    (tmp_path / "page.html").write_text(PAGE)
    inside("translate", "-i", "page.html").refused("page.html", "pip install 'heedful[documents]'")


def test_search_flags_are_used(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"a": "Guten Morgen!"}))
    ended = inside("translate", "-i", "a.json", "--max-length", "1")
    assert len(json.loads(ended.out)["a"].split()) == 1


def test_each_document_has_own_output_file(inside: Inside, tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        (tmp_path / name).write_text(PAGE)
    files = ["-i", "a.html", "-i", "b.html"]
    inside("translate", *files, "-o", "out.html").refused("documents (html) cannot be concatenated")
    assert inside("translate", *files, "-o", "c.html", "-o", "d.html", "--to", "English").code == 0
    assert (tmp_path / "c.html").read_bytes() == (tmp_path / "d.html").read_bytes()
    assert '<html lang="en">' in (tmp_path / "c.html").read_text()


def test_quiet_prints_nothing(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text('{"a": 1, "b": "Good morning, how are you today?"}')
    assert "warning" in inside("translate", "--to", "en", "-i", "n.json").error
    assert inside("translate", "--to", "en", "-i", "n.json", "-q").error == ""
