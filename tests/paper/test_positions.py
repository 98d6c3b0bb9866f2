"""Train short, test long: the measurements, the linear probe, texts of several sentences, and the verb."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from heedful.build_model import build_model
from heedful.cli import run
from heedful.errors import ConfigError
from heedful.model.positions import sinusoidal_encoding
from heedful.paper.length_generalisation import (
    KINDS,
    CopySettings,
    TranslationSettings,
    join_sentences,
    probe_positions,
    read_translation_data,
    residual_streams,
    train_copy,
    train_translation,
)
from heedful.paper.positions import PositionsSettings, draw_position_results, positions_tables, run_positions
from heedful.paper.synthetic_tasks import small_config
from heedful.paper.text_tables import markdown_table
from heedful.text.corpus import SentencePair

ROOT = Path(__file__).parents[2]
SMALL = CopySettings(max_length=3, test_lengths=(2, 3, 12), steps=2, num_pairs=4)


@pytest.fixture
def corpora(tmp_path: Path) -> TranslationSettings:
    words = ["red", "green", "blue", "small", "large", "old", "new", "house", "tree", "car"]
    lines = [f"a {words[i % 10]} {words[i // 10 % 10]} and a {words[i // 100]}" for i in range(300)]
    names = {"train": lines[:270], "test": lines[270:]}
    for name, texts in names.items():
        (tmp_path / f"{name}.x").write_text("\n".join(texts) + "\n", encoding="utf-8")
        (tmp_path / f"{name}.y").write_text("\n".join(text.upper() for text in texts) + "\n", encoding="utf-8")
    paths = [str(tmp_path / name) for name in ("train.x", "train.y", "test.x", "test.y")]
    return TranslationSettings(*paths, sentences=(1, 2), vocab_size=320, steps=2, pairs_per_batch=8)


@pytest.mark.parametrize("positions", KINDS)
def test_copying_is_tested_up_to_four_times_the_training_length(positions: str) -> None:
    run = train_copy(positions, 1, SMALL)
    assert [place["length"] for place in run.by_length] == [2, 3, 12]
    assert all(0 <= place["exact"] <= place["tokens"] <= 1 for place in run.by_length)
    assert list(run.probe) == ["0", "1", "2"]
    with pytest.raises(ConfigError, match="at most 12"):
        train_copy(positions, 1, replace(SMALL, test_lengths=(13,)))


def test_probe_reads_sinusoids_but_not_rotary_inputs() -> None:
    """Before the first layer, sinusoidal encodings are in the stream and rotary ones are not."""
    torch.manual_seed(1)
    sources = torch.randint(3, 13, (200, 9))
    found = {}
    for positions in KINDS:
        model = build_model(small_config(positions=positions, max_length=20)).eval()
        found[positions] = probe_positions(model, sources, num_positions=8)["0"]
    assert found["sinusoidal"] > 0.95
    assert found["rotary"] < 0.3  # chance is 1/8


def test_probe_is_tested_on_other_sequences() -> None:
    """More features than training tokens: a probe scored on its own training data would be perfect."""
    torch.manual_seed(1)
    model = build_model(small_config(positions="rotary", d_model=256, max_length=20)).eval()
    model.source_embedding = torch.nn.Embedding(2000, 256)  # every token is new
    assert probe_positions(model, torch.randint(0, 2000, (16, 8)), num_positions=8)["0"] < 0.5


def test_residual_streams_are_those_of_the_layers() -> None:
    model = build_model(small_config(max_length=20)).eval()
    sources = torch.randint(3, 13, (2, 5))
    streams = residual_streams(model, sources)  # type: ignore[arg-type]
    expected = model.source_embedding(sources) * 8 + sinusoidal_encoding(torch.arange(5)[None], 64)
    torch.testing.assert_close(streams["0"], expected)
    memory = model.encode(sources, torch.ones_like(sources, dtype=torch.bool))
    torch.testing.assert_close(streams["2"], memory.values)
    assert not model.encoder.layers[0]._forward_hooks and not model.encoder.layers[0]._forward_pre_hooks


def test_sentences_are_joined_to_texts() -> None:
    pairs = [SentencePair(str(number), str(-number)) for number in range(5)]
    assert join_sentences(pairs, 2) == (["0 1", "2 3"], ["0 -1", "-2 -3"])


def test_translation_is_scored_by_length(corpora: TranslationSettings) -> None:
    data = read_translation_data(corpora)
    assert {pair.source for pair in data.test}.isdisjoint(data.tokenizer.decode(ids[:-1]) for ids, _ in data.pairs)
    run = train_translation("rotary", 1, corpora, data)
    assert [place["sentences"] for place in run.by_length] == [1, 2]
    first, second = run.by_length
    assert second["length"] == pytest.approx(2 * first["length"] - 1)  # one end token less
    assert first["bleu"] == first["bleu_one_by_one"]
    again = train_translation("rotary", 1, corpora, data)
    assert again.by_length == run.by_length


def test_too_few_pairs_are_an_error(corpora: TranslationSettings) -> None:
    with pytest.raises(ConfigError, match="too few"):
        read_translation_data(replace(corpora, max_length=1))


def test_resumed_experiment_keeps_finished_runs(tmp_path: Path, corpora: TranslationSettings) -> None:
    settings = PositionsSettings(SMALL, corpora, seeds=(1,))
    results = run_positions(tmp_path / "out", settings=settings, command="test")
    assert [(run["task"], run["positions"]) for run in results["runs"]] == [
        (task, kind) for task in ("copy", "translation") for kind in KINDS
    ]
    path = tmp_path / "out" / "results.json"
    kept = json.loads(path.read_text("utf-8"))
    kept["runs"] = [{**run, "cpu_seconds": -1.0} for run in kept["runs"][:-1]]
    path.write_text(json.dumps(kept), encoding="utf-8")
    again = run_positions(tmp_path / "out", settings=settings, command="test", resume=True)
    assert [run["cpu_seconds"] < 0 for run in again["runs"]] == [True] * 5 + [False]
    assert again["runs"][-1]["by_length"] == results["runs"][-1]["by_length"]
    assert len(positions_tables(again, "zh")) == 3
    assert len(draw_position_results(again, "en").axes) == 4


def test_positions_verb_and_its_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.paper.length_generalisation.CopySettings", lambda **sizes: SMALL)
    output = str(tmp_path / "out")
    assert run(["paper", "positions", "-o", output, "--quick"]) == 0
    message = capsys.readouterr()
    assert "sinusoidal" in message.out and "copying" in message.err
    assert {path.name for path in Path(output).iterdir()} == {
        *("results.json", "positions.md", "positions.png", "positions.svg"),
    }
    for flags, text in (
        ([], "already holds"),
        (["--source", "a.en"], "--test-target"),
        (["--seeds", "11"], "--seeds must be from 1 to 10"),
        (["--lang", "de"], "--lang"),
    ):
        assert run(["paper", "positions", "-o", output, *flags]) == 2
        assert text in capsys.readouterr().err


def published() -> dict[str, Any]:
    path = ROOT / "benchmarks/results/paper/positions_2026-11-19_cpu.json"
    results: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return results


@pytest.mark.parametrize("page", ["positions.md", "positions.zh-CN.md"])
def test_documented_tables_show_the_results(page: str) -> None:
    text = (ROOT / "docs" / "paper" / page).read_text("utf-8")
    for table in positions_tables(published(), "zh" if "zh" in page else "en"):
        assert markdown_table(table.heading, table.rows) in text
    assert published()["command"] in text


def test_published_claims_hold_in_the_results() -> None:
    """The claims in the text of docs/paper/positions.md."""
    exact: dict[tuple[str, int], float] = {}
    for trained in published()["runs"]:
        if trained["task"] == "copy":
            for place in trained["by_length"]:
                key = trained["positions"], place["length"]
                exact[key] = exact.get(key, 0.0) + place["exact"] / 3
    assert exact["sinusoidal", 16] > 0.95 and 0.3 < exact["sinusoidal", 17] < 0.7
    assert exact["sinusoidal", 18] < 0.1 and exact["rotary", 18] < 0.25
    assert all(exact[kind, length] < 0.02 for kind in KINDS for length in (20, 24, 32, 48, 64))
    for trained in published()["runs"]:
        if trained["task"] == "translation":
            places = trained["by_length"]
            assert all(place["bleu"] < 0.5 * places[0]["bleu"] for place in places[1:])
            if trained["positions"] == "sinusoidal":
                assert all(place["bleu_one_by_one"] > 0.8 * places[0]["bleu"] for place in places)
