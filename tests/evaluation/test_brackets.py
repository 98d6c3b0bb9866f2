"""The bracket score, on trees small enough to count by hand."""

from __future__ import annotations

import pytest

from heedful.errors import CorpusError
from heedful.evaluation.brackets import SentenceCounts, count_brackets, score_trees, summarise
from heedful.text.trees import Tree, plain, read_tree


def tree(text: str) -> Tree:
    return plain(read_tree(text))


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
        # punctuation has no place: NP is 0-1 with the comma inside or outside, and a bracket of nothing else is gone
        (
            "(S (NP (NN x)) (, ,) (VP (VB y)) (. .))",
            "(S (NP (X x) (X ,)) (VP (X y) (X .)))",
            (3, 3, 3, 0),
        ),
        ("(S (NP (NN x)) (PRN (: --)))", "(S (NP (X x)) (X --))", (2, 2, 2, 0)),
        # PRT is ADVP
        ("(VP (VB give) (PRT (RP up)))", "(VP (X give) (ADVP (X up)))", (2, 2, 2, 0)),
        # the root wrapper is no bracket
        ("(TOP (NP (NN a)) (NP (NN b)))", "(TOP (NP (X a)) (VP (X b)))", (2, 2, 1, 0)),
    ],
)
def test_counts(gold: str, predicted: str, expected: tuple[int, int, int, int]):
    assert counts(gold, predicted) == expected


def test_sentences_that_cannot_be_compared_miss_all_their_gold_brackets():
    none = count_brackets(tree(GOLD), None)
    assert (none.num_gold, none.num_predicted, none.num_matched, none.failure) == (4, 0, 0, "no tree")
    other = count_brackets(tree(GOLD), tree("(S (NP (X the) (X cat)) (VP (X saw)))"))
    assert (other.num_gold, other.num_predicted, other.num_matched, other.failure) == (4, 0, 0, "other words")
    moved = count_brackets(tree(GOLD), tree(GOLD.replace("cat", "cow")))
    assert moved.failure == "other words"


def test_a_bracket_that_is_a_word_may_be_spelled_either_way():
    gold = tree("(NP (-LRB- -LRB-) (NN x))")
    assert count_brackets(gold, Tree(("(", "x"), ("XX", "XX"), gold.spans)).is_exact


def test_the_summary():
    found = summarise(
        [
            SentenceCounts(num_words=10, num_gold=4, num_predicted=4, num_matched=4),
            SentenceCounts(num_words=50, num_gold=6, num_predicted=4, num_matched=2, num_crossing=1),
            SentenceCounts(num_words=20, num_gold=2, failure="no tree"),
        ]
    )
    # matched 6 of 12 gold and 8 predicted: recall 50, precision 75, F1 = 2·6 / 20 = 60
    assert (found.recall, found.precision, found.f1) == (50.0, 75.0, 60.0)
    assert found.exact == pytest.approx(100 / 3)
    assert found.crossing == 0.5  # one in two sentences that have a tree
    assert (found.num_sentences, found.num_failed) == (3, 1)
    assert "F1 = 60.00 (precision 75.00, recall 50.00)" in str(found)


def test_short_sentences_apart():
    found = [SentenceCounts(40, 1, 1, 1), SentenceCounts(41, 1, 1, 0)]
    assert summarise(found, max_words=40).f1 == 100.0
    assert summarise(found).f1 == 50.0
    assert summarise([]).f1 == 0.0


def test_the_two_sides_must_have_as_many_trees():
    with pytest.raises(CorpusError, match="2 gold trees but 1 predicted"):
        score_trees([tree(GOLD), tree(GOLD)], [None])
    with pytest.raises(CorpusError, match="nothing to score"):
        score_trees([], [])
    assert [one.is_exact for one in score_trees([tree(GOLD)] * 2, [tree(GOLD), None])] == [True, False]
