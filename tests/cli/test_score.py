"""`score`, `evaluate`, `info` and `average`."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from tests.cli.program import ENVIRONMENT, Corpus, Inside

REFERENCE = "".join(f"the cat number {number} sat on mat {number * 7}\n" for number in range(60))
GOOD = REFERENCE.replace("mat 1", "rug 1")
POOR = REFERENCE.replace("cat", "dog").replace("mat", "hat")


@pytest.fixture
def texts(tmp_path: Path) -> None:
    for name, text in (("reference", REFERENCE), ("good", GOOD), ("poor", POOR)):
        (tmp_path / name).write_text(text)


@pytest.mark.usefixtures("texts")
def test_scores_carry_signature_and_interval(inside: Inside, tmp_path: Path) -> None:
    ended = inside("score", "good", "-r", "reference")
    bleu, chrf, ter, exact, cer = ended.out.splitlines()
    expected = BLEU().corpus_score(GOOD.splitlines(), [REFERENCE.splitlines()]).score
    assert bleu.startswith(f"BLEU = {expected:.2f} (95% in ") and "|tok:13a|" in bleu
    assert chrf.startswith("chrF2 = ") and ter.startswith("TER = ")
    assert exact.startswith("ExactMatch = ") and "(95% in " in exact and cer.startswith("CER = ")
    assert inside("score", "-", "-r", "reference", given=GOOD.encode()).out == ended.out
    (tmp_path / "good.gz").write_bytes(gzip.compress(GOOD.replace("\n", "\r\n").encode()))
    assert inside("score", "good.gz", "-r", "reference").out == ended.out


def test_bleu_of_two_word_lines_is_undefined(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "amounts").write_text("one hundred\nthirty five\n" * 4)
    output = inside("score", "amounts", "-r", "amounts").out
    assert output.startswith("BLEU is undefined (no reference has 3 tokens") and "BLEU = 0.00" not in output
    assert "ExactMatch = 100.00" in output and "CER = 0.00" in output and "chrF2 = 100.00" in output
    bleu = json.loads(inside("score", "amounts", "-r", "amounts", "--json").out)["scores"][0]
    assert bleu["value"] is None and "3-grams" in bleu["remark"]


@pytest.mark.usefixtures("texts")
def test_score_flags_appear_in_signatures(inside: Inside) -> None:
    flags = ["--metrics", "bleu,chrf++", "--bootstrap", 0, "--lowercase", "--tokenize", "char", "--json"]
    bleu, chrf = json.loads(inside("score", "good", "-r", "reference", *flags).out)["scores"]
    assert bleu["interval"] is None and "tok:char" in bleu["signature"] and "case:lc" in bleu["signature"]
    assert "nw:2" in chrf["signature"]
    chinese = inside("score", "good", "-r", "reference", "--metrics", "bleu", "--target-language", "zh-CN").out
    assert "tok:zh" in chinese
    two = inside("score", "good", "-r", "reference", "-r", "good", "--metrics", "bleu").out
    assert two.startswith("BLEU = 100.00") and "nrefs:2" in two


@pytest.mark.usefixtures("texts")
def test_several_systems_are_compared_with_the_first(inside: Inside) -> None:
    flags = ["-r", "reference", "--metrics", "bleu,ter", "--bootstrap", 200]
    table = inside("score", "good", "poor", *flags).out
    assert "against good" in table and "*" in table and "tok:13a" in table
    found = json.loads(inside("score", "good", "poor", *flags, "--json").out)
    assert found["baseline"] == "good" and len(found["results"]) == 4
    worse = found["results"][1]
    assert worse["system"] == "poor" and worse["difference"] < 0 and worse["p_value"] < 0.05
    exact = inside("score", "good", "poor", *flags, "--test", "randomisation", "--json")
    assert json.loads(exact.out)["test"] == "randomisation"


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["good", "-r", "short"], ["good", "60", "short", "1"]),
        (["empty", "-r", "reference"], ["empty"]),
        (["latin", "-r", "short"], ["latin:1", "UTF-8"]),
        (["good", "good", "-r", "reference"], ["twice"]),
        (["good", "-r", "reference", "--metrics", "blue"], ["'bleu'"]),
        (["good", "-r", "reference", "--metrics", ","], ["--metrics"]),
        (["good", "-r", "reference", "--tokenize", "13b"], ["'13a'"]),
        (["good", "-r", "reference", "--bootstrap", "1"], ["bootstrap"]),
        (["good", "poor", "-r", "reference", "--bootstrap", "0"], ["samples"]),
        (["good", "poor", "-r", "reference", "--test", "guess"], ["randomisation"]),
    ],
)
def test_invalid_score_inputs(inside: Inside, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "short").write_text("one\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "latin").write_bytes(b"\xe9\n")
    inside("score", *arguments).refused(*words)


def test_evaluate_equals_translate_and_score(inside: Inside, model: Path, corpus: Corpus, tmp_path: Path) -> None:
    test = ["-s", corpus.test_source, "-t", corpus.test_target]
    ended = inside("evaluate", "-m", model, *test, "-o", "out", "--beam-size", 2)
    assert ended.code == 0, ended.error
    assert inside("score", "out", "-r", corpus.test_target, "--target-language", "bb").out == ended.out
    inside("translate", "-m", model, "-i", corpus.test_source, "-o", "again", "--beam-size", 2)
    assert (tmp_path / "again").read_bytes() == (tmp_path / "out").read_bytes()
    plain = json.loads(inside("evaluate", "-m", model, *test, "--decoding.beam_size=2", "--json").out)
    assert plain["num_sentences"] == 40 and f"BLEU = {plain['scores'][0]['value']:.2f} " in ended.out
    inside("evaluate", "-m", model, "-s", corpus.test_source, "-t", corpus.target).refused("test.aa", "train.bb", "40")
    inside("evaluate", "-m", model, *test, "-o", corpus.test_target).refused("input")


def test_info_prints_model_facts(inside: Inside, model: Path) -> None:
    output = inside("info", model, "--verify").out
    assert "steps " in output and "{" not in output  # nested values are printed with --json only
    for word in (
        "Digits reversed",
        "aa → bb",
        "train.aa + train.bb",
        "weights best",
        "BLEU = ",
        "tok:13a",
        "match their checksums",
    ):
        assert word in output
    plain = json.loads(inside("info", model, "--json").out)
    assert plain["config"]["model"]["d_model"] == 32 and plain["config"]["training"]["steps"] == 150
    assert f"{plain['num_parameters']:,}" in output
    assert [score["name"] for score in plain["details"]["scores"]] == ["BLEU", "chrF2", "TER", "ExactMatch", "CER"]
    assert inside("info", model, "--card").out == (model / "README.md").read_text(encoding="utf-8")


def test_info_needs_no_torch(model: Path) -> None:
    program = (
        "import sys; from heedful.cli import run; "
        f"code = run(['info', {str(model)!r}, '--verify']); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_average_of_equal_models(inside: Inside, model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "copy")
    assert inside("average", model, "copy", "-o", "averaged").code == 0
    words = ["1 2 3", "4 5 6 7"]
    assert inside("translate", "-m", "averaged", *words).out == inside("translate", "-m", model, *words).out
    assert "average of 2 models" in inside("info", "averaged").out
    assert "score         none" in inside("info", "averaged").out
    inside("average", model, "copy", "-o", "averaged").refused("averaged", "--overwrite")
    assert inside("average", model, "copy", "-o", "averaged", "--overwrite").code == 0
