"""Compound-split BLEU: tokenisation and its effect on the score."""

from __future__ import annotations

import pytest

from heedful.errors import CorpusError
from heedful.evaluation.score import compound_split_bleu, score, split_compounds, tokenise_and_split


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("the well-known man", "the well ##AT##-##AT## known man"),
        ("a state-of-the-art thing", "a state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art thing"),
        ("no compound - a dash", "no compound - a dash"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # as s{(\S)-(\S)}{…}g does it: a letter belongs to one match only
        ("-x y-", "-x y-"),
        ("", ""),
    ],
)
def test_split_compounds(text: str, split: str) -> None:
    assert split_compounds(text) == split


def test_text_is_tokenised_before_splitting() -> None:
    assert tokenise_and_split(["Ein E-Mail-Konto, bitte."]) == [
        "Ein E ##AT##-##AT## Mail ##AT##-##AT## Konto , bitte ."
    ]


def test_compounds_raise_the_score_and_signature_names_tokenizer() -> None:
    references = ["He saw the well-known twenty-year-old state-of-the-art machine at home ."] * 3
    hypotheses = ["She saw the well-known thirty-year-old state-of-the-art machine at work ."] * 3
    found = compound_split_bleu(hypotheses, references, bootstrap=10)
    [plain] = score(hypotheses, references, metrics=("bleu",), bootstrap=0)
    assert found.value > plain.value + 5
    assert found.name == "compound-split BLEU" and found.interval is not None
    assert "tok:13a+compound-split" in found.signature and "case:mixed" in found.signature
    assert compound_split_bleu(references, references, bootstrap=0).value == pytest.approx(100)


def test_without_hyphens_equals_sacrebleu() -> None:
    references = ["The cat sat on the mat, and the dog did not.", "It rained all day."]
    hypotheses = ["The cat sat on a mat, and the dog did not.", "It rained the whole day."]
    [plain] = score(hypotheses, references, metrics=("bleu",), bootstrap=0)
    assert compound_split_bleu(hypotheses, references, bootstrap=0).value == pytest.approx(plain.value)


def test_unequal_line_counts_are_refused() -> None:
    with pytest.raises(CorpusError, match="2 lines"):
        compound_split_bleu(["a", "b"], ["a"])
