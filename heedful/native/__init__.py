"""The native engine: translation on CPUs with int8 weights, in C++ with a small C interface, without torch.

    build.py            compiles the C++ files
    bindings.py         ctypes bindings of the compiled library
    weight_file.py      the matrix layout of the kernels, and the file of the weights
    convert.py          converts a model directory to that file, in the user's cache
    search_batch.py     the arrays of a search
    engine.py           NativeEngine: token ids in, hypotheses out
    src/                the engine itself

Tokens and log-probabilities of a sentence are bit-identical in any batch, with any number of threads and on any
instruction set: rows are independent, integer sums are exact, and floating-point sums have a fixed order.
"""

from heedful.native.bindings import Availability, available
from heedful.native.engine import NativeEngine

__all__ = ["Availability", "NativeEngine", "available"]
