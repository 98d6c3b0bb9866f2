"""A trace as bytes, for the page of `heedful see`.

    magic       8 bytes    HEEDFULT
    version     uint32     1
    length      uint32     of the header in bytes, a multiple of 8
    header      JSON in UTF-8, padded with spaces
    tensors     float32, row-major, one after the other

Numbers are little-endian. The header has the fields of `Trace`, the list `tensors` with the name, shape and offset
of each tensor, in bytes after the header, and what else the sender adds.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heedful.errors import DecodingError

if TYPE_CHECKING:
    import numpy as np

    from heedful.inspection.trace import Trace

MAGIC, VERSION, ALIGNMENT = b"HEEDFULT", 1, 8
HEAD = struct.Struct("<8sII")


def trace_bytes(trace: Trace, more: Mapping[str, Any] | None = None) -> bytes:
    """Write a trace; `more` is added to the header."""
    import numpy as np

    arrays = [np.ascontiguousarray(tensor, "<f4") for tensor in trace.values()]
    entries, offset = [], 0
    for name, array in zip(trace, arrays, strict=True):
        entries.append({"name": name, "shape": list(array.shape), "offset": offset})
        offset += array.nbytes
    fields = {
        "text": trace.text,
        "source_ids": trace.source_ids,
        "target_ids": trace.target_ids,
        "source_tokens": trace.source_tokens,
        "target_tokens": trace.target_tokens,
        "tensors": entries,
        **(more or {}),
    }
    header = json.dumps(fields).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    return b"".join([HEAD.pack(MAGIC, VERSION, len(header)), header, *(array.tobytes() for array in arrays)])


def read_trace_bytes(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header of a trace, and its tensors by name."""
    import numpy as np

    magic, version, length = HEAD.unpack_from(data) if len(data) >= HEAD.size else (b"", 0, 0)
    if magic != MAGIC:
        raise DecodingError("these bytes are not a trace.")
    if version != VERSION:
        raise DecodingError(f"this trace has version {version}; this version of heedful reads {VERSION}.")
    start = HEAD.size + length
    header = json.loads(data[HEAD.size : start])
    return header, {
        entry["name"]: np.frombuffer(
            data, "<f4", count=math.prod(entry["shape"]), offset=start + entry["offset"]
        ).reshape(entry["shape"])
        for entry in header["tensors"]
    }
