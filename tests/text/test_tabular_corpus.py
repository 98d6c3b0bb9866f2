"""TSV and CSV corpora: headers, columns by name or number, quotes, and errors."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from heedful.config import CorpusConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.corpus import read_pairs
from heedful.text.corpus_chunks import read_chunks

NAMED = {"source_column": "English", "target_column": "german"}
CSV = 'id,english,german\n1,"Yes, please.","Ja, ""bitte""."\n\n2,No.,Nein.\n'
PAIRS = [("", ""), ("Yes, please.", 'Ja, "bitte".'), ("", ""), ("No.", "Nein.")]


def corpus(folder: Path, name: str, text: str, **columns: str) -> CorpusConfig:
    path = folder / name
    content = text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return CorpusConfig(path=str(path), **columns)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "A.CSV"])
def test_csv_columns_are_selected_by_name(tmp_path: Path, name: str) -> None:
    found = corpus(tmp_path, name, CSV, **NAMED)
    assert list(read_pairs(found)) == PAIRS
    chunks = list(read_chunks(found))
    assert [pair for chunk in chunks for pair in chunk.pairs(found)] == PAIRS
    assert chunks[0].select(found, [1, 3]) == {1: PAIRS[1], 3: PAIRS[3]}  # the first line is not a header
    assert list(read_pairs(corpus(tmp_path, name, "\ufeff" + CSV.replace("\n", "\r\n"), **NAMED))) == PAIRS


def test_separators_and_default_column_names(tmp_path: Path) -> None:
    expected = [("", ""), ("a, b", "c")]
    assert list(read_pairs(corpus(tmp_path, "a.csv", "Source;Target\na, b;c\n"))) == expected
    assert list(read_pairs(corpus(tmp_path, "a.tsv", "target\tsource\nc\ta, b\n"))) == expected
    assert list(read_pairs(corpus(tmp_path, "b.tsv", "x\tenglish\tgerman\n1\ta, b\tc\n", **NAMED))) == expected
    assert list(read_pairs(corpus(tmp_path, "c.tsv", 'one\t"a\n'))) == [("one", '"a')]  # TSV: no header, no quotes
    numbers = {"source_column": "2", "target_column": "1"}
    assert list(read_pairs(corpus(tmp_path, "d.csv", "c,a\n", **numbers))) == [("a", "c")]


@pytest.mark.parametrize(
    ("text", "columns", "error", "words"),
    [
        (CSV, {}, ConfigError, "'id', 'english', 'german'; name them with --source-column"),
        (
            CSV,
            {"source_column": "en", "target_column": "german"},
            ConfigError,
            "no column 'en'; the first line is 'id'",
        ),
        (CSV, {"source_column": "english"}, ConfigError, "both source_column and target_column"),
        (CSV + '3,"one\ntwo",drei\n', NAMED, CorpusError, r"a\.csv:5: not a line of CSV .*end on its line"),
        (CSV + "3,one\n", NAMED, CorpusError, r"a\.csv:5: 2 columns, but column 3 is needed; .*','"),
    ],
)
def test_invalid_tables_are_refused(
    tmp_path: Path, text: str, columns: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        list(read_pairs(corpus(tmp_path, "a.csv", text, **columns)))
