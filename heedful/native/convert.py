"""From a model directory to the native engine's weights, which are kept in the user's cache for the next time.

The file's name and its contents carry a fingerprint of the model it was made from: the checksums of its weights and
configuration. Nothing in a model directory is taken for such a file, since no checksum covers it there. Where the cache
cannot be written, the weights are kept in memory for as long as the process lives.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
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
from heedful.native.int8_tiles import (
    Int8Rows,
    Numbers,
    concatenate,
    dequantize,
    is_finite,
    pack,
    quantize_rows,
    widen,
)
from heedful.native.position_table import position_table
from heedful.native.weight_file import VERSION, Shape, parts_of, read_fingerprint, write_weight_file

Tensors = dict[str, Numbers]
"""The engine's tensors by their names."""
PRECISIONS = ("int8", "float32")
CONVERSION = "rounded embeddings, fixed positions"  # part of the fingerprint: what an older way made is made again
ACTIVATIONS = {"relu": 1, "gelu": 2, "swiglu": 3}
DAYS_KEPT, SECONDS_BETWEEN_MARKS = 60, 86_400
_in_memory: dict[bytes, Path] = {}


def native_weights(directory: str | Path, *, precision: str = "int8", anew: bool = False) -> Path:
    """The engine's file for a model directory, made now if there is none for this model, or if `anew`."""
    if precision not in PRECISIONS:
        raise ConfigError(f"precision is one of {', '.join(PRECISIONS)}, not {precision!r}.")
    return model_files.read_consistent(directory, lambda files: _find_or_make(files, precision, anew=anew))


def _find_or_make(files: ModelFiles, precision: str, *, anew: bool) -> Path:
    for name in files.weights:
        files.check_size(name)
    config = read_record(files)[0].model
    require_support("native_engine", config)
    told = f"{VERSION} {CONVERSION} {precision} {files.weights_checksum} {files.entries[CONFIG].sha256}"
    fingerprint = hashlib.sha256(told.encode()).digest()
    place = cache_directory() / f"{fingerprint.hex()[:32]}.bin"
    for known in (place, _in_memory.get(fingerprint)):
        if known is not None and not anew and read_fingerprint(known) == fingerprint:
            return _still_true(known, files)
    files.check(files.weights)
    tensors = convert(config, read_tensors(files, config), precision=precision)
    shape = shape_of(config, int8=precision == "int8")
    try:
        make_private(place.parent)
        write_weight_file(place, fingerprint=fingerprint, shape=shape, tensors=tensors)
        remove_unused(place.parent)
        return place
    except OSError as error:
        refused = error
    try:
        return _in_memory.setdefault(fingerprint, write_to_memory(fingerprint, shape, tensors))
    except (OSError, AttributeError) as error:  # AttributeError: only Linux has files in memory
        raise ModelDirectoryError(
            f"the engine's weights can be kept neither in {place.parent} ({refused}) nor in memory ({error}); "
            f"make that folder writable, or name another with XDG_CACHE_HOME."
        ) from None


def _still_true(place: Path, files: ModelFiles) -> Path:
    """The engine's file as it is; first the weights are verified again if they were written after it."""
    written, used = max(files.paths[name].stat().st_mtime for name in files.weights), place.stat().st_mtime
    if written > used:
        files.check(files.weights)
    if written > used or time.time() - used > SECONDS_BETWEEN_MARKS:
        with contextlib.suppress(OSError):
            os.utime(place)
    return place


def make_private(folder: Path) -> None:
    """Make the folder of the cache, which nobody else may write; an OSError says that there can be none."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "geteuid") and (status := folder.stat()).st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "another user owns this folder", str(folder))
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(0o700)


def remove_unused(folder: Path) -> None:
    """Forget what was made of models that nobody has opened for `DAYS_KEPT` days."""
    limit = time.time() - DAYS_KEPT * 86_400
    for path in folder.glob("*.bin"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < limit:
                path.unlink()


def write_to_memory(fingerprint: bytes, shape: Shape, tensors: Mapping[str, Numbers]) -> Path:
    """The file as one without a name, which lives as long as the process."""
    number = os.memfd_create("heedful-native")
    with open(number, "wb", closefd=False) as file:
        for part in parts_of(fingerprint=fingerprint, shape=shape, tensors=tensors):
            file.write(part)
    return Path(f"/proc/self/fd/{number}")


def cache_directory() -> Path:
    """The folder of the user's cache for the engine's weights."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "heedful", "native")


def shape_of(config: ModelConfig, *, int8: bool) -> Shape:
    """What the engine must know of a configuration."""
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
    """All weights of a model directory, checked against its configuration: float32, or int8 with scales."""
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
    """A tensor of whatever kind as plain bytes; arrays are not copied."""
    if isinstance(weight, Int8Matrix):
        return Int8Rows(Numbers.of(weight.values), Numbers.of(weight.scales))
    return weight if isinstance(weight, Numbers | Int8Rows) else Numbers.of(weight)


def convert(config: ModelConfig, weights: Mapping[str, Any], *, precision: str) -> Tensors:
    """The engine's tensors from those of a state dict, float32 or int8 with scales, which must all be finite."""
    for name, weight in weights.items():
        tensor = as_numbers(weight)
        if not is_finite(tensor.scales if isinstance(tensor, Int8Rows) else tensor):
            raise ModelDirectoryError(f"{name} holds numbers that are not finite: the model's weights are damaged.")
    conversion = _Conversion(weights, int8=precision == "int8")
    target = "source_embedding" if config.tying == "three_way" else "target_embedding"
    conversion.embedding("source_embedding")
    if target == "target_embedding":
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
    """Tensors on their way from the names of the state dict to those of the engine."""

    def __init__(self, weights: Mapping[str, Any], *, int8: bool) -> None:
        self.weights, self.int8 = weights, int8
        self.tensors: Tensors = {}

    def matrix(self, *names: str) -> Numbers | Int8Rows:
        """Matrices one below the other: int8 with the scales of their rows if int8 is asked for, else float32."""
        parts = [as_numbers(self.weights[name]) for name in names]
        if self.int8:
            rounded = [part if isinstance(part, Int8Rows) else quantize_rows(part) for part in parts]
            return Int8Rows(
                concatenate([part.values for part in rounded]), concatenate([part.scales for part in rounded])
            )
        return concatenate([dequantize(part) if isinstance(part, Int8Rows) else part for part in parts])

    def vector(self, name: str) -> Numbers:
        """A tensor that is always kept in float32."""
        tensor = as_numbers(self.weights[name])
        return dequantize(tensor) if isinstance(tensor, Int8Rows) else tensor

    def embedding(self, name: str) -> None:
        """Embeddings are looked up in float32; with int8 they are the dequantized rows.

        A model that was saved in int8 and the one that it was made from are therefore the same to the engine.
        """
        weight = self.matrix(f"{name}.weight")
        self.keep(name, dequantize(weight) if isinstance(weight, Int8Rows) else weight)

    def keep(self, name: str, tensor: Numbers) -> None:
        """One tensor as it is; a vector becomes a row."""
        self.tensors[name] = tensor if len(tensor.shape) == 2 else tensor.reshape(1, *tensor.shape)

    def linear(self, name: str, *sources: str) -> None:
        """Several linear layers over the same input as one."""
        weight = self.matrix(*(f"{source}.weight" for source in sources))
        has_bias = f"{sources[0]}.bias" in self.weights
        bias = concatenate([self.vector(f"{source}.bias") for source in sources]) if has_bias else None
        self.tensors.update(named(name, pack(weight, bias, int8=self.int8)))

    def norm(self, name: str, source: str) -> None:
        """A norm's weight, and its bias if it has one."""
        for part in ("weight", "bias"):
            if f"{source}.{part}" in self.weights:
                self.keep(f"{name}.{part}", self.vector(f"{source}.{part}"))

    def attention(self, name: str, source: str) -> None:
        """Self-attention: queries, keys and values by one product."""
        self.linear(f"{name}.input", f"{source}.query", f"{source}.key", f"{source}.value")
        self.linear(f"{name}.output", f"{source}.output")
        self.norm(f"{name}.norm", f"{source}_norm")

    def cross_attention(self, name: str, source: str) -> None:
        """Cross-attention: queries of the target, keys and values of the memory."""
        self.linear(f"{name}.query", f"{source}.query")
        self.linear(f"{name}.memory", f"{source}.key", f"{source}.value")
        self.linear(f"{name}.output", f"{source}.output")
        self.norm(f"{name}.norm", f"{source}_norm")

    def feed_forward(self, name: str, source: str) -> None:
        """The feed-forward sublayer; SwiGLU's inner layer and gate by one product."""
        gate = [f"{source}.gate"] if f"{source}.gate.weight" in self.weights else []
        self.linear(f"{name}.input", f"{source}.inner", *gate)
        self.linear(f"{name}.output", f"{source}.output")
        self.norm(f"{name}.norm", f"{source}_norm")

    def positions(self, config: ModelConfig) -> None:
        """What is added to embeddings, or the turns of queries and keys, for every position."""
        if config.positions == "learned":
            for side in ("source", "target"):
                self.keep(f"{side}_positions", self.vector(f"{side}_positions.embedding.weight"))
        elif config.positions == "rotary":
            self.keep("turns", position_table(config.max_length, config.attention_head_dim, cosine_first=True))
        else:
            self.keep("source_positions", position_table(config.max_length, config.d_model, cosine_first=False))


def named(name: str, parts: Mapping[str, Numbers]) -> Tensors:
    """The tensors of a linear layer under its name."""
    return {f"{name}.{end}": part for end, part in parts.items()}
