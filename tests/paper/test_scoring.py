"""The comparison of scoring functions: measurements, resumption, documented results."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

from heedful.cli import run
from heedful.errors import ConfigError
from heedful.paper.scoring import (
    SCORINGS,
    ScoreRecorder,
    ScoringSettings,
    build_scoring_model,
    draw_batches,
    run_scoring,
    scoring_table,
    summarise,
    train_scoring,
)
from heedful.paper.synthetic_tasks import estimate, learning_rate_at
from heedful.paper.text_tables import markdown_table

ROOT = Path(__file__).parents[2]
SMALL = ScoringSettings(key_dims=(4, 64), seeds=(1, 2), steps=2, length=4, pairs_per_batch=4)


@pytest.mark.parametrize("key_dim", [4, 64, 256])
def test_queries_and_keys_have_unit_variance(key_dim: int) -> None:
    attention = build_scoring_model("dot", key_dim, seed=1).decoder.layers[0].get_submodule("cross_attention")
    x = torch.randn(1, 4000, 64)
    for name in ("query", "key"):
        assert attention.get_submodule(name)(x).var().item() == pytest.approx(1, rel=0.25)


def test_recorder_measures_entropy_and_gradient_of_the_scores() -> None:
    model = build_scoring_model("scaled_dot", 16, seed=1)
    recorder = ScoreRecorder(model)
    batch = next(draw_batches(SMALL, 1))
    model(**batch.inputs).logsumexp(dim=-1).sum().backward()
    num_keys = SMALL.length + 1
    assert recorder.latest.shape == (SMALL.pairs_per_batch, 1, num_keys, num_keys)
    assert 0 < recorder.entropy() <= math.log(num_keys)
    assert recorder.gradient_norm() > 0
    recorder.latest = torch.zeros(1, 1, 2, num_keys)
    assert recorder.entropy() == pytest.approx(math.log(num_keys))


def test_unscaled_scores_concentrate_the_softmax() -> None:
    runs = {(kind, d): train_scoring(kind, d, 1, SMALL) for kind in SCORINGS for d in (4, 256)}
    assert runs["dot", 256].entropy_first < 0.5 * runs["dot", 4].entropy_first
    assert runs["scaled_dot", 256].entropy_first > 0.7 * runs["scaled_dot", 4].entropy_first
    assert runs["dot", 256].gradient_first < runs["scaled_dot", 256].gradient_first


def test_runs_depend_on_the_seed_alone() -> None:
    first, again, other = (train_scoring("dot", 4, seed, SMALL) for seed in (1, 1, 2))
    assert first.loss == again.loss != other.loss


def test_resumed_experiment_keeps_finished_runs(tmp_path: Path) -> None:
    results = run_scoring(tmp_path, settings=SMALL, command="test")
    assert results["complete"] and len(results["runs"]) == 2 * 3 * 2
    kept = json.loads((tmp_path / "results.json").read_text("utf-8"))
    kept["runs"] = [{**run, "loss": 7.0} for run in kept["runs"][:-1]]
    (tmp_path / "results.json").write_text(json.dumps(kept), encoding="utf-8")
    again = run_scoring(tmp_path, settings=SMALL, command="test", resume=True)
    assert [run["loss"] for run in again["runs"][:-1]] == [7.0] * 11
    assert again["runs"][-1]["loss"] == results["runs"][-1]["loss"]
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "scoring.md", "scoring.png", "scoring.svg"}


def test_resuming_with_other_settings_keeps_the_results(tmp_path: Path) -> None:
    run_scoring(tmp_path, settings=SMALL, command="test")
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(ConfigError, match=r"other settings \(seeds\)"):
        run_scoring(tmp_path, settings=dataclasses.replace(SMALL, seeds=(1, 2, 3)), command="test", resume=True)
    assert (tmp_path / "results.json").read_bytes() == before


def test_estimate_is_a_t_interval() -> None:
    assert estimate([2.0]).half_width is None
    three = estimate([1.0, 2.0, 3.0])
    assert three.mean == 2
    assert three.half_width == pytest.approx(4.303 / math.sqrt(3))


def test_learning_rate_rises_and_falls() -> None:
    rates = [learning_rate_at(step, 100, 0.5) for step in range(1, 101)]
    assert rates[9] == max(rates) == 0.5
    assert rates[0] == pytest.approx(0.05) and rates[-1] == pytest.approx(0)


@pytest.mark.parametrize("page", ["scoring.md", "scoring.zh-CN.md"])
def test_documented_table_shows_the_results(page: str) -> None:
    results = json.loads((ROOT / "benchmarks/results/paper/scoring_2026-11-19_cpu.json").read_text("utf-8"))
    table = scoring_table(results, "zh" if "zh" in page else "en")
    text = (ROOT / "docs" / "paper" / page).read_text("utf-8")
    assert markdown_table(table.heading, table.rows) in text
    assert results["complete"] and results["command"] in text


def test_published_claims_hold_in_the_results() -> None:
    """The claims in the text of docs/paper/scoring.md."""
    results = json.loads((ROOT / "benchmarks/results/paper/scoring_2026-11-19_cpu.json").read_text("utf-8"))
    found = summarise(results)
    for key_dim in (64, 256, 512):
        assert found["dot", key_dim]["exact"].mean == 0
        assert found["additive", key_dim]["exact"].mean > 0.7 and found["scaled_dot", key_dim]["exact"].mean > 0.8
    gradients = [found[kind, 512]["gradient_first"].mean for kind in ("dot", "scaled_dot")]
    assert 0.4 < gradients[0] / gradients[1] < 0.5


def test_scoring_verb_and_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "out")
    assert run(["paper", "scoring", "-o", output, "--quick", "--steps", "2", "--seeds", "1"]) == 0
    message = capsys.readouterr()
    assert "scaled dot" in message.out and "training" in message.err
    for flags, text in (
        ([], "already holds"),
        (["--seeds", "0"], "--seeds must be from 1 to 10"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--lang", "de"], "--lang"),
    ):
        assert run(["paper", "scoring", "-o", output, *flags]) == 2
        assert text in capsys.readouterr().err
