"""Distributed training, with real torchrun processes on CPUs, gives the results of one process, stops and resumes."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from heedful import training_pipeline
from heedful.config import TrainingConfig
from heedful.data.packing import prepack
from heedful.errors import ConfigError
from heedful.model_dir import verify
from heedful.model_dir.checkpoints import list_checkpoints
from heedful.training import distributed
from tests.training import ranks
from tests.training.small_runs import ALONE, WIDTH, copying_store

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parent.parent), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def torchrun(num_ranks: int, *arguments: Any, max_restarts: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program on this number of ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={num_ranks}", "--monitor-interval=0.1"]
    command += [f"--max-restarts={max_restarts}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
    return subprocess.run(
        [*command, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """The results on four ranks, on two, and on one; the runs in RESUMED are resumed by the next."""
    folder = tmp_path_factory.mktemp("ranks")
    store = copying_store(folder / "store", 40)
    prepack(folder / "store", store, WIDTH, pairs_per_block=8)
    found = {}
    for size in (4, 2):
        ended = torchrun(size, HERE / "ranks.py", folder, folder / "store")
        assert ended.returncode == 0, ended.stderr
        found[size] = json.loads((folder / f"of-{size}.json").read_text())
    found[1] = {name: ranks.whole_run(folder / f"{name}-1", store, ALONE, name) for name in ranks.RUNS}
    found[1] |= {name: ranks.part_of_run(folder / name, store, ALONE, name) for name in ranks.RESUMED}
    return found


def published(outcome: dict[str, Any]) -> dict[str, float]:
    """Sums of the published weights. Biases of keys do not change attention: their gradient is rounding noise."""
    return {name: total for name, total in outcome["published"].items() if not name.endswith("key.bias")}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", ranks.RUNS)
def test_losses_do_not_depend_on_number_of_ranks(results: dict[int, Any], size: int, name: str) -> None:
    """Five rows per step, not divisible among two or four ranks; with clipping, averages, R-Drop, microbatches."""
    alone, together = results[1][name], results[size][name]
    assert len(alone["losses"]) == 6
    for numbers in ("losses", "norms"):
        assert together[numbers] == pytest.approx(alone[numbers], abs=1e-5)
    assert alone["losses"][-1] < alone["losses"][0] - 0.1
    for exact in ("tokens", "skipped", "kinds", "steps"):
        assert together[exact] == alone[exact]
    for one, other in zip(alone["valid"], together["valid"], strict=True):
        assert (other[0], other[2]) == (one[0], one[2])
        assert other[1] == pytest.approx(one[1], abs=1e-5)
    assert published(together) == pytest.approx(published(alone), abs=1e-3)


@pytest.mark.parametrize("name", ranks.RESUMED)
def test_resume_with_fewer_ranks(results: dict[int, Any], name: str) -> None:
    parts = [results[size][name] for size in (4, 2, 1)]
    assert [part["steps"] for part in parts] == [2, 4, 6]
    losses = [loss for part in parts for loss in part["losses"]]
    unbroken = results[1]["blocks" if name.endswith("blocks") else "plain"]["losses"]
    assert losses == pytest.approx(unbroken, abs=1e-5)


def test_resume_with_dropout_is_exact_on_two_ranks(results: dict[int, Any]) -> None:
    """Bit for bit: the random state of each rank is restored."""
    outcome = results[2]["dropout"]
    assert outcome["whole"] == outcome["stopped"]
    assert outcome["whole"] != pytest.approx(results[1]["plain"]["losses"][-4:], abs=1e-3)


@pytest.mark.parametrize("sharding", ["none", "full"])
def test_non_finite_loss_on_one_rank_skips_update_on_all(results: dict[int, Any], sharding: str) -> None:
    outcome = results[2][f"nan_{sharding}"]
    assert outcome["skipped"] == [0, 1, 1, 0, 0, 0]
    assert outcome["losses"][3] < 6
    assert all(total == total for total in outcome["published"].values())


def test_signal_to_one_rank_stops_all_ranks(results: dict[int, Any]) -> None:
    """A second signal, as torchrun sends after Ctrl-C, has no effect."""
    assert results[2]["signal"]["stopped_by"] == "SIGTERM"
    assert results[2]["signal"]["steps"] == 3


# ---- the program -----------------------------------------------------------------------------------------------------


def write_request(folder: Path, output: Path) -> Path:
    chance = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [" ".join(chance.choices(["one", "two", "six", "ten", "red"], k=chance.randint(2, 6))) for _ in range(90)]
    (folder / "a").write_text("".join(f"{line}\n" for line in lines))
    (folder / "b").write_text("".join(f"{line.upper()}\n" for line in lines))
    request = {
        "output": str(output),
        "preset": "tiny",
        "data": {"train": [{"source": str(folder / "a"), "target": str(folder / "b")}], "num_valid_pairs": 8},
        "tokenizer": {"vocab_size": 300},
        "model": {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {"steps": 8, "tokens_per_step": 384, "log_every": 1, "save_every": 2, "tensorboard": False},
    }
    request["model"] |= {"dropout": 0.0}
    request["training"] |= {"validate_every": 4, "num_bleu_sentences": 2, "keep_checkpoints": 4, "device": "cpu"}
    path = folder / f"{output.name}.yaml"
    path.write_text(json.dumps(request))
    return path


def losses_of(output: Path) -> dict[int, float]:
    events = [json.loads(line) for line in (output / "training" / "log.jsonl").read_text("utf-8").splitlines()]
    steps = [event["step"] for event in events if event["event"] == "train"]
    assert steps == sorted(set(steps))
    return {event["step"]: event["loss"] for event in events if event["event"] == "train"}


def test_killed_rank_is_restarted_and_resumes(tmp_path: Path) -> None:
    """Rank 1 gets SIGKILL; torchrun restarts both without --resume on the command line, and they resume."""
    training_pipeline.train(write_request(tmp_path, tmp_path / "alone"), quiet=True)
    request = write_request(tmp_path, tmp_path / "killed")
    ended = torchrun(2, HERE / "dying_rank.py", "train", request, max_restarts=1)
    assert ended.returncode == 0, ended.stderr
    assert "Resuming from step 4." in ended.stderr
    assert re.search(r"heedful: rank 0 lost another rank \(.*\)\. With --max-restarts", ended.stderr)
    assert ended.stderr.count("with 2 ranks for 8 steps") == 2  # once each time, by the first rank only
    assert losses_of(tmp_path / "killed") == pytest.approx(losses_of(tmp_path / "alone"), abs=1e-5)
    assert len(losses_of(tmp_path / "killed")) == 8
    kept, alone = (list_checkpoints(tmp_path / name) for name in ("killed", "alone"))
    assert [one.step for one in kept] == [one.step for one in alone]
    assert (len(kept), kept[0].step, kept[-1].step) == (4, 0, 8)
    assert verify(kept[-1].directory)
    weights, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "alone"))
    for name in expected:
        if not name.endswith("key.bias"):
            torch.testing.assert_close(weights[name], expected[name], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_language_model_does_not_depend_on_number_of_ranks(tmp_path: Path, kind: str) -> None:
    """The ranks hide the same tokens as a single process, and count all of them."""
    outputs = tmp_path / "alone", tmp_path / "together"
    for output in outputs:
        request = json.loads(write_request(tmp_path, output).read_text())
        request["data"] = {"train": [{"text": str(tmp_path / "a")}], "num_valid_pairs": 8}
        request["model"]["architecture"] = kind
        del request["training"]["num_bleu_sentences"]
        (tmp_path / f"{output.name}.yaml").write_text(json.dumps(request))
    training_pipeline.train(tmp_path / "alone.yaml", quiet=True)
    ended = torchrun(2, "-m", "heedful", "train", tmp_path / "together.yaml")
    assert ended.returncode == 0, ended.stderr
    assert losses_of(outputs[1]) == pytest.approx(losses_of(outputs[0]), abs=1e-5)
    tokens = [
        [event["tokens"] for event in map(json.loads, lines) if event["event"] == "train"]
        for lines in ((output / "training" / "log.jsonl").read_text("utf-8").splitlines() for output in outputs)
    ]
    assert tokens[0] == tokens[1]
    weights = [load_file(output / "model.safetensors") for output in outputs]
    for name, expected in weights[0].items():
        if not name.endswith("key.bias"):
            torch.testing.assert_close(weights[1][name], expected, atol=1e-4, rtol=1e-3)


def test_error_on_all_ranks_is_reported_once(tmp_path: Path) -> None:
    request = write_request(tmp_path, tmp_path / "out")
    (tmp_path / "b").unlink()
    ended = torchrun(2, "-m", "heedful", "train", request)
    lines = [line for line in ended.stderr.splitlines() if line.startswith("heedful: ")]
    assert len(lines) == 1
    assert "No such file" in lines[0]
    assert re.findall(r"exitcode +: (\d+)", ended.stderr)[-1:] == ["2"]


@pytest.mark.parametrize(
    ("environment", "device", "message"),
    [
        ({"WORLD_SIZE": "2"}, "cpu", r"WORLD_SIZE is 2, but RANK, LOCAL_RANK, MASTER_ADDR, MASTER_PORT are not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_PORT": "1"}, "cpu", "MASTER_ADDR is not set"),
        ({"WORLD_SIZE": "many"}, "cpu", "WORLD_SIZE='many'"),
        ({"WORLD_SIZE": "0"}, "cpu", "WORLD_SIZE='0'"),
    ],
)
def test_invalid_torchrun_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], device: str, message: str
) -> None:
    for name in (*distributed.REQUIRED_VARIABLES, "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        distributed.init_distributed(device)


def test_more_ranks_than_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match=r"4 ranks on this machine, but 2 GPUs.*--nproc-per-node=2"):
        distributed.local_device("auto")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert distributed.local_device("cuda") == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match="each rank uses its own GPU"):
        distributed.local_device("cuda:0")


def test_world_size_one_needs_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert distributed.init_distributed("cpu") == ALONE
    assert TrainingConfig().sharding == "none"
