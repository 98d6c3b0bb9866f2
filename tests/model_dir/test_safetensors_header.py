"""Headers of safetensors files: every entry, offset and size is checked before a tensor is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from heedful.config import ModelConfig
from heedful.errors import ModelDirectoryError
from heedful.model_dir import weights as model_weights
from heedful.model_dir.files import INDEX, FileEntry, ModelFiles, sha256, shard_names
from heedful.model_dir.weights import (
    ITEM_BYTES,
    MAX_DIMENSIONS,
    NUMPY_TYPES,
    SCALE,
    HeaderEntry,
    check_types,
    compare_shapes,
    num_elements,
    read_buffers,
    read_header,
    read_headers,
    read_weights,
)

SHOWN_AS = Path("shown")


def entry(dtype: str = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def write(path: Path, header: Any, num_bytes: int) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(num_bytes)))
    return path


def refused(path: Path, message: str) -> None:
    with pytest.raises(ModelDirectoryError, match=f"^shown.*{message}"):
        read_header(path, SHOWN_AS)


def test_entries_of_a_header_are_read(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "b": entry(offsets=[8, 32]), "a": entry("I64", [], [0, 8])}
    found = read_header(write(tmp_path / "file", header, 32), SHOWN_AS)
    assert found == {"b": HeaderEntry("F32", (2, 3), 8, 32), "a": HeaderEntry("I64", (), 0, 8)}
    assert found["b"].num_bytes == 24 and found["a"].num_bytes == 8
    assert num_elements({name: (one.dtype, one.shape) for name, one in found.items()}) == 7
    assert read_header(write(tmp_path / "empty", {}, 0), SHOWN_AS) == {}


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_item_sizes_are_those_of_safetensors(dtype: str) -> None:
    bits = int("".join(letter for letter in dtype if letter.isdigit()))
    assert ITEM_BYTES[dtype] == bits // 8
    if dtype in NUMPY_TYPES:
        assert np.dtype(NUMPY_TYPES[dtype]).itemsize == ITEM_BYTES[dtype]


@pytest.mark.parametrize(
    "wrong",
    [
        entry("F31"),
        entry(offsets=[0]),
        entry(offsets=[0, 24, 24]),
        entry(shape=[2, 3.0]),
        entry(shape=[2, True]),
        entry(shape=[-2, -3]),
        entry(shape=[0, 1 << 62], offsets=[0, 0]),
        entry(shape=[1] * (MAX_DIMENSIONS + 1), offsets=[0, 4]),
        entry(shape="23"),
        {"dtype": "F32", "shape": [2, 3]},
        [],
    ],
)
def test_invalid_entry_is_refused(tmp_path: Path, wrong: Any) -> None:
    refused(write(tmp_path / "file", {"a": wrong}, 24), "its header cannot be read")


def test_largest_entry_is_read() -> None:
    assert HeaderEntry.read(entry(shape=[0, (1 << 62) - 1], offsets=[0, 0])).num_bytes == 0
    assert HeaderEntry.read(entry(shape=[1] * MAX_DIMENSIONS, offsets=[0, 4])).num_bytes == 4


@pytest.mark.parametrize(
    ("header", "num_bytes", "message"),
    [
        ({"a": entry(), "b": entry(offsets=[20, 44])}, 44, "b is not where its header says"),
        ({"a": entry(), "b": entry(offsets=[25, 49])}, 49, "b is not where its header says"),
        ({"a": entry(offsets=[1, 25])}, 25, "a is not where its header says"),
        ({"a": entry(offsets=[0, 23])}, 23, "a is not where its header says"),
        ({"a": entry()}, 23, "its tensors take 24 bytes and the file has 23"),
        ({"a": entry()}, 25, "its tensors take 24 bytes and the file has 25"),
    ],
)
def test_overlap_gap_and_wrong_size_are_refused(tmp_path: Path, header: Any, num_bytes: int, message: str) -> None:
    refused(write(tmp_path / "file", header, num_bytes), message)


@pytest.mark.parametrize("contents", [b"", b"1234567", (3).to_bytes(8, "little") + b"{}"])
def test_file_shorter_than_its_header_is_refused(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "file").write_bytes(contents)
    refused(tmp_path / "file", "is not a safetensors file")


def test_header_up_to_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, length = write(tmp_path / "file", {"a": entry()}, 24), len(json.dumps({"a": entry()}))
    monkeypatch.setattr(model_weights, "MAX_HEADER", length)
    assert list(read_header(path, SHOWN_AS)) == ["a"]
    monkeypatch.setattr(model_weights, "MAX_HEADER", length - 1)
    refused(path, f"its header has {length} bytes; {length - 1} are allowed")


def test_weights_and_buffers_equal_the_saved_arrays(tmp_path: Path) -> None:
    arrays = {
        "one": np.arange(3, dtype=np.int8),
        "half": np.arange(6, dtype=np.float16).reshape(2, 3) / 2,
        "double": np.linspace(0, 1, 5),
        "number": np.array(7, dtype=np.int64),
    }
    save_file(arrays, tmp_path / "file")
    found = read_weights(tmp_path / "file", SHOWN_AS)
    buffers = read_buffers(tmp_path / "file", SHOWN_AS)
    assert found.keys() == buffers.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == (np.float32 if array.dtype.kind == "f" else array.dtype)
        np.testing.assert_array_equal(found[name], array.astype(found[name].dtype))
        described, data = buffers[name]
        assert described.shape == array.shape and bytes(data) == array.tobytes()


def test_bfloat16_is_the_upper_half_of_float32(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 0.15625], dtype=np.float32)
    text = json.dumps({"a": entry("BF16", [3], [0, 6])}).encode()
    upper = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    (tmp_path / "file").write_bytes(len(text).to_bytes(8, "little") + text + upper)
    np.testing.assert_array_equal(read_weights(tmp_path / "file", SHOWN_AS)["a"], values)


def test_buffers_of_unaligned_tensors_are_aligned(tmp_path: Path) -> None:
    header = {"a": entry("U8", [1], [0, 1]), "b": entry("F32", [2], [1, 9])}
    buffers = read_buffers(write(tmp_path / "file", header, 9), SHOWN_AS)
    assert bytes(buffers["b"][1]) == bytes(range(1, 9))
    assert np.frombuffer(buffers["b"][1], dtype=np.uint8).ctypes.data % 4 == 0


def test_differing_names_and_shapes_are_named() -> None:
    shapes = {f"w{number}": (number, 2) for number in range(6)}
    compare_shapes(shapes, dict(reversed(shapes.items())), "here")
    with pytest.raises(ModelDirectoryError, match=r"it lacks w0, w1, w2, w3 and 2 more\.$"):
        compare_shapes(shapes, {}, "here")
    with pytest.raises(ModelDirectoryError, match=r"it has unknown w0, w1, w2, w3; it has .*w4 \(\(1,\) instead of"):
        compare_shapes({"w4": (4, 2)}, {**{f"w{n}": (n, 2) for n in range(4)}, "w4": (1,)}, "here")


@pytest.mark.parametrize(
    ("header", "is_valid"),
    [
        ({"w": ("F16", (2, 3)), "v": ("BF16", (2,))}, True),
        ({"w": ("I8", (2, 3)), f"w{SCALE}": ("F32", (2,))}, True),
        ({"w": ("I8", (2, 3)), f"w{SCALE}": ("F32", (3,))}, False),
        ({"w": ("I8", (2, 3)), f"w{SCALE}": ("F16", (2,))}, False),
        ({"w": ("I8", (2, 3))}, False),
        ({"w": ("I8", (2,)), f"w{SCALE}": ("F32", (2,))}, False),
        ({"w": ("I32", (2, 3))}, False),
        ({"source_positions.w": ("I8", (2, 3)), f"source_positions.w{SCALE}": ("F32", (2,))}, False),
    ],
)
def test_types_of_weights(header: Any, is_valid: bool) -> None:
    if is_valid:
        check_types(header, "here")
        return
    with pytest.raises(ModelDirectoryError, match=r"here: (w|source_positions\.w) (is int8|has the type I32)"):
        check_types(header, "here")


def sharded(directory: Path, index: Any, second: str = "b") -> ModelFiles:
    """Two shards with one tensor each, and an index."""
    names = shard_names(2)
    for name, tensor in zip(names, ("a", second), strict=True):
        write(directory / name, {tensor: entry()}, 24)
    (directory / INDEX).write_text(json.dumps(index))
    paths = {name: directory / name for name in (*names, INDEX)}
    return ModelFiles(
        directory, paths, {name: FileEntry(path.stat().st_size, sha256(path)) for name, path in paths.items()}
    )


def test_index_of_shards_must_list_their_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_weights, "weight_shapes", lambda config: {"a": (2, 3), "b": (2, 3)})
    config, (first, second) = ModelConfig(), shard_names(2)
    found = read_headers(sharded(tmp_path, {"weight_map": {"a": first, "b": second}}), config)
    assert found == {"a": ("F32", (2, 3)), "b": ("F32", (2, 3))}
    for index in ([], {}, {"weight_map": {"a": first, "b": first}}, {"weight_map": {"a": first}}):
        with pytest.raises(ModelDirectoryError, match="lists other tensors than the files contain"):
            read_headers(sharded(tmp_path, index), config)
    with pytest.raises(ModelDirectoryError, match=f"{second} contains a, as another file does"):
        read_headers(sharded(tmp_path, {"weight_map": {"a": second}}, second="a"), config)


def test_header_above_four_megabytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes((4_000_001).to_bytes(8, "little"))
    os.truncate(tmp_path / "file", 5_000_000)
    refused(tmp_path / "file", "its header has 4,000,001 bytes; 4,000,000 are allowed")
