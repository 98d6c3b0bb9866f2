"""Which model options each fast implementation of the Transformer supports.

The readable model (`heedful.model`) computes every option. A backend computes the options that `SUPPORTED` lists for
it; a field of `ModelConfig` that a backend does not list must have its default. Any other model is computed by the
readable model or refused, never approximated. An option added to `ModelConfig` is therefore unsupported by all backends
until it is listed here, and `tests/test_backend_support.py` compares what is listed with what they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Literal

from heedful.config import ModelConfig
from heedful.errors import ConfigError

Backend = Literal[
    "gpu_training", "cpu_training", "cuda_graph_search", "native_engine", "ctranslate2_export", "torch_nn_export"
]
Rule = tuple[object, ...] | Callable[[ModelConfig], bool]
"""The values that a field may have, or a condition."""

KERNEL_HEAD_DIMS = (16, 32, 64, 128)
KERNEL_MAX_VOCABULARY = 1 << 16
NATIVE_MAX_WIDTH = 1 << 16
"""The native engine's sums of int8 products hold no more."""


def _any(config: ModelConfig) -> bool:
    return True


def _key_dim_is_head_dim(config: ModelConfig) -> bool:
    return config.attention_key_dim == config.attention_head_dim


def _heads_fill_d_model(config: ModelConfig) -> bool:
    return config.num_heads * config.attention_head_dim == config.d_model


SIZES: dict[str, Rule] = dict.fromkeys(
    (
        "source_vocab_size", "target_vocab_size", "d_model", "d_ff", "num_heads", "head_dim", "num_encoder_layers",
        "num_decoder_layers", "norm_epsilon", "max_length",
    ),
    _any,
)  # fmt: skip
UNREAD: dict[str, Rule] = dict.fromkeys(("cell", "kernel_size", "attention_window", "hard_attention_gradient"), _any)
"""Fields that a Transformer with global attention does not read."""
DROPOUT: dict[str, Rule] = dict.fromkeys(
    ("dropout", "embedding_dropout", "attention_dropout", "activation_dropout"), _any
)
GLOBAL_ATTENTION: dict[str, Rule] = {"self_attention": ("global",), "cross_attention": ("global",)}
"""Local and hard attention are computed by the readable model only."""
FINAL_NORM: tuple[object, ...] = (None, True, False)

SUPPORTED: dict[Backend, Mapping[str, Rule]] = {
    "gpu_training": {
        **SIZES,
        **UNREAD,
        **DROPOUT,
        **GLOBAL_ATTENTION,
        "architecture": ("transformer",),
        "norm_placement": ("post", "pre"),
        "norm": ("layer",),
        "final_norm": FINAL_NORM,
        "positions": ("sinusoidal", "learned", "rotary"),
        "activation": ("relu", "gelu", "swiglu"),
        "attention_scoring": ("scaled_dot",),
        "tying": ("three_way", "target", "none"),
        "bias": (True,),
        "attention_dropout": (0.0,),
        "key_dim": _key_dim_is_head_dim,
        "head_dim": lambda config: config.attention_head_dim in KERNEL_HEAD_DIMS,
        "d_model": lambda config: config.d_model % 8 == 0,
        "d_ff": lambda config: config.d_ff % 8 == 0,
        "target_vocab_size": lambda config: config.target_vocab_size <= KERNEL_MAX_VOCABULARY,
    },
    "cpu_training": {
        **SIZES,
        **UNREAD,
        **DROPOUT,
        **GLOBAL_ATTENTION,
        "architecture": ("transformer",),
        "norm_placement": ("post", "pre"),
        "norm": ("layer", "rms"),
        "final_norm": FINAL_NORM,
        "positions": ("sinusoidal", "learned", "rotary"),
        "activation": ("relu", "gelu", "swiglu"),
        "attention_scoring": ("scaled_dot", "dot"),
        "tying": ("three_way", "target", "none"),
        "bias": (True, False),
        "key_dim": _any,
    },
    "cuda_graph_search": {
        **SIZES,
        **UNREAD,
        **DROPOUT,
        **GLOBAL_ATTENTION,
        "architecture": ("transformer",),
        "norm_placement": ("post", "pre"),
        "norm": ("layer", "rms"),
        "final_norm": FINAL_NORM,
        "positions": ("sinusoidal", "learned", "rotary"),
        "activation": ("relu", "gelu", "swiglu"),
        "attention_scoring": ("scaled_dot", "dot"),
        "tying": ("three_way", "target", "none"),
        "bias": (True, False),
        "key_dim": _any,
    },
    "native_engine": {
        **SIZES,
        **UNREAD,
        **DROPOUT,
        **GLOBAL_ATTENTION,
        "architecture": ("transformer",),
        "norm_placement": ("post", "pre"),
        "norm": ("layer", "rms"),
        "final_norm": FINAL_NORM,
        "positions": ("sinusoidal", "learned", "rotary"),
        "activation": ("relu", "gelu", "swiglu"),
        "attention_scoring": ("scaled_dot", "dot"),
        "tying": ("three_way", "target", "none"),
        "bias": (True, False),
        "key_dim": _key_dim_is_head_dim,
        "head_dim": lambda config: config.num_heads * config.attention_head_dim <= NATIVE_MAX_WIDTH,
    },
    "ctranslate2_export": {
        **SIZES,
        **UNREAD,
        **DROPOUT,
        **GLOBAL_ATTENTION,
        "architecture": ("transformer",),
        "norm_placement": ("post", "pre"),
        "norm": ("layer", "rms"),
        "final_norm": FINAL_NORM,
        "positions": ("sinusoidal", "learned", "rotary"),
        "activation": ("relu", "gelu", "swiglu"),
        "attention_scoring": ("scaled_dot", "dot"),
        "tying": ("three_way", "target", "none"),
        "bias": (True, False),
        "key_dim": _any,
    },
    "torch_nn_export": {
        **SIZES,
        **UNREAD,
        **DROPOUT,
        **GLOBAL_ATTENTION,
        "architecture": ("transformer",),
        "norm_placement": ("post", "pre"),
        "norm": ("layer",),
        "final_norm": FINAL_NORM,
        "positions": ("sinusoidal", "learned"),
        "activation": ("relu", "gelu"),
        "attention_scoring": ("scaled_dot",),
        "tying": ("three_way", "target", "none"),
        "bias": (True, False),
        "key_dim": _key_dim_is_head_dim,
        "head_dim": _heads_fill_d_model,
    },
}

REFUSALS: dict[Backend, str] = {
    "gpu_training": "the fused training step on a GPU does not support {options}; set training.fused_step=false.",
    "cpu_training": "the fused training step on a CPU does not support {options}; set training.fused_step=false.",
    "cuda_graph_search": "the CUDA graph search does not support {options}.",
    "native_engine": "the native engine does not support {options}; use --engine torch.",
    "ctranslate2_export": "CTranslate2 does not support {options}; this model needs the engine torch.",
    "torch_nn_export": "nn.Transformer does not support {options}; this model cannot be converted.",
}


def unsupported_options(backend: Backend, config: ModelConfig) -> list[str]:
    """The options, as "model.key=value", that the backend does not compute; empty if it supports the model."""
    if config.architecture not in SUPPORTED[backend]["architecture"]:  # type: ignore[operator]
        return [f"model.architecture={config.architecture}"]
    found = []
    for field in fields(config):
        value = getattr(config, field.name)
        rule: Rule = SUPPORTED[backend].get(field.name, (field.default,))
        if not (value in rule if isinstance(rule, tuple) else rule(config)):
            found.append(f"model.{field.name}={value}")
    return found


def supports(backend: Backend, config: ModelConfig) -> bool:
    """Whether the backend computes a model of this configuration."""
    return not unsupported_options(backend, config)


def require_support(backend: Backend, config: ModelConfig) -> None:
    """Raise a `ConfigError` that names the options which the backend does not compute."""
    if options := unsupported_options(backend, config):
        raise ConfigError(REFUSALS[backend].format(options=" and ".join(options)))
