"""Glossaries: which files and entries are read, which are refused with their place, and where terms are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import GlossaryError
from heedful.text.glossary import Glossary, is_inside_word


def read(folder: Path, content: str | bytes, name: str = "terms.tsv") -> list[tuple[str, str]]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [tuple(entry) for entry in Glossary.read(path).entries]


def found(text: str, *pairs: tuple[str, str]) -> list[tuple[str, str]]:
    return [(text[match.start : match.end], match.target) for match in Glossary.of(pairs).find(text)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.tsv", "cat\tKatze\ndog\tHund\n"),
        ("header.tsv", "source\ttarget\ncat\tKatze\ndog\tHund"),
        ("languages.tsv", "en\tGerman\n\ncat\tKatze\ndog\tHund\n"),
        ("windows.txt", b"\xef\xbb\xbfcat\tKatze\r\ndog\tHund\r\n"),
        ("comments.tsv", "# animals\ncat\tKatze\n\n# more\n dog \tHund\ncat\tKatze\n"),
        ("comma.csv", 'Source,Target\ncat,Katze\n"dog",Hund\n'),
        ("semicolon.csv", "cat;Katze\ndog;Hund\n"),
    ],
)
def test_files_are_read(name: str, content: str | bytes, tmp_path: Path) -> None:
    assert read(tmp_path, content, name) == [("cat", "Katze"), ("dog", "Hund")]


def test_quoted_cells_may_hold_the_separator(tmp_path: Path) -> None:
    assert read(tmp_path, '"Paris, Texas","Paris, Texas"\n', "a.csv") == [("Paris, Texas", "Paris, Texas")]
    assert read(tmp_path, '"a"\tb, c; d\n') == [('"a"', "b, c; d")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("cat\tKatze\ndog Hund\n", r"terms.tsv:2: there is no tab"),
        ("cat\tKatze\tchat\n", r"terms.tsv:1: 3 columns; a glossary has two"),
        ("# a\n\t Katze\n", r"terms.tsv:2: the term is empty"),
        ("cat\t \n", r"terms.tsv:1: the translation is empty"),
        ("cat\tKatze\ndog\tHund\ncat\tKater\n", r"terms.tsv:3: 'cat' is 'Kater' here and 'Katze' in .*terms.tsv:1"),
        (
            "cat\tKatze\nd\udcffog\tHund\n".encode(errors="surrogateescape"),
            r"terms.tsv:2: this is not UTF-8 \(byte 0xff",
        ),
        ("x" * 1001 + "\ty\n", r"terms.tsv:1: the term has more than 1,000 characters"),
        ("# nothing\n\n", r"terms.tsv: there is no entry"),
        ("", r"terms.tsv: the file is empty"),
        ("cat\tKatze\n".encode("utf-16"), r"terms.tsv: this file is UTF-16"),
    ],
)
def test_errors_name_file_and_line(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(GlossaryError, match=message):
        read(tmp_path, content)


def test_other_errors(tmp_path: Path) -> None:
    with pytest.raises(GlossaryError, match="there is no such file"):
        Glossary.read(tmp_path / "none.tsv")
    with pytest.raises(GlossaryError, match=r"comma.csv:1: there is no comma between"):
        read(tmp_path, "cat Katze\n", "comma.csv")
    with pytest.raises(GlossaryError, match="glossary entry 2: 1 columns"):
        Glossary.of([("a", "b"), ("c",)])
    with pytest.raises(GlossaryError, match="glossary entry 1: the term is empty"):
        Glossary.of([(" ", "b")])


def test_terms_are_whole_words() -> None:
    pair = ("cat", "Katze")
    assert found("A cat, (cat) cat's Cat-like", pair) == [("cat", "Katze")] * 3 + [("Cat", "Katze")]
    assert found("concatenate scat cats cat2 2cat cat_x", pair) == [("cat", "Katze")]
    assert found("C++ and C# and C", ("C", "c"), ("C++", "cpp")) == [("C++", "cpp"), ("C", "c"), ("C", "c")]
    assert found("naïve naïveté", ("naïve", "x")) == [("naïve", "x")]


def test_lower_case_terms_are_found_in_any_case() -> None:
    assert found("It is IT. it", ("it", "es"), ("IT", "EDV")) == [("It", "es"), ("IT", "EDV"), ("it", "es")]
    assert found("Apple apple", ("Apple", "Apple Inc.")) == [("Apple", "Apple Inc.")]
    assert found("ÜBER İx", ("über", "on"), ("İx", "y")) == [("ÜBER", "on"), ("İx", "y")]


def test_longest_of_overlapping_terms_counts() -> None:
    pairs = [("machine", "a"), ("machine learning", "b"), ("learning rate", "c"), ("rate", "d")]
    assert found("machine learning rate", *pairs) == [("machine learning", "b"), ("rate", "d")]
    assert found("the machine learning rate", ("machine learning", "x"), ("learning rate schedule", "y")) == [
        ("machine learning", "x")
    ]
    assert found("a learning rate schedule machine", *pairs) == [("learning rate", "c"), ("machine", "a")]


def test_scripts_without_spaces_have_no_word_boundaries() -> None:
    pairs = [("注意力", "attention"), ("自注意力", "self-attention"), ("BERT", "BERT")]
    assert found("它的自注意力和注意力用BERT模型", *pairs) == [
        ("自注意力", "self-attention"),
        ("注意力", "attention"),
        ("BERT", "BERT"),
    ]


@given(st.text("aAbß İ.字 ", max_size=12), st.lists(st.tuples(st.text("aAbß字 ", min_size=1, max_size=3)), max_size=5))
def test_found_terms_are_in_order_and_whole(text: str, terms: list[tuple[str]]) -> None:
    sources = dict.fromkeys(" ".join(term.split()) for (term,) in terms if term.strip())
    matches = Glossary.of((source, f"t{number}") for number, source in enumerate(sources)).find(text)
    end = 0
    for match in matches:
        assert match.start >= end and match.end > match.start
        end = match.end
        source = list(sources)[int(match.target[1:])]
        assert text[match.start : match.end] in (source, text[match.start : match.end])
        assert text[match.start : match.end].lower() == source.lower()
        assert not is_inside_word(text, match.start) and not is_inside_word(text, match.end)
