"""ctypes bindings of the compiled library. ctypes releases the GIL during calls."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_uint8, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

from heedful.native.build import NAME

INTERFACE_VERSION = 16


class Settings(Structure):
    """Search settings: `HeedfulSettings` in c_api.h."""

    _fields_ = [
        *((name, c_int32) for name in ("beam_size", "num_best", "length_penalty", "min_length", "no_repeat_ngram")),
        *((name, c_int32) for name in ("bos_id", "eos_id", "num_forbidden")),
        ("length_penalty_alpha", c_double),
        ("forbidden", POINTER(c_int32)),
        ("shortlist", c_int32),
        ("speculative", c_int32),
        ("byte_ids", POINTER(c_int32)),
    ]


CONTINUES_WORD, ENDS_IN_WORD = 1, 2
"""Word flags of target tokens."""


class Phrases(Structure):
    """Phrases that translations must contain: `HeedfulPhrases` in c_api.h."""

    _fields_ = [
        ("starts", POINTER(c_int64)),
        ("alternative_starts", POINTER(c_int64)),
        ("token_starts", POINTER(c_int64)),
        ("tokens", POINTER(c_int32)),
        ("only_first", c_char_p),
        ("sources", POINTER(c_int32)),
        ("word_flags", c_char_p),
        *((name, c_int32) for name in ("layer", "head", "offset")),
        ("placement_weight", c_float),
    ]


class Sentences(Structure):
    """Sentences to translate: `HeedfulSentences` in c_api.h."""

    _fields_ = [
        ("count", c_int32),
        ("unused", c_int32),
        ("tokens", POINTER(c_int32)),
        ("starts", POINTER(c_int64)),
        ("prefix", POINTER(c_int32)),
        ("prefix_starts", POINTER(c_int64)),
        ("max_lengths", POINTER(c_int32)),
        ("forbidden", POINTER(c_int32)),
        ("forbidden_starts", POINTER(c_int64)),
        ("phrases", POINTER(Phrases)),
    ]


class ShortlistArrays(Structure):
    """Candidates of each source token: `HeedfulShortlist` in c_api.h."""

    _fields_ = [
        *((name, c_int64) for name in ("num_sources", "num_targets", "num_always")),
        ("starts", POINTER(c_int64)),
        ("targets", c_void_p),
        ("always", POINTER(c_int32)),
        ("target_size", c_int32),
        ("unused", c_int32),
    ]


class SentencePairs(Structure):
    """Sentences with their translations: `HeedfulPairs` in c_api.h."""

    _fields_ = [
        ("count", c_int32),
        ("unused", c_int32),
        ("source", POINTER(c_int32)),
        ("source_starts", POINTER(c_int64)),
        ("target", POINTER(c_int32)),
        ("target_starts", POINTER(c_int64)),
    ]


class Results(Structure):
    """Output buffers: `HeedfulResults` in c_api.h."""

    _fields_ = [
        ("offsets", POINTER(c_int64)),
        ("tokens", POINTER(c_int32)),
        ("log_probs", POINTER(c_float)),
        ("lengths", POINTER(c_int32)),
        ("missing", POINTER(c_uint64)),
        ("placement_costs", POINTER(c_float)),
    ]


class TreeNode(Structure):
    """A continuation that a beam search considered: `HeedfulTreeNode` in c_api.h."""

    _fields_ = [
        *((name, c_int32) for name in ("parent", "step", "token", "state", "rank")),
        *((name, c_float) for name in ("log_prob", "total", "score")),
    ]


class Intervention(Structure):
    """A change to a traced pass: `HeedfulIntervention` in c_api.h."""

    _fields_ = [
        *((name, c_int32) for name in ("kind", "stack", "sublayer", "layer", "head", "query", "key")),
        ("value", c_float),
    ]


class TraceRequest(Structure):
    """A pair to trace: `HeedfulTraceRequest` in c_api.h."""

    _fields_ = [
        ("source", POINTER(c_int32)),
        ("source_length", c_int64),
        ("target", POINTER(c_int32)),
        ("target_length", c_int64),
        ("max_length", c_int64),
        ("wanted", c_char_p),
        ("interventions", POINTER(Intervention)),
        ("num_interventions", c_int32),
        ("unused", c_int32),
    ]


class TraceTensor(Structure):
    """A recorded tensor: `HeedfulTraceTensor` in c_api.h."""

    _fields_ = [
        ("name", c_char_p),
        ("values", c_void_p),
        ("shape", c_int64 * 3),
        ("num_dimensions", c_int32),
        ("unused", c_int32),
    ]


@dataclass(frozen=True)
class Availability:
    """Whether the native engine can be used; usable as a condition."""

    reason: str
    """The kernels that would be used, or why the engine is unavailable."""
    usable: bool

    def __bool__(self) -> bool:
        return self.usable


def available() -> Availability:
    """Whether the library was compiled and can be loaded, or why not."""
    try:
        library = load_library()
    except OSError as error:
        return Availability(str(error), usable=False)
    return Availability(f"kernels: {library.heedful_kernels(None).decode()}", usable=True)


def kernel_names() -> list[str]:
    """The kernels that this processor supports, fastest first."""
    library = load_library()
    names = ("amx", "avx512", "avxvnni", "avx2", "portable")
    return [name for name in names if library.heedful_kernels(name.encode())]


@functools.cache
def load_library() -> ctypes.CDLL:
    """Load the library from this folder; raises OSError if it is missing or from another version."""
    found = sorted(Path(__file__).parent.glob(f"{NAME}.*so"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise OSError(
            "the native engine was not compiled; with a C++ compiler installed, install heedful again, "
            "or in a checkout run python -m heedful.native"
        )
    library = ctypes.CDLL(str(found[-1]))
    library.heedful_interface_version.restype = c_int32
    if library.heedful_interface_version() != INTERFACE_VERSION:
        raise OSError(f"{found[-1]} belongs to another version of heedful; compile it again")
    try:
        declare(library)
    except AttributeError as error:  # an older library lacks a function
        raise OSError(f"{found[-1]} belongs to another version of heedful ({error}); compile it again") from None
    return library


def declare(library: ctypes.CDLL) -> None:
    """Declare the argument and return types of the functions."""
    message = (c_char_p, c_int64)
    library.heedful_kernels.argtypes, library.heedful_kernels.restype = [c_char_p], c_char_p
    library.heedful_open.argtypes = [c_char_p, c_int32, c_char_p, *message]
    library.heedful_open.restype = c_void_p
    library.heedful_open_shared.argtypes = [c_void_p, c_int32, *message]
    library.heedful_open_shared.restype = c_void_p
    library.heedful_close.argtypes, library.heedful_close.restype = [c_void_p], None
    library.heedful_shortlist.argtypes = [c_void_p, POINTER(ShortlistArrays), *message]
    library.heedful_shortlist.restype = c_int32
    library.heedful_translate.argtypes = [
        *(c_void_p, POINTER(Settings), POINTER(Sentences), POINTER(Results)),
        *message,
    ]
    library.heedful_translate.restype = c_int32
    library.heedful_translate_tree.argtypes = library.heedful_translate.argtypes
    library.heedful_translate_tree.restype = c_void_p
    library.heedful_tree_nodes.argtypes = [c_void_p, POINTER(POINTER(TreeNode))]
    library.heedful_tree_nodes.restype = c_int64
    library.heedful_tree_free.argtypes, library.heedful_tree_free.restype = [c_void_p], None
    library.heedful_align.argtypes = [c_void_p, POINTER(SentencePairs), c_int32, c_int32, POINTER(c_float), *message]
    library.heedful_align.restype = c_int32
    ids = (POINTER(c_int32), c_int64)
    library.heedful_logits.argtypes = [c_void_p, *ids, *ids, POINTER(c_float), *message]
    library.heedful_logits.restype = c_int32
    library.heedful_trace.argtypes = [c_void_p, POINTER(Settings), POINTER(TraceRequest), *message]
    library.heedful_trace.restype = c_void_p
    library.heedful_trace_target.argtypes = [c_void_p, POINTER(POINTER(c_int32))]
    library.heedful_trace_target.restype = c_int64
    library.heedful_trace_count.argtypes, library.heedful_trace_count.restype = [c_void_p], c_int64
    library.heedful_trace_tensor.argtypes = [c_void_p, c_int64, POINTER(TraceTensor)]
    library.heedful_trace_tensor.restype = None
    library.heedful_trace_free.argtypes, library.heedful_trace_free.restype = [c_void_p], None
    library.heedful_speculation_counts.argtypes = [c_void_p, POINTER(c_int64), POINTER(c_int64)]
    library.heedful_speculation_counts.restype = None
    library.heedful_dot.argtypes = [
        *(c_char_p, POINTER(c_uint8), c_int64, c_int32),
        *(c_void_p, c_int32, POINTER(c_int32)),
    ]
    library.heedful_dot.restype = c_int32
    library.heedful_dot_nonzero.argtypes = [
        *(c_char_p, POINTER(c_uint8), c_int32, c_int32),
        *(c_void_p, c_int32, POINTER(c_int32)),
    ]
    library.heedful_dot_nonzero.restype = c_int32
    library.heedful_multiply_sketch.argtypes = [
        *(c_char_p, POINTER(c_uint8), c_int32),
        *(c_void_p, c_int32, POINTER(c_float)),
    ]
    library.heedful_multiply_sketch.restype = c_int32
    matrix = (c_void_p, c_int64, c_int64)
    library.heedful_widen.argtypes, library.heedful_widen.restype = [c_char_p, c_void_p, c_int64, c_void_p], c_int32
    library.heedful_all_finite.argtypes, library.heedful_all_finite.restype = [c_void_p, c_int64], c_int32
    library.heedful_quantize_rows.argtypes = [*matrix, c_void_p, c_void_p]
    library.heedful_dequantize_rows.argtypes = [c_void_p, *matrix, c_void_p]
    library.heedful_pack_int8.argtypes = [*matrix, c_int64, c_void_p, c_void_p]
    library.heedful_pack_float32.argtypes = [*matrix, c_int64, c_void_p]
    library.heedful_checksums.argtypes = [c_void_p, c_int64, c_int64, POINTER(c_uint64), POINTER(c_uint64)]
    for name in ("quantize_rows", "dequantize_rows", "pack_int8", "pack_float32", "checksums"):
        getattr(library, f"heedful_{name}").restype = None
