"""Convert a model directory to the native engine's weight file, which is stored in the user's cache.

The name and the header of the file contain a fingerprint of the model: the checksums of its weights and configuration.
Weight files in a model directory are ignored, because its checksums do not cover them. If the cache is not writable,
the weights are kept in memory until the process ends. Tables of sinusoidal and rotary positions are computed here, with
the same bits on every machine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import stat
import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.backend_support import require_support
from heedful.config import ModelConfig
from heedful.errors import ConfigError, ModelDirectoryError
from heedful.model_dir import files as model_files
from heedful.model_dir.files import CONFIG, ModelFiles
from heedful.model_dir.save_load import read_record
from heedful.model_dir.weights import SCALE, HeaderEntry, Int8Matrix, read_buffers, read_headers, without_scales
from heedful.native.weight_file import (
    VERSION,
    Int8Rows,
    Numbers,
    Shape,
    concatenate,
    dequantize,
    file_parts,
    is_finite,
    pack,
    quantize_rows,
    read_fingerprint,
    widen,
    write_weight_file,
)

Tensors = dict[str, Numbers]
"""The engine's tensors by name."""
PRECISIONS = ("int8", "float32")
CONVERSION = "int8 embeddings, fixed positions"  # part of the fingerprint; change it to invalidate cached files
ACTIVATIONS = {"relu": 1, "gelu": 2, "swiglu": 3}
DAYS_KEPT, SECONDS_BETWEEN_MARKS = 60, 86_400
_in_memory: dict[bytes, Path] = {}
_WIDTH = 3072
_ONE_MORE = int(
    "0460a0000000000000082c40150000620000000000000000020005a00000000200000000000015e1803f000048004004"
    "0004000000ac0000200000800000000080000018420000000124000000000100000020000f2000000020000000800000"
    "1e00012a0001080000000004000002b4001880004180200000004000003380002400018a000000000000000160002280"
    "00480100000000800000a5080290000060208000000000000d04002500000200400000000000000a1007e0001c080000",
    16,
)
_ONE_LESS = int(
    "40000008009a0189278000060000000000000005401d7484000060008a0000000001e0021801a0000200140000000000"
    "100059b20200000000000000000001f404194a40000100508800000020380014a844000020080000000100019008a190"
    "800008000080000000005b002613c8000000100000000000024002421500000a0001c0000000004000a51d3000030004"
    "000000000005201b446f0000a000000000000000e0021b9c000004002c00000000000400292254000200000000000000",
    16,
)
"""Bit i: frequency i of width 3072 is one unit in the last place above or below the correctly rounded float32.

These are the frequencies of numpy on processors with AVX-512, with which the published results were computed.
"""


def native_weights(directory: str | Path, *, precision: str = "int8", force: bool = False) -> Path:
    """The weight file of a model directory, converted if it is not cached or if `force`."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision is one of {', '.join(PRECISIONS)}, not {precision!r}.")
    return model_files.read_consistent(directory, lambda files: _find_or_convert(files, precision, force=force))


def _find_or_convert(files: ModelFiles, precision: str, *, force: bool) -> Path:
    for name in files.weights:
        files.check_size(name)
    config = read_record(files)[0].model
    require_support("native_engine", config)
    key = f"{VERSION} {CONVERSION} {precision} {files.weights_checksum} {files.entries[CONFIG].sha256}"
    fingerprint = hashlib.sha256(key.encode()).digest()
    path = cache_directory() / f"{fingerprint.hex()[:32]}.bin"
    for known in (path, _in_memory.get(fingerprint)):
        if known is not None and not force and read_fingerprint(known) == fingerprint:
            return _verify_cached(known, files)
    files.check(files.weights)
    tensors = convert(config, read_tensors(files, config), precision=precision)
    shape = shape_of(config, int8=precision == "int8")
    try:
        make_private(path.parent)
        write_weight_file(path, fingerprint=fingerprint, shape=shape, tensors=tensors)
        remove_unused(path.parent)
        return path
    except OSError as error:
        cache_error = error
    try:
        return _in_memory.setdefault(fingerprint, write_to_memory(fingerprint, shape, tensors))
    except (OSError, AttributeError) as error:  # AttributeError: memfd_create exists only on Linux
        raise ModelDirectoryError(
            f"the engine's weights cannot be stored in {path.parent} ({cache_error}) or in memory ({error}); "
            f"make that folder writable, or choose another with XDG_CACHE_HOME."
        ) from None


def _verify_cached(path: Path, files: ModelFiles) -> Path:
    """Return a cached file; verify the model's weights first if they are newer."""
    written, used = max(files.paths[name].stat().st_mtime for name in files.weights), path.stat().st_mtime
    if written > used:
        files.check(files.weights)
    if written > used or time.time() - used > SECONDS_BETWEEN_MARKS:
        with contextlib.suppress(OSError):
            os.utime(path)
    return path


def make_private(folder: Path) -> None:
    """Create the cache folder, writable by its owner only; raises OSError if that is not possible."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "geteuid") and (status := folder.stat()).st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "another user owns this folder", str(folder))
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(0o700)


def remove_unused(folder: Path) -> None:
    """Delete files of models that have not been opened for `DAYS_KEPT` days."""
    limit = time.time() - DAYS_KEPT * 86_400
    for path in folder.glob("*.bin"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < limit:
                path.unlink()


def write_to_memory(fingerprint: bytes, shape: Shape, tensors: Mapping[str, Numbers]) -> Path:
    """Write the file to memory, where it exists until the process ends."""
    descriptor = os.memfd_create("heedful-native")
    with open(descriptor, "wb", closefd=False) as file:
        for part in file_parts(fingerprint=fingerprint, shape=shape, tensors=tensors):
            file.write(part)
    return Path(f"/proc/self/fd/{descriptor}")


def cache_directory() -> Path:
    """The folder for weight files in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "heedful", "native")


def shape_of(config: ModelConfig, *, int8: bool) -> Shape:
    """The hyperparameters that the engine needs."""
    return Shape(
        d_model=config.d_model,
        d_ff=config.d_ff,
        num_heads=config.num_heads,
        head_dim=config.attention_head_dim,
        num_encoder_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        source_vocab_size=config.source_vocab_size,
        target_vocab_size=config.target_vocab_size,
        max_length=config.max_length,
        norm_before=config.norm_placement == "pre",
        only_scale=config.norm == "rms",
        has_final_norm=config.has_final_norm,
        rotary=config.positions == "rotary",
        activation=ACTIVATIONS[config.activation],
        int8=int8,
        tied_embedding=config.tying == "three_way",
        norm_epsilon=config.norm_epsilon,
        attention_scale=config.attention_head_dim**-0.5 if config.attention_scoring == "scaled_dot" else 1.0,
        embedding_scale=config.d_model**0.5,
    )


def read_tensors(files: ModelFiles, config: ModelConfig) -> dict[str, Numbers | Int8Rows]:
    """Read all weights of a model directory, float32 or int8 with scales, and check them against its configuration."""
    header = read_headers(files, config)
    stored: dict[str, tuple[HeaderEntry, memoryview]] = {}
    for name in files.weights:
        stored |= read_buffers(files.paths[name], files.directory / name)
    if {name: (entry.dtype, entry.shape) for name, (entry, _) in stored.items()} != header:
        raise ModelDirectoryError(f"{files.directory}: the weights changed while they were read; try again.")
    found: dict[str, Numbers | Int8Rows] = {}
    for name in without_scales(header):
        (dtype, shape, *_), data = stored[name]
        if dtype == "I8":
            _, scales = stored[f"{name}{SCALE}"]
            found[name] = Int8Rows(Numbers("int8", shape, data), Numbers("float32", shape[:1], scales))
        else:
            found[name] = Numbers("float32", shape, data) if dtype == "F32" else widen(dtype, shape, data)
    return found


def as_numbers(weight: Any) -> Numbers | Int8Rows:
    """Wrap a tensor of any type without copying it."""
    if isinstance(weight, Int8Matrix):
        return Int8Rows(Numbers.of(weight.values), Numbers.of(weight.scales))
    return weight if isinstance(weight, Numbers | Int8Rows) else Numbers.of(weight)


def convert(config: ModelConfig, weights: Mapping[str, Any], *, precision: str) -> Tensors:
    """Convert a state dict, float32 or int8 with scales, to the engine's tensors; all values must be finite."""
    for name, weight in weights.items():
        tensor = as_numbers(weight)
        if not is_finite(tensor.scales if isinstance(tensor, Int8Rows) else tensor):
            raise ModelDirectoryError(f"{name} contains NaN or infinite numbers: the model's weights are damaged.")
    conversion = _Conversion(weights, int8=precision == "int8")
    target = "source_embedding" if config.tying == "three_way" else "target_embedding"
    if target == "target_embedding":
        conversion.embedding("source_embedding")
    if config.tying == "none" or not conversion.int8:  # int8: the output layer's matrix is also the embedding table
        conversion.embedding(target)
    output = "output.weight" if config.tying == "none" else f"{target}.weight"
    conversion.tensors.update(named("output", pack(conversion.matrix(output), None, int8=conversion.int8)))
    conversion.positions(config)
    for i in range(config.num_encoder_layers):
        conversion.attention(f"encoder.{i}.self", f"encoder.layers.{i}.self_attention")
        conversion.feed_forward(f"encoder.{i}.feed_forward", f"encoder.layers.{i}.feed_forward")
    for i in range(config.num_decoder_layers):
        conversion.attention(f"decoder.{i}.self", f"decoder.layers.{i}.self_attention")
        conversion.cross_attention(f"decoder.{i}.cross", f"decoder.layers.{i}.cross_attention")
        conversion.feed_forward(f"decoder.{i}.feed_forward", f"decoder.layers.{i}.feed_forward")
    if config.has_final_norm:
        conversion.norm("encoder.norm", "encoder.norm")
        conversion.norm("decoder.norm", "decoder.norm")
    return conversion.tensors


class _Conversion:
    """Converts tensors of a state dict to those of the engine."""

    def __init__(self, weights: Mapping[str, Any], *, int8: bool) -> None:
        self.weights, self.int8 = weights, int8
        self.tensors: Tensors = {}

    def matrix(self, *names: str) -> Numbers | Int8Rows:
        """Concatenate matrices by rows, as int8 with row scales or as float32."""
        parts = [as_numbers(self.weights[name]) for name in names]
        if self.int8:
            rounded = [part if isinstance(part, Int8Rows) else quantize_rows(part) for part in parts]
            return Int8Rows(
                concatenate([part.values for part in rounded]), concatenate([part.scales for part in rounded])
            )
        return concatenate([dequantize(part) if isinstance(part, Int8Rows) else part for part in parts])

    def vector(self, name: str) -> Numbers:
        """A tensor in float32."""
        tensor = as_numbers(self.weights[name])
        return dequantize(tensor) if isinstance(tensor, Int8Rows) else tensor

    def embedding(self, name: str) -> None:
        """Add an embedding table: int8 rows and their scales, or float32."""
        weight = self.matrix(f"{name}.weight")
        self.add(name, weight.values if isinstance(weight, Int8Rows) else weight)
        if isinstance(weight, Int8Rows):
            self.add(f"{name}.scales", weight.scales)

    def add(self, name: str, tensor: Numbers) -> None:
        """Add a tensor unchanged; a vector becomes a row."""
        self.tensors[name] = tensor if len(tensor.shape) == 2 else tensor.reshape(1, *tensor.shape)

    def linear(self, name: str, *sources: str) -> None:
        """Merge linear layers with the same input into one."""
        weight = self.matrix(*(f"{source}.weight" for source in sources))
        has_bias = f"{sources[0]}.bias" in self.weights
        bias = concatenate([self.vector(f"{source}.bias") for source in sources]) if has_bias else None
        self.tensors.update(named(name, pack(weight, bias, int8=self.int8)))

    def norm(self, name: str, source: str) -> None:
        """Add the weight of a norm, and its bias if it has one."""
        for part in ("weight", "bias"):
            if f"{source}.{part}" in self.weights:
                self.add(f"{name}.{part}", self.vector(f"{source}.{part}"))

    def attention(self, name: str, source: str) -> None:
        """Add self-attention; queries, keys and values are one layer."""
        self.linear(f"{name}.input", f"{source}.query", f"{source}.key", f"{source}.value")
        self.linear(f"{name}.output", f"{source}.output")
        self.norm(f"{name}.norm", f"{source}_norm")

    def cross_attention(self, name: str, source: str) -> None:
        """Add cross-attention; keys and values are one layer."""
        self.linear(f"{name}.query", f"{source}.query")
        self.linear(f"{name}.memory", f"{source}.key", f"{source}.value")
        self.linear(f"{name}.output", f"{source}.output")
        self.norm(f"{name}.norm", f"{source}_norm")

    def feed_forward(self, name: str, source: str) -> None:
        """Add a feed-forward sublayer; SwiGLU's inner layer and gate are one layer."""
        gate = [f"{source}.gate"] if f"{source}.gate.weight" in self.weights else []
        self.linear(f"{name}.input", f"{source}.inner", *gate)
        self.linear(f"{name}.output", f"{source}.output")
        self.norm(f"{name}.norm", f"{source}_norm")

    def positions(self, config: ModelConfig) -> None:
        """Add the position embeddings, or the rotations of rotary positions."""
        if config.positions == "learned":
            for side in ("source", "target"):
                self.add(f"{side}_positions", self.vector(f"{side}_positions.embedding.weight"))
        elif config.positions == "rotary":
            self.add("turns", position_table(config.max_length, config.attention_head_dim, cosine_first=True))
        else:
            self.add("source_positions", position_table(config.max_length, config.d_model, cosine_first=False))


def named(name: str, parts: Mapping[str, Numbers]) -> Tensors:
    """The tensors of a linear layer under its name."""
    return {f"{name}.{end}": part for end, part in parts.items()}


def position_table(num_positions: int, width: int, *, cosine_first: bool) -> Numbers:
    """Interleaved sine and cosine of position · frequency, (positions, width)."""
    waves = frequencies(width)
    table = array("f", bytes(4 * num_positions * width))
    for position in range(num_positions):
        angles = array("f", (position * wave for wave in waves))
        start, end = position * width, (position + 1) * width
        table[start + cosine_first : end : 2] = array("f", map(math.sin, angles))
        table[start + (not cosine_first) : end : 2] = array("f", map(math.cos, angles))
    return Numbers("float32", (num_positions, width), memoryview(table).cast("B"))


def frequencies(width: int) -> array[float]:
    """1 / 10000^(2i/width) in float32: fixed bits for widths that divide 3072, else correctly rounded."""
    exponents = array("f", (2 * i / width for i in range(width // 2)))
    found = array("f", (10_000.0**-exponent for exponent in exponents))
    if _WIDTH % width:
        return found
    bits = array("i", found.tobytes())
    for i in range(len(bits)):
        bit = i * (_WIDTH // width)
        bits[i] += (_ONE_MORE >> bit & 1) - (_ONE_LESS >> bit & 1)
    return array("f", bits.tobytes())
