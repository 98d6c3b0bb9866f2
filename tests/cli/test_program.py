"""Help, version, and errors in flags and configuration files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.cli import PAPER, VERBS
from heedful.cli.overrides import complete_request, fold_dotted_flags, search_settings, settings_from_flags
from heedful.cli.paper import paper
from heedful.config import Config
from heedful.config_loading import build_config, from_mapping
from heedful.errors import ConfigError
from tests.cli.program import COMMAND, ENVIRONMENT, Corpus, Inside, run

PAPER_COMMANDS = sorted(typer.main.get_command(paper).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_every_verb(inside: Inside, arguments: list[str]) -> None:
    ended = inside(*arguments)
    assert ended.code == 0
    assert all(f" {verb} " in ended.out for verb in (*VERBS, PAPER))


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_one_example_per_line(inside: Inside, verb: str) -> None:
    ended = inside(verb, "--help")
    assert ended.code == 0
    examples = [line.strip() for line in ended.out.splitlines() if line.strip().startswith(f"heedful {verb} ")]
    assert examples
    assert all(line.count("heedful ") == 1 or "|" in line for line in examples)


@pytest.mark.parametrize("command", PAPER_COMMANDS)
def test_help_of_paper_commands_shows_examples(inside: Inside, command: str) -> None:
    assert f" {command} " in inside(PAPER, "--help").out
    ended = inside(PAPER, command, "--help")
    assert ended.code == 0
    assert any(f"{line.strip()} ".startswith(f"heedful {PAPER} {command} ") for line in ended.out.splitlines())


def test_version_flag_prints_the_version(inside: Inside) -> None:
    assert inside("--version").out == f"heedful {heedful.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tran"], ["'train'"]),
        (["train", "--stepz", "3"], ["--stepz", "'--steps'"]),
        (["train", "--d_model", "3"], ["'--model.d_model'"]),
        (["train", "--training.stepz=3"], ["--training.stepz", "'--training.steps'"]),
        (["train", "--trainng.steps", "3"], ["'--training.steps'"]),
        (["train", "--training.beam_size=3"], ["'--decoding.beam_size'"]),
        (["train", "--training.steps"], ["--training.steps needs a value"]),
        (["train", "--training.steps", "--quiet"], ["--training.steps needs a value"]),
        (["train", "--training.steps", "-o", "out"], ["--training.steps needs a value"]),
        (["train", "--training.learning_rate", "-1"], ["training.learning_rate must be above 0"]),
        (["train", "--set", "training.steps"], ["training.steps", "a value is missing"]),
        (["train", "-o", ""], ["output", "empty"]),
        (["train", "--training.steps=many"], ["training.steps", "a whole number", "'many'"]),
        (["train", "--training.schedule=cosin"], ["training.schedule", "'cosine'"]),
        (["train", "--steps", "many"], ["--steps"]),
        (["train", "--preset", "tinny"], ["'tiny'"]),
        (["train", "--source", "a"], ["--source", "--target"]),
        (["train", "--valid-target", "a"], ["--valid-source", "--valid-target"]),
        (["train"], ["no corpus", "--source"]),
        (["train", "--dry-run"], ["no corpus"]),
        (["train", "missing.yaml"], ["missing.yaml"]),
        (["train", "--prepared", "missing", "--steps", "1"], ["missing", "heedful prepare"]),
        (["prepare"], ["no corpus"]),
        (["translate", "words"], ["-m", "heedful train"]),
        (["translate", "-m", "missing", "words"], ["missing", "heedful train"]),
        (["translate", "--training.steps=3", "words"], ["decoding"]),
        (["translate", "--beam-sise=3", "words"], ["'--beam-size'"]),
        (["translate", "-i", "file", "words"], ["not both"]),
        (["translate", "--num-best", "2", "words"], ["--json"]),
        (["translate", "--align", "words"], ["--json"]),
        (["info", "missing"], ["missing"]),
        (["info"], ["no model is named", "heedful train"]),
        (["average", "one", "-o", "out"], ["two"]),
        (["average", "one", "two", "-o", "out"], ["one"]),
        (["score"], ["FILE"]),
        (["score", "missing", "-r", "missing"], ["missing"]),
        (["score", "-", "-r", "-"], ["standard input"]),
        (["evaluate", "-s", "-", "-t", "-"], ["standard input"]),
    ],
)
def test_contradictory_flags_are_one_line(
    inside: Inside, arguments: Sequence[str], words: Sequence[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("heedful.model_dir.registry.BUNDLED", tmp_path / "no bundled model")
    inside(*arguments).refused(*words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training: {stepz: 3}", ["training.stepz", "'steps'"]),
        ("trainin: {steps: 3}", ["trainin", "'training'"]),
        ("steps: 3", ["training.steps"]),
        ("training: [1, 2]", ["training"]),
        ("training: {steps: 3", ["line 1", "YAML"]),
        ("model: {d_model: 30, num_heads: 4}", ["divisible"]),
        ("data: {train: [{sauce: a}]}", ["data.train[0].sauce", "'source'"]),
        ("just words", ["sections"]),
        ("training: {steps: 3}\nmodel: {bias: true}\ntraining: {seed: 2}", ["line 3", "'training' is given twice"]),
        ("data: {train: [{source: a, target: b,\n source: c}]}", ["line 2", "'source' is given twice"]),
        ("name: &name [*name]", ["name"]),
    ],
)
def test_configuration_error_names_line_or_key(inside: Inside, text: str, words: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    inside("train", "config.yaml").refused(*words)
    inside("prepare", "config.yaml").refused(*words)


def test_binary_configuration_file(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes(b"name: \xff")
    inside("train", "config.yaml").refused("config.yaml", "UTF-8")


def test_dry_run_prints_effective_configuration(inside: Inside, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("training: {steps: 7, seed: 5}\nname: From the file\n")
    flags = ["--steps", 9, "--training.label_smoothing", "0.2", "--data.drop_identical=false", "-o", "there"]
    ended = inside("train", "config.yaml", *corpus.flags, *flags, "--dry-run")
    assert ended.code == 0 and ended.error == ""
    config = from_mapping(Config, yaml.safe_load(ended.out))
    assert (config.training.steps, config.training.seed, config.training.label_smoothing) == (9, 5, 0.2)
    assert (config.name, config.output, config.preset, config.model.d_model) == ("From the file", "there", "tiny", 128)
    assert (config.data.source_language, config.data.target_language) == ("aa", "bb")
    assert config.data.train[0].source == str(corpus.source)
    assert not config.data.drop_identical
    assert not (tmp_path / "there").exists()
    (tmp_path / "printed.yaml").write_text(ended.out)
    assert inside("train", "printed.yaml", "--dry-run").out == ended.out


@pytest.mark.parametrize(
    "verb", ["compare", "paper table1", "paper table2", "paper table3", "paper figures --only masks"]
)
def test_experiments_refuse_torchrun(
    inside: Inside, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():  # as torchrun sets them
        monkeypatch.setenv(name, value)
    files = corpus.flags if verb in ("compare", "paper table2", "paper table3") else []
    budget = ["--steps", 2, "--device", "cpu"] if verb == "compare" else []
    inside(*verb.split(), *files, *budget, "-o", "out").refused("runs in one process", "without torchrun")
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("LOCAL_RANK", "1")
    silent = inside(*verb.split(), *files, *budget, "-o", "out")
    assert (silent.code, silent.error) == (2, "")  # only the first rank reports it


def test_internal_error_keeps_traceback(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **more: object) -> None:
        raise ZeroDivisionError("a mistake in the program")

    monkeypatch.setattr("heedful.cli.models.info_rows", fail)
    monkeypatch.setattr("heedful.model_dir.describe", lambda directory: {})
    from heedful.cli import run as run_program

    with pytest.raises(ZeroDivisionError):
        run_program(["info", "."])


def test_interrupt_prints_no_traceback(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(directory: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heedful.model_dir.describe", interrupt)
    ended = inside("info", ".")
    assert (ended.code, ended.out, ended.error) == (130, "", "")


def test_system_errors_name_file(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(directory: Path) -> None:
        raise PermissionError(13, "Permission denied", "some/file")

    monkeypatch.setattr("heedful.model_dir.describe", refuse)
    inside("info", ".").refused("some/file", "Permission denied")


def test_program_from_checkout_with_c_locale(corpus: Corpus) -> None:
    assert run("--version").out.startswith("heedful ")
    assert "no flag" in run("train", "--nonsense", check=False).refused("--nonsense")


# ---- dotted flags ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "folded"),
    [
        (["--training.steps=5"], ["--set", "training.steps=5"]),
        (["--training.steps", "5", "x"], ["--set", "training.steps=5", "x"]),
        (["--training.learning-rate", "1e-3"], ["--set", "training.learning_rate=1e-3"]),
        (["--model.bias", "x.yaml"], ["--set", "model.bias=true", "x.yaml"]),
        (["--model.bias", "false"], ["--set", "model.bias=false"]),
        (["--training.compile"], ["--set", "training.compile=true"]),
        (["--name", "a.b", "--data.prepared="], ["--name", "a.b", "--set", "data.prepared="]),
        (["--", "--training.steps=5"], ["--", "--training.steps=5"]),
        (["1.5", "-m", "../model.1", "--to", "de"], ["1.5", "-m", "../model.1", "--to", "de"]),
    ],
)
def test_fold_dotted_flags(arguments: list[str], folded: list[str]) -> None:
    assert fold_dotted_flags(arguments) == folded


@given(st.text(), st.lists(st.sampled_from(["--quiet", "words", "-o", "out", "--", "--source=x"])))
def test_dotted_flag_value_is_unchanged(value: str, others: list[str]) -> None:
    folded = fold_dotted_flags([f"--training.device={value}", *others])
    assert folded == ["--set", f"training.device={value}", *others]
    assert settings_from_flags([folded[1]]) == {"training": {"device": value}}


def test_flag_priority(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("training: {steps: 1, seed: 2, epochs: 3}\ndata: {train: [{path: a.tsv}, {path: b.tsv}]}")
    changes = settings_from_flags(
        ["training.steps=30"], training__steps=20, training__seed=4, data__train=[{"path": "c.tsv"}]
    )
    config = build_config(complete_request(file, changes))
    assert (config.training.steps, config.training.seed, config.training.epochs) == (30, 4, 3)
    assert [corpus.path for corpus in config.data.train] == ["c.tsv"]


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("train.en", "train.de", ("en", "de")),
        ("train.en.gz", "train.zh-CN.xz", ("en", "zh-CN")),
        ("train.txt", "train.de", (None, None)),
        ("en", "de", (None, None)),
        ("a.en", "b.en", (None, None)),
        ("source.txt", "target.txt", (None, None)),
    ],
)
def test_languages_from_file_names(source: str, target: str, languages: tuple[str | None, str | None]) -> None:
    request = complete_request(None, {"data": {"train": [{"source": source, "target": target}]}})
    data = build_config(request).data
    assert (data.source_language, data.target_language) == languages
    named = complete_request(None, {"data": {"train": [{"source": source, "target": target}], "source_language": "x"}})
    assert named["data"]["source_language"] == "x"
    assert "target_language" not in named["data"]


def test_languages_are_not_guessed_from_mixed_file_names() -> None:
    corpora = [{"source": "a.en", "target": "a.de"}, {"source": "a.en", "target": "a.fr"}]
    assert build_config(complete_request(None, {"data": {"train": corpora}})).data.source_language is None


def test_search_takes_keys_of_decoding_only() -> None:
    assert search_settings(["decoding.split=never"], beam_size=3, method=None) == {"split": "never", "beam_size": 3}
    with pytest.raises(ConfigError, match="decoding"):
        search_settings(["model.bias=true"])


# ---- terminals -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_bars_and_no_color(corpus: Corpus) -> None:
    import pty

    above, below = pty.openpty()
    command = [*COMMAND, "prepare", *corpus.flags, "--dry-run"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=below, env=ENVIRONMENT, check=True)
    os.close(below)
    seen = b""
    while block := read_terminal(above):
        seen += block
    os.close(above)
    assert b"\x1b[2K" in seen and b"scanning the corpora" in seen
    assert b"\x1b[3" not in seen.replace(b"\x1b[39m", b"")
    assert b"\x1b" not in done.stdout and b"train.aa + train.bb" in done.stdout
    assert run("prepare", *corpus.flags, "--dry-run").error == "scanning the corpora …\n"


def read_terminal(descriptor: int) -> bytes:
    """Read from a pseudo-terminal; empty when the other end is closed."""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
