"""The preflight: filters, counts, warnings, held-out pairs and target languages."""

from __future__ import annotations

import hashlib
import io
import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import ConfigError, CorpusError
from heedful.text.corpus import Direction
from heedful.text.corpus_filter import first_occurrences
from heedful.text.preflight import Preflight, plain_table, preflight, table, target_languages

NO_VALID: dict[str, Any] = {"num_valid_pairs": 0}
ENGLISH = "the house and the old tree that you have not seen is here with all of them".split()
GERMAN = "das Haus und der alte Baum den du nicht gesehen hast ist hier mit allen von ihnen".split()


def corpus(folder: Path, name: str, pairs: list[tuple[str, str]], **options: Any) -> CorpusConfig:
    for side, suffix in ((0, "source"), (1, "target")):
        (folder / f"{name}.{suffix}").write_bytes("".join(pair[side] + "\n" for pair in pairs).encode())
    return CorpusConfig(source=str(folder / f"{name}.source"), target=str(folder / f"{name}.target"), **options)


def texts(result: Preflight) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in result.pairs()]


def make_pairs(number: int, *, seed: int = 0, swap: bool = False) -> list[tuple[str, str]]:
    """Distinct pairs of various lengths that resemble English and German."""
    chance = random.Random(seed)
    pairs = []
    for index in range(number):
        words = [chance.randrange(len(ENGLISH)) for _ in range(chance.randint(2, 20))]
        source = " ".join(ENGLISH[word] for word in words) + f" {index}"
        target = " ".join(GERMAN[word] for word in words) + f" {index}"
        pairs.append((target, source) if swap else (source, target))
    return pairs


def test_dropped_pairs_are_counted_by_reason_and_others_kept_in_order(tmp_path: Path) -> None:
    pairs = [("one", "eins"), ("", "leer"), ("leer", "  "), ("x" * 2001, "y"), ("a", "b" * 200), ("Tom", "Tom")]
    pairs += [("one", "eins"), ("two", "zwei"), ("one", "ein"), ("held", "gehalten")]
    pairs += [(f"more {n}", f"mehr {n}") for n in range(10)]
    train = corpus(tmp_path, "train", pairs)
    source = Path(str(train.source))
    source.write_bytes(source.read_bytes() + b"caf\xe9\n")
    Path(str(train.target)).write_bytes(Path(str(train.target)).read_bytes() + b"Kaffee\n")
    valid = corpus(tmp_path, "valid", [("held", "gehalten"), ("", "x")])
    result = preflight(DataConfig(train=(train,), valid=(valid,)))
    train_report, valid_report = result.report.corpora
    assert train_report.dropped == {
        "wrong encoding": 1,
        "empty": 2,
        "too long": 1,
        "length ratio": 1,
        "source = target": 1,
        "also in valid or test": 1,
        "duplicate": 1,
    }
    assert (train_report.num_read, train_report.num_kept) == (21, 13)
    assert train_report.first_bad_line == f"{train.source}:21 (not UTF-8)"
    assert valid_report.dropped == {"empty": 1}
    assert texts(result) == [("one", "eins"), ("two", "zwei"), ("one", "ein"), *pairs[10:]]
    assert texts(result) == texts(result)
    assert result.num_pairs == 13


def test_filters_can_be_disabled(tmp_path: Path) -> None:
    pairs = [("a", "a"), ("b", "c"), ("b", "c"), ("v", "w"), ("x", "y" * 200)]
    valid = corpus(tmp_path, "valid", [("v", "w")])
    result = preflight(
        DataConfig(
            train=(corpus(tmp_path, "train", pairs),),
            valid=(valid,),
            deduplicate=False,
            drop_identical=False,
            drop_overlap=False,
            max_length_ratio=20,
        )
    )
    assert texts(result) == pairs
    assert result.report.overlap == {"valid": 1}


def test_duplicates_are_found_across_corpora(tmp_path: Path) -> None:
    first = corpus(tmp_path, "first", [("a", "x"), ("b", "y")])
    second = corpus(tmp_path, "second", [("b", "y"), ("c", "z"), ("a", "y")])
    result = preflight(DataConfig(train=(first, second), **NO_VALID))
    assert [(p.source, p.target, p.corpus_index) for p in result.pairs()] == [
        ("a", "x", 0),
        ("b", "y", 0),
        ("c", "z", 1),
        ("a", "y", 1),
    ]
    assert [report.dropped for report in result.report.corpora] == [{}, {"duplicate": 1}]


def test_overlap_and_shared_sources_are_counted_separately(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", [("a", "x"), ("b", "y"), ("b", "yy"), ("c", "z")])
    valid = corpus(tmp_path, "valid", [("a", "x")])
    test = corpus(tmp_path, "test", [("b", "y")])
    result = preflight(DataConfig(train=(train,), valid=(valid,), test=(test,)))
    assert result.report.overlap == {"valid": 1, "test": 1}
    assert result.report.shared_sources == {"test": 1}
    assert texts(result) == [("b", "yy"), ("c", "z")]


def test_test_corpus_keeps_every_line_and_refuses_bad_lines(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", [("a", "x"), ("b", "y")])
    test = corpus(tmp_path, "test", [("", "leer"), ("same", "same"), ("same", "same"), ("q" * 3000, "r")])
    result = preflight(DataConfig(train=(train,), test=(test,), **NO_VALID))
    assert [(p.source, p.target) for p in result.test_pairs][:3] == [("", "leer"), ("same", "same"), ("same", "same")]
    assert len(result.test_pairs) == 4
    Path(str(test.source)).write_bytes(b"a\nb\nc\n\xff\n")
    with pytest.raises(CorpusError, match=r"test\.source:4.*scored"):
        preflight(DataConfig(train=(train,), test=(test,), **NO_VALID))


@pytest.mark.parametrize(
    ("pairs", "hint"),
    [
        ([("a", "a"), ("b", "b")], "2 source = target.*drop_identical"),
        ([("", "a"), ("b", "")], "2 empty"),
        ([("a" * 3000, "b")], "1 too long.*max_characters"),
    ],
)
def test_error_without_usable_pairs_names_the_main_reason(
    tmp_path: Path, pairs: list[tuple[str, str]], hint: str
) -> None:
    with pytest.raises(CorpusError, match=hint):
        preflight(DataConfig(train=(corpus(tmp_path, "train", pairs),)))


def test_missing_files_and_invalid_settings_are_refused(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", [("a", "x"), ("b", "y")])
    missing = CorpusConfig(source=str(tmp_path / "nowhere"), target=train.target)
    folder = CorpusConfig(source=str(tmp_path), target=train.target)
    empty = corpus(tmp_path, "empty", [])
    for wrong, message in ((missing, "no such file"), (folder, "directory"), (empty, "empty")):
        with pytest.raises(CorpusError, match=message):
            preflight(DataConfig(train=(wrong,)))
    with pytest.raises(CorpusError, match="no usable pair"):
        preflight(DataConfig(train=(train,), valid=(corpus(tmp_path, "valid", [("", "")]),)))
    for data in (DataConfig(), DataConfig(train=(train,), num_valid_pairs=2)):
        with pytest.raises(ConfigError):
            preflight(data)


def test_changed_file_is_detected(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", [("a", "x"), ("b", "y")])
    result = preflight(DataConfig(train=(train,), **NO_VALID))
    corpus(tmp_path, "train", [("a", "x"), ("b", "y"), ("c", "z")])
    with pytest.raises(CorpusError, match="changed"):
        list(result.pairs())


def test_report_is_plain_data_with_checksums(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", make_pairs(60), weight=2.0)
    seen: list[int] = []
    result = preflight(DataConfig(train=(train,)), progress=seen.append)
    described = json.loads(json.dumps(result.report.to_dict()))["corpora"][0]
    content = Path(str(train.source)).read_bytes()
    assert described["files"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert described["files"][0]["num_bytes"] == len(content)
    assert described["weight"] == 2.0
    assert sum(seen) == 60


def test_table_shows_counts_and_warnings(tmp_path: Path) -> None:
    from rich.console import Console

    train = corpus(tmp_path, "train", [*make_pairs(1100), ("same", "same")])
    result = preflight(DataConfig(train=(train,)))
    result.report.warnings.append("something [non_default_values]")
    console = Console(width=200, file=io.StringIO())
    with console.capture() as capture:
        console.print(table(result.report))
    for rendered in (plain_table(result.report), capture.get()):
        for part in ("train.source", "1,101", "1,078", "22", "source = target", "something [non_default_values]"):
            assert part in rendered


def test_warning_about_swapped_sides(tmp_path: Path) -> None:
    straight = corpus(tmp_path, "straight", make_pairs(300, seed=1))
    swapped = corpus(tmp_path, "swapped", make_pairs(300, seed=2, swap=True))
    unnamed = preflight(DataConfig(train=(straight, swapped))).report.warnings
    assert len(unnamed) == 1
    assert "swapped.source" in unnamed[0]
    valid = preflight(DataConfig(train=(straight,), valid=(swapped,))).report.warnings
    assert len(valid) == 1
    named = preflight(DataConfig(train=(swapped,), source_language="en", target_language="de")).report.warnings
    assert len(named) == 1
    assert "looks" in named[0] or "look swapped" in named[0]
    declared = CorpusConfig(source=swapped.source, target=swapped.target, source_language="de", target_language="en")
    data = DataConfig(train=(straight, declared), source_language="en", target_language="de")
    assert preflight(data).report.warnings == []


def test_warning_about_wrong_script(tmp_path: Path) -> None:
    chinese = [(f"the old house number {n} is here", f"第{n}号旧房子在这里呢") for n in range(100)]
    train = corpus(tmp_path, "train", chinese)
    right = preflight(DataConfig(train=(train,), source_language="en", target_language="zh-CN"))
    swapped = preflight(DataConfig(train=(train,), source_language="zh", target_language="en"))
    wrong = preflight(DataConfig(train=(train,), source_language="en", target_language="ru"))
    assert right.report.warnings == []
    assert "look swapped" in swapped.report.warnings[0]
    assert "little of the target is in the script of 'ru'" in wrong.report.warnings[0]


def test_warning_about_misaligned_lines(tmp_path: Path) -> None:
    pairs = make_pairs(500)
    shifted = [(a[0], b[1]) for a, b in pairwise(pairs)]
    data = DataConfig(train=(corpus(tmp_path, "train", shifted),))
    assert any("may not be translations" in warning for warning in preflight(data).report.warnings)
    assert preflight(DataConfig(train=(corpus(tmp_path, "train", pairs),))).report.warnings == []


@settings(max_examples=40)
@given(
    sources=st.lists(st.integers(0, 40), min_size=1, max_size=120),
    seed=st.integers(0, 5),
    wanted=st.none() | st.integers(1, 10),
)
def test_held_out_sources_are_never_in_training(
    tmp_path_factory: pytest.TempPathFactory, sources: list[int], seed: int, wanted: int | None
) -> None:
    pairs = [(f"source {number}", f"target {index}") for index, number in enumerate(sources)]
    train = corpus(tmp_path_factory.mktemp("held"), "train", pairs)
    data = DataConfig(train=(train,), num_valid_pairs=wanted if wanted and wanted < len(pairs) else None)
    result, again = preflight(data, seed=seed), preflight(data, seed=seed)
    kept, held = texts(result), [(pair.source, pair.target) for pair in result.valid_pairs]
    assert sorted(kept + held) == sorted(pairs)
    assert not {source for source, _ in kept} & {source for source, _ in held}
    assert kept
    assert bool(held) == (len(set(sources)) > 1)
    assert result.valid_pairs == again.valid_pairs
    assert result.report.corpora[0].num_held_out == len(held)


def test_number_of_held_out_pairs(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", make_pairs(1000))
    sizes = {
        wanted: len(preflight(DataConfig(train=(train,), num_valid_pairs=wanted)).valid_pairs)
        for wanted in (None, 7, 0)
    }
    assert sizes == {None: 20, 7: 7, 0: 0}
    choices = {tuple(preflight(DataConfig(train=(train,)), seed=seed).valid_pairs) for seed in range(3)}
    assert len(choices) == 3


def test_held_out_pairs_do_not_depend_on_corpus_order(tmp_path: Path) -> None:
    pairs = make_pairs(500)
    forward = preflight(DataConfig(train=(corpus(tmp_path, "one", pairs),)))
    backward = preflight(DataConfig(train=(corpus(tmp_path, "two", pairs[::-1]),)))
    assert {p.source for p in forward.valid_pairs} == {p.source for p in backward.valid_pairs}


def test_both_directions_double_the_corpus(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", [("a", "x"), ("b", "y")], both_directions=True)
    data = DataConfig(train=(train,), source_language="en", target_language="de", **NO_VALID)
    result = preflight(data)
    assert result.tags == ("de", "en")
    assert [(p.source, p.target, p.target_language) for p in result.pairs()] == [
        ("a", "x", "de"),
        ("x", "a", "en"),
        ("b", "y", "de"),
        ("y", "b", "en"),
    ]
    assert result.num_pairs == 4
    with pytest.raises(ConfigError, match="both_directions"):
        preflight(DataConfig(train=(train,)))


def test_held_out_pairs_are_removed_in_both_directions(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", make_pairs(300), both_directions=True)
    data = DataConfig(train=(train,), source_language="en", target_language="de", num_valid_pairs=30)
    result = preflight(data)
    held = {frozenset((pair.source, pair.target)) for pair in result.valid_pairs}
    assert {pair.target_language for pair in result.valid_pairs} == {"de", "en"}
    assert not held & {frozenset((pair.source, pair.target)) for pair in result.pairs()}


def test_reversed_test_pairs_are_not_trained_on(tmp_path: Path) -> None:
    train = corpus(tmp_path, "train", [("x", "a"), ("y", "b")], source_language="de", target_language="en")
    other = corpus(tmp_path, "other", [("c", "z")])
    test = corpus(tmp_path, "test", [("a", "x")])
    data = DataConfig(train=(train, other), test=(test,), source_language="en", target_language="de", **NO_VALID)
    assert texts(preflight(data)) == [("y", "b"), ("c", "z")]


def test_target_languages(tmp_path: Path) -> None:
    german = corpus(tmp_path, "german", [("a", "x")], target_language="de")
    french = corpus(tmp_path, "french", [("a", "x")], target_language="fr")
    unnamed = corpus(tmp_path, "unnamed", [("a", "z")])
    assert target_languages(DataConfig(train=(german,))) == ()
    assert target_languages(DataConfig(train=(german,), target_tags=True)) == ("de",)
    assert target_languages(DataConfig(train=(german, french))) == ("de", "fr")
    assert target_languages(DataConfig(train=(german, french), target_tags=False)) == ()
    both = preflight(DataConfig(train=(german, french), **NO_VALID))
    assert [(pair.target, pair.target_language) for pair in both.pairs()] == [("x", "de"), ("x", "fr")]
    for data in (DataConfig(train=(german, unnamed)), DataConfig(train=(unnamed,), target_tags=True)):
        with pytest.raises(ConfigError, match="target_language"):
            target_languages(data)
    with pytest.raises(ConfigError, match="'fr'"):
        target_languages(DataConfig(train=(german,), test=(french,), target_tags=True))
    known = (Direction("en", "fr"), Direction("fr", "de"))
    with_test_corpus = DataConfig(train=(german,), test=(french,), target_tags=True)  # without source language
    assert target_languages(with_test_corpus, known) == ("de", "fr")
    assert target_languages(replace(with_test_corpus, source_language="en"), known) == ("de", "fr")
    with pytest.raises(ConfigError, match=r"'fr', and .* does not know es → fr; it knows en → fr, fr → de"):
        target_languages(replace(with_test_corpus, source_language="es"), known)
    with pytest.raises(ConfigError, match=r"'fr', and .* any → fr"):
        target_languages(with_test_corpus, known[1:])


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 70))
def test_first_occurrences(numbers: list[int], at_once: int) -> None:
    first = first_occurrences(np.array(numbers, dtype=np.uint64), at_once)
    assert first.tolist() == [number not in numbers[:place] for place, number in enumerate(numbers)]


def test_select_pairs_equals_indexing_all_pairs(tmp_path: Path) -> None:
    both = {"source_language": "en", "target_language": "de"}
    one = corpus(tmp_path, "one", [*make_pairs(1300), ("", "x"), *make_pairs(40, seed=3)], **both, both_directions=True)
    other = corpus(tmp_path, "other", make_pairs(30, seed=9), **both)
    result = preflight(DataConfig(train=(one, other), num_valid_pairs=50))
    everything = list(result.pairs())
    assert len(everything) == result.num_pairs
    assert everything[0][:2] == everything[1][:2][::-1]
    numbers = np.flatnonzero(np.random.default_rng(1).random(len(everything)) < 0.1)
    assert list(result.select_pairs(numbers)) == [everything[number] for number in numbers]
    assert list(result.select_pairs(numbers[:0])) == []
