"""Matrices as the kernels read them: tiles of 32 outputs, int8 with a scale for each output, or float32.

The library computes, over plain bytes: converting a model needs no numpy.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heedful.native.bindings import load_library

TILE = 32
"""Outputs that are computed together."""
STEP = 16
"""Inputs are padded with zeros to a multiple of this."""
KINDS = {"f": "float32", "b": "int8", "i": "int32"}
ITEM_BYTES = {"float32": 4, "int8": 1, "int32": 4}


@dataclass(frozen=True)
class Numbers:
    """Numbers of one kind in row-major order."""

    kind: str
    """float32, int8 or int32."""
    shape: tuple[int, ...]
    data: memoryview
    """Their bytes, writable: ctypes takes the address of nothing else."""

    @classmethod
    def zeros(cls, kind: str, *shape: int) -> Numbers:
        """New numbers."""
        return cls(kind, shape, memoryview(bytearray(math.prod(shape) * ITEM_BYTES[kind])))

    @classmethod
    def of(cls, buffer: Any) -> Numbers:
        """The numbers of an array, such as one of numpy; copied only if they are read-only or not contiguous."""
        view = memoryview(buffer)
        is_usable = view.c_contiguous and not view.readonly
        data = view.cast("B") if is_usable else memoryview(bytearray(view.tobytes()))
        return cls(KINDS[view.format], tuple(view.shape or ()), data)

    @property
    def address(self) -> int:
        """Where they lie, for as long as this object is kept."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.data))

    def reshape(self, *shape: int) -> Numbers:
        """The same numbers in another shape."""
        return Numbers(self.kind, shape, self.data)


class Int8Rows(NamedTuple):
    """A matrix in int8, (outputs, inputs), with the scale of each row."""

    values: Numbers
    scales: Numbers


def concatenate(parts: Sequence[Numbers]) -> Numbers:
    """Matrices one below the other, or vectors one after another."""
    if len(parts) == 1:
        return parts[0]
    shape = sum(part.shape[0] for part in parts), *parts[0].shape[1:]
    return Numbers(parts[0].kind, shape, memoryview(bytearray(b"".join(part.data for part in parts))))


def is_finite(numbers: Numbers) -> bool:
    """Whether no float is infinite or not a number."""
    return bool(load_library().heedful_all_finite(numbers.address, math.prod(numbers.shape)))


def widen(dtype: str, shape: tuple[int, ...], data: memoryview) -> Numbers:
    """Numbers of a safetensors file in float32, from F16, BF16 or F64."""
    found, stored = Numbers.zeros("float32", *shape), Numbers(dtype, shape, data)
    if not load_library().heedful_widen(dtype.encode(), stored.address, math.prod(shape), found.address):
        raise ValueError(f"{dtype} is not a type of floats")
    return found


def quantize_rows(weight: Numbers) -> Int8Rows:
    """Round to integer multiples of each row's scale, as `heedful.model_dir.weights.quantize_rows` does."""
    rows, columns = weight.shape
    found = Int8Rows(Numbers.zeros("int8", rows, columns), Numbers.zeros("float32", rows))
    load_library().heedful_quantize_rows(weight.address, rows, columns, found.values.address, found.scales.address)
    return found


def dequantize(weight: Int8Rows) -> Numbers:
    """The matrix in float32."""
    rows, columns = weight.values.shape
    whole = Numbers.zeros("float32", rows, columns)
    given = weight.values.address, weight.scales.address, rows, columns
    load_library().heedful_dequantize_rows(*given, whole.address)
    return whole


def pack(weight: Numbers | Int8Rows, bias: Numbers | None, *, int8: bool) -> dict[str, Numbers]:
    """The tensors of one linear layer, whose weight is (outputs, inputs), by the ends of their names."""
    outputs, inputs = (weight.values if isinstance(weight, Int8Rows) else weight).shape
    rows, columns = padded(outputs, TILE), padded(inputs, STEP)
    whole_bias = Numbers.zeros("float32", 1, rows)
    if bias is not None:
        whole_bias.data[: 4 * outputs] = bias.data
    if not int8:
        plain = dequantize(weight) if isinstance(weight, Int8Rows) else weight
        tiles = Numbers.zeros("float32", rows, columns)
        load_library().heedful_pack_float32(plain.address, outputs, inputs, columns, tiles.address)
        return {"weights": tiles, "bias": whole_bias}
    rounded = weight if isinstance(weight, Int8Rows) else quantize_rows(weight)
    scales = Numbers.zeros("float32", 1, rows)
    scales.data[: 4 * outputs] = rounded.scales.data
    tiles, sums = pack_int8(rounded.values)
    return {"weights": tiles, "scales": scales, "sums": sums, "bias": whole_bias}


def pack_int8(values: Numbers) -> tuple[Numbers, Numbers]:
    """(outputs, inputs) as [tile][inputs / 4][32 outputs][4 inputs], padded with zeros; and the sum of each row."""
    outputs, inputs = values.shape
    rows, columns = padded(outputs, TILE), padded(inputs, STEP)
    tiles, sums = Numbers.zeros("int8", rows, columns), Numbers.zeros("int32", 1, rows)
    load_library().heedful_pack_int8(values.address, outputs, inputs, columns, tiles.address, sums.address)
    return tiles, sums


def padded(count: int, unit: int) -> int:
    """`count` rounded up to a multiple of `unit`."""
    return -(-count // unit) * unit
