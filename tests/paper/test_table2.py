"""`heedful paper table2`: the recipe is the paper's, a real run, and a report that names the changes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heedful.build_model import num_parameters
from heedful.config import Config, ModelConfig, TrainingConfig
from heedful.config_loading import build_config
from heedful.errors import ConfigError
from heedful.paper.profiling import row_flops, step_flops
from heedful.paper.table2 import (
    LANGUAGES,
    ROWS,
    WORDS,
    estimated_flops,
    markdown,
    num_averaged,
    read_recipe,
    recipe_changes,
    remarks,
    requested_vocab_size,
    scores_table,
    table,
)

ROOT = Path(__file__).parents[2]
TINY = (
    "--device cpu --model.d_model=32 --model.d_ff=64 --model.num_heads=2 --model.num_encoder_layers=1 "
    "--model.num_decoder_layers=1 --training.tokens_per_step=512 --training.validate_every=2 --decoding.max_length=8 "
    "--training.num_bleu_sentences=0 --training.tensorboard=false"
).split()


def program(*arguments: object) -> int:
    """Run the program inside this process and return its exit code."""
    from heedful.cli import run

    return run(["paper", "table2", *map(str, arguments)])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A corpus of digits and the same digits reversed, as flags."""
    folder, drawn = tmp_path_factory.mktemp("digits"), random.Random(1)
    found = {" ".join(drawn.choice("0123456789") for _ in range(drawn.randint(2, 6))) for _ in range(300)}
    sources = sorted(text for text in found if text != text[::-1])
    for name, part in (("train", sources[30:]), ("valid", sources[20:30]), ("test", sources[:20])):
        (folder / f"{name}.en").write_text("".join(f"{text}\n" for text in part))
        (folder / f"{name}.de").write_text("".join(f"{text[::-1]}\n" for text in part))
    flags = [("--source", "train.en"), ("--target", "train.de")]
    for part in ("valid", "test"):
        flags += [(f"--{part}-source", f"{part}.en"), (f"--{part}-target", f"{part}.de")]
    return [text for flag, name in flags for text in (flag, str(folder / name))]


@pytest.fixture(scope="module")
def finished(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One short run, shared by the tests that only read it."""
    output = tmp_path_factory.mktemp("table2") / "out"
    assert program(*corpus, *TINY, "--steps", 5, "-o", output, "--quiet") == 0
    return output


def results_of(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "results.json").read_text("utf-8"))
    return found


# ---- the recipe ------------------------------------------------------------------------------------------------------


def test_base_recipe_matches_paper() -> None:
    config = build_config(read_recipe("base"))
    model, training, decoding = config.model, config.training, config.decoding
    assert (config.tokenizer.kind, config.tokenizer.joint, config.tokenizer.vocab_size) == ("bpe", True, 37_000)
    assert (model.num_encoder_layers, model.num_decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.num_heads, model.attention_head_dim) == (512, 2048, 8, 64)
    assert (model.norm, model.norm_placement, model.has_final_norm) == ("layer", "post", False)
    assert (model.positions, model.activation, model.tying) == ("sinusoidal", "relu", "three_way")
    assert (model.attention_scoring, model.dropout, model.embedding_dropout) == ("scaled_dot", 0.1, None)
    assert (model.attention_dropout, model.activation_dropout) == (0, 0)
    assert (training.betas, training.epsilon, training.weight_decay) == ((0.9, 0.98), 1e-9, 0)
    assert (training.schedule, training.warmup_steps, training.learning_rate) == ("paper", 4000, None)
    assert (training.learning_rate_factor, training.clip_norm, training.r_drop) == (1, None, 0)
    assert (training.label_smoothing, training.steps, training.ema_decay) == (0.1, 100_000, 0)
    assert (training.epochs, training.tokens, training.minutes, training.early_stopping) == (None,) * 4
    assert training.tokens_per_step == pytest.approx(25_000, rel=0.03)
    assert (training.average_last, training.final_weights) == (5, "average")
    assert training.validate_every == pytest.approx(training.steps / (12 * 6), rel=0.02)  # ten minutes of twelve hours
    assert (decoding.method, decoding.beam_size, decoding.max_length) == ("beam", 4, None)
    assert (decoding.length_penalty, decoding.length_penalty_alpha, decoding.max_extra_length) == ("paper", 0.6, 50)


def test_big_recipe_matches_paper() -> None:
    base, big = build_config(read_recipe("base")), build_config(read_recipe("big"))
    found = {change["key"]: change["run"] for change in recipe_changes(base, big)}
    assert found == {
        "model.d_model": 1024,
        "model.d_ff": 4096,
        "model.num_heads": 16,
        "model.dropout": 0.3,
        "training.average_last": 20,
        "training.validate_every": 600,
    }
    assert big.training.steps == 300_000
    assert big.training.validate_every == pytest.approx(big.training.steps / (3.5 * 24 * 6), rel=0.02)


@pytest.mark.parametrize("name", ["base", "big"])
def test_recipe_is_defined_once(name: str) -> None:
    packaged = ROOT / "heedful" / "paper" / "recipes" / f"{name}.yaml"
    assert (ROOT / "configs" / f"paper-{name}.yaml").resolve() == packaged.resolve()
    assert "train" not in read_recipe(name)["data"]


# ---- counted operations ----------------------------------------------------------------------------------------------


def test_row_flops() -> None:
    n, d, f, v = 16, 32, 64, 100
    sizes: dict[str, Any] = {"source_vocab_size": v, "target_vocab_size": v, "d_model": d, "d_ff": f, "num_heads": 2}
    model = ModelConfig(**sizes, num_encoder_layers=2, num_decoder_layers=3)
    attention = 4 * 2 * n * d * d + 2 * 2 * n * n * d  # four projections; scores and their use
    forward = 2 * (attention + 4 * n * d * f) + 3 * (2 * attention + 4 * n * d * f) + 2 * n * d * v
    assert row_flops(model, n) == 3 * forward  # backward: one product for the input, one for the weights
    config = Config(model=model, training=TrainingConfig(tokens_per_step=5 * n + 3))
    config = replace(config, data=replace(config.data, row_width=n))
    assert step_flops(config) == 5 * row_flops(model, n)


def test_published_costs_equal_estimates() -> None:
    by_name = {row.system: row for row in ROWS}
    for recipe in ("base", "big"):
        printed = by_name[f"Transformer ({recipe})"].flops_german
        assert printed == pytest.approx(estimated_flops(recipe), rel=0.01)


def test_num_averaged() -> None:
    config = Config(training=TrainingConfig(average_last=5, validate_every=10))
    assert [num_averaged(config, steps) for steps in (3, 10, 11, 49, 50, 51, 1000)] == [1, 1, 2, 5, 5, 5, 5]


# ---- a run -----------------------------------------------------------------------------------------------------------


def test_results_are_complete(finished: Path) -> None:
    from heedful.model_dir import load_model

    results = results_of(finished)
    loaded = load_model(finished / "model")
    assert results["complete"] is True and results["recipe"] == "base"
    assert results["languages"] == ["en", "de"] and results["scored_on"] == "test"
    assert (results["steps"], results["steps_of_recipe"]) == (5, 100_000)
    assert results["parameters"] == num_parameters(loaded.model)
    assert results["vocab_size"] == loaded.tokenizer.target_vocab_size < 37_000
    assert (results["weights"], results["num_averaged"]) == ("average", 3)  # steps 2, 4 and 5
    assert results["flops"] == 5 * results["flops_of_a_step"] == 5 * step_flops(loaded.config)
    assert results["hours"] > 0 and results["precision"] == "fp32" and results["machine"]["device"] == "CPU"
    assert results["seed"] == 1 and results["versions"]["torch"] and results["command"].startswith("heedful")
    [scores] = results["scores"]
    assert scores["num_sentences"] == 20 and scores["bleu"]["signature"].count("tok:13a|") == 1
    assert "compound-split" in scores["compound_split_bleu"]["signature"]
    translated = (finished / scores["translations"]).read_text("utf-8")
    assert len(translated.splitlines()) == 20


def test_recipe_changes_are_complete(finished: Path) -> None:
    results = results_of(finished)
    assert {change["key"]: (change["recipe"], change["run"]) for change in results["changed"]} == {
        "model.d_model": (512, 32),
        "model.d_ff": (2048, 64),
        "model.num_heads": (8, 2),
        "model.num_encoder_layers": (6, 1),
        "model.num_decoder_layers": (6, 1),
        "training.tokens_per_step": (25_600, 512),
        "training.validate_every": (1400, 2),
        "decoding.max_length": (None, 8),
    }
    text = " ".join(remarks(results, "en"))
    assert "Shorter than the recipe:** 5 of its 100,000 steps (0.005 %)" in text
    assert "`model.d_model` is 32 instead of 512" in text and "still increasing" in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_table2_report_has_both_rows(finished: Path, language: str) -> None:
    results = results_of(finished)
    page = markdown(results, language)
    if language == "en":
        assert page == (finished / "table2.md").read_text("utf-8")
    heading, rows = table(results, language)
    assert len(rows) == len(ROWS) + 1
    base, ensemble = {
        "en": ("Transformer (base)", "GNMT + RL ensemble"),
        "zh": ("Transformer（base）", "GNMT + RL（集成）"),
    }[language]
    assert rows[8] == [base, "27.3", "38.1", "–", "3.3e18", "3.3e18", "–"]
    assert rows[6] == [ensemble, "26.30", "41.16", "–", "1.8e20", "1.1e21", "–"]
    assert rows[0] == ["ByteNet", "23.75", *["–"] * 5]
    assert rows[-1][3] == f"{results['scores'][0]['compound_split_bleu']['value']:.1f}"
    assert {len(row) for row in (heading, *rows)} == {7}
    assert len(scores_table(results, language)[1]) == 1
    for text in (*heading, WORDS[language]["split"], "newstest2014", "13a+compound-split"):
        assert text in page


def test_requested_vocab_size_is_a_recipe_change(finished: Path) -> None:
    results = results_of(finished)
    assert results["vocab_size_asked"] == 37_000 and "too small for the requested 37,000" in " ".join(
        remarks(results, "en")
    )
    recipe = read_recipe("base")
    smaller = build_config({**recipe, "tokenizer": {**recipe["tokenizer"], "vocab_size": 32_000}})
    assert recipe_changes(build_config(recipe), smaller, requested_vocab_size(smaller)) == [
        {"key": "tokenizer.vocab_size", "recipe": 37_000, "run": 32_000}
    ]
    text = " ".join(remarks({**results, "vocab_size": 31_990, "vocab_size_asked": 32_000}, "en"))
    assert "has 31,990 subwords" in text and "too small" not in text
    given = replace(smaller, data=replace(smaller.data, prepared="elsewhere"))
    assert requested_vocab_size(given) is None and "too small" not in " ".join(
        remarks({**results, "vocab_size_asked": None}, "en")
    )


def test_report_texts_exist_in_both_languages() -> None:
    assert set(WORDS["en"]) == set(WORDS["zh"])


def test_remarks_of_full_run(finished: Path) -> None:
    results = {**results_of(finished), "steps": 100_000, "changed": [], "vocab_size": 37_000, "num_averaged": 5}
    text = " ".join(remarks(results, "en"))
    assert "All 100,000 steps" in text and "No other settings" in text and "Shorter" not in text
    assert "too small" not in text and "still increasing" not in text
    results["scores"] = [{**results["scores"][0], "compound_split_bleu": None}]
    assert WORDS["zh"]["no_split"] in remarks(results, "zh")
    assert scores_table(results, "zh")[1][0][3] == "–"


# ---- resuming and refusals -------------------------------------------------------------------------------------------


def test_resumed_run_equals_uninterrupted_run(
    finished: Path,
    corpus: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import os
    import signal

    from heedful.training.loop import TrainingLoop

    counted = TrainingLoop._advance

    def interrupted(self: TrainingLoop, *arguments: Any) -> None:
        counted(self, *arguments)
        if self.progress.steps == 3:
            os.kill(os.getpid(), signal.SIGINT)

    command = [*corpus, *TINY, "--steps", 5, "-o", tmp_path / "out", "--quiet"]
    with monkeypatch.context() as patched:
        patched.setattr(TrainingLoop, "_advance", interrupted)
        assert program(*command) == 130
    assert results_of(tmp_path / "out")["complete"] is False
    assert not (tmp_path / "out" / "table2.md").exists()
    assert program(*command) == 2
    assert "--resume" in capsys.readouterr().err
    assert program(*command, "--resume", "--json") == 0
    resumed, whole = json.loads(capsys.readouterr().out), results_of(finished)
    assert resumed["scores"] == whole["scores"] and resumed["valid_loss"] == whole["valid_loss"]
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (tmp_path / "out", finished)]
    assert weights[0] == weights[1]


def test_minutes_budget_and_scores_on_valid(
    corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--minutes", "0.002", "-o", tmp_path / "out", "--lang", "zh"]
    assert program(*corpus[:8], *TINY, *flags) == 0
    results = results_of(tmp_path / "out")
    assert results["scored_on"] == "valid" and 0 < results["steps"] < 100_000
    printed = capsys.readouterr().out
    assert WORDS["zh"]["on_valid"] in printed and "Transformer（big）" in printed


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--recipe", "bas"], ["--recipe", "'base'"]),
        (["--lang", "de"], ["--lang", "en, zh"]),
        (["--model.d_modle=8"], ["d_model"]),
        (["--model.architecture=recurrent"], ["heedful compare"]),
        (["--device", "cuda:99"], ["cuda:99"]),
    ],
)
def test_invalid_flags_fail_before_any_work(
    corpus: list[str], flags: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(*corpus, *flags, "-o", tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert message.startswith("heedful: ") and len(message.splitlines()) == 1
    assert all(word in message for word in words), message
    assert not (tmp_path / "out" / "model").exists()


def test_stale_translations_are_removed(corpus: list[str], tmp_path: Path) -> None:
    output, second = tmp_path / "out", [corpus[corpus.index("--test-source") + 1], corpus[-1]]
    both = ["--test-source", second[0], "--test-target", second[1]]
    assert program(*corpus, *both, *TINY, "--steps", 1, "-o", output, "--quiet") == 0
    (output / "translations" / "notes.txt").write_text("mine")
    assert len(list((output / "translations").iterdir())) == 3
    assert program(*corpus, *TINY, "--steps", 1, "-o", output, "--quiet", "--overwrite") == 0
    [scores] = results_of(output)["scores"]
    assert sorted(path.name for path in (output / "translations").iterdir()) == [
        Path(scores["translations"]).name,
        "notes.txt",
    ]


def test_outputs_are_not_overwritten_without_flag(
    finished: Path, corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(*corpus, *TINY, "-o", finished) == 2
    assert "--overwrite" in capsys.readouterr().err
    (tmp_path / "precious").write_text("mine")
    assert program(*corpus, *TINY, "-o", tmp_path, "--overwrite") == 2
    assert "precious" in capsys.readouterr().err
    (tmp_path / "results.json").write_text('{"format": "heedful comparison"}')
    assert program(*corpus, *TINY, "-o", tmp_path, "--overwrite") == 2
    assert "another experiment" in capsys.readouterr().err
    config = tmp_path / "own.yaml"
    config.write_text("preset: tiny\n")
    assert program(config, *corpus, "-o", tmp_path / "new") == 2
    assert "--recipe" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="recipe"):
        read_recipe("huge")
