"""The file that the engine reads into memory; src/weight_file.h draws its layout and checks every bound of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.atomic_files import atomic_write

if TYPE_CHECKING:
    import numpy as np

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


def write_weight_file(path: Path, *, fingerprint: bytes, shape: Shape, tensors: Mapping[str, np.ndarray]) -> None:
    """Write the file beside its place and move it there, so that nobody ever sees half of it."""
    with atomic_write(path, shared=True) as file:
        for part in parts_of(fingerprint=fingerprint, shape=shape, tensors=tensors):
            file.write(part)


def parts_of(*, fingerprint: bytes, shape: Shape, tensors: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """The bytes of the file, piece by piece, each a multiple of 64 but the list of tensors."""
    import numpy as np

    place = HEAD.size + len(fingerprint) + SHAPE.size + ENTRY.size * len(tensors)
    front = [fingerprint, shape.to_bytes()]
    gap = -place % ALIGNMENT
    place += gap
    bodies = []
    for name, tensor in tensors.items():
        rows, columns = tensor.shape
        front.append(ENTRY.pack(name.encode("ascii"), KINDS[tensor.dtype.name], rows, columns, 0, place, tensor.nbytes))
        bodies.append(tensor)
        place += tensor.nbytes + -tensor.nbytes % ALIGNMENT
    opening = b"".join([*front, b"\0" * gap])
    total = weighted = count = 0
    pieces: list[bytes | np.ndarray] = [opening, *bodies]
    for piece in pieces:
        words = as_words(piece)
        ordinals = np.arange(count + 1, count + len(words) + 1, dtype=np.uint64)
        total += int(words.sum(dtype=np.uint64))
        weighted += int((words * ordinals).sum(dtype=np.uint64))
        count += len(words)
    yield HEAD.pack(MAGIC, VERSION, len(tensors), place, total % 2**64, weighted % 2**64)
    yield opening
    for body in bodies:
        yield as_words(body).data


def as_words(piece: bytes | np.ndarray) -> np.ndarray:
    """The bytes of a piece as numbers of 64 bits, zeros added up to the next multiple of 64 bytes."""
    import numpy as np

    plain = (
        np.frombuffer(piece, dtype=np.uint8) if isinstance(piece, bytes) else np.ascontiguousarray(piece).view(np.uint8)
    )
    plain = plain.reshape(-1)
    gap = -len(plain) % (8 if isinstance(piece, bytes) else ALIGNMENT)
    return (np.concatenate([plain, np.zeros(gap, dtype=np.uint8)]) if gap else plain).view(np.uint64)


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
