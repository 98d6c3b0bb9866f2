"""The conversion of weights in C++ matches numpy and torch."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.errors import ModelDirectoryError
from heedful.model.positions import sinusoidal_encoding
from heedful.model_dir import weights as model_weights
from heedful.model_dir.weights import read_buffers
from heedful.native import available
from heedful.native.convert import frequencies, position_table
from heedful.native.weight_file import Int8Rows, Numbers, concatenate, dequantize, is_finite, pack, quantize_rows, widen
from tests.native.native_models import random_model, small_config, weight_file
from tests.native.test_kernels import as_array

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (64, 512)])
def test_int8_rows_match_numpy(shape: tuple[int, int]) -> None:
    """Includes ties, rows of zeros and large numbers."""
    random = np.random.default_rng(1)
    weight = random.normal(size=shape).astype(np.float32)
    weight[0] = np.arange(shape[1]) % 255 / 2  # halves of the scale
    weight[-1] = 0 if shape[0] > 1 else weight[-1]
    weight[shape[0] // 2] *= 1e30
    found, expected = quantize_rows(Numbers.of(weight)), model_weights.quantize_rows(weight)
    np.testing.assert_array_equal(as_array(found.values), expected.values)
    np.testing.assert_array_equal(as_array(found.scales), expected.scales)
    np.testing.assert_array_equal(as_array(dequantize(found)), expected.dequantize())


def test_every_float16_is_widened_exactly() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    found = as_array(widen("F16", (1 << 16,), memoryview(bytearray(halves.tobytes()))))
    np.testing.assert_array_equal(found, halves.view(np.float16).astype(np.float32))


def test_float_conversions_match_torch() -> None:
    numbers = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 1e3
    for name, stored in (("F64", numbers), ("BF16", numbers.bfloat16())):
        data = memoryview(bytearray(stored.view(torch.uint8).numpy().tobytes()))
        np.testing.assert_array_equal(as_array(widen(name, (1000,), data)), stored.float().numpy())
    with pytest.raises(ValueError, match="I32"):
        widen("I32", (1,), memoryview(bytearray(4)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_detected(value: float) -> None:
    numbers = np.full(100, np.finfo(np.float32).max, dtype=np.float32)
    numbers[3] = -numbers[3]
    assert is_finite(Numbers.of(numbers))
    numbers[77] = value
    assert not is_finite(Numbers.of(numbers))


@pytest.mark.parametrize("width", [2, 48, 512])
def test_position_table_matches_float64_sines(width: int) -> None:
    """Rounded once from the float64 sine of a float32 angle; torch's own are a rounding or two away."""
    table = as_array(position_table(300, width, cosine_first=False))
    angles = np.arange(300, dtype=np.float32)[:, None] * np.array(frequencies(width), dtype=np.float32)
    expected = np.stack([np.sin(angles.astype(np.float64)), np.cos(angles.astype(np.float64))], axis=-1)
    np.testing.assert_array_equal(table, expected.reshape(300, width).astype(np.float32))
    torchs = sinusoidal_encoding(torch.arange(300)[None], width)[0].numpy()
    np.testing.assert_allclose(table, torchs, atol=1e-4)
    turned = as_array(position_table(300, width, cosine_first=True))
    np.testing.assert_array_equal(turned[:, ::2], table[:, 1::2])
    np.testing.assert_array_equal(turned[:, 1::2], table[:, ::2])


@pytest.mark.parametrize("width", [2, 48, 64, 254, 256, 512, 1024, 2048])
def test_frequencies_are_the_nearest_float32_or_its_neighbour(width: int) -> None:
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    nearest = np.exp(-exponents.astype(np.float64) * math.log(10_000)).astype(np.float32)
    found = np.array(frequencies(width), dtype=np.float32)
    steps = found.view(np.int32).astype(int) - nearest.view(np.int32)
    assert np.abs(steps).max() <= (3072 % width == 0)


def test_frequencies_of_the_published_results_do_not_change() -> None:
    """They have the same bits everywhere; 3072 has those of every width that divides it."""
    whole = frequencies(3072)
    for width in (2, 64, 384, 512, 1024):
        assert frequencies(width) == whole[:: 3072 // width]
    assert (
        hashlib.sha256(whole.tobytes()).hexdigest()
        == "4337e3343b5b96bbd336781e28217b1c32ab86911520b738d1d17d37db289a89"
    )


def test_read_only_and_strided_arrays_are_copied() -> None:
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    frozen = plain.copy()
    frozen.setflags(write=False)
    for array in (plain, frozen, np.asfortranarray(plain)):
        numbers = Numbers.of(array)
        assert numbers.address
        np.testing.assert_array_equal(as_array(numbers), plain)
    np.testing.assert_array_equal(as_array(concatenate([numbers, Numbers.of(plain)])), np.concatenate([plain, plain]))


def test_float_tiles_hold_the_weights_of_int8_rows() -> None:
    weight = np.random.default_rng(2).normal(size=(40, 20)).astype(np.float32)
    rounded = quantize_rows(Numbers.of(weight))
    bias = Numbers.of(np.arange(40, dtype=np.float32))
    parts = {name: as_array(one) for name, one in pack(Int8Rows(*rounded), bias, int8=False).items()}
    tiles = parts["weights"].reshape(2, 32, 32).transpose(0, 2, 1).reshape(64, 32)
    np.testing.assert_array_equal(tiles[:40, :20], as_array(dequantize(rounded)))
    assert not tiles[40:].any() and not tiles[:, 20:].any()
    np.testing.assert_array_equal(parts["bias"][0], np.pad(np.arange(40), (0, 24)))


def test_checksums_match_numpy(tmp_path: Path) -> None:
    data = weight_file(random_model(small_config()), tmp_path / "a.bin", precision="int8").read_bytes()
    words = np.frombuffer(data[64:], dtype=np.uint64)
    ordinals = np.arange(1, len(words) + 1, dtype=np.uint64)
    sums = [words.sum(dtype=np.uint64), (words * ordinals).sum(dtype=np.uint64)]
    assert np.frombuffer(data[24:40], dtype=np.uint64).tolist() == sums


def test_unaligned_tensors_are_copied(tmp_path: Path) -> None:
    """Floats at an unaligned offset are copied; numpy reads the same values."""
    from safetensors.numpy import save_file

    path = tmp_path / "a.safetensors"
    floats, small = np.arange(4, dtype=np.float32), np.arange(3, dtype=np.int8)
    header = {
        "small": {"dtype": "I8", "shape": [3], "data_offsets": [0, 3]},
        "floats": {"dtype": "F32", "shape": [4], "data_offsets": [3, 19]},
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + small.tobytes() + floats.tobytes())
    found = read_buffers(path, path)
    assert found["floats"][1].tobytes() == floats.tobytes() and found["small"][1].tobytes() == small.tobytes()
    assert Numbers("float32", (4,), found["floats"][1]).address % 4 == 0
    save_file({"floats": floats}, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelDirectoryError, match="damaged"):
        read_buffers(path, path)
