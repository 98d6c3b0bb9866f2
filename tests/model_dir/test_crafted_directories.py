"""Crafted model directories are refused with the file's name or load correctly: no crash, hang or traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.build_model import build_model
from heedful.config import Config, ModelConfig, TokenizerConfig
from heedful.model_dir import save_model
from heedful.native import available
from heedful.text.tokenizer import train_tokenizer
from tests.model_dir.crafted_directories import craft

MOST_MB, MOST_CPU_SECONDS, MOST_SECONDS = 200, 2, 300
"""Memory beyond what the model itself takes, in MB; seconds of CPU time per folder, which do not depend on
other programs; seconds for all folders together, which end a hang."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [f"sentence {i} about word{i % 7} and thing{i % 5}" for i in range(200)]
    tokenizer = train_tokenizer(zip(lines, lines, strict=True), TokenizerConfig(vocab_size=300))
    size = tokenizer.source_vocab_size
    config = ModelConfig(
        source_vocab_size=size, target_vocab_size=size, d_model=16, d_ff=32, num_heads=2,
        num_encoder_layers=2, num_decoder_layers=2, max_length=64,
    )  # fmt: skip
    place = tmp_path_factory.mktemp("reference") / "model"
    save_model(place, weights=build_model(config), config=Config(model=config), tokenizer=tokenizer)
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine", [pytest.param("native", marks=pytest.mark.skipif(not available(), reason="")), "torch"]
)
def test_crafted_directories_are_refused_or_equivalent(engine: str, reference: Path, tmp_path: Path) -> None:
    folders = craft(reference, tmp_path)
    assert len(folders) >= 200
    program = [sys.executable, str(Path(__file__).with_name("crafted_directories.py")), engine, str(reference)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [*program, *map(str, folders)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=MOST_SECONDS,
        check=False,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(folders) and done.returncode == 0, done.stderr[-2000:]
    assert [result for result in results if result["outcome"] == "different"] == []
    assert {result["outcome"] for result in results} == {"refused", "same"}
    for result in results:
        assert result["outcome"] != "refused" or result["folder"] in result["message"], result
        assert result["seconds"] < MOST_CPU_SECONDS, result
    assert results[-1]["grown_mb"] < MOST_MB
