"""`train` and `prepare`, in subprocesses."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.program import COMMAND, ENVIRONMENT, TINY, Corpus, Inside


def log_of(directory: Path) -> list[dict[str, object]]:
    path = directory / "training" / "log.jsonl"
    lines = path.read_text().split("\n") if path.exists() else []
    return [json.loads(line) for line in lines[:-1]]


def test_two_files_train_a_model(model: Path) -> None:
    assert {"config.json", "model.safetensors", "README.md", "checksums.json"} <= {
        path.name for path in model.iterdir()
    }
    assert any(event["event"] == "valid" for event in log_of(model))


def test_sweep_progress_and_quiet(inside: Inside, corpus: Corpus) -> None:
    result = inside("train", *corpus.flags, *TINY, "--steps", 3, "-o", "loud")
    assert result.out == "" and "\x1b" not in result.error and "\r" not in result.error
    assert "3 steps" in result.error and "valid loss" in result.error and "heedful translate -m loud" in result.error
    silent = inside("train", *corpus.flags, *TINY, "--steps", 3, "-o", "silent", "--quiet")
    assert (silent.code, silent.out, silent.error) == (0, "", "")


def test_model_is_not_overwritten_without_flag(inside: Inside, corpus: Corpus, model: Path, tmp_path: Path) -> None:
    before = (model / "model.safetensors").read_bytes()
    message = inside("train", *corpus.flags, *TINY, "--steps", 3, "-o", model).refused("--resume", "--overwrite")
    assert str(model) in message
    assert (model / "model.safetensors").read_bytes() == before
    (tmp_path / "file").write_text("precious")
    inside("train", *corpus.flags, *TINY, "--steps", 3, "-o", "file").refused("file")
    assert (tmp_path / "file").read_text() == "precious"


def test_missing_device_is_reported_before_reading_corpora(inside: Inside, corpus: Corpus, tmp_path: Path) -> None:
    inside("train", *corpus.flags, "--steps", 3, "--device", "cuda:99", "-o", "out").refused("cuda:99")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--init-from", "--training.init_from"])
@pytest.mark.parametrize("verb", ["train", "prepare"])
def test_empty_init_from_is_an_error(inside: Inside, corpus: Corpus, tmp_path: Path, verb: str, flag: str) -> None:
    inside(verb, *corpus.flags, f"{flag}=", "-o", "out").refused("training.init_from is empty", "leave it out")
    inside(verb, *corpus.flags, flag, "", "-o", "out", "--dry-run").refused("training.init_from is empty")
    assert not (tmp_path / "out").exists()


def test_overwrite_replaces_output(inside: Inside, corpus: Corpus, tmp_path: Path) -> None:
    for name in ("First", "Second"):
        ended = inside("train", *corpus.flags, *TINY, "--steps", 2, "-o", "out", "--overwrite", "--name", name)
        assert ended.code == 0, ended.error
        assert name in inside("info", "out").out


def test_prepare_then_train(inside: Inside, corpus: Corpus, tmp_path: Path) -> None:
    look = inside("prepare", *corpus.flags, "--dry-run", "-o", "prepared")
    assert look.code == 0 and "train.aa + train.bb" in look.out and "held out" in look.out
    assert not (tmp_path / "prepared").exists()
    first = inside("prepare", *corpus.flags, "-o", "prepared")
    assert first.code == 0 and "heedful train --prepared prepared" in first.error
    assert "up to date" in inside("prepare", *corpus.flags, "-o", "prepared").error
    other = [*corpus.flags, "--data.max_characters=9", "-o", "prepared"]
    inside("prepare", *other).refused("--overwrite")
    joined = inside("prepare", "--join", "prepared", "--join", "prepared", "-o", "joined")
    assert joined.code == 0 and "heedful train --prepared joined" in joined.error
    inside("prepare", "--join", "prepared", "-o", "joined").refused("--overwrite")
    inside("prepare", "--join", "prepared", *corpus.flags).refused("--join")
    assert inside("prepare", *other, "--overwrite").code == 0
    ended = inside("train", "--prepared", "prepared", *TINY, "--steps", 2, "-o", "out")
    assert ended.code == 0, ended.error
    assert "aa → bb" in inside("info", "out").out
    assert json.loads(inside("info", "out", "--json").out)["config"]["data"]["target_language"] == "bb"
    assert inside("translate", "-m", "out", "1 2").out.count("\n") == 1


def test_copying_needs_equal_pairs(inside: Inside, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(corpus.source.read_bytes())
    same = ["--source", corpus.source, "--target", "copy", "-o", "out", *TINY, "--steps", 2]
    inside("train", *same).refused("source = target")
    assert inside("train", *same, "--data.drop_identical=false").code == 0


def test_several_corpora_and_single_files(inside: Inside, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "more.tsv").write_text("a b c\tc b a\n" * 2 + "d e f\tf e d\n")
    (tmp_path / "more.aa").write_text("g h\ni j\n")
    (tmp_path / "more.bb").write_text("h g\nj i\n")
    more = ["--data", "more.tsv", "--source", "more.aa", "--target", "more.bb"]
    output = inside("prepare", *corpus.flags, *more, "--dry-run").out
    assert all(name in output for name in ("train.aa + train.bb", "more.aa + more.bb", "more.tsv", "duplicate"))


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_signal_saves_and_resume_continues(
    inside: Inside, corpus: Corpus, tmp_path: Path, kind: signal.Signals
) -> None:
    command = ["train", *corpus.flags, *TINY, "--training.schedule=constant", "-o", "out", "--resume"]
    program = subprocess.Popen(
        [*COMMAND, *command, "--steps", "1000000"], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 60
        while not any(event["event"] == "train" for event in log_of(tmp_path / "out")):
            assert program.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        program.send_signal(kind)
        _, error = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == 0, error.decode()
    assert f"Stopped by {kind.name}" in error.decode() and "Traceback" not in error.decode()
    assert inside("translate", "-m", "out", "1 2 3").out.count("\n") == 1
    steps = json.loads(inside("info", "out", "--json").out)["details"]["training"]["steps"]
    ended = inside(*command, "--steps", steps + 5)
    assert ended.code == 0
    assert f"Resuming from step {steps}." in ended.error
    assert json.loads(inside("info", "out", "--json").out)["details"]["training"]["steps"] == steps + 5


def test_resume_refuses_another_model(inside: Inside, corpus: Corpus, model: Path, tmp_path: Path) -> None:
    ended = inside("train", *corpus.flags, *TINY, "--steps", 2, "-o", "out")
    assert ended.code == 0, ended.error
    again = ["train", *corpus.flags, *TINY, "--steps", 4, "-o", "out", "--resume"]
    inside(*again, "--model.d_ff=48").refused("model.d_ff", "64", "48")
    inside(*again, "--data.max_characters=12").refused("data.max_characters", "12")
    assert "Resuming from step 2" in inside(*again).error


def test_init_from_finished_model(inside: Inside, corpus: Corpus, model: Path, tmp_path: Path) -> None:
    """By flag, with the shape and tokenizer of the model, from files and from data prepared with its tokenizer."""
    fine_tune = ["--init-from", model, "--device", "cpu", "--steps", 2, "--training.tokens_per_step=512"]
    fine_tune += ["--training.num_bleu_sentences=0", "--training.tensorboard=false"]
    shown = inside("train", *corpus.flags, *fine_tune, "-o", "tuned", "--dry-run")
    assert "d_model: 32" in shown.out and f"path: {model}" in shown.out and "preset: tiny" in shown.out
    ended = inside("train", *corpus.flags, *fine_tune, "-o", "tuned")
    assert ended.code == 0 and "Continuing from model, training on" in ended.error, ended.error
    assert "| started from | model |" in (tmp_path / "tuned" / "README.md").read_text()
    for name, flags in (("one", [f"--tokenizer.path={model}"]), ("two", ["--init-from", model])):
        prepared = inside("prepare", *corpus.flags, *flags, "-o", name)
        assert prepared.code == 0, prepared.error
        assert (f"--prepared two --init-from {model}" in prepared.error) is (name == "two"), prepared.error
        assert inside("train", "--prepared", name, *fine_tune, "-o", f"from-{name}").code == 0
    inside("train", *corpus.flags, *fine_tune, "--model.d_ff", 128, "-o", "out").refused("model.d_ff", "128", "64")
    inside("train", *corpus.flags, *fine_tune[2:], "--init-from", "modle", "-o", "out").refused("init_from", "modle")
    assert not (tmp_path / "out").exists()


def test_csv_with_header_is_a_corpus(inside: Inside, tmp_path: Path) -> None:
    rows = "".join(f'{number},"{number % 7} {number % 5}, {number}",{number} x\n' for number in range(200))
    (tmp_path / "pairs.csv").write_text(f"id,en,de\n{rows}")
    looked = inside("prepare", "--data", "pairs.csv", "--source-column", "en", "--target-column", "de", "--dry-run")
    assert looked.code == 0 and looked.out.splitlines()[1].split() == ["train", "pairs.csv", "201", "196", "4", "1"]
    flags = ["train", "--data", "pairs.csv", *TINY, "--steps", 2, "-o", "out", "-q"]
    inside(*flags).refused("pairs.csv", "--source-column")
    assert inside(*flags, "--source-column", "en", "--target-column", "de").code == 0
    inside("train", "--source", "pairs.csv", "--target", "pairs.csv", "-o", "new").refused("the same file", "--data")
    inside("train", "--source", "a", "--target", "b", "--source-column", "en").refused("--data")
