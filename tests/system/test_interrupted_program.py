"""Training stopped by SIGTERM and SIGKILL resumes with --resume and equals an uninterrupted run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from heedful.model_dir import load_weights
from heedful.model_dir.checkpoints import list_checkpoints

ROOT = Path(__file__).parents[2]
WORDS = "red blue green cat dog bird runs sits eats one two three".split()


def write_request(folder: Path, output: Path) -> Path:
    chance = random.Random(0)
    lines = {" ".join(chance.choices(WORDS, k=chance.randint(2, 6))): None for _ in range(80)}
    (folder / "low.txt").write_text("".join(f"{line}\n" for line in lines))
    (folder / "up.txt").write_text("".join(f"{line.upper()}\n" for line in lines))
    request: dict[str, Any] = {
        "output": str(output),
        "preset": "tiny",
        "data": {"train": [{"source": str(folder / "low.txt"), "target": str(folder / "up.txt")}], "row_width": 64},
        "tokenizer": {"vocab_size": 300},
        "model": {"d_model": 32, "d_ff": 64, "num_heads": 2},
        "training": {
            "steps": 60,
            "tokens_per_step": 512,
            "tokens_per_microbatch": 256,
            "validate_every": 17,
            "save_every": 5,
            "log_every": 1,
            "num_bleu_sentences": 2,
            "average_last": 3,
            "ema_decay": 0.9,
            "keep_checkpoints": 6,
            "tensorboard": False,
            "device": "cpu",
        },
        "decoding": {"max_extra_length": 4},
    }
    path = folder / f"{output.name}.yaml"
    path.write_text(yaml.safe_dump(request))
    return path


def start(request: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "heedful", "train", str(request), "--resume"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=300)
    return text


def log_of(output: Path) -> list[dict[str, Any]]:
    path = output / "training" / "log.jsonl"
    lines = path.read_text("utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def end_after(process: subprocess.Popen[str], output: Path, step: int, number: signal.Signals) -> str:
    """Wait until the log has passed a step, then send a signal."""
    while not any(line.get("step", 0) >= step for line in log_of(output)):
        assert process.poll() is None, finish(process)
        time.sleep(0.01)
    process.send_signal(number)
    return finish(process)


@pytest.mark.slow
def test_killed_and_resumed_training_equals_uninterrupted(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    unbroken = start(write_request(tmp_path, whole))
    request = write_request(tmp_path, parts)
    chance = random.Random()
    moments = chance.randint(3, 20), chance.randint(25, 45)

    process = start(request)
    output = end_after(process, parts, moments[0], signal.SIGTERM)
    assert process.returncode == 0, output
    assert "Stopped by SIGTERM" in output
    assert "--resume" in output

    process = start(request)
    end_after(process, parts, moments[1], signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL

    process = start(request)
    output = finish(process)
    assert process.returncode == 0, output
    assert "Resuming from step" in output
    assert finish(unbroken) is not None
    assert unbroken.returncode == 0

    ours, theirs = load_weights(whole), load_weights(parts)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours), moments
    checkpoints = [
        {one.step: load_weights(one.directory) for one in list_checkpoints(output)} for output in (whole, parts)
    ]
    assert len(checkpoints[0]) == 6
    assert checkpoints[0].keys() == checkpoints[1].keys()
    for step, weights in checkpoints[0].items():
        assert all(torch.equal(weights[name], checkpoints[1][step][name]) for name in weights), (moments, step)
    states = [output / "training" / "states" / "step-000000060" / "tensors.safetensors" for output in (whole, parts)]
    assert states[0].read_bytes() == states[1].read_bytes()
    kept = [
        [
            {key: value for key, value in line.items() if key not in ("seconds", "tokens_per_second")}
            for line in log_of(output)
            if line["event"] not in ("note", "first_step")
        ]
        for output in (whole, parts)
    ]
    assert kept[0] == kept[1], moments
