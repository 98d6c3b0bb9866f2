"""Paired significance tests of clear, small and zero differences."""

import json

import pytest

from heedful.errors import ConfigError, CorpusError
from heedful.evaluation.significance import Test as PairedTestName
from heedful.evaluation.significance import compare

WORDS = ["red", "green", "blue", "small", "large", "old", "new", "quick", "slow", "warm", "cold", "bright"]
REFERENCES = [
    f"the {WORDS[n % 12]} house stands near a {WORDS[n * 5 % 12]} tree by the {WORDS[n * 7 % 12]} river"
    for n in range(60)
]


def damaged(every: int, offset: int = 0) -> list[str]:
    """The references with one error in every n-th sentence."""
    return [
        line.replace("house stands", "barn is") if (n + offset) % every == 0 else line
        for n, line in enumerate(REFERENCES)
    ]


@pytest.mark.parametrize("test", ["bootstrap", "randomisation"])
def test_equal_small_and_large_differences(test: PairedTestName) -> None:
    systems = {"first": damaged(3), "copy": damaged(3), "twin": damaged(3, offset=1), "worse": damaged(1)}
    comparison = compare(systems, REFERENCES, test=test, samples=300)
    assert comparison.baseline == "first" and len(comparison.results) == 20
    by_name = {(result.score.name, result.system): result for result in comparison.results}
    for metric in ("BLEU", "chrF2", "TER", "ExactMatch", "CER"):
        assert by_name[metric, "first"].p_value is None and by_name[metric, "first"].difference is None
        assert by_name[metric, "copy"].p_value == 1.0
        assert (by_name[metric, "twin"].p_value or 0) > 0.05
        assert (by_name[metric, "worse"].p_value or 1) < 0.01
    assert {result.system for result in comparison.significant()} == {"worse"}
    assert by_name["BLEU", "worse"].difference == pytest.approx(
        by_name["BLEU", "worse"].score.value - by_name["BLEU", "first"].score.value
    )
    assert ("ar:300" if test == "randomisation" else "bs:300") in by_name["BLEU", "worse"].score.signature


def test_table_shows_scores_and_signatures() -> None:
    comparison = compare({"a": damaged(2), "[b]": REFERENCES}, REFERENCES, metrics=["bleu"], samples=50, baseline="[b]")
    table = str(comparison)
    for part in ("against [b]", "100.00", "*", "nrefs:1|bs:50|seed:12345|", comparison.results[1].score.signature):
        assert part in table
    plain = json.loads(json.dumps(comparison.to_dict()))
    assert (
        plain["baseline"] == "[b]"
        and plain["results"][1]["score"]["signature"] == comparison.results[1].score.signature
    )


@pytest.mark.parametrize("test", ["bootstrap", "randomisation"])
def test_single_line_is_no_significant_difference(test: PairedTestName) -> None:
    one_wrong = ["wrong", *REFERENCES[1:]]
    metrics = ("bleu", "exact", "cer")
    for result in compare({"a": REFERENCES, "b": one_wrong}, REFERENCES, test=test, metrics=metrics).results[1::2]:
        assert result.p_value is not None and result.p_value > 0.05, result.score.name


def test_undefined_metric_in_table() -> None:
    short = ["one two", "three"] * 10
    comparison = compare({"a": short, "b": short[::-1]}, short, metrics=("bleu", "exact"), samples=50)
    table = str(comparison)
    assert "undefined" in table and "BLEU: no reference has 3 tokens" in table
    first, other = comparison.results[:2]
    assert not first.score.is_defined and (other.difference, other.p_value) == (None, None)
    assert comparison.results[3].p_value is not None and comparison.results[3].difference == -100.0
    assert json.loads(json.dumps(comparison.to_dict(), allow_nan=False))["results"][0]["score"]["value"] is None


def test_comparison_is_deterministic() -> None:
    systems = {"a": damaged(2), "b": damaged(4, offset=1)}
    first, again = (compare(systems, REFERENCES, metrics=["bleu"], samples=100, seed=5) for _ in range(2))
    assert first == again


def test_invalid_comparisons_are_refused() -> None:
    with pytest.raises(CorpusError, match="b has 59 lines but references has 60"):
        compare({"a": REFERENCES, "b": REFERENCES[1:]}, REFERENCES)
    with pytest.raises(ConfigError, match="at least two systems"):
        compare({"a": REFERENCES}, REFERENCES)
    with pytest.raises(ConfigError, match="'z' is not among"):
        compare({"a": REFERENCES, "b": REFERENCES}, REFERENCES, baseline="z")
    with pytest.raises(ConfigError, match="seed"):
        compare({"a": REFERENCES, "b": REFERENCES}, REFERENCES, seed=0)
