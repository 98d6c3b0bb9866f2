"""Corpora in chunks: the same results in the same order from one or several processes, and the same errors."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from heedful.config import CorpusConfig
from heedful.errors import CorpusError, ModelDirectoryError
from heedful.text.corpus import EARLY_CHECK_LINES, BadLine
from heedful.text.corpus_chunks import Arrays, Chunk, EncodeLines, Work, Workers, num_workers, read_chunks
from heedful.text.line_filters import FilteredLines, FilterLines, Verdict


def tsv(folder: Path, lines: list[bytes]) -> CorpusConfig:
    (folder / "corpus.tsv").write_bytes(b"\n".join(lines) + b"\n")
    return CorpusConfig(path=str(folder / "corpus.tsv"))


def filter_lines(corpus: CorpusConfig) -> FilterLines:
    return FilterLines(
        corpus=corpus,
        max_characters=50,
        max_length_ratio=6.0,
        drop_identical=True,
        drop_overlap=True,
        evaluation_hashes=[],
        evaluation_sources=[],
        salts=["1||", "1|de|"],
    )


def numbered(corpus: CorpusConfig, size: int) -> list[tuple[int, Chunk]]:
    return [(chunk.first_number, chunk) for chunk in read_chunks(corpus, size)]


def map_in_order(work: Work, chunks: list[tuple[int, Chunk]], num_workers: int) -> list[tuple[int, Arrays]]:
    with Workers(num_workers) as workers:
        return list(workers.map_in_order(work, chunks))


LINES = [b"word %d\tWort %d" % (n, n) for n in range(EARLY_CHECK_LINES + 95)]
LINES[EARLY_CHECK_LINES + 3], LINES[EARLY_CHECK_LINES + 12], LINES[EARLY_CHECK_LINES + 50] = (
    b"",
    b"\xff\tx",
    b"a\t" + b"long " * 40,
)


def test_chunks_contain_all_lines_in_order(tmp_path: Path) -> None:
    chunks = [chunk for _, chunk in numbered(tsv(tmp_path, LINES), 20)]
    assert [len(chunk) for chunk in chunks] == [EARLY_CHECK_LINES, 20, 20, 20, 20, 15]
    assert [line for chunk in chunks for line in chunk.files[0]] == LINES
    assert [chunk.first_number for chunk in chunks] == [1, *range(EARLY_CHECK_LINES + 1, EARLY_CHECK_LINES + 96, 20)]
    corpus = CorpusConfig(path=str(tmp_path / "corpus.tsv"))
    assert [item.number for item in chunks[1].pairs(corpus) if isinstance(item, BadLine)] == [EARLY_CHECK_LINES + 13]
    assert chunks[2].select(corpus, [4, 1]) == {n: (f"word {1020 + n}", f"Wort {1020 + n}") for n in (4, 1)}


def test_results_do_not_depend_on_number_of_processes(tmp_path: Path) -> None:
    corpus = tsv(tmp_path, LINES)
    single = map_in_order(filter_lines(corpus), numbered(corpus, 20), 1)
    parallel = map_in_order(filter_lines(corpus), numbered(corpus, 20), 3)
    assert [number for number, _ in parallel] == [number for number, _ in single]
    for (_, one), (_, other) in zip(single, parallel, strict=True):
        assert [array.dtype for array in one] == [array.dtype for array in other]
        assert all(np.array_equal(*both) for both in zip(one, other, strict=True))
    verdicts = np.concatenate([FilteredLines(*arrays).verdicts for _, arrays in parallel])
    expected = np.full(len(LINES), Verdict.KEPT)
    expected[[EARLY_CHECK_LINES + 3, EARLY_CHECK_LINES + 12, EARLY_CHECK_LINES + 50]] = (
        Verdict.EMPTY,
        Verdict.WRONG_ENCODING,
        Verdict.TOO_LONG,
    )
    assert (verdicts == expected).all()
    assert Verdict.LENGTH_RATIO not in verdicts  # TOO_LONG comes first


def test_error_in_a_worker_names_the_line(tmp_path: Path) -> None:
    lines = [*LINES]
    lines[EARLY_CHECK_LINES + 77] = b"no tab"
    corpus = tsv(tmp_path, lines)
    with pytest.raises(CorpusError, match=rf"corpus\.tsv:{EARLY_CHECK_LINES + 78}: 1 column, but column 2 is needed"):
        map_in_order(filter_lines(corpus), numbered(corpus, 20), 2)
    work = EncodeLines(corpus=corpus, tokenizer=str(tmp_path / "none"), width=10, languages=[None])
    with pytest.raises(ModelDirectoryError, match="none"):
        map_in_order(work, numbered(corpus, 20), 2)


def test_dead_worker_raises_corpus_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tsv(tmp_path, LINES)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CorpusError, match=r"died \(exit code 1\).*data\.num_workers"):
        map_in_order(filter_lines(corpus), numbered(corpus, 20), 2)


def test_workers_can_stop_early_and_change_their_work(tmp_path: Path) -> None:
    corpus = tsv(tmp_path, LINES)
    strict = replace(filter_lines(corpus), max_characters=8)
    with Workers(2) as workers:
        assert next(iter(workers.map_in_order(filter_lines(corpus), numbered(corpus, 5))))[0] == 1
        counts = [
            sum(
                (FilteredLines(*arrays).verdicts == Verdict.KEPT).sum()
                for _, arrays in workers.map_in_order(work, numbered(corpus, 50))
            )
            for work in (filter_lines(corpus), strict, filter_lines(corpus))
        ]
    assert counts == [len(LINES) - 3, 1000, len(LINES) - 3]


def test_small_corpora_use_one_process() -> None:
    assert num_workers(None, 1000) == 1
    assert num_workers(3, 1000) == num_workers(3, 1 << 40) == 3
    assert num_workers(None, 1 << 40) >= 1


def test_unequal_files_report_both_line_counts(tmp_path: Path) -> None:
    for name, count in (("a", 1100), ("b", 1342)):
        (tmp_path / name).write_bytes(b"x\n" * count)
    corpus = CorpusConfig(source=str(tmp_path / "a"), target=str(tmp_path / "b"))
    with pytest.raises(CorpusError, match=r"a has 1,100 lines but .*b has 1,342"):
        numbered(corpus, 20)
