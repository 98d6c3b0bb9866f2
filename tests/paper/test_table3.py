"""`heedful paper table3`: rows and their proportions, statistics of the runs, the sweep as users run it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful import cli
from heedful.config import ModelConfig
from heedful.config_loading import build_config
from heedful.console import Console
from heedful.errors import ConfigError
from heedful.paper.experiment_io import evenly_spaced
from heedful.paper.sweep import Sweep, threads_per_job
from heedful.paper.systems import num_parameters_of
from heedful.paper.table3 import (
    LOG_FILE,
    MODEL,
    RESULT_FILE,
    RUN_FILE,
    Plan,
    Run,
    finish,
    first_change,
    make_plan,
    refuse_other_settings,
    reusable_result,
    write_run_file,
)
from heedful.paper.table3_report import (
    CLAIMS,
    WORDS,
    claims,
    difference,
    markdown,
    overall_verdict,
    score_of,
    spread,
    summary,
    verdict,
    write_plot,
)
from heedful.paper.table3_rows import (
    GROUPS,
    PAPER_BASE,
    ROWS,
    Row,
    base_request,
    base_values,
    choose_rows,
    row_request,
)
from heedful.text.preflight import TrainingPair

ROOT = Path(__file__).parents[2]
BY_NAME = {row.name: row for row in ROWS}
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


# ---- the rows --------------------------------------------------------------------------------------------------------


def parameters(row: Row, **changes: Any) -> int:
    return num_parameters_of(ModelConfig(**{**row.values.model(), **changes}))


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.millions])
def test_row_parameters_match_paper(name: str) -> None:
    row, base = BY_NAME[name], BY_NAME["base"]
    assert row.millions and base.millions
    changed = (parameters(row) - parameters(base)) / 1e6
    printed = row.millions - base.millions
    assert changed == pytest.approx(printed, rel=0.06, abs=1)  # the table rounds to millions
    assert parameters(base) / 1e6 == pytest.approx(base.millions, rel=0.04)


def test_table3_report_is_complete() -> None:
    assert [sum(row.group == group for row in ROWS) for group in GROUPS] == [1, 4, 2, 7, 4, 1, 1]
    assert len(BY_NAME) == len(ROWS)
    for row in ROWS:  # (A) keeps h·d_k; only (B) has different key and value widths
        if row.group == "A":
            assert row.values.heads * row.values.key_dim == 512
        assert (row.values.key_dim != row.values.value_dim) == (row.group == "B")


@every_row
def test_cheap_scale_keeps_proportions(row: Row) -> None:
    base = base_values(base_request({}, "cheap"))
    ours = row.at(base)
    for name in ("layers", "d_model", "d_ff", "heads", "key_dim", "value_dim"):
        ratio = getattr(row.values, name) / getattr(PAPER_BASE, name)
        assert getattr(ours, name) / getattr(base, name) == ratio, name
    for name in ("dropout", "label_smoothing", "positions"):
        assert getattr(ours, name) == getattr(row.values, name)


@pytest.mark.parametrize("scale", ["cheap", "paper"])
@every_row
def test_every_row_has_a_valid_request(row: Row, scale: str) -> None:
    base = base_request({"training": {"device": "cpu"}}, scale)
    config = build_config(row_request(row, base, seed=7), "base")
    values = row.at(base_values(base))
    assert (config.model.num_encoder_layers, config.model.num_decoder_layers) == (values.layers, values.layers)
    assert (config.model.d_model, config.model.d_ff, config.model.num_heads) == (
        values.d_model,
        values.d_ff,
        values.heads,
    )
    assert (config.model.attention_key_dim, config.model.attention_head_dim) == (values.key_dim, values.value_dim)
    assert (config.model.dropout, config.training.label_smoothing) == (values.dropout, values.label_smoothing)
    assert config.model.positions == values.positions and config.model.norm_placement == "post"
    training = config.training
    assert training.seed == 7 and training.schedule == "paper" and training.betas == (0.9, 0.98)
    assert training.final_weights == "last" and training.num_bleu_sentences == 0
    assert config.decoding.beam_size == 4 and config.decoding.length_penalty_alpha == 0.6
    if scale == "paper":
        assert values == row.values
        assert training.steps == (300_000 if row.name == "big" else 100_000)
        assert training.warmup_steps is None and training.tokens_per_step == 25_600


def test_cheap_scale_warm_up() -> None:
    from heedful.training.optimizer import Schedule

    for row in (BY_NAME["base"], BY_NAME["big"]):
        training = build_config(
            row_request(row, base_request({"training": {"steps": 500}}, "cheap"), seed=1), "base"
        ).training
        assert training.warmup_steps == 100
        assert training.steps == training.validate_every == 500 * row.budget
        assert Schedule(training, 512).peak == pytest.approx(512**-0.5 * 4000**-0.5)
    own = build_config(base_request({"training": {"epochs": 2, "learning_rate": 0.001}}, "cheap"), "base").training
    assert (own.steps, own.epochs, own.learning_rate, own.learning_rate_factor) == (None, 2, 0.001, None)
    big = build_config(row_request(BY_NAME["big"], base_request({"training": {"epochs": 2}}, "cheap"), seed=1), "base")
    assert big.training.epochs == 6


def test_choose_rows() -> None:
    assert choose_rows([]) == list(ROWS)
    assert [row.name for row in choose_rows(["E", "A-heads-1"])] == ["base", "A-heads-1", "E-learned"]
    with pytest.raises(ConfigError, match=r"--rows: unknown row 'A-head-1' \(did you mean 'A-heads-1'\?\)"):
        choose_rows(["A-head-1"])


@pytest.mark.parametrize(
    ("request_", "flags", "words"),
    [
        ({}, {"scale": "huge"}, "--scale: 'huge' is not one of"),
        ({"model": {"d_model": 64}}, {"scale": "paper"}, "--scale paper uses the paper's sizes"),
        ({"model": {"dropout": 0.2}}, {}, "model.dropout: this key is set by the rows"),
        ({"training": {"label_smoothing": 0.2}}, {}, "training.label_smoothing: this key is set by the rows"),
        (
            {"training": {"final_weights": "best", "device": "cpu"}},
            {},
            "training.final_weights: table3 compares the last weights",
        ),
        ({"preset": "tiny"}, {}, "preset: table3 always uses the preset base"),
        ({"model": {"num_encoder_layers": 2, "num_decoder_layers": 2}}, {}, "layers = 0.666667"),
        ({"model": {"num_encoder_layers": 6}}, {}, "to the same value"),
        ({}, {"num_seeds": 0}, "--seeds must be at least 1"),
        ({}, {"jobs": 0}, "--jobs must be at least 1"),
    ],
)
def test_invalid_sweep_fails_before_any_work(request_: dict[str, Any], flags: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_plan({"training": {"device": "cpu"}, **request_}, **flags)


def test_base_size_need_only_fit_selected_rows() -> None:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 8}
    plan = make_plan({"model": sizes, "training": {"device": "cpu", "seed": 5}}, rows=["A", "E"], num_seeds=2)
    assert [row.group for row in plan.rows] == ["base", "A", "A", "A", "A", "E"]
    assert list(plan.seeds) == [5, 6] and plan.num_parallel == 1 and plan.sentences == 1000


# ---- the numbers -----------------------------------------------------------------------------------------------------


def test_spread_and_difference() -> None:
    assert spread([]) is None
    assert spread([5.0]) == {"mean": 5.0, "deviation": None, "num_seeds": 1}
    assert spread([4.0, 5.0, 6.0]) == {"mean": 5.0, "deviation": 1.0, "num_seeds": 3}
    one, base = spread([7.0, 9.0]), spread([4.0, 5.0, 6.0])
    found = difference(one, base)
    assert found is not None
    assert found["value"] == 3.0 and found["error"] == pytest.approx((2 / 2 + 1 / 3) ** 0.5)
    assert difference(spread([7.0]), base) == {"value": 2.0, "error": None}
    assert difference(None, base) is None


@pytest.mark.parametrize(
    ("value", "error", "expected", "message"),
    [
        (1.0, 0.4, 1, "seen"),
        (0.7, 0.4, 1, "unclear"),
        (-1.0, 0.4, 1, "opposite"),
        (-1.0, 0.4, -1, "seen"),
        (0.7, 0.4, 0, "seen"),
        (-1.0, 0.4, 0, "opposite"),
        (1.0, None, 1, "unknown"),
    ],
)
def test_verdict_uses_twice_the_standard_error(value: float, error: float | None, expected: int, message: str) -> None:
    assert verdict({"value": value, "error": error}, expected) == message


def test_overall_verdict() -> None:
    assert overall_verdict(["seen", "seen"]) == "seen"
    assert overall_verdict(["seen", "unclear"]) == "partly"
    assert overall_verdict(["seen", "opposite"]) == "partly"
    assert overall_verdict(["unclear", "opposite"]) == "opposite"
    assert overall_verdict(["unclear", "unknown"]) == "unclear"
    assert overall_verdict(["unknown", "unknown"]) == "unknown"


def test_claims_match_paper_numbers() -> None:
    base = BY_NAME["base"]
    for claim in CLAIMS:
        for name, expected in claim.expected.items():
            row = BY_NAME[name]
            assert row.group == claim.group
            printed = getattr(row, claim.metric) - getattr(base, claim.metric)
            assert (printed > 0) - (printed < 0) == expected, name


def made_run(row: Row, seed: int, *, factor: float = 1.0) -> dict[str, Any]:
    noise = (seed - 2) * 0.01
    return {
        "seed": seed,
        "perplexity": row.perplexity * factor + noise,
        "parameters": 1_000_000,
        "scores": [
            {"role": "valid", "data": "valid", "value": row.bleu + noise},
            {"role": "test", "data": "news", "value": 20.0 + seed},
        ],
    }


def made_results(rows: tuple[Row, ...] = ROWS, seeds: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    base = base_values(base_request({}, "cheap"))
    found = summary(rows, base, {row.name: [made_run(row, seed) for seed in seeds] for row in rows})
    return {
        **found,
        "parameters": {},
        "seeds": list(seeds),
        "sentences": 1000,
        "search": {"method": "beam", "beam_size": 4},
        "budget": {"steps": 100},
        "scale": "cheap",
        "num_train_pairs": 1234,
        "vocab_size": 500,
        "machine": {"device": "CPU"},
        "failed": [],
    }


def test_paper_numbers_confirm_all_claims() -> None:
    found = made_results()["claims"]
    assert [claim["name"] for claim in found] == [claim.name for claim in CLAIMS]
    assert {claim["verdict"] for claim in found} == {"seen"}


def test_claim_needs_all_rows_and_two_seeds() -> None:
    few = made_results((BY_NAME["base"], BY_NAME["E-learned"], BY_NAME["B-keys-16"]))
    assert [claim["name"] for claim in few["claims"]] == ["learned_as_good"]
    single = made_results(seeds=(1,))
    assert {claim["verdict"] for claim in single["claims"]} == {"unknown"}
    assert claims([]) == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_table3_report_shows_paper_values(language: str) -> None:
    page = markdown(made_results(), language)
    lines = page.splitlines()
    base = next(line for line in lines if line.startswith("| base"))
    assert "| 3 (6) | 256 (512) | 1024 (2048) | 8 | 32 (64) | 32 (64) | 0.1 | 0.1 | 4.92 | 25.8 | 65 M |" in base
    assert "| 4.92 ± 0.01 | 25.8 ± 0.0 | 22.0 ± 1.0 | 1.0 M |" in base
    assert sum(line.startswith("| (") for line in lines) == 18
    assert len({line.count("|") for line in lines[2 : 2 + 2 + len(ROWS)]}) == 1
    assert all(WORDS[claim.name][language == "zh"] in page for claim in CLAIMS)


def test_report_of_unfinished_sweep(tmp_path: Path) -> None:
    results = made_results()
    for row in results["rows"][3:]:
        row.update(
            runs=[],
            parameters=None,
            perplexity=None,
            bleu=None,
            test={},
            perplexity_difference=None,
            bleu_difference=None,
        )
    assert "9 of 60 runs" in markdown(results)
    png, svg = write_plot(results, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG") and svg.stat().st_size > 1000


@pytest.mark.parametrize("left", ["base", "A-heads-1"])
def test_no_plot_without_differences(tmp_path: Path, left: str) -> None:
    """Only the base is finished, or only another row: there is no difference to plot."""
    rows = (BY_NAME["base"], BY_NAME["A-heads-1"])
    base = base_values(base_request({}, "cheap"))
    results = {**made_results(rows), **summary(rows, base, {left: [made_run(BY_NAME[left], 1)]})}
    console = Console(quiet=True)
    plan = Plan({}, "cheap", rows, [1], None, tmp_path, torch.device("cpu"), 1)
    finish(plan, results, Sweep([], 1, console), console, language="en", plots=True)
    assert not list(tmp_path.iterdir())


def test_scores_by_role_and_name() -> None:
    run = {"scores": [{"role": "valid", "data": d, "value": v} for d, v in (("into de", 10.0), ("into fr", 20.0))]}
    assert score_of(run, "valid") == 15.0
    assert score_of(run, "test") is None


def test_evenly_spaced() -> None:
    pairs = [TrainingPair(str(number), "", 0, None) for number in range(10)]
    assert [pair.source for pair in evenly_spaced(pairs, 5)] == ["0", "2", "4", "6", "8"]
    assert [pair.source for pair in evenly_spaced(pairs, 3)] == ["0", "3", "6"]
    assert evenly_spaced(pairs, None) == evenly_spaced(pairs, 10) == pairs


# ---- finished and interrupted runs -----------------------------------------------------------------------------------


def make_test_run(directory: Path, steps: int = 5) -> Run:
    settings = {"training": {"steps": steps}}
    return Run(ROWS[0], 1, directory, {"request": {}, "settings": settings, "sentences": None})


def test_finished_run_is_reused_only_with_same_settings(tmp_path: Path) -> None:
    run = make_test_run(tmp_path / "run")
    write_run_file(run)
    assert reusable_result(run) is None
    (run.directory / RESULT_FILE).write_text(json.dumps({"perplexity": 4.0, "settings": run.spec["settings"]}))
    found = reusable_result(run)
    assert found is not None and found["perplexity"] == 4.0
    assert reusable_result(make_test_run(tmp_path / "run", steps=6)) is None
    (run.directory / RESULT_FILE).write_text("{damaged")
    assert reusable_result(run) is None


def test_interrupted_run_is_kept_only_with_same_settings(tmp_path: Path) -> None:
    run = make_test_run(tmp_path / "run")
    write_run_file(run)
    state = run.directory / MODEL / "state"
    state.mkdir(parents=True)
    write_run_file(run)
    assert state.exists()
    write_run_file(make_test_run(tmp_path / "run", steps=6))
    assert not state.exists()
    assert json.loads((run.directory / RUN_FILE).read_text())["settings"]["training"]["steps"] == 6


def test_resume_refuses_runs_with_other_settings(tmp_path: Path) -> None:
    run = make_test_run(tmp_path / "run")
    refuse_other_settings([run])
    write_run_file(run)
    refuse_other_settings([run])
    with pytest.raises(ConfigError, match=r"base, seed 1 was started with training\.steps = 5, not 6.*--overwrite"):
        refuse_other_settings([make_test_run(tmp_path / "run", steps=6)])


def test_first_changed_setting_is_named() -> None:
    assert first_change({"a": {"b": 1}, "c": [1]}, {"a": {"b": 1}, "c": [1]}) is None
    assert first_change({"a": {"b": 1}}, {"a": {"b": None}}) == "a.b = 1, not null"
    assert first_change({"a": {}}, {"a": {"new": 2}}) == "a.new = null, not 2"
    assert first_change(None, {"a": 1}) == 'settings = null, not {"a": 1}'


def test_threads_per_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert [threads_per_job(jobs, "") for jobs in (1, 8, 99)] == [16, 2, 1]
    assert [threads_per_job(2, limit) for limit in ("1", "0", "4", "99", "4,2")] == [1, 1, 4, 8, 8]


# ---- the program -----------------------------------------------------------------------------------------------------

SIZES = "--model.num_encoder_layers=1 --model.num_decoder_layers=1 --model.d_model=32 --model.d_ff=64"
TINY = (
    f"{SIZES} --model.num_heads=8 --training.tokens_per_step=512 --training.log_every=1 --tokenizer.vocab_size=300 "
    "--data.row_width=64 --decoding.max_length=8 --device cpu --sentences 4 --jobs 2 --rows A-heads-1"
).split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A corpus of digits and the same digits reversed, as flags."""
    folder, drawn = tmp_path_factory.mktemp("digits"), random.Random(1)
    found = {" ".join(drawn.choice("0123456789") for _ in range(drawn.randint(2, 6))) for _ in range(300)}
    sources = sorted(text for text in found if text != text[::-1])
    for name, part in (("train", sources[20:]), ("test", sources[:20])):
        (folder / f"{name}.aa").write_text("".join(f"{text}\n" for text in part))
        (folder / f"{name}.bb").write_text("".join(f"{text[::-1]}\n" for text in part))
    flags = {"source": "train.aa", "target": "train.bb", "test-source": "test.aa", "test-target": "test.bb"}
    return [text for flag, name in flags.items() for text in (f"--{flag}", str(folder / name))]


def start(*arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "heedful", "paper", "table3", *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


def results_of(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "results.json").read_text("utf-8"))
    return found


@pytest.fixture
def sweep(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the program inside this process: exit code and messages. Its workers are separate processes."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.run(["paper", "table3", *map(str, arguments)])
        return (code, *capfd.readouterr())

    return run


def test_sweep_end_to_end(corpus: list[str], tmp_path: Path, sweep: Callable[..., tuple[int, str, str]]) -> None:
    output = tmp_path / "out"
    flags = [*corpus, *TINY, "--steps", 4, "--seeds", 2, "-o", output]
    code, out, error = sweep(*flags)
    assert code == 0, error
    results = results_of(output)
    assert results["complete"] is True and results["failed"] == [] and results["seeds"] == [1, 2]
    assert [row["name"] for row in results["rows"]] == ["base", "A-heads-1"]
    for row in results["rows"]:
        assert [run["seed"] for run in row["runs"]] == [1, 2]
        assert all(run["steps"] == 4 and run["perplexity"] > 1 for run in row["runs"])
        assert [(one["role"], one["num_sentences"]) for one in row["runs"][0]["scores"]] == [("valid", 4), ("test", 4)]
        assert row["perplexity"]["num_seeds"] == 2 and row["parameters"] == results["parameters"][row["name"]]
    assert results["rows"][1]["values"]["heads"] == 1 and results["rows"][1]["values"]["key_dim"] == 32
    assert "run 4 of 4: " in error and "perplexity" in error
    written = [line for line in (output / "table3.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    printed = {" ".join(line.split()) for line in out.splitlines()}
    assert len(written) == 3 + 2  # the rows, the effect, and a header each
    assert {" ".join(re.sub(r"[|*]", " ", line).split()) for line in written} <= printed
    assert (output / "table3.png").exists() and (output / "table3.svg").exists()
    assert not list(output.glob("runs/*/model/training/states"))

    # one result is lost; the others are kept
    (output / "runs" / "base-seed-2" / RESULT_FILE).unlink()
    kept = {path: path.stat().st_mtime_ns for path in output.glob(f"runs/*/{RESULT_FILE}")}
    assert len(kept) == 3
    code, out, error = sweep(*flags, "--resume", "--no-plots", "--quiet", "--json")
    assert code == 0, error
    assert json.loads(out)["complete"] is True and error == ""
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (output / "runs" / "base-seed-2" / RESULT_FILE).exists()

    for more, words in (
        ([], "already holds a sweep; add --resume"),
        (["--resume", "--steps", 5], "training.steps = 4"),
    ):
        code, _, error = sweep(*flags, *more)
        assert code == 2 and words in error, error
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_failed_run_does_not_stop_the_sweep(
    corpus: list[str], tmp_path: Path, sweep: Callable[..., tuple[int, str, str]]
) -> None:
    """A huge learning rate: every loss is soon infinite or NaN."""
    output = tmp_path / "out"
    wild = ["--training.learning_rate=1e30", "--training.max_skipped_steps=3"]
    code, out, error = sweep(*corpus, *TINY, *wild, "--steps", 12, "--seeds", 1, "--no-plots", "-o", output)
    assert code == 1, error
    results = results_of(output)
    assert results["complete"] is True
    assert sorted(one["row"] for one in results["failed"]) == ["A-heads-1", "base"]
    assert all(one["code"] == 2 and "not finite" in one["log"] for one in results["failed"])
    assert "failed (exit code 2); end of its log:" in error and "not finite" in error
    assert "Traceback" not in error and "Failed runs: " in out


@pytest.mark.slow
def test_interrupted_sweep_is_resumed(corpus: list[str], tmp_path: Path) -> None:
    output = tmp_path / "out"
    flags = [*corpus, *TINY, "--seeds", 1, "--no-plots", "-o", output, "--steps", 4000]
    process = start(*flags)
    logs = [output / "runs" / f"{name}-seed-1" / MODEL / "training" / "log.jsonl" for name in ("base", "A-heads-1")]
    while not all(path.exists() and path.stat().st_size for path in logs):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert "stopped by SIGINT" in error and "--resume" in error
    results = results_of(output)
    assert results["complete"] is False and results["failed"] == []
    states = list(output.glob("runs/*/model/training/states/step-*"))
    assert len(states) == 2  # both saved before they stopped
    reached = {path.parts[-5]: int(path.name.removeprefix("step-")) for path in states}
    assert all(0 < step < 4000 for step in reached.values())
    again = start(*flags, "--resume")
    texts = [output / "runs" / f"{name}-seed-1" / LOG_FILE for name in ("base", "A-heads-1")]
    while not all("Resuming from step" in path.read_text("utf-8") for path in texts):
        assert again.poll() is None, again.communicate()
        time.sleep(0.05)
    again.send_signal(signal.SIGTERM)
    _, error = again.communicate(timeout=120)
    assert again.returncode == 130 and "stopped by SIGTERM" in error
