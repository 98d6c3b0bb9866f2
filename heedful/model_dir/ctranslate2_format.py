"""A model in the format of CTranslate2, made from numpy arrays: neither torch nor CTranslate2 is needed for it.

The format is a list of named arrays (`model.bin`), the vocabularies and a few settings as JSON. Weights that are
multiplied are quantised, if so wished, row by row; an array that two parts share is written once and named twice.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heedful.backend_support import require_support
from heedful.config import ModelConfig
from heedful.errors import ConfigError, ModelDirectoryError, did_you_mean
from heedful.model_dir.save_load import ModelArrays, default_source, recorded_source
from heedful.model_dir.shortlist import Shortlist

BINARY_VERSION, SPECIFICATION, REVISION = 6, "TransformerSpec", 7
TYPE_IDS = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "bfloat16": 5}
VOCABULARY_MAP = "vmap.txt"
ACTIVATIONS = {"relu": 0, "swiglu": 2, "gelu": 3}  # SwiGLU's gate is a swish
QUANTIZATIONS = {  # name -> type of the weights that are multiplied, type of all others
    "float32": ("float32", "float32"),
    "float16": ("float16", "float16"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "int16": ("int16", "float32"),
    "int8": ("int8", "float32"),
    "int8_float16": ("int8", "float16"),
    "int8_bfloat16": ("int8", "bfloat16"),
}


@dataclass(frozen=True)
class Variable:
    """One array in its stored type; bfloat16, which numpy lacks, as uint16 bits."""

    values: np.ndarray
    kind: str


@dataclass
class ModelBinary:
    """The contents of `model.bin`: arrays by name, and aliases."""

    weights: Mapping[str, np.ndarray]
    """The weights under Heedful's names."""
    matrix_type: str
    other_type: str
    variables: dict[str, Variable] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def weights_of(self, *names: str) -> np.ndarray:
        """The weights with these names, concatenated along the first axis."""
        for name in names:
            if name not in self.weights:
                raise ModelDirectoryError(f"the weights do not fit the configuration: {name} is missing.")
        return np.concatenate([self.weights[name] for name in names])

    def matrix(self, name: str, values: np.ndarray) -> None:
        """Write a matrix in the matrix type, with scales if it is quantized."""
        if self.matrix_type == "int8":
            max_abs = np.abs(values).max(axis=1)
            max_abs[max_abs == 0] = 127.0
            max_abs = np.maximum(max_abs, np.float32(1e-30))  # the scale of a tiny row must stay a number
            scale = np.float32(127.0) / max_abs
            self.variables[name] = Variable(np.rint(values * scale[:, None]).astype(np.int8), "int8")
            self.variables[f"{name}_scale"] = Variable(scale.astype(np.float32), "float32")
        elif self.matrix_type == "int16":
            factor = np.float32(2**10 / max(float(np.abs(values).max()), 1e-30))
            limits = np.iinfo(np.int16)
            whole = np.rint(values * factor).clip(limits.min, limits.max)
            self.variables[name] = Variable(whole.astype(np.int16), "int16")
            self.variables[f"{name}_scale"] = Variable(np.array(factor), "float32")
        else:
            self.variables[name] = convert_type(values, self.matrix_type)

    def linear(self, name: str, *layers: str) -> None:
        """Write a linear layer from these layers, concatenated along the outputs."""
        self.matrix(f"{name}/weight", self.weights_of(*(f"{layer}.weight" for layer in layers)))
        if f"{layers[0]}.bias" in self.weights:
            self.other(f"{name}/bias", self.weights_of(*(f"{layer}.bias" for layer in layers)))

    def norm(self, name: str, ours: str, *, rms: bool) -> None:
        """Write a norm. Without a shift CTranslate2 assumes RMSNorm, so a LayerNorm always has one."""
        gain = self.weights_of(f"{ours}.weight")
        self.other(f"{name}/gamma", gain)
        if not rms:
            shift = self.weights.get(f"{ours}.bias")
            self.other(f"{name}/beta", np.zeros_like(gain) if shift is None else shift)

    def other(self, name: str, values: np.ndarray) -> None:
        """Write an array in the type of everything that is not a matrix."""
        self.variables[name] = convert_type(values, self.other_type)

    def number(self, name: str, value: float, kind: str) -> None:
        """Write a scalar setting."""
        self.variables[name] = Variable(np.array(value, dtype=kind), kind)

    def alias(self, name: str, existing: str) -> None:
        """Add another name for an array."""
        self.aliases[name] = existing
        if f"{existing}_scale" in self.variables:
            self.aliases[f"{name}_scale"] = f"{existing}_scale"

    def to_bytes(self) -> bytes:
        """The file `model.bin`."""
        parts = [struct.pack("<I", BINARY_VERSION), text(SPECIFICATION), struct.pack("<I", REVISION)]
        parts.append(struct.pack("<I", len(self.variables)))
        for name, variable in sorted(self.variables.items()):
            shape = variable.values.shape
            head = struct.pack(
                f"<B{len(shape)}IBI", len(shape), *shape, TYPE_IDS[variable.kind], variable.values.nbytes
            )
            parts += [text(name), head, np.ascontiguousarray(variable.values).tobytes()]
        parts.append(struct.pack("<I", len(self.aliases)))
        parts += [text(name) for pair in sorted(self.aliases.items()) for name in pair]
        return b"".join(parts)


def ctranslate2_files(
    arrays: ModelArrays, quantization: str = "float32", shortlist: Shortlist | None = None
) -> dict[str, bytes]:
    """The files that CTranslate2 reads, by name; a shortlist becomes its vocabulary map."""
    if quantization not in QUANTIZATIONS:
        known = ", ".join(QUANTIZATIONS)
        hint = did_you_mean(quantization, QUANTIZATIONS)
        raise ConfigError(f"quantization: {quantization!r} is not known{hint}; choose one of {known}.")
    config = arrays.config.model
    require_support("ctranslate2_export", config)
    contents = ModelBinary(pad_heads(arrays.weights, config), *QUANTIZATIONS[quantization])
    write_stacks(contents, config)
    write_alignment(contents, arrays.details, config)
    write_embeddings(contents, config)
    settings = {
        "add_source_bos": False,
        "add_source_eos": True,
        "bos_token": "<s>",
        "decoder_start_token": "<s>",
        "eos_token": "</s>",
        "layer_norm_epsilon": config.norm_epsilon,
        "multi_query_attention": False,
        "unk_token": "<unk>",
    }
    more = {VOCABULARY_MAP: vocabulary_map(arrays, shortlist)} if shortlist is not None else {}
    return {"model.bin": contents.to_bytes(), "config.json": json_bytes(settings), **vocabularies(arrays), **more}


def vocabulary_map(arrays: ModelArrays, shortlist: Shortlist) -> bytes:
    """One line per source piece with its target candidates after a tab; the first line has those always allowed.

    Pieces with spaces or tabs cannot be written. Every source has the end token: its candidates are always allowed.
    """
    tokenizer = arrays.tokenizer
    sources = tokenizer.source_pieces(range(tokenizer.source_vocab_size))
    targets = tokenizer.pieces(range(tokenizer.target_vocab_size))

    def joined(tokens: Iterable[int]) -> str:
        return " ".join(
            targets[token] for token in tokens if token < len(targets) and is_writable_piece(targets[token])
        )

    lines = ["\t" + joined(sorted({*shortlist.always.tolist(), *shortlist.of(tokenizer.eos_id).tolist()}))]
    for token, piece in enumerate(sources):
        if is_writable_piece(piece) and len(shortlist.of(token)):
            lines.append(f"{piece}\t{joined(shortlist.of(token).tolist())}")
    return ("\n".join(lines) + "\n").encode()


def is_writable_piece(piece: str) -> bool:
    """Whether a piece contains none of the separators of the map."""
    return not any(mark in piece for mark in " \t\r\n")


def vocabularies(arrays: ModelArrays) -> dict[str, bytes]:
    """The pieces of both sides, or one shared list; rows of the model without a piece get a placeholder."""
    tokenizer, config = arrays.tokenizer, arrays.config.model
    source = tokenizer.source_pieces(range(tokenizer.source_vocab_size))
    target = tokenizer.pieces(range(tokenizer.target_vocab_size))
    source += [f"<no piece {number}>" for number in range(len(source), config.source_vocab_size)]
    target += [f"<no piece {number}>" for number in range(len(target), config.target_vocab_size)]
    if source == target:
        return {"shared_vocabulary.json": json_bytes(source)}
    return {"source_vocabulary.json": json_bytes(source), "target_vocabulary.json": json_bytes(target)}


def pad_heads(weights: Mapping[str, np.ndarray], config: ModelConfig) -> Mapping[str, np.ndarray]:
    """Pad queries, keys and values with zeros to equal widths, which CTranslate2 requires."""
    key_dim, head_dim = config.attention_key_dim, config.attention_head_dim
    if key_dim == head_dim:
        return weights
    missing = {"query": head_dim - key_dim, "key": head_dim - key_dim, "value": key_dim - head_dim}
    padded = dict(weights)
    for name, values in weights.items():
        *above, part, kind = name.split(".")
        if not above[-1:] or not above[-1].endswith("_attention"):
            continue
        if missing.get(part, 0) > 0:
            heads = values.reshape(config.num_heads, -1, *values.shape[1:])
            padding = [(0, 0), (0, missing[part]), *[(0, 0)] * (heads.ndim - 2)]
            padded[name] = np.pad(heads, padding).reshape(-1, *values.shape[1:])
        elif part == "output" and kind == "weight" and missing["value"] > 0:
            heads = values.reshape(len(values), config.num_heads, -1)
            padded[name] = np.pad(heads, [(0, 0), (0, 0), (0, missing["value"])]).reshape(len(values), -1)
    return padded


def write_stacks(contents: ModelBinary, config: ModelConfig) -> None:
    """Write encoder and decoder with all layers."""
    rms = config.norm == "rms"
    for stack, count in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        contents.number(f"{stack}/num_heads", config.num_heads, "int16")
        contents.number(f"{stack}/pre_norm", config.norm_placement == "pre", "int8")
        contents.number(f"{stack}/activation", ACTIVATIONS[config.activation], "int8")
        contents.number(f"{stack}/scale_embeddings", 1, "int8")
        if config.has_final_norm:
            contents.norm(f"{stack}/layer_norm", f"{stack}.norm", rms=rms)
        for index in range(count):
            theirs, ours = f"{stack}/layer_{index}", f"{stack}.layers.{index}"
            write_attention(contents, f"{theirs}/self_attention", f"{ours}.self_attention", config)
            if stack == "decoder":
                write_attention(contents, f"{theirs}/attention", f"{ours}.cross_attention", config)
            contents.linear(f"{theirs}/ffn/linear_1", f"{ours}.feed_forward.output")
            if config.activation == "swiglu":
                contents.linear(f"{theirs}/ffn/linear_0", f"{ours}.feed_forward.gate")
                contents.linear(f"{theirs}/ffn/linear_0_noact", f"{ours}.feed_forward.inner")
            else:
                contents.linear(f"{theirs}/ffn/linear_0", f"{ours}.feed_forward.inner")
            contents.norm(f"{theirs}/ffn/layer_norm", f"{ours}.feed_forward_norm", rms=rms)


def write_alignment(contents: ModelBinary, details: Mapping[str, Any], config: ModelConfig) -> None:
    """Write the attention that CTranslate2 returns: of the step that predicts a token, averaged over the first heads.

    Other sources cannot be expressed: another head becomes the mean over all heads of its layer, a later step the
    default source.
    """
    counts = {"num_layers": config.num_decoder_layers, "num_heads": config.num_heads}
    chosen = recorded_source(details, **counts)
    if chosen is None or chosen.offset != 0:
        chosen = default_source(config.num_decoder_layers)
    contents.number("decoder/alignment_layer", chosen.layer, "int16")
    contents.number("decoder/alignment_heads", 1 if chosen.head == 0 else config.num_heads, "int16")


def write_attention(contents: ModelBinary, theirs: str, ours: str, config: ModelConfig) -> None:
    """Write an attention. Self-attention has one matrix for Q, K and V, cross-attention has Q separate."""
    query, key, value = f"{ours}.query", f"{ours}.key", f"{ours}.value"
    if theirs.endswith("/self_attention"):
        contents.linear(f"{theirs}/linear_0", query, key, value)
        contents.linear(f"{theirs}/linear_1", f"{ours}.output")
        if config.positions == "rotary":
            contents.number(f"{theirs}/rotary_dim", config.attention_key_dim, "int32")
            contents.number(f"{theirs}/rotary_interleave", 1, "int8")
            contents.number(f"{theirs}/rotary_base", 10_000.0, "float32")
    else:
        contents.linear(f"{theirs}/linear_0", query)
        contents.linear(f"{theirs}/linear_1", key, value)
        contents.linear(f"{theirs}/linear_2", f"{ours}.output")
    key_dim, width = config.attention_key_dim, max(config.attention_key_dim, config.attention_head_dim)
    if config.num_heads * width != config.d_model:
        contents.number(f"{theirs}/head_dim", width, "int32")
    if config.attention_scoring == "dot" or key_dim != width:
        contents.number(
            f"{theirs}/queries_scale", 1.0 if config.attention_scoring == "dot" else key_dim**-0.5, "float32"
        )
    contents.norm(f"{theirs}/layer_norm", f"{ours}_norm", rms=config.norm == "rms")


def write_embeddings(contents: ModelBinary, config: ModelConfig) -> None:
    """Write both embeddings, the positions and the output; tied ones as aliases."""
    contents.number("encoder/embeddings_merge", 0, "int8")
    source, target, output = "encoder/embeddings_0/weight", "decoder/embeddings/weight", "decoder/projection/weight"
    contents.matrix(source, contents.weights_of("source_embedding.weight"))
    if config.tying == "three_way":
        contents.alias(target, source)
        contents.alias(output, source)
    else:
        contents.matrix(target, contents.weights_of("target_embedding.weight"))
    if config.tying == "target":
        contents.alias(output, target)
    elif config.tying == "none":
        contents.linear("decoder/projection", "output")
    if config.positions == "rotary":
        return
    source, target = (f"{stack}/position_encodings/encodings" for stack in ("encoder", "decoder"))
    if config.positions == "learned":
        contents.other(source, contents.weights_of("source_positions.embedding.weight"))
        contents.other(target, contents.weights_of("target_positions.embedding.weight"))
    else:
        contents.other(source, sinusoids(config.max_length, config.d_model))
        contents.alias(target, source)


def sinusoids(length: int, width: int) -> np.ndarray:
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) the cosine; computed in float32, as in the model."""
    waves = np.power(np.float32(10_000.0), -np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
    angles = np.arange(length, dtype=np.float32)[:, None] * waves.astype(np.float32)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(length, width).astype(np.float32)


def convert_type(values: np.ndarray, kind: str) -> Variable:
    """Floats in another type; bfloat16 rounds to nearest, ties to even."""
    if kind != "bfloat16":
        return Variable(values.astype(kind), kind)
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return Variable(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16), kind)


def text(string: str) -> bytes:
    """A string in the format: length, UTF-8 bytes, NUL."""
    return struct.pack("<H", len(string.encode()) + 1) + string.encode() + b"\0"


def json_bytes(plain: object) -> bytes:
    """JSON as bytes."""
    return (json.dumps(plain, indent=2, ensure_ascii=False) + "\n").encode()
