"""Parse trees: reading, normalisation, writing, and the position of errors."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from heedful.errors import CorpusError
from heedful.evaluation.evalb import (
    Span,
    draw_tree,
    normalize_tree,
    read_predicted_trees,
    read_tree,
    read_trees,
    write_tree,
)

CAT = "(S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))"


def test_read_tree():
    tree = read_tree(CAT)
    assert tree.words == ("The", "cat", "sat", ".")
    assert tree.tags == ("DT", "NN", "VBD", ".")
    assert tree.spans == (Span("S", 0, 4), Span("NP", 0, 2), Span("VP", 2, 3))
    assert str(tree) == write_tree(tree) == CAT


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("( (S (NP (NN Rain)) (VP (VBZ falls))))", "(S (NP (NN Rain)) (VP (VBZ falls)))"),
        ("(TOP (S (NP-SBJ-1 (NN Rain)) (VP (VBZ falls))))", "(S (NP (NN Rain)) (VP (VBZ falls)))"),
        ("(ROOT(S1(S(NP=2 (NN Rain))(VP|S (VBZ falls)))))", "(S (NP (NN Rain)) (VP (VBZ falls)))"),
        ("(TITLE (NP (NN Rain)))", "(TITLE (NP (NN Rain)))"),
        # a trace is removed, with every constituent that contains nothing else
        ("(S (NP (-NONE- *T*-1)) (VP (VB Go) (S (NP (-NONE- *)))))", "(S (VP (VB Go)))"),
        # without a constituent under the wrapper, or with two, the wrapper is the root
        ("( (UH Yes))", "(TOP (UH Yes))"),
        ("(UH Yes)", "(TOP (UH Yes))"),
        ("(S1 (NP (NN A)) (NP (NN B)))", "(TOP (NP (NN A)) (NP (NN B)))"),
        # tags keep their brackets and dashes
        ("(NP (-LRB- -LRB-) (PRP$ its) (-RRB- -RRB-))", "(NP (-LRB- -LRB-) (PRP$ its) (-RRB- -RRB-))"),
        ("(NP (NP (NP (NN x))))", "(NP (NP (NP (NN x))))"),
    ],
)
def test_normalize_tree(given: str, expected: str):
    assert write_tree(normalize_tree(read_tree(given))) == expected


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("(S (NP (NN cat))", 1, "1 bracket is not closed"),
        ("(S (NP (NN cat)", 4, "2 brackets are not closed"),
        ("(S (NP (NN cat))))", 18, "')' is outside"),
        ("(S (NP the cat))", 12, "the word 'cat' needs its own bracket and tag"),
        ("(S (NN cat) sat)", 13, "the word 'sat' needs its own bracket and tag"),
        ("(S (NN cat (NN dog)))", 12, "a bracket follows the word 'cat'"),
        ("(S (NP) (NN cat))", 4, "the bracket (NP) is empty"),
        ("(S ( (NN cat)))", 4, "has no label"),
        ("(NN cat) (NN dog)", 10, "a second tree starts"),
        ("cat", 1, "'cat' is outside"),
        ("", 1, "there is no tree"),
    ],
)
def test_errors_name_the_column(text: str, column: int, problem: str):
    with pytest.raises(CorpusError) as raised:
        read_tree(text, "a.trees, line 7")
    assert str(raised.value).startswith(f"a.trees, line 7, column {column}: ")
    assert problem in str(raised.value)


def test_read_tree_files(tmp_path: Path):
    path = tmp_path / "a.trees.gz"
    path.write_bytes(gzip.compress(f"{CAT}\r\n\n(TOP {CAT})\n".encode()))
    assert [write_tree(tree) for tree in read_trees(path)] == [CAT, CAT]
    assert [tree and write_tree(tree) for tree in read_predicted_trees(path)] == [CAT, None, CAT]
    wrong = tmp_path / "b.trees"
    wrong.write_text(f"{CAT}\n(S (NP)\n")
    with pytest.raises(CorpusError, match=r"b\.trees, line 2, column 4"):
        read_trees(wrong)
    wrong.write_bytes(b"(S (NN caf\xe9))\n")
    with pytest.raises(CorpusError, match=r"line 1: not UTF-8"):
        read_trees(wrong)
    wrong.write_text("(S (-NONE- *))\n")
    with pytest.raises(CorpusError, match="line 1: the tree has no words"):
        read_trees(wrong)


def test_depth_is_unlimited():
    depth = 20_000
    text = "(S " * depth + "(NN x)" + ")" * depth
    tree = normalize_tree(read_tree(text))
    assert len(tree.spans) == depth
    assert write_tree(tree) == text


def test_bracket_words_are_escaped():
    tree = read_tree("(NP (A a) (B b))")
    escaped = type(tree)(("(", "b)"), tree.tags, tree.spans)
    assert write_tree(escaped) == "(NP (A -LRB-) (B b-RRB-))"


def test_draw_tree():
    assert draw_tree(read_tree("(S (NP (NN Rain)) (VP (VBZ falls)))")) == "S\n  NP\n    NN Rain\n  VP\n    VBZ falls"
