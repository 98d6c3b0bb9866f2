"""`generate`, and `train`, `evaluate`, `info` and `translate` with a language model, on prose of this repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.program import ROOT, TINY, Inside, run

KINDS = ("encoder", "decoder")
SHAPE = [flag for flag in TINY if "num_bleu_sentences" not in flag]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real text: sentences of the documentation."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    english = [page.read_text(encoding="utf-8") for page in pages if not page.name.endswith(".zh-CN.md")]
    lines = [sentence for page in english for sentence in re.findall(r"[A-Z][a-z ,]{15,}\.", page)]
    path = tmp_path_factory.mktemp("text") / "docs.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert len(lines) > 100
    return path


@pytest.fixture(scope="module")
def models(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each kind, trained by the program."""
    folder = tmp_path_factory.mktemp("language-models")
    test = folder / "test.txt"
    test.write_text("The model translates one sentence.\nA run writes its log.\n")
    for kind in KINDS:
        flags = ["--text", text, "--test-text", test, f"--model.architecture={kind}", *SHAPE, "--steps", 60]
        ended = run("train", *flags, "-o", folder / kind)
        assert ended.out == ""
        assert f"Training a tiny {kind} language model on" in ended.error
        assert "lines" in ended.error and "pairs" not in ended.error
        assert "perplexity" in ended.error
        assert f"heedful generate -m {folder / kind}" in ended.error
    return {kind: folder / kind for kind in KINDS}


def test_text_is_continued(inside: Inside, models: dict[str, Path]) -> None:
    ended = inside("generate", "-m", models["decoder"], "The model", "A run", "--seed", 3)
    assert ended.code == 0, ended.error
    first, second = ended.out.splitlines()
    assert first.startswith("The model") and second.startswith("A run")
    assert inside("generate", "-m", models["decoder"], "The model", "A run", "--seed", 3).out == ended.out
    assert inside("generate", "-m", models["decoder"]).code == 0
    several = inside("generate", "-m", models["decoder"], "The model", "-n", 3, "--temperature", 0.7, "--top-k", 20)
    assert [line.startswith("The model") for line in several.out.splitlines()] == [True] * 3


def test_searches_and_json(inside: Inside, models: dict[str, Path]) -> None:
    lm = models["decoder"]
    beam = inside("generate", "-m", lm, "The", "--beam-size", 4, "-n", 2, "--max-length", 12, "--json")
    plain = json.loads(beam.out)
    assert plain["prompt"] == "The"
    log_probs = [one["log_prob"] for one in plain["generations"]]
    assert len(log_probs) == 2
    greedy = inside("generate", "-m", lm, "The", "--method", "greedy", "--max-length", 12)
    assert greedy.code == 0 and greedy.out.startswith("The")
    assert inside("generate", "-m", lm, "The", "--decoding.top_k=1", "--max-length", 12).out == greedy.out


def test_lines_of_a_file_and_of_standard_input(inside: Inside, models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "prompts").write_text("The model\nA run\n")
    given = inside("generate", "-m", models["decoder"], "-i", "prompts")
    piped = inside("generate", "-m", models["decoder"], "-i", "-", given=b"The model\nA run\n")
    assert given.code == 0 and given.out == piped.out and given.out.count("\n") == 2


def test_masks_are_filled(inside: Inside, models: dict[str, Path], tmp_path: Path) -> None:
    ended = inside("generate", "-m", models["encoder"], "The <mask> is <mask>.")
    assert ended.code == 0, ended.error
    filled, first, second = ended.out.splitlines()
    assert filled.startswith("The") and "<mask>" not in filled
    assert re.fullmatch(r"  <mask> 1: (\S+ 0\.\d{3}(, )?){5}", first), first
    assert second.startswith("  <mask> 2: ")
    plain = json.loads(inside("generate", "-m", models["encoder"], "The <mask>.", "-n", 2, "--json").out)
    assert plain["masked"] == "The <mask>." and len(plain["masks"][0]) == 2
    (tmp_path / "texts").write_text("The <mask>.\nNo hidden word\n")
    inside("generate", "-m", models["encoder"], "-i", "texts").refused("texts:2", "no <mask>")


def test_perplexity_is_evaluated(inside: Inside, models: dict[str, Path], text: Path) -> None:
    ended = inside("evaluate", "-m", models["decoder"], "--text", text)
    assert re.match(r"perplexity \d+\.\d\d per token, \d+\.\d{3} per character \(", ended.out), ended
    plain = json.loads(inside("evaluate", "-m", models["encoder"], "--text", text, "--json").out)
    assert plain["name"] == "pseudo-perplexity" and plain["token"] > 1 and plain["character"] is None
    card = inside("info", models["decoder"], "--card").out
    assert "| perplexity |" in card and "text-generation" in card


def test_info_names_the_kind(inside: Inside, models: dict[str, Path]) -> None:
    assert "masked language model" in inside("info", models["encoder"]).out
    out = inside("info", models["decoder"]).out
    assert "language model: continues a text (heedful generate)" in out and "shortlist" not in out
    assert "1 decoder layer," in out and "direction" not in out


def test_models_are_found_by_name(inside: Inside, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEEDFUL_MODELS", str(models["decoder"].parent))
    assert "language model: continues a text; " in inside("models").out
    assert inside("generate", "-m", "decoder", "The model").out.startswith("The model")


def test_verbs_for_the_other_models_are_refused(
    inside: Inside, models: dict[str, Path], model: Path, text: Path, tmp_path: Path
) -> None:
    lm = models["decoder"]
    for verb in (
        ["translate", "A text"],
        ["translate", "-i", text, "-o", "out"],
        ["translate", "--engine", "torch", "A"],
    ):
        inside(verb[0], "-m", lm, *verb[1:]).refused("language model", f"heedful generate -m {lm}")
    inside("evaluate", "-m", lm, "-s", text, "-t", text).refused("language model", "heedful generate")
    inside("generate", "-m", model, "A text").refused("translation model", f"heedful translate -m {model}")
    inside("evaluate", "-m", model, "--text", text).refused("translation model")
    inside("shortlist", "-m", lm, "-s", text, "-t", text).refused("language model", "heedful generate")
    inside("export", "-m", lm, "--to", "ctranslate2", "-o", "out").refused("CTranslate2", "model.architecture=decoder")
    inside("export", "-m", lm, "--to", "compact", "-o", "out").refused("native engine", "model.architecture=decoder")
    assert not (tmp_path / "out").exists()


def test_wrong_requests_are_refused(inside: Inside, models: dict[str, Path], text: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n")
    decoder = ["train", "--model.architecture=decoder", "-o", "out"]
    inside(*decoder).refused("no corpus to train on: give --text")
    inside(*decoder, "--source", "a", "--target", "b").refused(
        "architecture decoder needs --text, not --source/--target"
    )
    inside(*decoder, "--text", text, "--data", "a.tsv").refused("needs --text, not --source/--target", "a.tsv")
    inside(*decoder, "--text", "a.tsv").refused("a.tsv", "plain file with one text a line")
    inside(*decoder, "--text", "missing.txt").refused("missing.txt: cannot read this corpus")
    inside("train", "--text", text, "-o", "out").refused("docs.txt", "--model.architecture=decoder")
    inside("generate", "The").refused("no model is named")
    inside("generate", "-m", models["decoder"], "The", "-i", text).refused("not both")
    inside("generate", "-m", models["decoder"], "The", "--decoding.split=never").refused("decoding.split")
    inside("generate", "-m", models["encoder"], "A <mask>", "--temperature", 2).refused("decoding.temperature")
    inside("generate", "-m", models["encoder"], "A <mask>", "-n", 0).refused("--num-best must be at least 1")
    inside("evaluate", "-m", models["decoder"]).refused("--text")
    inside("evaluate", "-m", models["decoder"], "--text", text, "-s", text).refused("leave out --source")
    assert not (tmp_path / "out").exists()


def test_yaml_and_prepare(inside: Inside, text: Path, tmp_path: Path) -> None:
    (tmp_path / "lm.yaml").write_text(
        f"preset: tiny\ndata: {{train: [{{text: {text}}}]}}\nmodel: {{architecture: encoder, d_model: 32, d_ff: 32}}\n"
        "training: {steps: 2, device: cpu, tensorboard: false}\n"
    )
    ended = inside("train", "lm.yaml", "-o", "out")
    assert ended.code == 0, ended.error
    assert "perplexity of masked tokens" in ended.error
    prepared = inside("prepare", "--text", text, "-o", "prepared")
    assert prepared.code == 0, prepared.error
    assert "training lines" in prepared.error
    flags = ["--prepared", "prepared", *SHAPE, "--steps", 2, "-o"]
    for kind in KINDS:
        assert inside("train", f"--model.architecture={kind}", *flags, kind).code == 0
    inside("train", *flags, "other").refused("prepared from one text", "architecture transformer")
    assert "text-generation" in inside("info", "decoder", "--card").out
    assert "architecture: decoder" in inside("train", "--text", text, "--model.architecture=decoder", "--dry-run").out
