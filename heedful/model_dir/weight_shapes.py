"""Names and shapes of the weights that a configuration asks for, known before any memory is reserved for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.config import ModelConfig

if TYPE_CHECKING:
    from torch import nn

Shapes = dict[str, tuple[int, ...]]


def weight_shapes(config: ModelConfig) -> Shapes:
    """Every stored tensor of a model and its shape; tensors that share memory appear once.

    A Transformer's are computed without torch, so that the native engine can check a model directory too.
    """
    return _transformer(config) if config.architecture == "transformer" else _of_built_model(config)


def stored_names(model: nn.Module) -> dict[str, str]:
    """For each name in the state dict the name it is stored under: its own, or that of the tensor it shares."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in model.state_dict(keep_vars=True).items()}


def _of_built_model(config: ModelConfig) -> Shapes:
    """The shapes of a model that torch builds on its meta device, which allocates nothing."""
    import torch

    from heedful.build_model import build_model

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = build_model(config)
    stored = set(stored_names(model).values())
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name in stored}


def _transformer(config: ModelConfig) -> Shapes:
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
