"""Teacher forcing: all steps at once equal one step at a time, and the table shows what the decoder is fed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.build_model import build_model
from heedful.cli import run
from heedful.config import ModelConfig
from heedful.paper.teacher_forcing import (
    BOS_ID,
    EOS_ID,
    compute_teacher_forcing,
    teacher_forcing_table,
    untrained_pair,
)
from heedful.paper.text_tables import TABLE_FORMATS

PAIR = ("Where is Tom ?", "Wo ist Tom ?")


@given(
    source=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=9),
    target=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=9),
    seed=st.integers(0, 99),
)
def test_all_steps_at_once_equal_one_step_at_a_time(source: list[str], target: list[str], seed: int) -> None:
    computed = compute_teacher_forcing(untrained_pair(" ".join(source), " ".join(target), seed=seed))
    assert computed.at_once.shape == computed.one_step.shape == (len(target) + 1, computed.at_once.shape[1])
    assert computed.difference < 1e-4


@pytest.mark.parametrize("architecture", ["transformer", "recurrent", "convolutional"])
def test_equality_holds_for_every_architecture(architecture: str) -> None:
    pair = untrained_pair(*PAIR)
    config = ModelConfig(
        architecture=architecture, source_vocab_size=20, target_vocab_size=20, d_model=16, d_ff=32, num_heads=2,
        num_encoder_layers=2, num_decoder_layers=2,
    )  # type: ignore[arg-type] # fmt: skip
    computed = compute_teacher_forcing(replace(pair, model=build_model(config).eval()))
    assert computed.difference < 1e-4


def test_difference_is_seen_without_the_causal_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = lambda length, device: torch.ones(1, 1, length, length, dtype=torch.bool)  # noqa: E731
    monkeypatch.setattr("heedful.model.transformer.causal_mask", everything)
    assert compute_teacher_forcing(untrained_pair(*PAIR)).difference > 1e-2


def test_input_is_the_reference_shifted_right() -> None:
    pair = untrained_pair(*PAIR)
    computed = compute_teacher_forcing(pair)
    assert computed.target_input == [BOS_ID, *pair.target[:-1]]
    assert pair.target[-1] == EOS_ID
    assert computed.own_input[0] == BOS_ID
    table = teacher_forcing_table(computed, "en")
    assert [row[1] for row in table.rows] == ["<s>", "Wo", "ist", "Tom", "?"]
    assert [row[2] for row in table.rows] == ["Wo", "ist", "Tom", "?", "</s>"]


def test_own_output_is_fed_in_decoding() -> None:
    """Greedy search: each input is the most likely token after the inputs before it."""
    pair = untrained_pair(*PAIR, seed=3)
    computed = compute_teacher_forcing(pair)
    with torch.inference_mode():
        logits = pair.model(torch.tensor([pair.source]), torch.tensor([computed.own_input]))[0]
    assert logits.argmax(dim=-1).tolist()[:-1] == computed.own_input[1:]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("form", TABLE_FORMATS)
def test_verb_prints_the_table(form: str, language: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["paper", "teacher-forcing", "a & b", "c <d>", "--format", form, "--lang", language]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\de-0\d|0\.0e\+00", printed)
    assert ("&lt;d&gt;" in printed) == (form == "html")
    assert ("教师强制" in printed) == (language == "zh")


def test_verb_uses_a_trained_model(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["paper", "teacher-forcing", "Where is the station?", "Wo ist der Bahnhof?", "--to", "de"]
    assert run([*command, "-m", "en-de-zh"]) == 0
    printed = capsys.readouterr().out
    assert "▁ist" in printed and "untrained" not in printed
    assert float(re.findall(r"largest difference (\S+),", printed)[0]) < 1e-2


def test_invalid_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, message in (
        (["a", ""], "at least one word"),
        (["a", "b", "--format", "pdf"], "--format"),
        (["a", "b", "--lang", "de"], "--lang"),
        (["a", "b", "-m", str(tmp_path / "none")], "none"),
        (["a", "b", "--to", "de"], "-m MODEL"),
    ):
        assert run(["paper", "teacher-forcing", *flags]) == 2
        assert message in capsys.readouterr().err
