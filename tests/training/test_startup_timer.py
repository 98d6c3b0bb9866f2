"""The time until the first step, by stage, and background compilation, which does not change the run."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from heedful import training_pipeline
from heedful.config import TrainingConfig
from heedful.config_loading import build_config, to_mapping
from heedful.data.prepare import Prepared
from heedful.model_dir import load_weights
from heedful.training import compile_cache, precompile
from heedful.training.compile_cache import FOLDERS, is_compiled, set_cache_directories
from heedful.training.logging import FirstStep, StartupTimer
from heedful.training.precompile import Background, CompilerProcess

CPU = torch.device("cpu")
ALWAYS = ["starting_torch", "opening_the_corpora", "scanning_the_corpora", "training_the_tokenizer", "tokenising"]
LAST = ["building_the_model", "compiling_and_trying_the_largest_batch", "first_update"]


def request_for(folder: Path, output: Path, **training: Any) -> dict[str, Any]:
    words = "red blue green cat dog bird runs sits eats".split()
    lines = [f"{one} {other} {third}" for one in words[:4] for other in words[3:7] for third in words[5:]]
    (folder / "low.txt").write_text("".join(f"{line}\n" for line in lines))
    (folder / "up.txt").write_text("".join(f"{line.upper()}\n" for line in lines))
    return {
        "output": str(output),
        "preset": "tiny",
        "data": {
            "train": [{"source": str(folder / "low.txt"), "target": str(folder / "up.txt")}],
            "num_valid_pairs": 4,
        },
        "tokenizer": {"vocab_size": 290},
        "model": {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {
            "steps": 3,
            "tokens_per_step": 256,
            "num_bleu_sentences": 0,
            "average_last": 0,
            "ema_decay": 0.0,
            "device": "cpu",
            "tensorboard": False,
            **training,
        },
    }


class Remembered(CompilerProcess):
    """A process that can be inspected afterwards."""

    started: ClassVar[list[Remembered]] = []

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[dict[str, Any]] = []
        self.started.append(self)

    def submit(self, job: dict[str, Any]) -> None:
        self.jobs.append(job)
        super().submit(job)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> list[Remembered]:
    """Background compilation is always worthwhile, also on a CPU; returns the started processes."""
    monkeypatch.setattr(precompile, "is_compiled", lambda config, *, on_gpu: True)
    monkeypatch.setattr(precompile, "MIN_CORPUS_BYTES", 0)
    monkeypatch.setattr(precompile, "MIN_ELAPSED_SECONDS", 0.0)
    monkeypatch.setattr(precompile, "CompilerProcess", Remembered)
    Remembered.started = []
    return Remembered.started


def same_weights(one: Path, other: Path) -> bool:
    ours, theirs = load_weights(one), load_weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# ---------------------------------------------------------------------- the time and its parts


def test_startup_timer_stages_sum_to_total() -> None:
    watch = StartupTimer("one part")
    watch.enter("another")
    watch.enter("one part")
    assert watch.first_step is None
    first_step = watch.stop(7)
    assert watch.first_step is first_step
    assert first_step.step == 7
    assert list(first_step.parts) == ["one_part", "another"]
    assert first_step.seconds == pytest.approx(sum(first_step.parts.values()), abs=1e-9)


def test_first_step_message_names_every_stage() -> None:
    message = str(FirstStep(step=1, seconds=3.25, parts={"starting_torch": 2.0, "first_update": 1.25}))
    assert message == "First update after 3.2 s: starting torch 2.0, first update 1.2."


def test_first_step_is_reported_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = request_for(tmp_path, tmp_path / "run")
    first_step = training_pipeline.train(request).first_step
    assert first_step is not None
    assert list(first_step.parts) == [*ALWAYS, *LAST]
    assert all(seconds >= 0 for seconds in first_step.parts.values())
    assert first_step.seconds == pytest.approx(sum(first_step.parts.values()), abs=1e-9)
    assert str(first_step) in capsys.readouterr().err
    log = [json.loads(line) for line in (tmp_path / "run" / "training" / "log.jsonl").read_text("utf-8").splitlines()]
    assert [line for line in log if line["event"] == "first_step"] == [{"event": "first_step", **asdict(first_step)}]
    config = json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))
    assert config["details"]["training"]["first_step"] == asdict(first_step)

    again = training_pipeline.train(
        {**request, "training": {**request["training"], "steps": 4}}, resume=True, quiet=True
    )
    assert again.first_step is not None
    assert again.first_step.step == 4
    assert "tokenising" not in again.first_step.parts  # the corpora were prepared already
    assert training_pipeline.train(request, resume=True, quiet=True).first_step is None  # nothing remained to be done


# ---------------------------------------------------------------------- background compilation


def test_background_compilation_changes_no_bit(
    tmp_path: Path, eager: list[Remembered], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(tmp_path, tmp_path / "beside")
    result = training_pipeline.train(request, quiet=True)
    [compiler] = eager
    assert compiler.is_done  # the step was compiled once in the other process
    assert compiler.process.poll() is not None
    assert result.first_step is not None
    assert list(result.first_step.parts) == [*ALWAYS, "waiting_for_the_compiler", *LAST]

    prepared = Prepared.open(tmp_path / "beside" / "training" / "data")
    config = training_pipeline.resolve_config(request, build_config(request, "base"), prepared)
    guessed, known = compiler.jobs
    assert guessed == known
    assert known["config"]["model"] == to_mapping(config)["model"]
    assert (known["rows"], known["width"]) == (256 // prepared.row_width, prepared.row_width)

    monkeypatch.setattr(precompile, "MIN_CORPUS_BYTES", 1 << 60)
    training_pipeline.train({**request, "output": str(tmp_path / "alone")}, quiet=True)
    monkeypatch.setattr(precompile, "MIN_CORPUS_BYTES", 0)
    again = {**request, "output": str(tmp_path / "again"), "data": {"prepared": str(prepared.directory)}}
    training_pipeline.train(again, quiet=True)
    assert len(eager) == 1  # corpora too small, and none to prepare
    assert same_weights(tmp_path / "beside", tmp_path / "alone")
    assert same_weights(tmp_path / "beside", tmp_path / "again")


def test_run_continues_when_compiler_process_fails(
    tmp_path: Path, eager: list[Remembered], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert training_pipeline.train(request_for(tmp_path, tmp_path / "run"), quiet=True).steps == 3
    assert not eager[0].is_done
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert training_pipeline.train(request_for(tmp_path, tmp_path / "other"), quiet=True).steps == 3
    assert len(eager) == 1


def test_compiler_process_ignores_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    compiler = CompilerProcess()
    assert compiler.process.stdin is not None
    compiler.process.stdin.close()
    assert compiler.process.wait(timeout=60) == 0
    compiler.end()


def test_new_job_replaces_unfinished_job() -> None:
    compiler = CompilerProcess()
    try:
        first = compiler.process
        compiler.submit({"config": {}, "rows": 1, "width": 8})
        compiler.submit({"config": {}, "rows": 1, "width": 8})
        assert compiler.process is first
        compiler.wait()  # it has hardly begun, so this does not wait
        assert not compiler.is_done
        compiler.submit({"config": {}, "rows": 2, "width": 8})
        assert compiler.process is not first
        assert first.poll() is not None
    finally:
        compiler.end()
    assert compiler.process.poll() is not None


def test_compiler_process_ends_with_preparation_and_parent(eager: list[Remembered]) -> None:
    with pytest.raises(KeyboardInterrupt), Background(TrainingConfig(), CPU, single_rank=True) as beside:
        beside.begin(1)
        raise KeyboardInterrupt
    assert eager[0].process.poll() is not None

    left = CompilerProcess()
    assert left.process.stdin is not None
    left.process.stdin.close()
    assert left.process.wait(timeout=60) == 0
    left.end()


def test_compiler_process_starts_only_when_worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_compiled(TrainingConfig(), on_gpu=False)
    assert is_compiled(TrainingConfig(compile=True), on_gpu=False)
    for spec, expected in ((None, False), ("there", True)):  # without Triton nothing can be compiled for a GPU
        monkeypatch.setattr(compile_cache, "find_spec", lambda name, found=spec: found if name == "triton" else "there")
        assert is_compiled(TrainingConfig(), on_gpu=True) is expected
        assert is_compiled(TrainingConfig(compile=True), on_gpu=True)
    large = precompile.MIN_CORPUS_BYTES
    for training, alone, num_bytes in (
        (TrainingConfig(), True, large),  # nothing is compiled on a CPU
        (TrainingConfig(compile=True), False, large),
        (TrainingConfig(compile=True), True, large - 1),
    ):
        beside = Background(training, CPU, single_rank=alone)
        beside.begin(num_bytes)
        assert beside.compiler is None


# ---------------------------------------------------------------------- the cache of compiled code


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache directory for this test, without other settings in the environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in (*FOLDERS, "TRITON_HOME"):
        monkeypatch.setenv(name, "")  # so that it is restored afterwards
        monkeypatch.delenv(name)
    yield tmp_path / "cache" / "heedful"


def test_compiled_code_is_cached_in_user_cache_directory(home: Path) -> None:
    assert set_cache_directories() is None
    assert {os.environ[name] for name in FOLDERS} == {str(home / "inductor"), str(home / "triton")}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_cache_variables_in_environment_are_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/my/own")
    monkeypatch.setenv("TRITON_HOME", "/my")
    assert set_cache_directories() is None
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/my/own"
    assert "TRITON_CACHE_DIR" not in os.environ
    assert not home.exists()


def test_cache_directory_is_trusted_on_windows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows reports every directory as writable by all users."""
    home.mkdir(parents=True)
    home.chmod(0o777)
    monkeypatch.delattr(os, "getuid")
    assert set_cache_directories() is None
    assert os.environ["TRITON_CACHE_DIR"] == str(home / "triton")


@pytest.mark.parametrize("obstacle", ["a file", "others can write"])
def test_untrusted_cache_directory_is_not_used(home: Path, obstacle: str) -> None:
    home.parent.mkdir()
    if obstacle == "a file":
        home.write_text("")
    else:
        home.mkdir()
        home.chmod(0o777)
    remark = set_cache_directories()
    assert remark is not None
    assert "XDG_CACHE_HOME" in remark
    other = Path(os.environ["TRITON_CACHE_DIR"]).parent
    assert other == Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent
    assert home not in (other, *other.parents)
    assert stat.S_IMODE(other.stat().st_mode) == 0o700
