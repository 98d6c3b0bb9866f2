"""Reading corpora: all formats, line endings, encodings, and errors."""

from __future__ import annotations

import gzip
import json
import lzma
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.corpus import BadLine, SentencePair, corpus_files, corpus_name, direction, read_pairs, short_name
from heedful.text.text_files import MAX_LINE_BYTES, read_lines


def two_files(folder: Path, source: bytes, target: bytes) -> CorpusConfig:
    (folder / "a.en").write_bytes(source)
    (folder / "a.de").write_bytes(target)
    return CorpusConfig(source=str(folder / "a.en"), target=str(folder / "a.de"))


def one_file(folder: Path, name: str, content: bytes, **settings: Any) -> CorpusConfig:
    (folder / name).write_bytes(content)
    return CorpusConfig(path=str(folder / name), **settings)


def test_plain_files_are_aligned_and_stripped(tmp_path: Path) -> None:
    corpus = two_files(tmp_path, b"one\n  two \nthree", "eins\nzwei\tx\n\u00a0drei\n".encode())
    assert list(read_pairs(corpus)) == [("one", "eins"), ("two", "zwei\tx"), ("three", "drei")]


@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_every_format_may_be_compressed(tmp_path: Path, suffix: str, compress: object) -> None:
    assert callable(compress)
    record = json.dumps({"source": "one", "target": "eins"}).encode()
    tsv = one_file(tmp_path, f"a.tsv{suffix}", compress(b"one\teins\textra\n"))
    jsonl = one_file(tmp_path, f"a.jsonl{suffix}", compress(record + b"\n"))
    (tmp_path / f"s{suffix}").write_bytes(compress(b"one\n"))
    (tmp_path / f"t{suffix}").write_bytes(compress(b"eins\n"))
    plain = CorpusConfig(source=str(tmp_path / f"s{suffix}"), target=str(tmp_path / f"t{suffix}"))
    for corpus in (tsv, jsonl, plain):
        assert list(read_pairs(corpus)) == [SentencePair("one", "eins")]


def test_columns_and_fields_can_be_chosen(tmp_path: Path) -> None:
    tsv = one_file(tmp_path, "a.tsv", b"7\teins\tone\n", source_column="3", target_column="2")
    jsonl = one_file(tmp_path, "a.jsonl", b'{"en": "one", "de": "eins"}\n', source_column="en", target_column="de")
    assert list(read_pairs(tsv)) == list(read_pairs(jsonl)) == [("one", "eins")]


def test_byte_order_mark_and_carriage_returns_are_removed(tmp_path: Path) -> None:
    corpus = two_files(tmp_path, b"\xef\xbb\xbfone\r\ntwo\r\n", b"\xef\xbb\xbfeins\nzwei\n")
    assert list(read_pairs(corpus)) == [("one", "eins"), ("two", "zwei")]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1e", "\r"])
def test_only_line_feed_ends_a_line(tmp_path: Path, separator: str) -> None:
    corpus = two_files(tmp_path, f"a{separator}b\nc\n".encode(), b"x\ny\n")
    assert list(read_pairs(corpus)) == [(f"a{separator}b", "x"), ("c", "y")]


def test_very_long_line_is_truncated(tmp_path: Path) -> None:
    long = b"word " * 2_000_000
    corpus = two_files(tmp_path, b"one\n" + long + b"\nthree\n", b"eins\nzwei\ndrei\n")
    first, middle, last = read_pairs(corpus)
    assert (first, last) == (("one", "eins"), ("three", "drei"))
    assert isinstance(middle, SentencePair)
    assert long.decode().startswith(middle.source) and len(middle.source) > MAX_LINE_BYTES - 10


def test_bad_line_keeps_its_position(tmp_path: Path) -> None:
    corpus = two_files(tmp_path, b"one\ncaf\xe9\nthree\nfour\nfive\n", b"eins\nzwei\nd\0rei\nvier\nf\n")
    items = list(read_pairs(corpus))
    assert items[0] == ("one", "eins")
    assert items[1] == BadLine(str(tmp_path / "a.en"), 2, "not UTF-8")
    assert items[2] == BadLine(str(tmp_path / "a.de"), 3, "NUL character")
    assert items[3:] == [("four", "vier"), ("five", "f")]


def test_json_escapes_of_invalid_text_are_bad_lines(tmp_path: Path) -> None:
    lines = [rb'{"source": "a", "target": "b"}'] * 3
    lines += [rb'{"source": "\ud800", "target": "b"}', rb'{"source": "x\u0000", "target": "b"}']
    lines += [rb'{"source": "two\r\nlines", "target": "b"}']
    items = list(read_pairs(one_file(tmp_path, "a.jsonl", b"\n".join(lines))))
    assert [type(item) for item in items[3:5]] == [BadLine, BadLine]
    assert items[5] == ("two lines", "b")


def test_blank_table_lines_are_empty_pairs(tmp_path: Path) -> None:
    assert list(read_pairs(one_file(tmp_path, "a.tsv", b"a\tb\n\nc\td\n")))[1] == ("", "")
    assert next(read_pairs(one_file(tmp_path, "a.jsonl", b'\n{"source":"a","target":"b"}\n'))) == ("", "")


@pytest.mark.parametrize(("source", "target"), [(b"a\n" * 7, b"b\n" * 5), (b"a\n" * 5, b"b\n" * 7)])
def test_unequal_line_counts_are_refused(tmp_path: Path, source: bytes, target: bytes) -> None:
    corpus = two_files(tmp_path, source, target)
    with pytest.raises(CorpusError) as caught:
        list(read_pairs(corpus))
    numbers = (source.count(b"\n"), target.count(b"\n"))
    assert f"a.en has {numbers[0]} lines" in str(caught.value)
    assert f"a.de has {numbers[1]}" in str(caught.value)


def damaged_gzip(content: bytes) -> bytes:
    packed = bytearray(gzip.compress(content, mtime=0))
    packed[len(packed) // 2] ^= 0xFF
    return bytes(packed)


LINES = b"".join(b"line %d of some text\n" % n for n in range(5000))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.gz", gzip.compress(LINES, mtime=0)[:-400], "damaged"),
        ("a.gz", damaged_gzip(LINES), "damaged"),
        ("a.gz", b"plain text\n", "damaged"),
        ("a.xz", lzma.compress(LINES)[:-300], "damaged"),
        ("a.xz", b"plain text\n", "damaged"),
        ("a.txt", gzip.compress(LINES, mtime=0), ".gz"),
        ("a.txt", lzma.compress(LINES), ".xz"),
        ("a.txt", b"", "empty"),
        ("a.gz", gzip.compress(b"", mtime=0), "empty"),
        ("a.txt", "text\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=name) as caught:
        list(read_lines(tmp_path / name))
    assert said in str(caught.value)


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"nowhere.txt: there is no such file"):
        list(read_lines(tmp_path / "nowhere.txt"))
    with pytest.raises(CorpusError, match="directory"):
        list(read_lines(tmp_path))


@pytest.mark.parametrize("num_lines", [3, 1500])
def test_other_encodings_are_refused_with_a_remedy(tmp_path: Path, num_lines: int) -> None:
    corpus = two_files(tmp_path, b"coffee\n" * num_lines, "Käse\n".encode("latin-1") * num_lines)
    with pytest.raises(CorpusError, match=r"a\.de.*iconv"):
        list(read_pairs(corpus))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", "JSON"),
        (b'["a", "b"]', "list"),
        (b'{"source": "a"}', "'target' is missing"),
        (b'{"source": "a", "target": 5}', "'target' must be text"),
        (b'{"source": null, "target": "b"}', "'source' must be text"),
    ],
)
def test_invalid_json_lines_are_named(tmp_path: Path, line: bytes, said: str) -> None:
    corpus = one_file(tmp_path, "a.jsonl", b'{"source": "a", "target": "b"}\n' + line + b"\n")
    with pytest.raises(CorpusError, match=r"a\.jsonl:2: .*" + said):
        list(read_pairs(corpus))


def test_tsv_line_with_too_few_columns_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"a\.tsv:2: 1 column, "):
        list(read_pairs(one_file(tmp_path, "a.tsv", b"a\tb\nc\n")))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"source": "a"},
        {"target": "a"},
        {"source": "a", "target": "b", "path": "c.tsv"},
        {"source": "a", "target": "./a"},
        {"path": "a.txt"},
    ],
)
def test_contradictory_corpus_descriptions_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        list(read_pairs(CorpusConfig(**settings)))


def test_corpus_names_and_languages() -> None:
    corpus = CorpusConfig(source="x/y/a.en", target="x/y/a.de", target_language="de-AT")
    assert corpus_name(corpus) == "y/a.en + a.de"
    assert direction(corpus, DataConfig(source_language="en", target_language="de")) == ("en", "de-AT")


@given(lines=st.lists(st.text(alphabet=st.characters(exclude_characters="\n\0", codec="utf-8")), min_size=1))
def test_any_lines_are_read_stripped_and_aligned(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    folder = tmp_path_factory.mktemp("lines")
    lines = ["first", *lines]
    numbers = "".join(f"{n}\n" for n in range(len(lines)))
    corpus = two_files(folder, "".join(line + "\n" for line in lines).encode(), numbers.encode())
    assert list(read_pairs(corpus)) == [(line.strip(), str(n)) for n, line in enumerate(lines)]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_file_is_found_by_its_plain_name(tmp_path: Path, suffix: str, compress: Any) -> None:
    corpus = CorpusConfig(source=str(tmp_path / "a.en"), target=str(tmp_path / "a.de"))
    (tmp_path / f"a.en{suffix}").write_bytes(compress(b"packed\n"))
    (tmp_path / "a.de").write_bytes(b"plain\n")
    (tmp_path / f"a.de{suffix}").write_bytes(compress(b"never read\n"))
    assert list(read_pairs(corpus)) == [("packed", "plain")]
    assert [Path(path).name for path in corpus_files(corpus)] == [f"a.en{suffix}", "a.de"]
    single = CorpusConfig(path=str(tmp_path / "b.tsv"))
    (tmp_path / f"b.tsv{suffix}").write_bytes(compress(b"one\teins\n"))
    assert list(read_pairs(single)) == [("one", "eins")]


@pytest.mark.parametrize(
    ("path", "one", "two"),
    [
        ("train.en", "train.en", "train.en"),
        ("./train.en", "train.en", "train.en"),
        ("../train.en", "train.en", "train.en"),
        ("../../data/europarl/train.en", "europarl/train.en", "data/europarl/train.en"),
        ("/data/train.en", "data/train.en", "data/train.en"),
        ("/home/alice/train.en", "train.en", "train.en"),
        ("/home/alice/text/train.en", "text/train.en", "text/train.en"),
        ("/mnt/c/Users/alice/text/train.en", "text/train.en", "text/train.en"),
        (r"C:\Users\alice\train.en", "train.en", "train.en"),
        (r"D:\corpora\europarl\train.en", "europarl/train.en", "corpora/europarl/train.en"),
        ("~/train.en", "train.en", "train.en"),
        ("../../home/alice/train.en", "train.en", "train.en"),
        ("home/text/train.en", "text/train.en", "home/text/train.en"),
    ],
)
def test_short_names_omit_home_directories(path: str, one: str, two: str) -> None:
    assert short_name(path, num_folders=0) == "train.en"
    assert (short_name(path), short_name(path, num_folders=2)) == (one, two)


def test_long_lines_and_gzip_bombs_use_bounded_memory(tmp_path: Path) -> None:
    """The rest of a long line is dropped, and later lines keep their numbers."""
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"first\n")
        for _ in range(64):
            file.write("ü".encode() * (1 << 19))
        file.write(b"\nlast\n")
    tracemalloc.start()
    lines = list(read_lines(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [lines[0], lines[2]] == [b"first", b"last"] and len(lines) == 3
    assert set(lines[1].decode()) == {"ü"} and len(lines[1]) <= MAX_LINE_BYTES
    assert peak < 32 * MAX_LINE_BYTES
