"""The matrix layout of the kernels, and the weight file of the engine; src/weight_file.h describes its layout.

Matrices are stored as tiles of 32 outputs, int8 with a scale per output, or float32. The compiled library does the
conversion, so converting a model does not need numpy.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_uint64
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.atomic_files import atomic_write
from heedful.native.bindings import load_library

if TYPE_CHECKING:
    from typing_extensions import Buffer


TILE = 32
"""Number of outputs per tile."""
STEP = 16
"""The number of inputs is padded with zeros to a multiple of this."""
KINDS = {"f": "float32", "b": "int8", "i": "int32"}
ITEM_BYTES = {"float32": 4, "int8": 1, "int32": 4}
MAGIC, VERSION = b"HEEDFULN", 1
KIND_CODES = {"float32": 0, "int8": 1, "int32": 2}
HEAD, SHAPE, ENTRY = struct.Struct("<8sIIQQQ24x"), struct.Struct("<20i4f"), struct.Struct("<64sIIIIQQ")
ALIGNMENT = 64


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
        raise ValueError(f"{dtype} is not a floating-point type")
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


@dataclass(frozen=True)
class Shape:
    """The hyperparameters that inference needs, in the order of the file."""

    d_model: int
    d_ff: int
    num_heads: int
    head_dim: int
    num_encoder_layers: int
    num_decoder_layers: int
    source_vocab_size: int
    target_vocab_size: int
    max_length: int
    norm_before: bool
    only_scale: bool
    has_final_norm: bool
    rotary: bool
    activation: int
    int8: bool
    tied_embedding: bool
    norm_epsilon: float
    attention_scale: float
    embedding_scale: float

    def to_bytes(self) -> bytes:
        """Serialize, with reserved fields."""
        values = astuple(self)
        return SHAPE.pack(*map(int, values[:16]), 0, 0, 0, 0, *values[16:], 0.0)


def write_weight_file(path: Path, *, fingerprint: bytes, shape: Shape, tensors: Mapping[str, Numbers]) -> None:
    """Write the file atomically."""
    with atomic_write(path, shared=True) as file:
        for part in file_parts(fingerprint=fingerprint, shape=shape, tensors=tensors):
            file.write(part)


def file_parts(*, fingerprint: bytes, shape: Shape, tensors: Mapping[str, Numbers]) -> Iterator[Buffer]:
    """Yield the contents of the file in parts."""
    offset = HEAD.size + len(fingerprint) + SHAPE.size + ENTRY.size * len(tensors)
    header = [fingerprint, shape.to_bytes()]
    gap = -offset % ALIGNMENT
    offset += gap
    for name, tensor in tensors.items():
        rows, columns = tensor.shape
        num_bytes = tensor.data.nbytes
        header.append(ENTRY.pack(name.encode("ascii"), KIND_CODES[tensor.kind], rows, columns, 0, offset, num_bytes))
        offset += padded(num_bytes, ALIGNMENT)
    header_bytes = memoryview(bytearray(b"".join([*header, b"\0" * gap])))
    total, weighted, count = c_uint64(), c_uint64(), 0
    for piece in (header_bytes, *(pad_to_alignment(tensor.data) for tensor in tensors.values())):
        address = ctypes.addressof(ctypes.c_char.from_buffer(piece))
        load_library().heedful_checksums(address, len(piece) // 8, count, total, weighted)
        count += len(piece) // 8
    yield HEAD.pack(MAGIC, VERSION, len(tensors), offset, total.value, weighted.value)
    yield header_bytes
    for tensor in tensors.values():
        yield pad_to_alignment(tensor.data)


def pad_to_alignment(data: memoryview) -> memoryview:
    """Pad with zeros to a multiple of `ALIGNMENT`."""
    gap = -len(data) % ALIGNMENT
    return memoryview(bytearray(data.tobytes() + bytes(gap))) if gap else data


def read_fingerprint(path: Path) -> bytes | None:
    """The fingerprint of the model that a file was converted from; None if it is not a weight file of this version."""
    try:
        with open(path, "rb") as file:
            start = file.read(HEAD.size + 32)
    except OSError:
        return None
    if len(start) < HEAD.size + 32:
        return None
    magic, version, _, size, _, _ = HEAD.unpack(start[: HEAD.size])
    if magic != MAGIC or version != VERSION or size != path.stat().st_size:
        return None
    return start[HEAD.size :]


def read_shape(path: Path) -> Shape:
    """Read the shape of a file without validation, which the engine does."""
    with open(path, "rb") as file:
        file.seek(HEAD.size + 32)
        values = SHAPE.unpack(file.read(SHAPE.size))
    flags = {9, 10, 11, 12, 14, 15}
    return Shape(*(bool(value) if i in flags else value for i, value in enumerate(values[:16])), *values[20:23])
