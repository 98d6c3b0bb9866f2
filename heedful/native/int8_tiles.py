"""The matrix layout of the kernels: tiles of 32 outputs, int8 with a scale per output, or float32.

The compiled library does the conversion, so converting a model does not need numpy.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heedful.native.bindings import load_library

TILE = 32
"""Number of outputs per tile."""
STEP = 16
"""The number of inputs is padded with zeros to a multiple of this."""
KINDS = {"f": "float32", "b": "int8", "i": "int32"}
ITEM_BYTES = {"float32": 4, "int8": 1, "int32": 4}


@dataclass(frozen=True)
class Numbers:
    """A row-major array."""

    kind: str
    """float32, int8 or int32."""
    shape: tuple[int, ...]
    data: memoryview
    """The bytes; writable, as ctypes requires."""

    @classmethod
    def zeros(cls, kind: str, *shape: int) -> Numbers:
        """An array of zeros."""
        return cls(kind, shape, memoryview(bytearray(math.prod(shape) * ITEM_BYTES[kind])))

    @classmethod
    def of(cls, buffer: Any) -> Numbers:
        """Wrap an array, such as one of numpy; copied only if it is read-only or not contiguous."""
        view = memoryview(buffer)
        is_usable = view.c_contiguous and not view.readonly
        data = view.cast("B") if is_usable else memoryview(bytearray(view.tobytes()))
        return cls(KINDS[view.format], tuple(view.shape or ()), data)

    @property
    def address(self) -> int:
        """The address of the data, valid while this object exists."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.data))

    def reshape(self, *shape: int) -> Numbers:
        """The same data with another shape."""
        return Numbers(self.kind, shape, self.data)


class Int8Rows(NamedTuple):
    """An int8 matrix, (outputs, inputs), with a scale per row."""

    values: Numbers
    scales: Numbers


def concatenate(parts: Sequence[Numbers]) -> Numbers:
    """Concatenate matrices by rows, or vectors."""
    if len(parts) == 1:
        return parts[0]
    shape = sum(part.shape[0] for part in parts), *parts[0].shape[1:]
    return Numbers(parts[0].kind, shape, memoryview(bytearray(b"".join(part.data for part in parts))))


def is_finite(numbers: Numbers) -> bool:
    """Whether all floats are finite."""
    return bool(load_library().heedful_all_finite(numbers.address, math.prod(numbers.shape)))


def widen(dtype: str, shape: tuple[int, ...], data: memoryview) -> Numbers:
    """Convert F16, BF16 or F64 data of a safetensors file to float32."""
    found, stored = Numbers.zeros("float32", *shape), Numbers(dtype, shape, data)
    if not load_library().heedful_widen(dtype.encode(), stored.address, math.prod(shape), found.address):
        raise ValueError(f"{dtype} is not a type of floats")
    return found


def quantize_rows(weight: Numbers) -> Int8Rows:
    """Quantize to int8 with a scale per row, like `heedful.model_dir.weights.quantize_rows`."""
    rows, columns = weight.shape
    found = Int8Rows(Numbers.zeros("int8", rows, columns), Numbers.zeros("float32", rows))
    load_library().heedful_quantize_rows(weight.address, rows, columns, found.values.address, found.scales.address)
    return found


def dequantize(weight: Int8Rows) -> Numbers:
    """Convert to float32."""
    rows, columns = weight.values.shape
    result = Numbers.zeros("float32", rows, columns)
    load_library().heedful_dequantize_rows(weight.values.address, weight.scales.address, rows, columns, result.address)
    return result


def pack(weight: Numbers | Int8Rows, bias: Numbers | None, *, int8: bool) -> dict[str, Numbers]:
    """Pack a linear layer, whose weight is (outputs, inputs); returns its tensors by name suffix."""
    outputs, inputs = (weight.values if isinstance(weight, Int8Rows) else weight).shape
    rows, columns = padded(outputs, TILE), padded(inputs, STEP)
    padded_bias = Numbers.zeros("float32", 1, rows)
    if bias is not None:
        padded_bias.data[: 4 * outputs] = bias.data
    if not int8:
        plain = dequantize(weight) if isinstance(weight, Int8Rows) else weight
        tiles = Numbers.zeros("float32", rows, columns)
        load_library().heedful_pack_float32(plain.address, outputs, inputs, columns, tiles.address)
        return {"weights": tiles, "bias": padded_bias}
    rounded = weight if isinstance(weight, Int8Rows) else quantize_rows(weight)
    scales = Numbers.zeros("float32", 1, rows)
    scales.data[: 4 * outputs] = rounded.scales.data
    tiles, sums = pack_int8(rounded.values)
    return {"weights": tiles, "scales": scales, "sums": sums, "bias": padded_bias}


def pack_int8(values: Numbers) -> tuple[Numbers, Numbers]:
    """Pack (outputs, inputs) as [tile][inputs / 4][32 outputs][4 inputs], zero-padded; also returns the row sums."""
    outputs, inputs = values.shape
    rows, columns = padded(outputs, TILE), padded(inputs, STEP)
    tiles, sums = Numbers.zeros("int8", rows, columns), Numbers.zeros("int32", 1, rows)
    load_library().heedful_pack_int8(values.address, outputs, inputs, columns, tiles.address, sums.address)
    return tiles, sums


def padded(count: int, unit: int) -> int:
    """`count` rounded up to a multiple of `unit`."""
    return -(-count // unit) * unit
