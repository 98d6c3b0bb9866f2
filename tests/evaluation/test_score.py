"""Scores: values, intervals and signatures of sacreBLEU, and custom metrics."""

import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from heedful.errors import ConfigError, CorpusError
from heedful.evaluation.score import Interval, Score, choose_tokenizer, score

REFERENCES = [
    "The cat sat on the mat.",
    "Two men are talking in the park.",
    "Snow falls on the hills.",
    "Who is there?",
] * 5
HYPOTHESES = [line.replace("the", "a") if number % 3 else line for number, line in enumerate(REFERENCES)]


def test_values_intervals_and_signatures_equal_sacrebleu() -> None:
    metrics = (BLEU(), CHRF(), CHRF(word_order=2), TER())
    ours = score(HYPOTHESES, REFERENCES, metrics=("bleu", "chrf", "chrf++", "ter"))
    assert [s.name for s in ours] == ["BLEU", "chrF2", "chrF2++", "TER"]
    for mine, metric in zip(ours, metrics, strict=True):
        direct = metric.corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
        assert mine.value == direct.score
        assert mine.signature == str(metric.get_signature())
        assert mine.interval == Interval(direct._mean - direct._ci, direct._mean + direct._ci, 0.95, 1000)
        assert mine.interval.low < mine.value < mine.interval.high
        assert "bs:1000|seed:12345" in mine.signature


def test_printed_score_has_interval_and_signature() -> None:
    bleu = score(HYPOTHESES, REFERENCES, metrics=["bleu"], bootstrap=50)[0]
    assert bleu.interval is not None
    for part in (
        f"{bleu.value:.2f}",
        f"{bleu.interval.low:.2f}",
        f"{bleu.interval.high:.2f}",
        bleu.signature,
        "bs:50|",
    ):
        assert part in str(bleu)
    with pytest.raises(TypeError):
        Score("BLEU", 30.0)  # type: ignore[call-arg]
    assert Score.from_dict(bleu.to_dict()) == bleu


def test_interval_stays_within_the_range_of_the_metric() -> None:
    references = ["a b c d e"] * 40
    almost_none, almost_all = ["a b c d e", *["x"] * 39], ["x", *references[1:]]
    [low] = score(almost_none, references, metrics=["exact"])
    [high] = score(almost_all, references, metrics=["exact"])
    assert low.interval is not None and low.interval.low == 0 < low.value < low.interval.high
    assert high.interval is not None and high.interval.low < high.value < high.interval.high == 100
    [errors] = score(["a b c d e f g h i j k l"] * 40, references, metrics=["ter"])
    assert errors.value > 100 and errors.interval is not None and errors.interval.high > 100


def test_no_interval_without_bootstrap() -> None:
    plain = score(HYPOTHESES, REFERENCES, metrics=["chrf"], bootstrap=0)[0]
    assert plain.interval is None and "bs:" not in plain.signature
    assert Score.from_dict(plain.to_dict()) == plain


def test_seed_determines_the_interval_and_restores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    first, again, other = (score(HYPOTHESES, REFERENCES, metrics=["bleu"], seed=seed)[0] for seed in (1, 1, 2))
    assert first == again and first.interval != other.interval and "seed:1|" in first.signature
    assert os.environ["SACREBLEU_SEED"] == "77"


def test_larger_test_set_gives_narrower_interval() -> None:
    few = score(HYPOTHESES, REFERENCES, metrics=["bleu"])[0].interval
    many = score(HYPOTHESES * 20, REFERENCES * 20, metrics=["bleu"])[0].interval
    assert few and many and many.high - many.low < (few.high - few.low) / 2


def test_several_references() -> None:
    both = score(HYPOTHESES, [REFERENCES, HYPOTHESES], metrics=["bleu"], bootstrap=0)[0]
    assert both.value == pytest.approx(100) and both.signature.startswith("nrefs:2")


def test_chinese_is_tokenised_by_character() -> None:
    hypotheses, references = ["我喜欢小猫和小狗。", "今天天气很好。"], ["我喜欢大猫和小狗。", "今天天气很好。"]
    bleu, ter = score(hypotheses, references, metrics=("bleu", "ter"), target_language="zh-CN", bootstrap=0)
    assert bleu.value == BLEU(tokenize="zh").corpus_score(hypotheses, [references]).score
    assert "tok:zh" in bleu.signature and "asian:yes" in ter.signature
    assert ter.value == pytest.approx(100 / 16)  # one character of sixteen differs
    words = score(hypotheses, references, metrics=["bleu"], bootstrap=0)[0]
    assert words.value != bleu.value and "tok:13a" in words.signature


@pytest.mark.parametrize(
    ("language", "expected"), [("zh", "zh"), ("cmn_Hans", "zh"), ("de", "13a"), (None, "13a"), ("", "13a")]
)
def test_tokenizer_by_language(language: str | None, expected: str) -> None:
    assert choose_tokenizer(language) == expected


@pytest.mark.parametrize(("language", "package"), [("ja", "MeCab"), ("ko-KR", "mecab_ko")])
def test_japanese_and_korean_without_mecab_use_characters(
    language: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else object())
    assert choose_tokenizer(language) == "char"
    assert (
        "tok:char"
        in score(["猫が好き"], ["猫が好きだ"], metrics=["bleu"], target_language=language, bootstrap=0)[0].signature
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert choose_tokenizer(language) == f"{language[:2]}-mecab"


def test_lowercase_ignores_case_and_changes_the_signature() -> None:
    cased, lower = (
        score(["the cat sat here"], ["The Cat sat here"], metrics=["bleu"], bootstrap=0, lowercase=on)[0]
        for on in (False, True)
    )
    assert lower.value > cased.value and "case:lc" in lower.signature and "case:mixed" in cased.signature


def test_unequal_line_counts_are_refused() -> None:
    with pytest.raises(CorpusError, match="hypotheses has 2 lines but references has 3"):
        score(["a", "b"], ["a", "b", "c"])
    with pytest.raises(CorpusError, match="references 2 has 1"):
        score(["a", "b"], [["a", "b"], ["c"]])
    with pytest.raises(CorpusError, match="nothing to score"):
        score([], [])
    with pytest.raises(CorpusError, match="one text"):
        score("ab", ["a", "b"])


def test_unknown_names_are_config_errors() -> None:
    with pytest.raises(ConfigError, match=r"'blue' is not known .did you mean 'bleu'"):
        score(["a"], ["a"], metrics=["blue"])
    with pytest.raises(ConfigError, match="'13b' is not known"):
        score(["a"], ["a"], tokenize="13b")
    with pytest.raises(ConfigError, match="bootstrap"):
        score(["a"], ["a"], bootstrap=1)


def test_import_loads_neither_torch_nor_sacrebleu() -> None:
    modules = "heedful.evaluation.score, heedful.evaluation.significance"
    check = f"import sys, {modules}; print({{'torch', 'sacrebleu', 'rich'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_bootstrap_of_near_zero_scores() -> None:
    references = [f"this is sentence number {number} ." for number in range(30)]
    hypotheses = ["", *["wrong"] * 28, references[29]]
    for result in score(hypotheses, references):
        assert result.interval is not None
        json.dumps(result.to_dict())


# ---- where BLEU is undefined, exact match, characters ----------------------------------------------------------------

SHORT = ["one hundred", "two", "thirty five", "nine hundred one"]


def test_bleu_is_undefined_without_references_of_four_tokens() -> None:
    found = {one.name: one for one in score(SHORT, SHORT)}
    bleu = found["BLEU"]
    assert not bleu.is_defined and math.isnan(bleu.value) and bleu.interval is None
    assert "undefined" in str(bleu) and "0.00" not in str(bleu) and "4-grams are missing" in str(bleu)
    plain = json.loads(json.dumps(bleu.to_dict(), allow_nan=False))
    assert plain["value"] is None and "4-grams" in plain["remark"]
    again = Score.from_dict(plain)
    assert not again.is_defined and str(again) == str(bleu)
    assert (found["chrF2"].value, found["ExactMatch"].value, found["CER"].value) == (100.0, 100.0, 0.0)
    two = score(SHORT[:3], SHORT[:3], metrics=["bleu"])[0]
    assert "no reference has 3 tokens: 3-grams and 4-grams are missing" in str(two)
    several = score(SHORT, [SHORT, [f"{line} and some more" for line in SHORT]], metrics=["bleu"])[0]
    assert several.is_defined  # one of the references is long enough


def test_bleu_is_zero_with_a_remark_if_only_translations_are_short() -> None:
    [bleu] = score(SHORT, [*SHORT[:3], "nine hundred and one"], metrics=["bleu"], bootstrap=0)
    assert bleu.value == 0.0 and "no translation has 4 tokens: 4-grams are missing" in str(bleu)


def test_exact_match() -> None:
    hypotheses = ["a b", "A b ", "c", ""]
    [exact] = score(hypotheses, ["a b", "a b", "d", ""], metrics=["exact"], bootstrap=0)
    assert exact.value == 50.0 and "case:mixed" in exact.signature and "heedful" in exact.signature
    assert score(hypotheses, ["a b", "a b", "d", ""], metrics=["exact"], lowercase=True)[0].value == 75.0
    assert score(["x", "y"], [["a", "y"], ["x", "b"]], metrics=["exact"])[0].value == 100.0


def plain_distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


@given(st.text("abcß我\U0001f600", max_size=90), st.text("abcß我\U0001f600", max_size=90))
def test_edit_distance_equals_dynamic_programming(first: str, second: str) -> None:
    from heedful.evaluation.custom_metrics import edit_distance

    assert edit_distance(first, second) == plain_distance(first, second)


def test_character_error_rate() -> None:
    [cer] = score(["kitten", "我喜欢小猫"], ["sitting", "我喜欢大猫"], metrics=["cer"], bootstrap=0)
    assert cer.value == pytest.approx(100 * (3 + 1) / (7 + 5))
    [closest] = score(["kitten"], [["sitting"], ["kittens"]], metrics=["cer"], bootstrap=0)
    assert closest.value == pytest.approx(100 / 7)
    [all_wrong] = score(["abcdef"], ["x"], metrics=["cer"], bootstrap=0)
    assert all_wrong.value == 600.0
