"""The comparison of kinds of attention: every kind trains, costs follow from the masks, resumption."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from heedful.build_model import build_model, num_parameters
from heedful.cli import run
from heedful.model.attention import causal_mask
from heedful.paper.attention_kinds import (
    KINDS,
    SYSTEMS,
    TASKS,
    AttentionKindsSettings,
    attention_kinds_tables,
    attention_multiply_adds,
    kind_config,
    kinds_of,
    run_attention_kinds,
    summarise,
    train_kind,
)
from heedful.paper.text_tables import markdown_table

ROOT = Path(__file__).parents[2]
SMALL = AttentionKindsSettings(
    systems=("luong",), seeds=(1, 2), max_length=4, steps=2, pairs_per_batch=4, test_lengths=(3,), num_pairs=4
)


def test_recurrent_models_have_no_kinds_of_self_attention() -> None:
    assert kinds_of("transformer") == list(KINDS)
    assert kinds_of("luong") == [kind for kind in KINDS if kind != "local_both"]


@pytest.mark.parametrize(("system", "kind"), [(system, kind) for system in SYSTEMS for kind in kinds_of(system)])
def test_every_kind_trains(system: str, kind: str) -> None:
    one, again = (train_kind(system, kind, "reverse", 3, SMALL) for _ in range(2))
    assert one.loss == again.loss and one.learned_at is None
    assert 0 <= one.exact <= one.tokens <= 1


def test_multiply_adds_equal_loop() -> None:
    window, length = 2, 9
    local = kind_config("transformer", "local_both", window)
    pairs = 0
    for query in range(length):
        for key in range(length):
            near = abs(query - key) <= window
            pairs += near + (near and key <= query) + near  # encoder, decoder, cross-attention
    assert attention_multiply_adds(local, length) == pairs * 2 * 64
    whole = kind_config("transformer", "global", window)
    causal = int(causal_mask(length, torch.device("cpu")).sum())
    everything = (2 * length**2 + causal) * 2 * 64
    assert attention_multiply_adds(whole, length) == everything
    hard = kind_config("transformer", "hard_reinforce", window)
    assert attention_multiply_adds(hard, length) == everything - (length**2 - length) * 64
    predictive = kind_config("luong", "local_predictive", window)
    assert attention_multiply_adds(predictive, length) == length * (5 * 2 * 64 + 64 * 64 + 64)


def test_update_at_which_a_task_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    from heedful.paper import attention_kinds
    from heedful.paper.synthetic_tasks import TrainedModel, train_on_task

    trained = train_on_task(kind_config("luong", "global", 1), attention_kinds.SyntheticTraining(steps=1))
    losses = [1.0] * 40 + [0.05] * 30
    monkeypatch.setattr(attention_kinds, "train_on_task", lambda *_, **__: TrainedModel(trained.model, losses))
    learned_at = train_kind("luong", "global", "copy", 1, SMALL).learned_at
    assert learned_at == 59  # the mean of updates 40 to 59: one of 1.0 and nineteen of 0.05


def test_resumed_experiment_keeps_finished_runs(tmp_path: Path) -> None:
    results = run_attention_kinds(tmp_path, settings=SMALL, command="test")
    num_runs = 2 * 2 * len(kinds_of("luong"))
    assert results["complete"] and len(results["runs"]) == num_runs
    assert [row["kind"] for row in results["costs"]] == kinds_of("luong")
    kept = json.loads((tmp_path / "results.json").read_text("utf-8"))
    kept["runs"] = [{**one, "tokens": 0.5} for one in kept["runs"][:-1]]
    (tmp_path / "results.json").write_text(json.dumps(kept), encoding="utf-8")
    again = run_attention_kinds(tmp_path, settings=SMALL, command="test", resume=True)
    assert [one["tokens"] for one in again["runs"][:-1]] == [0.5] * (num_runs - 1)
    assert again["runs"][-1]["tokens"] == results["runs"][-1]["tokens"]
    names = {"results.json", "attention_kinds.md", "attention_kinds.png", "attention_kinds.svg"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_tables_show_updates_only_if_all_seeds_learned() -> None:
    runs = [
        {"system": "luong", "kind": kind, "task": task, "seed": seed, "exact": 0.5, "tokens": 0.75, "learned_at": at}
        for kind in kinds_of("luong")
        for task in ("copy", "reverse")
        for seed, at in ((1, 100), (2, None if task == "reverse" else 110))
    ]
    results = {"settings": {**vars(SMALL), "systems": ["luong"]}, "runs": runs, "costs": []}
    assert summarise(results)["luong", "global", "copy"]["learned_at"] is not None
    learned, costs = attention_kinds_tables(results, "en")
    assert learned.rows[0] == ["GRU, Luong", "global, soft", "50 ± 0", "75 ± 0", "105 ± 64", "50 ± 0", "75 ± 0", "–"]
    assert not costs.rows


def test_attention_kinds_verb_and_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "out")
    assert run(["paper", "attention-kinds", "-o", output, "--quick", "--steps", "2", "--systems", "transformer"]) == 0
    message = capsys.readouterr()
    assert "local-p" in message.out and "multiply-adds" in message.out and "training" in message.err
    for flags, text in (
        ([], "already holds"),
        (["--seeds", "0"], "--seeds must be from 1 to 10"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--lang", "de"], "--lang"),
        (["--systems", "luong,gnmt"], "--systems: 'gnmt' is not one of transformer, luong"),
    ):
        assert run(["paper", "attention-kinds", "-o", output, *flags]) == 2
        assert text in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("system", "kind"),
    [*((system, kind) for system in SYSTEMS for kind in kinds_of(system)), ("transformer", "hard_gumbel")],
)
def test_every_kind_learns_what_its_windows_allow(
    system: str, kind: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claims in the text of docs/paper/attention-kinds.md."""
    gumbel = {"cross_attention": "hard", "hard_attention_gradient": "gumbel"}
    monkeypatch.setitem(KINDS, "hard_gumbel", gumbel)
    tokens = train_kind(system, kind, task, 1, AttentionKindsSettings()).tokens
    if (kind, task) == ("local_both", "reverse"):
        assert tokens < 0.6
    else:
        assert tokens > 0.85


@pytest.mark.parametrize("page", ["attention-kinds.md", "attention-kinds.zh-CN.md"])
def test_documented_costs_are_computed(page: str) -> None:
    heading = "## 各自的代价" if "zh" in page else "## What each costs"
    text = (ROOT / "docs" / "paper" / page).read_text("utf-8").partition(heading)[2]
    rows = [line.split("|")[3:5] for line in text.splitlines() if re.match(r"\| (Transformer|GRU)", line)]
    expected = []
    for system in SYSTEMS:
        for kind in kinds_of(system):
            config = kind_config(system, kind, AttentionKindsSettings().window)
            counts = num_parameters(build_model(config)), attention_multiply_adds(config, 100)
            expected.append([f" {count:,} " for count in counts])
    assert rows == expected


@pytest.mark.parametrize("page", ["attention-kinds.md", "attention-kinds.zh-CN.md"])
def test_documented_table_shows_the_results(page: str) -> None:
    results = json.loads((ROOT / "benchmarks/results/paper/attention-kinds_2026-11-19_cpu.json").read_text("utf-8"))
    table = attention_kinds_tables(results, "zh" if "zh" in page else "en")[0]
    text = (ROOT / "docs" / "paper" / page).read_text("utf-8")
    assert markdown_table(table.heading, table.rows) in text
    assert results["complete"] and results["command"] in text


def test_published_claims_hold_in_the_results() -> None:
    """The claims in the text of docs/paper/attention-kinds.md."""
    results = json.loads((ROOT / "benchmarks/results/paper/attention-kinds_2026-11-19_cpu.json").read_text("utf-8"))
    found = summarise(results)
    for system in SYSTEMS:
        updates = [found[system, kind, "copy"]["learned_at"] for kind in ("local_monotonic", "global")]
        assert updates[0].mean < updates[1].mean
        for task in TASKS:
            assert found[system, "hard_straight_through", task]["learned_at"] is not None
            assert found[system, "hard_reinforce", task]["learned_at"] is None
            assert 71 < found[system, "hard_reinforce", task]["exact"].mean < 85
    assert 75 < found["luong", "local_monotonic", "reverse"]["exact"].mean < 77
    assert found["transformer", "local_both", "reverse"]["tokens"].mean < 60
