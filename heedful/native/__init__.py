"""The native engine: translating on CPUs with int8 weights, in C++ behind a small C interface, without torch.

    build.py            the C++ files and how they are compiled
    bindings.py         the compiled library through ctypes
    int8_tiles.py       matrices as the kernels read them
    position_table.py   sinusoidal and rotary positions
    weight_file.py      the file that the engine reads into memory
    convert.py          from a model directory to that file, kept in the user's cache
    engine.py           NativeEngine: ids in, hypotheses out
    src/                the engine itself

A sentence's tokens and log-probabilities are the same bits alone, in any batch, with any number of threads and on any
instruction set: every row is computed by itself, sums of bytes are exact, and sums of real numbers have a fixed order.
"""

from heedful.native.bindings import Availability, available
from heedful.native.engine import NativeEngine

__all__ = ["Availability", "NativeEngine", "available"]
