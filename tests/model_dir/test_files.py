"""The files of a model directory: names, sizes, shards, and what the list of checksums must contain."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import ConfigError, ModelDirectoryError
from heedful.model_dir import files as model_files
from heedful.model_dir.files import (
    CHECKSUMS,
    CONFIG,
    INDEX,
    MAX_BYTES,
    MAX_SHARDS,
    NEWEST_VERSION,
    SAVED,
    SAVING,
    TOKENIZER,
    WEIGHTS,
    ModelFiles,
    check_complete,
    check_version,
    is_weights,
    locate,
    prepare_directory,
    read_consistent,
    read_regular,
    replace_files,
    sha256,
    shard_bytes,
    shard_index,
    shard_names,
    split_into_shards,
)

MODEL = {CONFIG: '{"format": "heedful-model", "format_version": 1}', TOKENIZER[0]: "{}", WEIGHTS: "weights"}
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def save(directory: Path, contents: dict[str, str]) -> None:
    def write(folder: Path) -> None:
        for name, text in contents.items():
            (folder / name).write_text(text)

    replace_files(directory, write)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(tmp_path / "model", MODEL)
    return tmp_path / "model"


def test_saved_files_are_listed_with_size_and_checksum(model: Path) -> None:
    listed = json.loads((model / CHECKSUMS).read_text())
    assert listed["format_version"] == 1
    expected = {name: {"size": len(text), "sha256": sha256(model / name)} for name, text in MODEL.items()}
    assert listed["files"] == expected
    assert sorted(path.name for path in model.iterdir()) == sorted([*MODEL, CHECKSUMS])
    files = locate(model)
    assert files.paths == {name: model / name for name in MODEL}
    assert files.weights == (WEIGHTS,) and files.unexpected == () and files.version == 1
    assert files.weights_checksum == expected[WEIGHTS]["sha256"]


def test_files_of_an_unfinished_move_are_found_in_both_places(model: Path) -> None:
    """The state left by a process killed after it moved the first file."""
    (model / SAVED).mkdir()
    for name in (CHECKSUMS, TOKENIZER[0], WEIGHTS):
        (model / name).rename(model / SAVED / name)
    (model / INDEX).touch()  # of the old model
    files = locate(model)
    assert files.paths[CONFIG] == model / CONFIG and files.paths[WEIGHTS] == model / SAVED / WEIGHTS
    assert files.unexpected == ()
    files.check(files.entries)
    save(model, {**MODEL, WEIGHTS: "others"})
    assert sorted(path.name for path in model.iterdir()) == sorted([*MODEL, CHECKSUMS])
    assert (model / WEIGHTS).read_text() == "others"


def test_save_replaces_old_files_and_keeps_files_of_the_user(model: Path) -> None:
    (model / "notes.txt").write_text("mine")
    save(model, {CONFIG: MODEL[CONFIG], TOKENIZER[0]: "{}", INDEX: "{}", **dict.fromkeys(SHARDS, "part")})
    assert not (model / WEIGHTS).exists() and (model / "notes.txt").read_text() == "mine"
    assert locate(model).weights == tuple(SHARDS)


def test_save_refuses_unknown_names_and_keeps_the_old_model(model: Path) -> None:
    with pytest.raises(ValueError, match=r"no place for notes\.txt"):
        save(model, {**MODEL, "notes.txt": "x"})
    files = locate(model)
    files.check(files.entries)


def test_leftover_of_a_killed_save_is_removed(model: Path) -> None:
    (model / SAVING).mkdir()
    (model / SAVING / INDEX).write_text("half")
    save(model, MODEL)
    assert not (model / SAVING).exists() and not (model / INDEX).exists()


@pytest.mark.parametrize("name", [SAVING, SAVED])
def test_save_refuses_linked_folders(model: Path, tmp_path: Path, name: str) -> None:
    save(tmp_path / "other", MODEL)
    (model / name).symlink_to(tmp_path / "other")
    with pytest.raises(ModelDirectoryError, match="symbolic link"):
        save(model, MODEL)
    assert (tmp_path / "other" / CHECKSUMS).exists()


def test_checksums_and_folders_are_flushed_before_the_rename(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    original = model_files.rename_durably
    monkeypatch.setattr(model_files, "fsync_path", lambda path: events.append(f"flush {path.name}"))
    monkeypatch.setattr(
        model_files, "rename_durably", lambda old, new: (events.append(f"rename {old.name}"), original(old, new))
    )
    save(model, MODEL)
    flushed = [f"flush {name}" for name in (*sorted(MODEL), CHECKSUMS, SAVING)]
    assert events == [*flushed, f"rename {SAVING}", "flush model", f"rename {CHECKSUMS}"]


@pytest.mark.parametrize("taken", [WEIGHTS, CHECKSUMS + ".x", "README.md", "notes.txt"])
def test_directory_with_foreign_files_of_known_names_is_refused(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    if model_files.is_known(taken):
        with pytest.raises(ModelDirectoryError, match=f"holds {taken} which are not part of a model"):
            prepare_directory(tmp_path)
    else:
        assert prepare_directory(tmp_path) == tmp_path


def test_directory_with_only_the_config_of_a_model_may_be_overwritten(tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text(MODEL[CONFIG])
    assert prepare_directory(tmp_path) == tmp_path
    for text in ("[]", '{"format": "other"}', "{"):
        (tmp_path / CONFIG).write_text(text)
        with pytest.raises(ModelDirectoryError, match="not part of a model"):
            prepare_directory(tmp_path)


def refused(model: Path, message: str) -> None:
    with pytest.raises(ModelDirectoryError, match=message):
        locate(model).check(MODEL)


def test_size_contents_and_kind_of_files_are_checked(model: Path, tmp_path: Path) -> None:
    weights = model / WEIGHTS
    weights.write_text("Weights")
    refused(model, "the contents are not what was saved")
    for text in ("weight", "weights+"):
        weights.write_text(text)
        refused(model, f"has {len(text)} bytes instead of 7")
    weights.unlink()
    refused(model, "is missing")
    weights.symlink_to(tmp_path / "elsewhere")
    refused(model, "is a symbolic link")
    weights.unlink()
    os.mkfifo(weights)
    refused(model, "is not a file")


def test_files_up_to_the_limit_are_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(MODEL[CONFIG])
    monkeypatch.setitem(MAX_BYTES, CONFIG, size)
    locate(model).check(MODEL)
    monkeypatch.setitem(MAX_BYTES, CONFIG, size - 1)
    refused(model, rf"{CONFIG} has {size} bytes; at most {size - 1} are allowed")
    assert read_regular(model / CONFIG, size).decode() == MODEL[CONFIG]
    with pytest.raises(ModelDirectoryError, match=f"at most {size - 1} are allowed"):
        read_regular(model / CONFIG, size - 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda listed: [], "not a list of checksums"),
        (lambda listed: {**listed, "more": 1}, "not a list of checksums"),
        (lambda listed: {**listed, "files": []}, "not a list of checksums"),
        (lambda listed: {**listed, "format_version": 0}, "format_version is 0"),
        (lambda listed: {**listed, "format_version": True}, "format_version is True"),
        (lambda listed: {**listed, "files": {**listed["files"], CONFIG: []}}, "is damaged at 'config.json'"),
        (lambda listed: {**listed, "files": {**listed["files"], CONFIG: {"size": 1}}}, "is damaged at 'config.json'"),
        (
            lambda listed: {**listed, "files": {**listed["files"], CONFIG: {"size": 1.0, "sha256": ""}}},
            "is damaged at 'config.json'",
        ),
        (
            lambda listed: {**listed, "files": {**listed["files"], CONFIG: {"size": 1, "sha256": 1}}},
            "is damaged at 'config.json'",
        ),
        (lambda listed: {**listed, "files": {WEIGHTS: listed["files"][WEIGHTS]}}, "does not name config.json, token"),
    ],
)
def test_damaged_list_of_checksums_is_refused(model: Path, change: Callable[[Any], Any], message: str) -> None:
    listed = json.loads((model / CHECKSUMS).read_text())
    (model / CHECKSUMS).write_text(json.dumps(change(listed)))
    refused(model, message)


def test_versions_up_to_the_newest_are_read(tmp_path: Path) -> None:
    for version in range(1, NEWEST_VERSION + 1):
        check_version(tmp_path, {"format_version": version})
    with pytest.raises(ModelDirectoryError, match="written by a newer heedful"):
        check_version(tmp_path, {"format_version": NEWEST_VERSION + 1})


def test_unexpected_files_are_refused(model: Path) -> None:
    (model / INDEX).touch()
    assert locate(model).unexpected == (INDEX,)
    with pytest.raises(ModelDirectoryError, match=f"{INDEX} is not part of this model"):
        locate(model).check_unexpected()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "is empty"),
        (["training"], "unfinished training run"),
        ([SAVING], "unfinished training run"),
        (list("abcd"), r"found a, b, c, d\)"),
        (list("abcde"), r"found a, b, c, d, …\)"),
        ([TOKENIZER[0]], r"found tokenizer\.json\)"),
        ([WEIGHTS], r"found model\.safetensors\)"),
        ([TOKENIZER[0], WEIGHTS], "this file of the model is missing"),
    ],
)
def test_other_directories_are_described(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ModelDirectoryError, match=message):
        locate(tmp_path)


def test_read_is_repeated_while_the_model_is_replaced(model: Path) -> None:
    calls = []

    def read(files: ModelFiles) -> str:
        calls.append(files)
        if len(calls) < 3:
            save(model, {**MODEL, WEIGHTS: f"weights {len(calls)}"})
        if len(calls) == 1:
            raise ValueError("half read")
        return files.paths[WEIGHTS].read_text()

    assert read_consistent(model, read) == "weights 2" and len(calls) == 3


def test_endless_replacement_is_an_error(model: Path) -> None:
    calls = []

    def read(files: ModelFiles) -> None:
        calls.append(files)
        save(model, {**MODEL, WEIGHTS: f"weights {len(calls)}"})

    with pytest.raises(ModelDirectoryError, match="another process keeps saving"):
        read_consistent(model, read)
    assert len(calls) == 10


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), OSError(5, "bad disk"), MemoryError()])
def test_read_errors_are_one_message(model: Path, error: Exception) -> None:
    def read(files: ModelFiles) -> None:
        raise error

    with pytest.raises(ModelDirectoryError, match=r"cannot (be )?read|not enough memory"):
        read_consistent(model, read)


def test_out_of_gpu_memory_is_not_an_error_of_the_model(model: Path) -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    def read(files: ModelFiles) -> None:
        raise OutOfMemoryError

    with pytest.raises(OutOfMemoryError):
        read_consistent(model, read)


def test_names_of_shards() -> None:
    assert shard_names(1) == [WEIGHTS]
    assert shard_names(2) == SHARDS
    assert len(shard_names(MAX_SHARDS)) == MAX_SHARDS and all(map(is_weights, [WEIGHTS, *SHARDS]))
    assert not is_weights("model-1-of-2.safetensors") and not is_weights(f"{WEIGHTS}.x")
    with pytest.raises(ConfigError, match="100,000 files"):
        shard_names(MAX_SHARDS + 1)


def test_bytes_of_shards() -> None:
    assert shard_bytes(None) is None and shard_bytes(math.inf) is None
    assert shard_bytes(1.5) == 1_500_000 and shard_bytes(1e-9) == 1


def test_tensors_are_split_into_shards_in_order() -> None:
    sizes = {"a": 3, "b": 4, "c": 9, "d": 2, "e": 5}
    assert split_into_shards(sizes, None) == [list("abcde")]
    assert split_into_shards(sizes, 7) == [["a", "b"], ["c"], ["d", "e"]]
    assert split_into_shards(sizes, 6) == [["a"], ["b"], ["c"], ["d"], ["e"]]
    files = dict(zip(SHARDS, [["b", "a"], ["c"]], strict=True))
    index = shard_index(files, {"a": 3, "b": 4, "c": 9})
    assert index == {"metadata": {"total_size": 16}, "weight_map": {"a": SHARDS[0], "b": SHARDS[0], "c": SHARDS[1]}}


def test_weights_are_one_file_or_all_shards_with_their_index() -> None:
    assert check_complete([CONFIG, WEIGHTS], "here") == (WEIGHTS,)
    assert check_complete([INDEX, *reversed(SHARDS)], "here") == tuple(SHARDS)
    for names in ([WEIGHTS, INDEX], SHARDS, [INDEX, SHARDS[0]], [INDEX, WEIGHTS, SHARDS[0]], [INDEX]):
        with pytest.raises(ModelDirectoryError, match=r"here (names|does not name) "):
            check_complete(names, "here")


def test_model_is_not_read_through_a_linked_folder(model: Path, tmp_path: Path) -> None:
    save(tmp_path / "other", MODEL)
    (model / SAVED).symlink_to(tmp_path / "other")
    with pytest.raises(ModelDirectoryError, match=f"{SAVED} is a symbolic link"):
        locate(model)
