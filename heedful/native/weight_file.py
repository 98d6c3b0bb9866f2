"""Writes the weight file of the engine; src/weight_file.h describes its layout."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping
from ctypes import c_uint64
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.atomic_files import atomic_write
from heedful.native.bindings import load_library
from heedful.native.int8_tiles import Numbers, padded

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC, VERSION = b"HEEDFULN", 1
KINDS = {"float32": 0, "int8": 1, "int32": 2}
HEAD, SHAPE, ENTRY = struct.Struct("<8sIIQQQ24x"), struct.Struct("<20i4f"), struct.Struct("<64sIIIIQQ")
ALIGNMENT = 64


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
        header.append(ENTRY.pack(name.encode("ascii"), KINDS[tensor.kind], rows, columns, 0, offset, num_bytes))
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
