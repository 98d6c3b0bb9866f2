"""Saving a model directory is atomic, and loading verifies every byte."""

import dataclasses
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from heedful import model_dir
from heedful.build_model import build_model
from heedful.config import Config, CorpusConfig, DataConfig, ModelConfig, TokenizerConfig
from heedful.errors import ModelDirectoryError
from heedful.model_card import model_card
from heedful.model_dir import describe, load_model, load_weights, prepare_directory, save_model, verify
from heedful.model_dir import files as model_files
from heedful.model_dir.files import sha256
from heedful.model_dir.save_load import INITIAL_DIRECTIONS_KEY, check_details, load_arrays, read_record
from heedful.text.tokenizer import Tokenizer, train_tokenizer

PAIRS = [(f"the number {n} of house {n * 7 % 50}", f"die Zahl {n} vom Haus {n * 7 % 50}") for n in range(60)]
SCORE = {
    "name": "BLEU",
    "value": 31.4159,
    "signature": "nrefs:1|tok:13a|version:2.6.0",
    "interval": None,
    "data": "/x/t.de",
}
REPORT = {
    "corpora": [
        {
            "role": "train",
            "files": [{"path": "/home/me/secret/a.en", "num_bytes": 9, "sha256": "ab12"}],
            "num_read": 1234,
            "num_kept": 1200,
            "num_held_out": 4,
            "dropped": {"empty": 30, "duplicate": 0},
        }
    ]
}
DETAILS = {"training": {"steps": 50, "minutes": 1.5, "valid_loss": 2.25, "train_loss": float("nan")}, "data": REPORT}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    joint = train_tokenizer(PAIRS, TokenizerConfig(vocab_size=300))
    separate = train_tokenizer(PAIRS, TokenizerConfig(vocab_size=290, joint=False))
    return {"joint": joint, "separate": separate}


def config_for(tokenizer: Tokenizer, **model: Any) -> Config:
    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": tokenizer.target_vocab_size}
    shape: dict[str, Any] = {"d_model": 8, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
    tying = {"tying": "three_way" if tokenizer.joint else "target"}
    data = DataConfig(
        train=(CorpusConfig(source="/home/me/secret/a.en", target="/home/me/secret/a.de"),),
        source_language="en",
        target_language="de",
    )
    tokenizer_config = TokenizerConfig(joint=tokenizer.joint)
    return Config(data=data, tokenizer=tokenizer_config, model=ModelConfig(**{**sizes, **shape, **tying, **model}))


def save(directory: Path, tokenizer: Tokenizer, *, fill: float | None = None, **model: Any) -> None:
    """Save a tiny model; `fill` sets all weights to one value, which identifies the save."""
    config = config_for(tokenizer, **model)
    built = build_model(config.model)
    if fill is not None:
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.fill_(fill)
    details = {**DETAILS, "fill": fill}
    save_model(directory, weights=built, config=config, tokenizer=tokenizer, details=details, scores=[SCORE])


def seal(directory: Path) -> None:
    """Update `checksums.json` to match changed files, as an attacker would."""
    path = directory / "checksums.json"
    plain = json.loads(path.read_text("utf-8"))
    for name, entry in plain["files"].items():
        entry.update(size=(directory / name).stat().st_size, sha256=sha256(directory / name))
    path.write_text(json.dumps(plain), "utf-8")


@pytest.fixture
def saved(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> Path:
    save(tmp_path / "model", tokenizers["joint"], fill=1.0)
    return tmp_path / "model"


@pytest.mark.parametrize("kind", ["joint", "separate"])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_save_load_round_trip(tmp_path: Path, tokenizers: dict[str, Tokenizer], kind: str, norm: str) -> None:
    tokenizer = tokenizers[kind]
    config = config_for(tokenizer, norm=norm)
    model = build_model(config.model)
    save_model(tmp_path / "m", weights=model, config=config, tokenizer=tokenizer, details=DETAILS)
    state = torch.get_rng_state()
    loaded = load_model(tmp_path / "m")
    assert torch.equal(torch.get_rng_state(), state)
    assert loaded.config == config and not loaded.model.training
    assert loaded.details["training"]["valid_loss"] == 2.25 and loaded.details["training"]["train_loss"] is None
    assert loaded.tokenizer.encode_target("die Zahl 3") == tokenizer.encode_target("die Zahl 3")
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor), name
    assert load_model(tmp_path / "m", dtype=torch.bfloat16).model.source_embedding.weight.dtype == torch.bfloat16
    expected = {"config.json", "model.safetensors", "README.md", "checksums.json", "tokenizer.json"}
    expected |= {"tokenizer.model"} if kind == "joint" else {"source.model", "target.model"}
    assert set(os.listdir(tmp_path / "m")) == expected
    assert set(verify(tmp_path / "m")) == expected - {"checksums.json"}
    assert len({path.stat().st_mode for path in (tmp_path / "m").iterdir()}) == 1


def test_half_precision_is_stored_as_float32(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    config = config_for(tokenizers["joint"])
    weights = {name: tensor.bfloat16() for name, tensor in build_model(config.model).state_dict().items()}
    save_model(tmp_path, weights=weights, config=config, tokenizer=tokenizers["joint"])
    stored = load_weights(tmp_path)
    assert {tensor.dtype for tensor in stored.values()} == {torch.float32}
    assert all(torch.equal(stored[name], tensor.float()) for name, tensor in weights.items())
    save_model(tmp_path, weights=stored, config=config, tokenizer=tokenizers["joint"])


class Tied(torch.nn.Module):
    """Two names share one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.output = torch.nn.Linear(4, 5, bias=False)
        self.output.weight = self.embedding.weight


@pytest.mark.parametrize("copied", [False, True])
def test_tied_weights_are_stored_once(
    tmp_path: Path, tokenizers: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    monkeypatch.setattr("heedful.build_model.build_model", lambda config: Tied())
    model, config = Tied(), config_for(tokenizers["joint"], architecture="recurrent")
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()} if copied else model
    save_model(tmp_path, weights=weights, config=config, tokenizer=tokenizers["joint"])
    assert list(load_weights(tmp_path)) == ["embedding.weight"]
    loaded: Any = load_model(tmp_path).model
    assert loaded.output.weight is loaded.embedding.weight
    assert torch.equal(loaded.output.weight, model.output.weight)


def test_wrapped_model_is_unwrapped(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    config = config_for(tokenizers["joint"])
    model = build_model(config.model)
    wrapper = torch.nn.Module()
    wrapper.add_module("_orig_mod", model)
    save_model(tmp_path, weights=wrapper, config=config, tokenizer=tokenizers["joint"])
    assert set(load_weights(tmp_path)) == set(model.state_dict())


def test_mismatched_weights_are_not_saved(saved: Path, tokenizers: dict[str, Tokenizer]) -> None:
    config = config_for(tokenizers["joint"])
    with pytest.raises(ModelDirectoryError, match=r"lacks .*has unknown odd"):
        save_model(saved, weights={"odd": torch.zeros(2)}, config=config, tokenizer=tokenizers["joint"])
    small = dataclasses.replace(
        config, model=dataclasses.replace(config.model, source_vocab_size=9, target_vocab_size=9)
    )
    with pytest.raises(ModelDirectoryError, match="source ids but the model only 9"):
        save_model(saved, weights=build_model(small.model), config=small, tokenizer=tokenizers["joint"])
    assert load_model(saved).details["fill"] == 1.0


# ---------------------------------------------------------------- damage

FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer.model", "README.md", "checksums.json"]
BELIEVED = [name for name in FILES if name != "README.md"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_truncated_files_are_refused(saved: Path, name: str, part: float) -> None:
    os.truncate(saved / name, int((saved / name).stat().st_size * part))
    refused_by_all(saved, name)


@pytest.mark.parametrize("name", FILES)
def test_flipped_bytes_are_refused(saved: Path, name: str) -> None:
    whole = (saved / name).read_bytes()
    for position in range(0, len(whole), max(1, len(whole) // 20)):
        if whole[position : position + 1].isspace():
            continue
        (saved / name).write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(ModelDirectoryError):
            verify(saved)
    (saved / name).write_bytes(whole)
    load_model(saved)
    (saved / name).write_bytes(b"?" + whole[1:])
    refused_by_all(saved, name)


@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    refused_by_all(saved, name)


def refused_by_all(saved: Path, name: str) -> None:
    """Every reader refuses and names the file; only the card, which people edit, is left to `verify`."""
    with pytest.raises(ModelDirectoryError, match=name):
        verify(saved)
    if name in BELIEVED:
        with pytest.raises(ModelDirectoryError, match=name):
            load_model(saved)
    else:
        load_model(saved)


def alter_config(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    plain = json.loads((directory / "config.json").read_text("utf-8"))
    change(plain)
    (directory / "config.json").write_text(json.dumps(plain), "utf-8")
    seal(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(extra=1), "unknown key 'extra'"),
        (lambda c: c.pop("details"), "'details' is missing"),
        (lambda c: c.update(details=[]), "details: expected"),
        (lambda c: c["config"]["model"].update(d_modle=3), r"config\.model\.d_modle: unknown key.*d_model"),
        (lambda c: c["config"]["model"].update(d_model="wide"), r"config\.model\.d_model: expected"),
        (lambda c: c.update(config=3), r"config\.configuration: expected"),
        (lambda c: c.update(format_version=3), "newer heedful .*upgrade"),
        (lambda c: c.update(format_version="1"), "format_version is '1'"),
        (lambda c: c.update(format="other"), "does not describe a heedful model"),
        (lambda c: c["config"]["model"].update(d_ff=32), r"wrong shape for .*\(\(16,\) instead of \(32,\)\)"),
        (lambda c: c["config"]["model"].update(num_decoder_layers=2), r"lacks decoder\.layers\.1\."),
        (lambda c: c["config"]["model"].update(bias=False), "has unknown .* and .* more"),
        (lambda c: c["config"]["model"].update(source_vocab_size=9, target_vocab_size=9), "ids but the model only 9"),
    ],
)
def test_invalid_config_is_refused(saved: Path, change: Callable[[Any], None], message: str) -> None:
    alter_config(saved, change)
    with pytest.raises(ModelDirectoryError, match=message):
        load_model(saved)


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickle_is_refused(saved: Path, protocol: int) -> None:
    (saved / "model.safetensors").write_bytes(pickle.dumps(Harm(), protocol=protocol))
    seal(saved)
    for read in (load_model, load_weights, describe):
        with pytest.raises(ModelDirectoryError, match=r"model\.safetensors is a pickle"):
            read(saved)


@pytest.mark.parametrize(
    "content",
    [b"", b"abc", b"\xff" * 8 + b"{}", b"\x02" + b"\0" * 7 + b"[]", b"\x09" + b"\0" * 7 + b'{"a": 3}X'],
)
def test_invalid_safetensors_file_is_refused(saved: Path, content: bytes) -> None:
    (saved / "model.safetensors").write_bytes(content)
    seal(saved)
    with pytest.raises(ModelDirectoryError, match=r"model\.safetensors is not a safetensors file"):
        load_model(saved)


def test_invalid_safetensors_header_is_refused(saved: Path) -> None:
    whole = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(whole[:-8])
    seal(saved)
    with pytest.raises(ModelDirectoryError, match=r"model\.safetensors is damaged"):
        load_model(saved)


def test_wrong_tensors_are_named(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    moved = {("bogus" if name == "source_embedding.weight" else name): tensor for name, tensor in tensors.items()}
    save_file(moved, saved / "model.safetensors")
    seal(saved)
    with pytest.raises(ModelDirectoryError, match=r"lacks source_embedding\.weight; it has unknown bogus"):
        load_model(saved)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.model", "checksums.json"])
def test_symbolic_links_are_refused(saved: Path, tmp_path: Path, name: str) -> None:
    shutil.move(saved / name, tmp_path / "elsewhere")
    (saved / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelDirectoryError, match=f"{name} is a symbolic link"):
        load_model(saved)


@pytest.mark.parametrize(
    "name", ["../config.json", "/etc/passwd", "model.bin", "training/state.json", "checksums.json"]
)
def test_unknown_file_names_are_refused(saved: Path, name: str) -> None:
    plain = json.loads((saved / "checksums.json").read_text("utf-8"))
    plain["files"][name] = plain["files"]["config.json"]
    (saved / "checksums.json").write_text(json.dumps(plain), "utf-8")
    with pytest.raises(ModelDirectoryError, match="names a file that no model directory has"):
        load_model(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format_version=7), "newer heedful .*upgrade"),
        (lambda c: c.update(format_version=None), "format_version is None"),
        (lambda c: c.update(more=1), "not a list of checksums"),
        (lambda c: c["files"].pop("config.json"), "does not name config.json"),
        (lambda c: c["files"].pop("tokenizer.model"), r"tokenizer\.model is not part of this model"),
        (lambda c: c["files"]["config.json"].pop("size"), r"damaged at 'config\.json'"),
        (lambda c: c["files"]["config.json"].update(size="1"), r"damaged at 'config\.json'"),
        (lambda c: c["files"].update({"config.json": 3}), r"damaged at 'config\.json'"),
    ],
)
def test_invalid_checksums_are_refused(saved: Path, change: Callable[[Any], None], message: str) -> None:
    plain = json.loads((saved / "checksums.json").read_text("utf-8"))
    change(plain)
    (saved / "checksums.json").write_text(json.dumps(plain), "utf-8")
    with pytest.raises(ModelDirectoryError, match=message):
        load_model(saved)


def test_unlisted_model_file_is_refused(saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    (saved / "training").mkdir()
    load_model(saved)
    (saved / "source.model").write_text("stray")
    with pytest.raises(ModelDirectoryError, match=r"source\.model is not part of this model"):
        load_model(saved)


def test_damaged_tokenizer_is_refused(saved: Path) -> None:
    (saved / "tokenizer.model").write_bytes(b"\x0a\xff\xff\xff\x0f" + b"x" * 50)
    seal(saved)
    with pytest.raises(ModelDirectoryError, match="tokenizer"):
        load_model(saved)


@pytest.mark.parametrize("read", [load_model, load_weights, verify, describe])
def test_errors_for_other_directories(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    def refused(path: Path, message: str) -> None:
        with pytest.raises(ModelDirectoryError, match=message):
            read(path)

    refused(tmp_path / "nowhere", "no such directory")
    (tmp_path / "a.en").write_text("hello\n")
    refused(tmp_path / "a.en", "is not a directory")
    refused(tmp_path, r"not a model directory .*found a\.en")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "is empty")
    (tmp_path / "young" / "training").mkdir(parents=True)
    refused(tmp_path / "young", "no model yet")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "marian"}')
    refused(tmp_path / "other", "not a model directory")


def test_unreadable_files_are_one_message(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("heedful.model_dir.files.sha256", forbidden)
    with pytest.raises(ModelDirectoryError, match=r"cannot read the model: .*Permission denied"):
        load_model(saved)


# ---------------------------------------------------------------- saving


class Killed(BaseException):
    """Simulates kill -9: no code may catch it or clean up."""


OPERATIONS = ("replace", "unlink", "rmdir", "mkdir", "fsync")


def die_at(monkeypatch: pytest.MonkeyPatch, moment: int | None) -> list[str]:
    """Stop the process before its n-th file operation; return the names of the completed ones."""
    done: list[str] = []

    def wrap(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if len(done) == moment:
                raise Killed
            done.append(name)
            return operation(*arguments, **named)

        return wrapped

    for name in OPERATIONS:
        monkeypatch.setattr(os, name, wrap(name, getattr(os, name)))
    return done


@pytest.mark.parametrize("kinds", [("joint", "joint"), ("joint", "separate"), ("separate", "joint")])
def test_killed_save_leaves_old_or_new_model(
    tmp_path: Path, tokenizers: dict[str, Tokenizer], kinds: tuple[str, str]
) -> None:
    before, after = (tokenizers[kind] for kind in kinds)
    seen = []
    for moment in range(200):
        directory = tmp_path / str(moment)
        save(directory, before, fill=1.0)
        (directory / "training").mkdir()
        (directory / "training" / "log.jsonl").write_text("kept")
        (directory / "notes.txt").write_text("mine")
        with pytest.MonkeyPatch.context() as patch:
            done = die_at(patch, moment)
            try:
                save(directory, after, fill=2.0)
            except Killed:
                pass
            else:
                assert len(done) <= moment
                break
        seen.append(check_whole(directory, before, after))
        save(directory, after, fill=3.0)
        assert check_whole(directory, after, after) == 3.0
        assert not any(name.startswith(".") for name in os.listdir(directory))
        assert (directory / "training" / "log.jsonl").read_text() == "kept"
        assert (directory / "notes.txt").read_text() == "mine"
        shutil.rmtree(directory)
    assert len(seen) > 15 and seen == sorted(seen) and set(seen) == {1.0, 2.0}


def check_whole(directory: Path, before: Tokenizer, after: Tokenizer) -> float:
    """Identify the save in a directory, after checking that all files belong to it."""
    verify(directory)
    loaded = load_model(directory)
    fill = float(loaded.details["fill"])
    assert all(bool((parameter == fill).all()) for parameter in loaded.model.parameters())
    assert loaded.tokenizer.joint == (before if fill == 1.0 else after).joint
    assert describe(directory)["details"]["fill"] == fill
    return fill


def test_killed_first_save_leaves_no_model(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        die_at(patch, 3)
        with pytest.raises(Killed):
            save(tmp_path / "m", tokenizers["joint"])
    with pytest.raises(ModelDirectoryError, match="no model yet"):
        load_model(tmp_path / "m")
    save(tmp_path / "m", tokenizers["joint"], fill=4.0)
    assert load_model(tmp_path / "m").details["fill"] == 4.0


def test_full_disk_keeps_old_model(
    saved: Path, tokenizers: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Tokenizer, directory: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Tokenizer, "save", full)
    with pytest.raises(ModelDirectoryError, match=r"cannot save the model: .*No space left"):
        save(saved, tokenizers["joint"], fill=2.0)
    assert load_model(saved).details["fill"] == 1.0
    assert ".saving" not in os.listdir(saved)


def test_readers_see_complete_models_during_saves(saved: Path, tokenizers: dict[str, Tokenizer]) -> None:
    problems: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(2, 14):
                save(saved, tokenizers["joint" if number % 2 else "separate"], fill=float(number))
        except BaseException as problem:
            problems.append(problem)

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while writer.is_alive():
        loaded = load_model(saved)
        fill = loaded.details["fill"]
        assert all(bool((parameter == fill).all()) for parameter in loaded.model.parameters())
        assert loaded.tokenizer.joint == bool(fill % 2)
        seen.add(fill)
    writer.join()
    assert not problems and seen
    assert load_model(saved).details["fill"] == 13.0


def test_foreign_files_are_never_overwritten(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    (tmp_path / "README.md").write_text("my project")
    for attempt in (lambda: prepare_directory(tmp_path), lambda: save(tmp_path, tokenizers["joint"])):
        with pytest.raises(ModelDirectoryError, match=r"holds README\.md .*choose another"):
            attempt()
    assert (tmp_path / "README.md").read_text() == "my project"
    with pytest.raises(ModelDirectoryError, match="cannot make this directory"):
        prepare_directory(tmp_path / "README.md")


# ---------------------------------------------------------------- describing


def test_describe_needs_no_torch(saved: Path) -> None:
    description = describe(saved)
    assert description["num_parameters"] == sum(tensor.numel() for tensor in load_weights(saved).values())
    assert description["dtypes"] == ["F32"] and description["config"]["data"]["source_language"] == "en"
    assert description["details"]["scores"] == [SCORE] and description["files"]["config.json"]["sha256"] == sha256(
        saved / "config.json"
    )
    program = (
        f"import sys; from heedful.model_dir import describe; describe({str(saved)!r}); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_card_contents_without_local_paths(saved: Path) -> None:
    card = (saved / "README.md").read_text("utf-8")
    front = yaml.safe_load(card.split("---")[1])
    assert front["language"] == ["en", "de"] and front["metrics"] == ["bleu"] and front["license"] == "unknown"
    parts = [
        "en → de",
        "not stated",
        "31.42",
        SCORE["signature"],
        "a.en",
        "`ab12`",
        "1,234",
        "1,200",
        "30 empty",
        "t.de",
    ]
    parts += [
        "d_model: 8",
        "valid loss | 2.25",
        "sentencepiece | 0.",
        f"torch | {torch.__version__[:4]}",
        "Translator.load",
    ]
    for part in parts:
        assert str(part) in card.replace("\\|", "|"), part
    assert "train loss" not in card and "0 duplicate" not in card and str(saved) not in card
    assert "| secret/a.en | `ab12` |" in card and "home" not in card and "me/" not in card
    configuration = yaml.safe_load(card.split("```yaml")[1].split("```")[0])
    assert configuration["data"]["train"][0]["source"] == "secret/a.en"


def test_card_distinguishes_equal_file_names() -> None:
    """Files are distinguished by one or two parent folders, never by an absolute path."""
    paths = ["/x/europarl-en-de/train.en", "/x/wikimatrix/train.en", "/x/a/en-de/train.en", "/x/b/en-de/train.en"]
    files = [{"path": path, "sha256": str(number)} for number, path in enumerate(paths)]
    corpora = [{"role": "train", "files": [file]} for file in files]
    data = DataConfig(train=tuple(CorpusConfig(source=path, target="train.de") for path in paths))
    scores = [{"name": "BLEU", "value": 1.0, "signature": "s", "data": "/x/y/test.en + test.de into de"}]
    card = model_card(Config(data=data), {"data": {"corpora": corpora}}, scores)
    named = ["europarl-en-de/train.en", "wikimatrix/train.en", "a/en-de/train.en", "b/en-de/train.en"]
    for number, name in enumerate(named):
        assert f"| train | {name} |" in card and f"| {name} | `{number}` |" in card
    assert "| y/test.en + test.de into de |" in card and "/x" not in card
    configuration = yaml.safe_load(card.split("```yaml")[1].split("```")[0])
    assert [corpus["source"] for corpus in configuration["data"]["train"]] == named
    assert {corpus["target"] for corpus in configuration["data"]["train"]} == {"train.de"}


def test_card_without_details_and_with_unusual_names() -> None:
    plain = model_card(Config(), {}, [])
    assert "not been scored" in plain and "The data is not stated." in plain and "Not stated." in plain
    odd = model_card(Config(name="a | <b>\n# c: [d", licence="CC-BY-4.0"), {"data": None}, [])
    assert "\n# a \\| &lt;b> # c: [d\n" in odd and yaml.safe_load(odd.split("---")[1])["license"] == "CC-BY-4.0"


def test_card_explains_target_language_flag() -> None:
    pairs = [CorpusConfig(source="a", target="b", source_language="en", target_language=code) for code in ("de", "zh")]
    several, one = (model_card(Config(data=DataConfig(train=tuple(train))), {}, []) for train in (pairs, pairs[:1]))
    assert 'translate(["A sentence."], target_language="de")[0]' in several and '--to de "A sentence."' in several
    assert 'translate(["A sentence."])[0]' in one and "--to" not in one


def test_edited_card_is_allowed(saved: Path) -> None:
    (saved / "README.md").write_text("# My words")
    load_model(saved)
    describe(saved)
    with pytest.raises(ModelDirectoryError, match=r"README\.md"):
        verify(saved)


def test_public_names() -> None:
    assert all(hasattr(model_dir, name) for name in model_dir.__all__)


def test_interrupted_shortlist_is_repaired(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save killed while moving files out of `.saved` is completed by the next save, which then saves its own."""
    from heedful.model_dir.shortlist import Shortlist, read_shortlist, save_shortlist

    config = load_model(saved).config.model
    starts = np.zeros(config.source_vocab_size + 1, dtype=np.int64)
    shortlist = Shortlist(starts, np.zeros(0, np.int32), np.arange(4, dtype=np.int32), {}, None)
    with monkeypatch.context() as patched:
        patched.setattr("heedful.model_dir.files._install_saved", lambda directory: None)
        save_shortlist(saved, shortlist)
    assert (saved / ".saved/README.md").exists()
    save_shortlist(saved, shortlist)
    assert not (saved / ".saved").exists() and read_shortlist(saved) is not None


def test_full_disk_error_names_file(tmp_path: Path) -> None:
    from heedful.model_dir.weights import save_tensors

    with pytest.raises(OSError, match="nowhere/file"):
        save_tensors(save_file, {"a": torch.zeros(3)}, tmp_path / "nowhere/file")


def test_read_interrupted_by_save_is_repeated(saved: Path, tokenizers: dict[str, Tokenizer]) -> None:
    """A read that overlaps a save would mix two models."""
    seen: list[float] = []

    def read(files: model_files.ModelFiles) -> float:
        fill = read_record(files)[1]["fill"]
        if not seen:
            save(saved, tokenizers["joint"], fill=2.0)
        seen.append(fill)
        return fill

    assert model_files.read_consistent(saved, read) == 2.0
    assert seen == [1.0, 2.0]


def test_too_long_header_is_refused_before_parsing(saved: Path) -> None:
    contents = (saved / "model.safetensors").read_bytes()
    length = int.from_bytes(contents[:8], "little")
    padded = contents[8 : 8 + length] + b" " * 5_000_000
    (saved / "model.safetensors").write_bytes(len(padded).to_bytes(8, "little") + padded + contents[8 + length :])
    seal(saved)
    for read in (load_model, describe):
        with pytest.raises(ModelDirectoryError, match=r"header has .* are allowed"):
            read(saved)


def test_arrays_of_changed_weights_are_refused(saved: Path) -> None:
    weights = bytearray((saved / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (saved / "model.safetensors").write_bytes(weights)
    with pytest.raises(ModelDirectoryError, match="contents are not what was saved"):
        load_arrays(saved)
    assert load_arrays(saved, with_weights=False).weights == {}


DETAILS_OF_EACH_KIND = {
    "data": {"corpora": [{}]},
    "training": {INITIAL_DIRECTIONS_KEY: [["en", "de"]]},
    "lengths": {"mean": 1.5, "longest": 7},
    "scores": [{}],
    "num_parameters": 7,
    "of the user": [],
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("data", 1, "data"),
        ("data", {"corpora": 1}, r"data\.corpora"),
        ("data", {"corpora": [1]}, r"data\.corpora"),
        ("training", 1, "training"),
        ("training", {INITIAL_DIRECTIONS_KEY: 1}, INITIAL_DIRECTIONS_KEY),
        ("training", {INITIAL_DIRECTIONS_KEY: [["en"]]}, INITIAL_DIRECTIONS_KEY),
        ("training", {INITIAL_DIRECTIONS_KEY: ["en"]}, INITIAL_DIRECTIONS_KEY),
        ("lengths", [1], "lengths"),
        ("lengths", {"mean": "1"}, "lengths"),
        ("scores", {"a": 1}, "scores"),
        ("scores", [1], "scores"),
        ("num_parameters", 7.0, "num_parameters"),
    ],
)
def test_details_of_other_kinds_are_refused(name: str, value: Any, message: str) -> None:
    check_details({}, Path("here"))
    check_details(DETAILS_OF_EACH_KIND, Path("here"))
    with pytest.raises(ModelDirectoryError, match=rf"^here: details\.{message}|^here: details\..*{message}"):
        check_details({**DETAILS_OF_EACH_KIND, name: value}, Path("here"))
