"""Local and hard attention from a YAML file to a translation: train, save, info, translate; other engines refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import heedful
from heedful.cli import run

KINDS: dict[str, dict[str, Any]] = {
    "local": {"self_attention": "local", "cross_attention": "local_monotonic", "attention_window": 3},
    "predictive": {"cross_attention": "local_predictive", "attention_window": 4},
    "hard": {"self_attention": "hard", "cross_attention": "hard"},
    "reinforce": {"cross_attention": "hard", "hard_attention_gradient": "reinforce"},
    "recurrent": {"architecture": "recurrent", "cross_attention": "local_predictive"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_train_save_and_translate(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{number:03d} {number * 7 % 1000:03d}" for number in range(300)]
    for side in ("source", "target"):
        (tmp_path / f"{side}.txt").write_text("".join(f"{line}\n" for line in lines))
    request = {
        "output": str(tmp_path / "model"),
        "preset": "tiny",
        "data": {
            "train": [{"source": str(tmp_path / "source.txt"), "target": str(tmp_path / "target.txt")}],
            "drop_identical": False,
            "num_valid_pairs": 20,
        },
        "tokenizer": {"vocab_size": 16, "byte_fallback": False},
        "model": {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, **KINDS[kind]},
        "training": {"steps": 2, "num_bleu_sentences": 4, "num_samples": 0, "tensorboard": False, "device": "cpu"},
    }
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(request))
    assert run(["train", str(tmp_path / "train.yaml")]) == 0
    capsys.readouterr()

    assert run(["info", str(tmp_path / "model"), "--json"]) == 0
    shown = json.dumps(json.loads(capsys.readouterr().out))
    assert all(f'"{key}": {json.dumps(value)}' in shown for key, value in KINDS[kind].items())

    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    changed = {key.replace("_", "-"): str(value).replace("_", " ") for key, value in KINDS[kind].items()}
    assert all(
        f", {changed[place]} {place}" in card for place in ("self-attention", "cross-attention") if place in changed
    )

    arguments = ["translate", "-m", str(tmp_path / "model"), "--decoding.max_length=8"]
    assert run([*arguments, "012 084"]) == 0  # the engine "auto" chooses torch
    translator = heedful.Translator.load(tmp_path / "model", device="cpu", engine="torch")
    found = translator.translate(["012 084", "007"], max_length=8)
    alone = translator.translate(["012 084"], max_length=8)[0]
    assert (found[0].text, found[0].score) == (alone.text, alone.score)
    assert capsys.readouterr().out.strip() == alone.text.strip()
    assert run([*arguments, "--engine", "native", "012 084"]) == 2
    refused = "architecture=recurrent" if kind == "recurrent" else "_attention="
    assert refused in capsys.readouterr().err
