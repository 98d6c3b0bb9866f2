"""The file that the engine reads into memory; src/weight_file.h draws its layout and checks every bound of it."""

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
    """What the model is, as far as computing needs to know; the order of the fields is that of the file."""

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
        """As the file holds it, with places to spare."""
        values = astuple(self)
        return SHAPE.pack(*map(int, values[:16]), 0, 0, 0, 0, *values[16:], 0.0)


def write_weight_file(path: Path, *, fingerprint: bytes, shape: Shape, tensors: Mapping[str, Numbers]) -> None:
    """Write the file beside its place and move it there, so that nobody ever sees half of it."""
    with atomic_write(path, shared=True) as file:
        for part in parts_of(fingerprint=fingerprint, shape=shape, tensors=tensors):
            file.write(part)


def parts_of(*, fingerprint: bytes, shape: Shape, tensors: Mapping[str, Numbers]) -> Iterator[Buffer]:
    """The bytes of the file, piece by piece, each a multiple of 64 but the list of tensors."""
    place = HEAD.size + len(fingerprint) + SHAPE.size + ENTRY.size * len(tensors)
    front = [fingerprint, shape.to_bytes()]
    gap = -place % ALIGNMENT
    place += gap
    for name, tensor in tensors.items():
        rows, columns = tensor.shape
        num_bytes = tensor.data.nbytes
        front.append(ENTRY.pack(name.encode("ascii"), KINDS[tensor.kind], rows, columns, 0, place, num_bytes))
        place += padded(num_bytes, ALIGNMENT)
    opening = memoryview(bytearray(b"".join([*front, b"\0" * gap])))
    total, weighted, count = c_uint64(), c_uint64(), 0
    for piece in (opening, *(whole_words(tensor.data) for tensor in tensors.values())):
        address = ctypes.addressof(ctypes.c_char.from_buffer(piece))
        load_library().heedful_checksums(address, len(piece) // 8, count, total, weighted)
        count += len(piece) // 8
    yield HEAD.pack(MAGIC, VERSION, len(tensors), place, total.value, weighted.value)
    yield opening
    for tensor in tensors.values():
        yield whole_words(tensor.data)


def whole_words(data: memoryview) -> memoryview:
    """Bytes with zeros added up to the next multiple of `ALIGNMENT`."""
    gap = -len(data) % ALIGNMENT
    return memoryview(bytearray(data.tobytes() + bytes(gap))) if gap else data


def read_fingerprint(path: Path) -> bytes | None:
    """The fingerprint of the model that a file was made from; None when it is no such file of this version."""
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
    """The shape that a file names; the engine checks it."""
    with open(path, "rb") as file:
        file.seek(HEAD.size + 32)
        values = SHAPE.unpack(file.read(SHAPE.size))
    flags = {9, 10, 11, 12, 14, 15}
    return Shape(*(bool(value) if i in flags else value for i, value in enumerate(values[:16])), *values[20:23])
