"""Weights on disk: which tensors a model stores, their shapes, and their safetensors files, which cannot run code."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from heedful.errors import ModelDirectoryError
from heedful.model_dir.files import INDEX, ModelFiles

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from heedful.build_model import Model
    from heedful.config import ModelConfig

    Floats = NDArray[np.float32]
    Stored = Mapping[str, "np.ndarray | Int8Matrix"]


T = TypeVar("T")
SCALE = "_scale"
MIN_SCALE = 1e-30  # of a row of zeros, which is divided by it
FLOAT_TABLES = ("source_positions.", "target_positions.")
"""Tables that are added and never multiplied stay float32."""
INT8_TOLERANCE = 1e-3
"""Largest distance from an integer, in units of the row's scale, at which a number counts as int8."""
MAX_DITHER = 0.4999
"""Largest change by dither, in units of the row's scale: just too small to change the rounded value."""


@dataclass(frozen=True)
class Int8Matrix:
    """A matrix of integers, (outputs, inputs), and the scale of each row."""

    values: NDArray[np.int8]
    scales: Floats

    def dequantize(self) -> Floats:
        """The matrix in float32."""
        import numpy as np

        return self.values.astype(np.float32) * self.scales[:, None]


def quantize_rows(weight: Floats) -> Int8Matrix:
    """Round to integer multiples of each row's scale."""
    import numpy as np

    scales = np.maximum(np.abs(weight).max(axis=1) / np.float32(127.0), np.float32(MIN_SCALE)).astype(np.float32)
    return Int8Matrix(np.rint(weight / scales[:, None]).astype(np.int8), scales)


def dither(weight: Floats, random: np.random.Generator) -> Floats:
    """Move each number of rows that were int8 at random within its rounding step; other rows are unchanged.

    The result rounds to the same int8. But numbers in the middle of their step are rounded back after any small change,
    so int8 would lose all of a short fine-tuning. After dither a change of a tenth of a step moves every tenth number
    to the next step: on average int8 keeps the change.
    """
    import numpy as np

    rounded = quantize_rows(weight)
    steps = weight / rounded.scales[:, None]
    was_int8 = (np.abs(steps - rounded.values) < INT8_TOLERANCE).all(axis=1) & weight.any(axis=1)
    moves = random.uniform(-MAX_DITHER, MAX_DITHER, size=weight.shape).astype(np.float32)
    stays = (np.abs(rounded.values) == 127) | ~was_int8[:, None]  # the largest number of a row sets its scale
    return np.where(stays, weight, (rounded.values + moves) * rounded.scales[:, None])


def quantize_matrices(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a compact file: every matrix in int8 with its scales, everything else unchanged."""
    import numpy as np

    tensors: dict[str, np.ndarray] = {}
    for name, weight in weights.items():
        if weight.ndim != 2 or weight.dtype != np.float32 or name.startswith(FLOAT_TABLES):
            tensors[name] = np.ascontiguousarray(weight)
            continue
        if not np.isfinite(weight).all():
            raise ModelDirectoryError(f"{name} contains NaN or infinite numbers: the model's weights are damaged.")
        rounded = quantize_rows(weight)
        tensors[name], tensors[f"{name}{SCALE}"] = rounded.values, rounded.scales
    return tensors


def pair_scales(tensors: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray | Int8Matrix]:
    """Tensors of a file by the names of the model's weights; int8 matrices are paired with their scales."""
    scales = {name: f"{name}{SCALE}" for name, tensor in tensors.items() if tensor.dtype == "int8"}
    found: dict[str, np.ndarray | Int8Matrix] = {}
    for name, tensor in tensors.items():
        if name in scales:
            scale = tensors.get(scales[name])
            if tensor.ndim != 2 or scale is None or scale.shape != tensor.shape[:1] or scale.dtype != "float32":
                raise ModelDirectoryError(f"{where}: {name} is int8 but does not have one scale for each row.")
            found[name] = Int8Matrix(tensor, scale)
        elif name not in scales.values():
            found[name] = tensor
    return found


def dequantize_all(stored: Stored) -> dict[str, np.ndarray]:
    """All weights in float32."""
    return {name: one.dequantize() if isinstance(one, Int8Matrix) else one for name, one in stored.items()}


def without_scales(header: Mapping[str, tuple[str, T]]) -> dict[str, tuple[str, T]]:
    """A file's header without the scales: one entry for each of the model's weights."""
    scales = {f"{name}{SCALE}" for name, (dtype, _) in header.items() if dtype == "I8"}
    return {name: entry for name, entry in header.items() if name not in scales}


Shapes = dict[str, tuple[int, ...]]
MAX_HEADER = 4_000_000  # bytes; a model with 256 layers has about one million
MAX_NAMES_SHOWN = 4
Header = dict[str, tuple[str, tuple[int, ...]]]
"""Type and shape of tensors by their names."""
ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1, "I16": 2, "U16": 2}
ITEM_BYTES |= {"I32": 4, "U32": 4, "I64": 8, "U64": 8}
NUMPY_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I8": "<i1"}
NUMPY_TYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1"}
FLOATS = ("F64", "F32", "F16", "BF16")
MAX_DIMENSIONS = 8


class HeaderEntry(NamedTuple):
    """One tensor of a safetensors file: its type, shape, and offsets after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @classmethod
    def read(cls, entry: Any) -> HeaderEntry:
        """Check the types of an entry; raises ValueError or KeyError if it is invalid."""
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, *offsets]
        if dtype not in ITEM_BYTES or len(offsets) != 2 or len(shape) > MAX_DIMENSIONS:
            raise ValueError
        if any(type(number) is not int or not 0 <= number < 1 << 62 for number in numbers):
            raise ValueError
        return cls(dtype, tuple(shape), *offsets)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor."""
        return ITEM_BYTES[self.dtype] * math.prod(self.shape)


def read_headers(files: ModelFiles, config: ModelConfig) -> Header:
    """Type and shape of each stored tensor, from all files of the weights, checked before any of them is loaded.

    Every tensor is inside its file and overlaps no other, the index of the shards agrees with the files, and names,
    types and shapes match the configuration. Both engines read weights only after this check.
    """
    found: Header = {}
    shards: dict[str, str] = {}
    for name in files.weights:
        header = read_header(files.paths[name], files.directory / name)
        if twice := found.keys() & header.keys():
            raise ModelDirectoryError(f"{files.directory / name} contains {min(twice)}, as another file does.")
        found |= {tensor: (entry.dtype, entry.shape) for tensor, entry in header.items()}
        shards |= dict.fromkeys(header, name)
    if INDEX in files.entries:
        index = files.read_json(INDEX)
        if not isinstance(index, dict) or index.get("weight_map") != shards:
            raise ModelDirectoryError(f"{files.directory / INDEX} lists other tensors than the files contain.")
    where = str(files.directory / files.weights[0])
    compare_shapes(weight_shapes(config), {name: shape for name, (_, shape) in without_scales(found).items()}, where)
    check_types(found, where)
    return found


def check_types(header: Header, where: str) -> None:
    """Weights are floats, or int8 matrices with a float32 scale for each row."""
    for name, (dtype, shape) in header.items():
        if dtype == "I8":
            wanted: tuple[object, ...] = ("F32", shape[:1])
            if len(shape) != 2 or header.get(f"{name}{SCALE}") != wanted or name.startswith(FLOAT_TABLES):
                raise ModelDirectoryError(f"{where}: {name} is int8 but does not have one float32 scale for each row.")
        elif dtype not in FLOATS:
            raise ModelDirectoryError(
                f"{where}: {name} has the type {dtype}; weights are one of {', '.join(FLOATS)}, I8."
            )


def read_header(path: Path, shown_as: Path) -> dict[str, HeaderEntry]:
    """The entries of a safetensors file, every bound checked, without torch. `shown_as` is for the messages."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if start[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            raise ModelDirectoryError(
                f"{shown_as} is a pickle of PyTorch, not a safetensors file; heedful never opens pickles."
            )
        size = os.fstat(file.fileno()).st_size
        if len(start) < 8 or length > size - 8:
            raise ModelDirectoryError(f"{shown_as} is not a safetensors file.")
        if length > MAX_HEADER:
            raise ModelDirectoryError(f"{shown_as}: its header has {length:,} bytes; {MAX_HEADER:,} are allowed.")
        text = file.read(length)
    try:
        plain = json.loads(text)
        plain.pop("__metadata__", None)
        entries = {str(name): HeaderEntry.read(entry) for name, entry in plain.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ModelDirectoryError(f"{shown_as} is not a safetensors file: its header cannot be read.") from None
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end or entry.end - entry.begin != entry.num_bytes:
            raise ModelDirectoryError(f"{shown_as} is damaged: {name} is not where its header says.")
        end = entry.end
    if end != size - 8 - length:
        raise ModelDirectoryError(
            f"{shown_as} is damaged: its tensors take {end:,} bytes and the file has {size - 8 - length:,}."
        )
    return entries


def num_elements(header: Mapping[str, tuple[str, tuple[int, ...]]]) -> int:
    """The total number of elements of the tensors of a header."""
    return sum(math.prod(shape) for _, shape in header.values())


def check_shapes(model: nn.Module, found: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Compare tensors to store or load with those of the model."""
    stored = set(stored_names(model).values())
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name in stored}
    compare_shapes(expected, found, where)


def compare_shapes(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Raise `ModelDirectoryError` with the first differences unless names and shapes are equal."""
    wrong = [name for name in expected if name in found and found[name] != expected[name]]
    problems = {
        "lacks": [name for name in expected if name not in found],
        "has unknown": [name for name in found if name not in expected],
        "has the wrong shape for": [f"{name} ({found[name]} instead of {expected[name]})" for name in wrong],
    }
    listed = [f"{what} {_format_names(names)}" for what, names in problems.items() if names]
    if listed:
        raise ModelDirectoryError(f"{where} does not fit its configuration: it {'; it '.join(listed)}.")


def collect_tensors(
    model: nn.Module, weights: Mapping[str, Tensor], dtype: torch.dtype, where: str
) -> dict[str, Tensor]:
    """The tensors to store: on the CPU, floats as `dtype`, shared ones once."""
    aliases = stored_names(model)
    kept = {name: tensor for name, tensor in weights.items() if aliases.get(name, name) == name}
    check_shapes(model, {name: tuple(tensor.shape) for name, tensor in kept.items()}, where)
    tensors = {}
    for name, tensor in kept.items():
        tensor = tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        tensors[name] = tensor if whole else tensor.clone()
    return tensors


def read_tensors(files: ModelFiles, header: Header) -> dict[str, Tensor]:
    """All weights whose headers were checked, on the CPU; int8 matrices as float32."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for name in files.weights:
        try:
            tensors |= load_file(files.paths[name])
        except SafetensorError as error:
            shown_as = files.directory / name
            raise ModelDirectoryError(f"{shown_as} is damaged: {error}; copy or save the model again.") from None
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != {
        n: shape for n, (_, shape) in header.items()
    }:
        raise ModelDirectoryError(f"{files.directory}: the weights changed while they were read; try again.")
    if not any(dtype == "I8" for dtype, _ in header.values()):
        return tensors
    whole = pair_scales({name: tensor.numpy() for name, tensor in tensors.items()}, str(files.directory))
    return {name: torch.from_numpy(array) for name, array in dequantize_all(whole).items()}


def read_stored_weights(files: ModelFiles, config: ModelConfig) -> dict[str, np.ndarray | Int8Matrix]:
    """All weights as they are stored: floats, or int8 with scales."""
    read_headers(files, config)
    tensors: dict[str, np.ndarray] = {}
    for name in files.weights:
        tensors |= read_weights(files.paths[name], files.directory / name)
    return pair_scales(tensors, str(files.directory))


def read_buffers(path: Path, shown_as: Path) -> dict[str, tuple[HeaderEntry, memoryview]]:
    """All tensors of a safetensors file as bytes, each aligned for its type, without numpy."""
    header = read_header(path, shown_as)
    with open(path, "rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        stored = memoryview(bytearray(file.read()))
    found = {}
    for name, entry in header.items():
        part = stored[entry.begin : entry.end]
        if len(part) != entry.num_bytes:
            raise ModelDirectoryError(f"{shown_as}: the tensor {name} ({entry.dtype}) cannot be read.")
        is_aligned = entry.begin % ITEM_BYTES[entry.dtype] == 0
        found[name] = entry, part if is_aligned else memoryview(bytearray(part))
    return found


def read_weights(path: Path, shown_as: Path) -> dict[str, np.ndarray]:
    """All tensors of a safetensors file; `shown_as` is for the messages."""
    import numpy as np

    header = read_header(path, shown_as)
    with open(path, "rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        numbers = np.frombuffer(file.read(), dtype=np.uint8)
    arrays = {}
    for name, (stored, shape, begin, end) in header.items():
        if end > len(numbers) or stored not in NUMPY_TYPES:
            raise ModelDirectoryError(f"{shown_as}: the tensor {name} ({stored}) cannot be read.")
        values = numbers[begin:end].view(NUMPY_TYPES[stored]).reshape(shape)
        if stored == "BF16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = values.astype(np.float32) if values.dtype.kind == "f" else values
    return arrays


def save_tensors(save_file: Callable[..., None], tensors: Mapping[str, Any], path: Path) -> None:
    """Write a safetensors file; system errors such as a full disk become an `OSError` with the file name."""
    from safetensors import SafetensorError

    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), str(path)) from error


def load_stored_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load the weights of a model directory, which stores shared ones once, into a model on the CPU."""
    check_shapes(model, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, where)
    model.load_state_dict({name: tensors[stored] for name, stored in stored_names(model).items()})


def build(config: ModelConfig) -> Model:
    """The model of a configuration; the caller's random state is unchanged."""
    import torch

    from heedful.build_model import build_model

    with torch.random.fork_rng(devices=[]):
        return build_model(config)


def _format_names(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (
        f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    )


# ---- names and shapes of a configuration, computed without allocating memory


def weight_shapes(config: ModelConfig) -> Shapes:
    """Every stored tensor of a model and its shape; tensors that share memory appear once.

    Those of a Transformer are computed without torch, so that the native engine can check them too.
    """
    return _transformer_shapes(config) if config.architecture == "transformer" else _built_model_shapes(config)


def stored_names(model: nn.Module) -> dict[str, str]:
    """The stored name of each name in the state dict: shared tensors are stored under their first name."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in model.state_dict(keep_vars=True).items()}


def _built_model_shapes(config: ModelConfig) -> Shapes:
    """The shapes of a model that torch builds on its meta device, which allocates nothing."""
    import torch

    from heedful.build_model import build_model

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = build_model(config)
    stored = set(stored_names(model).values())
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name in stored}


def _transformer_shapes(config: ModelConfig) -> Shapes:
    d_model = config.d_model
    shapes: Shapes = {"source_embedding.weight": (config.source_vocab_size, d_model)}
    if config.tying != "three_way":
        shapes["target_embedding.weight"] = (config.target_vocab_size, d_model)
    if config.tying == "none":
        shapes["output.weight"] = (config.target_vocab_size, d_model)
    if config.positions == "learned":
        for side in ("source", "target"):
            shapes[f"{side}_positions.embedding.weight"] = (config.max_length, d_model)
    for stack, count, attentions in (
        ("encoder", config.num_encoder_layers, ("self_attention",)),
        ("decoder", config.num_decoder_layers, ("self_attention", "cross_attention")),
    ):
        for index in range(count):
            layer = f"{stack}.layers.{index}"
            for attention in attentions:
                shapes |= _attention(config, f"{layer}.{attention}") | _norm(config, f"{layer}.{attention}_norm")
            if "cross_attention" in attentions and config.cross_attention == "local_predictive":
                keys, predictor = config.attention_key_dim, f"{layer}.cross_attention.weighting.predictor"
                shapes[f"{predictor}.hidden.weight"] = (config.num_heads * keys, config.d_model)
                shapes[f"{predictor}.vector"] = (config.num_heads, keys)
            shapes |= _feed_forward(config, f"{layer}.feed_forward") | _norm(config, f"{layer}.feed_forward_norm")
        if config.has_final_norm:
            shapes |= _norm(config, f"{stack}.norm")
    return shapes


def _linear(config: ModelConfig, name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs)} | ({f"{name}.bias": (outputs,)} if config.bias else {})


def _attention(config: ModelConfig, name: str) -> Shapes:
    keys, values = (config.num_heads * width for width in (config.attention_key_dim, config.attention_head_dim))
    shapes = _linear(config, f"{name}.query", config.d_model, keys)
    shapes |= _linear(config, f"{name}.key", config.d_model, keys)
    shapes |= _linear(config, f"{name}.value", config.d_model, values)
    shapes |= _linear(config, f"{name}.output", values, config.d_model)
    if config.attention_scoring == "additive":
        shapes[f"{name}.scoring.vector"] = (config.num_heads, config.attention_key_dim)
    return shapes


def _feed_forward(config: ModelConfig, name: str) -> Shapes:
    shapes = _linear(config, f"{name}.inner", config.d_model, config.d_ff)
    if config.activation == "swiglu":
        shapes |= _linear(config, f"{name}.gate", config.d_model, config.d_ff)
    return shapes | _linear(config, f"{name}.output", config.d_ff, config.d_model)


def _norm(config: ModelConfig, name: str) -> Shapes:
    parts = ["weight"]
    if config.bias and config.norm != "rms":
        parts.append("bias")
    if config.norm == "batch":
        parts += ["running_mean", "running_variance"]
    return {f"{name}.{part}": (config.d_model,) for part in parts}
