"""Detection of formats, and decoding and encoding of documents."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from heedful.errors import ConfigError, DocumentError
from heedful.text.documents import FORMATS, format_of, translate_document
from heedful.text.documents.document import Mark, MarkedText, is_prose
from tests.text.documents.documents import capitals, copied, texts_of, translated


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("index.html", "html"),
        ("INDEX.HTM", "html"),
        ("README.zh-CN.md", "markdown"),
        ("film.en.srt", "srt"),
        ("de.po", "po"),
        ("program.pot", "po"),
        ("en.json", "json"),
        ("page.html.gz", "html"),
        ("text.txt", "text"),
        ("corpus.en", "text"),
        ("corpus.en.xz", "text"),
        ("noending", "text"),
        ("data.jsonl", "text"),
        (None, "text"),
        ("-", "text"),
    ],
)
def test_format_of_file_name(name: str | None, expected: str) -> None:
    assert format_of(name) == expected
    assert format_of(name, "po") == "po"


def test_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="no format 'markdwn' \\(did you mean 'markdown'\\?\\)"):
        format_of("x", "markdwn")


def test_plain_text_keeps_its_layout() -> None:
    source = "  One line\r\n\r\n\tand another  \n"
    assert texts_of(source, "text") == ["One line", "and another"]
    assert translated(source, "text", capitals) == "  ONE LINE\r\n\r\n\tAND ANOTHER  \n"


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "iso-8859-1", "shift_jis"])
def test_html_keeps_its_declared_encoding(encoding: str) -> None:
    page = f'<meta charset="{encoding}"><p>Some words</p>'.encode(encoding)
    found = translate_document(page, "html", lambda texts: ([replace(t, text="Größe 中文") for t in texts], None))
    assert isinstance(found, bytes)
    shown = found.decode(encoding)
    expected = {"iso-8859-1": "Größe &#20013;&#25991;", "shift_jis": "Gr&#246;&#223;e 中文"}.get(encoding, "Größe 中文")
    assert f"<p>{expected}</p>" in shown


def test_utf_16_and_byte_order_marks_are_kept() -> None:
    for encoding, bom in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff"), ("utf-8", b"\xef\xbb\xbf")):
        raw = bom + "<p>Some words</p>".encode(encoding)
        assert translate_document(raw, "html", lambda texts: (texts, None)) == raw
    assert translated("\ufeff# Title words\n", "markdown", capitals) == "\ufeff# TITLE WORDS\n"


@pytest.mark.parametrize(
    ("raw", "format", "words", "line"),
    [
        (b"one\ntwo \xff\n", "markdown", "this line is not UTF-8", 2),
        (b'<meta charset="klingon"><p>x</p>', "html", "'klingon' is not supported", None),
        (b'<meta charset="shift_jis">\n\n<p>\x81\x20</p>', "html", "not SHIFT_JIS", 3),
        (b'{"a": "\xe4"}', "json", "not UTF-8", 1),
    ],
)
def test_undecodable_bytes_are_refused(raw: bytes, format: str, words: str, line: int | None) -> None:
    with pytest.raises(DocumentError, match=words) as raised:
        translated(raw, format, copied)
    assert raised.value.line == line
    assert str(raised.value.at("file")).startswith(f"file:{line}: " if line else "file: ")


@pytest.mark.parametrize(
    ("format", "module"),
    [("html", "justhtml"), ("markdown", "markdown_it"), ("po", "polib"), ("markdown", "mdit_py_plugins")],
)
def test_missing_package_names_the_extra(format: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DocumentError, match=r"pip install 'heedful\[documents\]'"):
        translated("words", format, copied)


def test_empty_documents() -> None:
    for format in FORMATS:
        for source in ("", "\n") if format != "json" else ("{}", "[]\n"):
            assert translated(source, format, copied) == source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Save", True),
        ("Save as…", True),
        ("保", True),
        ("Visit https://example.org today", True),
        ("{count} files", True),
        ("Yes/No", True),
        ("/usr/lib", False),
        ("#ff00aa", False),
        ("", False),
        ("12:30", False),
        ("https://example.org", False),
        ("me@example.org", False),
        ("{name}", False),
        ("some_key", False),
        ("camelCase", False),
        ("app.title.main", False),
        ("x", False),
        ("– 1 –", False),
    ],
)
def test_is_prose(text: str, expected: bool) -> None:
    assert is_prose(MarkedText(text)) is expected


def test_kept_text_is_not_prose() -> None:
    kept = Mark(4, 11, "<code>install</code>", kind="kept")
    assert is_prose(MarkedText("Run install now", (kept,)))
    assert not is_prose(MarkedText("--- install", (kept,)))
