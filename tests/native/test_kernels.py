"""The integer dot products of every instruction set are exact and equal to those of numpy."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_uint8

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from heedful.native import available
from heedful.native.bindings import kernel_names, load_library
from heedful.native.weight_file import STEP, TILE, Numbers, pack, pack_int8, padded

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)


def as_array(numbers: Numbers) -> np.ndarray:
    return np.frombuffer(numbers.data, dtype=numbers.kind).reshape(numbers.shape)


def pack_bytes(weights: np.ndarray) -> np.ndarray:
    return as_array(pack_int8(Numbers.of(weights))[0])


def dot(kernels: str, rows: np.ndarray, packed: np.ndarray) -> np.ndarray:
    sums = np.full((len(rows), TILE), -1, dtype=np.int32)
    pointer, groups = rows.ctypes.data_as(POINTER(c_uint8)), packed.shape[1] // 4
    there = sums.ctypes.data_as(POINTER(c_int32))
    weights = ctypes.c_void_p(packed.ctypes.data)
    assert load_library().heedful_dot(kernels.encode(), pointer, rows.strides[0], len(rows), weights, groups, there)
    return sums


def dot_nonzero(kernels: str, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    sums = np.full((len(rows), weights.shape[1]), -1, dtype=np.int32)
    pointer, there = rows.ctypes.data_as(POINTER(c_uint8)), sums.ctypes.data_as(POINTER(c_int32))
    place, spans = ctypes.c_void_p(weights.ctypes.data), weights.shape[1] // 64
    assert load_library().heedful_dot_nonzero(kernels.encode(), pointer, *rows.shape, place, spans, there)
    return sums


def multiply_sketch(kernels: str, row: np.ndarray, zero: int, packed: np.ndarray) -> np.ndarray | None:
    found = np.full(TILE, np.nan, dtype=np.float32)
    pointer, there = row.ctypes.data_as(POINTER(c_uint8)), found.ctypes.data_as(POINTER(c_float))
    place, groups = ctypes.c_void_p(packed.ctypes.data), packed.shape[1] // 4
    library = load_library()
    return found if library.heedful_multiply_sketch(kernels.encode(), pointer, zero, place, groups, there) else None


def test_portable_kernels_are_always_available() -> None:
    assert kernel_names()[-1] == "portable"
    assert load_library().heedful_kernels(b"no such") == b""


@given(num_rows=some.integers(1, 32), steps=some.integers(1, 40), gap=some.integers(0, 3), seed=some.integers(0, 1000))
def test_dot_products_match_numpy(num_rows: int, steps: int, gap: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    inputs = steps * STEP
    room = random.integers(0, 256, (num_rows, inputs + gap), dtype=np.uint8)
    weights = random.integers(-127, 128, (TILE, inputs), dtype=np.int8)
    rows = room[:, :inputs]
    expected = rows.astype(np.int64) @ weights.T.astype(np.int64)
    for kernels in kernel_names():
        np.testing.assert_array_equal(dot(kernels, rows, pack_bytes(weights)), expected, err_msg=kernels)


@given(
    num_rows=some.integers(1, 4),
    steps=some.integers(1, 40),
    spans=some.integers(1, 4),
    share=some.sampled_from([0.0, 0.02, 0.2, 0.7, 1.0]),
    seed=some.integers(0, 1000),
)
def test_sparse_dot_products_match_numpy(num_rows: int, steps: int, spans: int, share: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(1, 256, (num_rows, steps * STEP), dtype=np.uint8)
    rows[random.random(rows.shape) >= share] = 0
    weights = random.integers(-128, 128, (steps * STEP, spans * 64), dtype=np.int8)
    expected = rows.astype(np.int64) @ weights.astype(np.int64)
    for kernels in kernel_names():
        np.testing.assert_array_equal(dot_nonzero(kernels, rows, weights), expected, err_msg=kernels)


def sketched(weights: np.ndarray) -> np.ndarray:
    """Quantize each weight to -1.5, -0.5, 0.5 or 1.5 steps; the step of an output is the least-squares fit."""
    mean = np.abs(weights).sum(1, keepdims=True, dtype=np.int64) * 5 / (4 * weights.shape[1])
    bound = np.clip(np.floor(mean + 0.5), 1, 127)
    codes = (weights >= -bound).astype(int) + (weights >= 0) + (weights >= bound) - 1.5
    return codes * (weights * codes).sum(1, keepdims=True) / (codes**2).sum(1, keepdims=True)


@given(steps=some.integers(1, 40), size=some.sampled_from([0.0, 3.0, 35.0, 300.0]), seed=some.integers(0, 1000))
def test_sketch_products_are_bit_identical(steps: int, size: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    weights = np.clip(random.normal(0, size, (TILE, steps * STEP)), -127, 127).astype(np.int8)
    row, zero = random.integers(0, 256, steps * STEP, dtype=np.uint8), int(random.integers(0, 256))
    expected = sketched(weights) @ (row.astype(np.int64) - zero)
    *fast, portable = (multiply_sketch(kernels, row, zero, pack_bytes(weights)) for kernels in kernel_names())
    assert portable is None  # portable kernels do not support sketches
    for found in fast:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
        np.testing.assert_array_equal(found, fast[0])


@pytest.mark.parametrize("byte", [0, 255])
def test_sketch_sums_do_not_overflow(byte: int) -> None:
    row, weights = np.full(4096, byte, dtype=np.uint8), np.full((TILE, 4096), 127, dtype=np.int8)
    for kernels in kernel_names()[:-1]:
        found = multiply_sketch(kernels, row, 255 - byte, pack_bytes(weights))
        np.testing.assert_allclose(found, sketched(weights) @ np.full(4096, 2 * byte - 255), rtol=1e-5)


@pytest.mark.parametrize(("byte", "weight"), [(255, 127), (255, -127), (255, -128), (0, 127)])
@pytest.mark.parametrize("num_rows", [1, 12, 16, 32])
def test_dot_products_do_not_saturate(num_rows: int, byte: int, weight: int) -> None:
    rows, weights = np.full((num_rows, 2048), byte, dtype=np.uint8), np.full((TILE, 2048), weight, dtype=np.int8)
    for kernels in kernel_names():
        assert (dot(kernels, rows, pack_bytes(weights)) == 2048 * byte * weight).all(), kernels
        by_input = np.ascontiguousarray(np.tile(weights, (2, 1)).T)
        assert (dot_nonzero(kernels, rows[:4], by_input) == 2048 * byte * weight).all(), kernels


@pytest.mark.parametrize("shape", [(32, 16), (1, 1), (70, 33), (31, 100)])
def test_packing_only_rounds(shape: tuple[int, int]) -> None:
    weight = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    parts = {name: as_array(one) for name, one in pack(Numbers.of(weight), None, int8=True).items()}
    rows, columns = padded(shape[0], TILE), padded(shape[1], STEP)
    tiles = parts["weights"].reshape(rows // TILE, columns // 4, TILE, 4).transpose(0, 2, 1, 3).reshape(rows, columns)
    found = tiles[: shape[0], : shape[1]] * parts["scales"][0, : shape[0], None]
    assert (np.abs(found - weight) <= parts["scales"][0, : shape[0], None] * 0.5001).all()
    assert (parts["sums"][0] == tiles.sum(axis=1)).all()
    assert not tiles[shape[0] :].any() and not tiles[:, shape[1] :].any()
