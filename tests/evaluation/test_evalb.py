"""Bracket scores on trees that are small enough to count by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heedful import cli
from heedful.errors import CorpusError
from heedful.evaluation.evalb import (
    SentenceCounts,
    Tree,
    aggregate,
    count_brackets,
    normalize_tree,
    read_tree,
    score_trees,
)


def tree(text: str) -> Tree:
    return normalize_tree(read_tree(text))


def counts(gold: str, predicted: str) -> tuple[int, int, int, int]:
    """Gold, predicted, matched, crossing."""
    found = count_brackets(tree(gold), tree(predicted))
    assert found.failure is None
    return found.num_gold, found.num_predicted, found.num_matched, found.num_crossing


GOLD = "(S (NP (DT the) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog))))"  # S 0-5, NP 0-2, VP 2-5, NP 3-5


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        (GOLD, GOLD, (4, 4, 4, 0)),
        # a missing bracket: VP
        (GOLD, "(S (NP (X the) (X cat)) (X saw) (NP (X a) (X dog)))", (4, 3, 3, 0)),
        # a wrong label: NP 3-5 as ADJP
        (GOLD, "(S (NP (X the) (X cat)) (VP (X saw) (ADJP (X a) (X dog))))", (4, 4, 3, 0)),
        # NP 0-3 crosses VP 2-5; S and NP 3-5 match
        (GOLD, "(S (NP (X the) (X cat) (X saw)) (NP (X a) (X dog)))", (4, 3, 2, 1)),
        # one bracket that crosses two gold ones counts once: X 1-4 crosses NP 0-2, VP 2-5 and NP 3-5
        (GOLD, "(S (X the) (X (X cat) (X saw) (X a)) (X dog))", (4, 2, 1, 1)),
        # a chain of equal brackets is matched one to one: NP twice against three times, and against once
        ("(S (NP (NP (NN x))) (VP (VB y)))", "(S (NP (NP (NP (X x)))) (VP (X y)))", (4, 5, 4, 0)),
        ("(S (NP (NP (NN x))) (VP (VB y)))", "(S (NP (X x)) (VP (X y)))", (4, 3, 3, 0)),
        # punctuation is removed: NP is 0-1 with the comma inside or outside; a bracket with only punctuation is dropped
        (
            "(S (NP (NN x)) (, ,) (VP (VB y)) (. .))",
            "(S (NP (X x) (X ,)) (VP (X y) (X .)))",
            (3, 3, 3, 0),
        ),
        ("(S (NP (NN x)) (PRN (: --)))", "(S (NP (X x)) (X --))", (2, 2, 2, 0)),
        # PRT is ADVP
        ("(VP (VB give) (PRT (RP up)))", "(VP (X give) (ADVP (X up)))", (2, 2, 2, 0)),
        ("(VP (VB give) (ADVP (RP up)) (PRT (RP in)))", "(VP (X give) (PRT (X up)) (PRT (X in)))", (3, 3, 3, 0)),
        # a unary chain with different labels, and the same chain in reverse order: order does not matter
        ("(S (NP (QP (CD one))))", "(S (QP (NP (X one))))", (3, 3, 3, 0)),
        ("(S (VP (VB go)))", "(S (S (VP (X go))))", (2, 3, 2, 0)),
        # brackets that are words are words, quotes are punctuation
        (
            "(S (PRN (-LRB- -LRB-) (NN x) (-RRB- -RRB-)) (NN y))",
            "(S (X -LRB-) (PRN (X x)) (X -RRB-) (X y))",
            (2, 2, 1, 0),
        ),
        ("(S (`` ``) (NP (NN x)) ('' ''))", "(S (NP (X ``) (X x) (X '')))", (2, 2, 2, 0)),
        # a comma attached high or low changes nothing: NP 0-2 against NP 0-1, which VP 1-3 crosses; then NP 0-2 in both
        ("(S (NP (NN x) (, ,) (NN y)) (VP (VB z)))", "(S (NP (X x)) (VP (X ,) (X y) (X z)))", (3, 3, 1, 1)),
        ("(S (NP (NN x) (NN y) (, ,)) (VP (VB z)))", "(S (NP (X x) (X y)) (VP (X ,) (X z)))", (3, 3, 3, 0)),
        # a sentence of only punctuation has no brackets
        ("(FRAG (. !))", "(S (X !))", (0, 0, 0, 0)),
        # functional tags, indices and gaps
        ("(S (NP-SBJ-1 (NN x)) (VP (VB y) (NP=2 (-NONE- *-1))))", "(S (NP (X x)) (VP (X y)))", (3, 3, 3, 0)),
        # the root wrapper is not a bracket
        ("(S1 (S (NN a)))", "(ROOT (TOP (S (X a))))", (1, 1, 1, 0)),
        ("( (S (NN a)))", "(S (X a))", (1, 1, 1, 0)),
        ("(TOP (NP (NN a)) (NP (NN b)))", "(TOP (NP (X a)) (VP (X b)))", (2, 2, 1, 0)),
    ],
)
def test_count_brackets(gold: str, predicted: str, expected: tuple[int, int, int, int]):
    assert counts(gold, predicted) == expected


def test_incomparable_sentences_miss_all_gold_brackets():
    none = count_brackets(tree(GOLD), None)
    assert (none.num_gold, none.num_predicted, none.num_matched, none.failure) == (4, 0, 0, "no tree")
    other = count_brackets(tree(GOLD), tree("(S (NP (X the) (X cat)) (VP (X saw)))"))
    assert (other.num_gold, other.num_predicted, other.num_matched, other.failure) == (4, 0, 0, "other words")
    moved = count_brackets(tree(GOLD), tree(GOLD.replace("cat", "cow")))
    assert moved.failure == "other words"


def test_bracket_words_may_be_escaped_or_not():
    gold = tree("(NP (-LRB- -LRB-) (NN x))")
    assert count_brackets(gold, Tree(("(", "x"), ("XX", "XX"), gold.spans)).is_exact


def test_aggregate_sums_bracket_counts():
    found = aggregate(
        [
            SentenceCounts(num_words=10, num_gold=4, num_predicted=4, num_matched=4),
            SentenceCounts(num_words=50, num_gold=6, num_predicted=4, num_matched=2, num_crossing=1),
            SentenceCounts(num_words=20, num_gold=2, failure="no tree"),
        ]
    )
    # matched 6 of 12 gold and 8 predicted: recall 50, precision 75, F1 = 2·6 / 20 = 60
    assert (found.recall, found.precision, found.f1) == (50.0, 75.0, 60.0)
    assert found.exact == pytest.approx(100 / 3)
    assert found.crossing == 0.5 and found.no_crossing == 50.0  # one in two sentences that have a tree
    assert (found.num_sentences, found.num_failed) == (3, 1)
    assert "F1 = 60.00 (precision 75.00, recall 50.00)" in str(found)


def test_aggregate_short_sentences():
    found = [SentenceCounts(40, 1, 1, 1), SentenceCounts(41, 1, 1, 0)]
    assert aggregate(found, max_words=40).f1 == 100.0
    assert aggregate(found).f1 == 50.0
    assert aggregate([]).f1 == 0.0


def test_unequal_numbers_of_trees_are_refused():
    with pytest.raises(CorpusError, match="2 gold trees but 1 predicted"):
        score_trees([tree(GOLD), tree(GOLD)], [None])
    with pytest.raises(CorpusError, match="no gold trees"):
        score_trees([], [])
    assert [one.is_exact for one in score_trees([tree(GOLD)] * 2, [tree(GOLD), None])] == [True, False]


def f1(tmp_path: Path, capsys: pytest.CaptureFixture[str], gold: str, predicted: str) -> dict[str, Any]:
    """The output of `heedful paper f1 --json` for two files."""
    (tmp_path / "gold.trees").write_text(gold)
    (tmp_path / "predicted.trees").write_text(predicted)
    code = cli.run(["paper", "f1", "--json", str(tmp_path / "gold.trees"), str(tmp_path / "predicted.trees")])
    printed = capsys.readouterr()
    return json.loads(printed.out) if code == 0 else {"code": code, "error": printed.err}


ONE, TWO, THREE = "(S (NN a))", "(S (NN b))", "(S (NN c))"


@pytest.mark.parametrize("predicted", [f"{ONE}\n\n\n{THREE}\n", f"{ONE}\r\n\r\n\r\n{THREE}\r\n"])
def test_empty_line_in_both_files_is_skipped(tmp_path, capsys, predicted: str):
    found = f1(tmp_path, capsys, f"{ONE}\n\n{TWO}\n{THREE}\n", predicted)
    assert found["failed"] == [{"line": 3, "why": "no tree"}]
    assert found["all"]["num_sentences"] == 3 and found["all"]["recall"] == pytest.approx(200 / 3)


def test_predictions_may_omit_empty_gold_lines(tmp_path, capsys):
    found = f1(tmp_path, capsys, f"\n{ONE}\n\n{TWO}\n\n", f"{ONE}\n\n")
    assert found["failed"] == [{"line": 2, "why": "no tree"}]


@pytest.mark.parametrize(
    ("gold", "predicted", "words"),
    [
        (f"{ONE}\n\n{TWO}\n", f"{ONE}\n{TWO}\n\n", "line 2: a predicted tree where the gold file has an empty line"),
        (f"{ONE}\n{TWO}\n", f"{ONE}\n", "2 gold trees but 1 predicted"),
        (f"{ONE}\n", "(S (NN a)\n", "predicted.trees, line 1, column 1: 1 bracket is not closed"),
        (f"{ONE}\n", "(S a b)\n", "predicted.trees, line 1, column 6"),
    ],
)
def test_mismatched_files_are_refused(tmp_path, capsys, gold: str, predicted: str, words: str):
    found = f1(tmp_path, capsys, gold, predicted)
    assert found["code"] == 2 and words in " ".join(found["error"].split())
