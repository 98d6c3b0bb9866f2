"""Train from two text files until the outputs are exact: copying and reversing digits."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import heedful

TASKS: dict[str, Callable[[str], str]] = {"copy": lambda digits: digits, "reverse": lambda digits: digits[::-1]}


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "transformer": (300, {}),
    "recurrent": (240, {"attention_scoring": "additive"}),
    "convolutional": (350, {}),
}
"""Each architecture with its number of steps and its settings."""


def request_for(folder: Path, kind: str) -> dict[str, Any]:
    """A model of about 100,000 weights trained on some hundred thousand digits, one token per digit."""
    steps, own = KINDS[kind]
    return {
        "output": str(folder / "model"),
        "preset": "tiny",
        "data": {
            "train": [{"source": str(folder / "source.txt"), "target": str(folder / "target.txt")}],
            "drop_identical": False,
            "row_width": 48,
        },
        "tokenizer": {"vocab_size": 15, "byte_fallback": False, "character_coverage": 1.0},
        "model": {"architecture": kind, "d_model": 64, "d_ff": 256, "dropout": 0.0, **own},
        "training": {
            "steps": steps,
            "tokens_per_step": 512,
            "learning_rate": 3e-3,
            "validate_every": 150,
            "num_bleu_sentences": 0,
            "tensorboard": False,
            "device": "cpu",
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", TASKS)
def test_model_learns_digits(tmp_path: Path, task: str, kind: str) -> None:
    chance = random.Random(7)
    every = list({"".join(chance.choices("0123456789", k=chance.randint(3, 7))): None for _ in range(6000)})
    learned, unseen = every[:-300], every[-300:]
    (tmp_path / "source.txt").write_text("".join(f"{digits}\n" for digits in learned))
    (tmp_path / "target.txt").write_text("".join(f"{TASKS[task](digits)}\n" for digits in learned))

    heedful.train(request_for(tmp_path, kind), quiet=True)

    translations = heedful.Translator.load(tmp_path / "model", device="cpu").translate(unseen)
    answers = dict(zip(unseen, (translation.text for translation in translations), strict=True))
    wrong = {digits: answer for digits, answer in answers.items() if answer != TASKS[task](digits)}
    assert not set(unseen) & set(learned)
    assert len(wrong) < 0.01 * len(unseen), wrong
