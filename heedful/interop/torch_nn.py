"""Conversion between `torch.nn.Transformer` and `heedful.model.transformer.Transformer`, in both directions.

`nn.Transformer` consists of the two stacks only, without embeddings, positions and output projection. In its masks True
means that a position may NOT be attended to; `torch_masks` inverts ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.backend_support import require_support
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model.attention import causal_mask
from heedful.model.transformer import Transformer
from heedful.tensor_types import Bool

ATTENTION_NAMES = {"in_proj_": ("query", "key", "value"), "out_proj.": ("output",)}
"""torch.nn concatenates W_Q, W_K and W_V into one matrix."""

ENCODER_LAYER_NAMES: dict[str, tuple[str, ...]] = {
    **{f"self_attn.{theirs}": tuple(f"self_attention.{o}" for o in ours) for theirs, ours in ATTENTION_NAMES.items()},
    "norm1.": ("self_attention_norm",),
    "linear1.": ("feed_forward.inner",),
    "linear2.": ("feed_forward.output",),
    "norm2.": ("feed_forward_norm",),
}
DECODER_LAYER_NAMES: dict[str, tuple[str, ...]] = {
    **ENCODER_LAYER_NAMES,
    **{
        f"multihead_attn.{theirs}": tuple(f"cross_attention.{o}" for o in ours)
        for theirs, ours in ATTENTION_NAMES.items()
    },
    "norm2.": ("cross_attention_norm",),
    "norm3.": ("feed_forward_norm",),
}
"""Names of the parts of a layer in torch.nn and here, without "weight" or "bias"."""


def from_torch(
    module: nn.Transformer,
    *,
    source_vocab_size: int,
    target_vocab_size: int,
    positions: Literal["sinusoidal", "learned"] = "sinusoidal",
    tying: Literal["three_way", "target", "none"] | None = None,
    max_length: int = 1024,
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The configuration of the same model, and the weights of its two stacks with our names.

    Load them with `Transformer(config).load_state_dict(weights, strict=False)`: the embeddings keep their own values.
    `tying` defaults to three_way for equal vocabulary sizes and to target for others.
    """
    if positions not in ("sinusoidal", "learned"):
        raise ConfigError(f"positions: {positions!r} would change what nn.Transformer computes; use sinusoidal.")
    joint = source_vocab_size == target_vocab_size
    config = ModelConfig(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        positions=positions,
        tying=tying or ("three_way" if joint else "target"),
        max_length=max_length,
        num_encoder_layers=len(module.encoder.layers),
        num_decoder_layers=len(module.decoder.layers),
        final_norm=read_final_norm(module),
        **read_layers(module),
    )
    theirs = module.state_dict()
    weights: dict[str, Tensor] = {}
    for key, ours in matching_names(config):
        if key not in theirs:
            raise ConfigError(f"nn.Transformer: {key} is missing; either all layers or none must have biases.")
        parts = theirs.pop(key).detach().chunk(len(ours))
        weights.update({name: part.clone() for name, part in zip(ours, parts, strict=True)})
    if theirs:
        raise ConfigError(f"nn.Transformer: our model has no counterpart of {', '.join(theirs)}.")
    return config, weights


def to_torch(model: Transformer) -> nn.Transformer:
    """The two stacks as an `nn.Transformer` (batch first); its inputs are embedded tokens and `torch_masks`."""
    require_support("torch_nn_export", model.config)
    module = build_torch(model.config)
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = model.config.attention_dropout
        elif isinstance(part, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            part.dropout.p = model.config.activation_dropout
    ours, names = model.state_dict(), matching_names(model.config)
    module.to(model.source_embedding.weight)  # device and dtype first, so that no digit is lost
    module.load_state_dict({key: torch.cat([ours[name] for name in parts]) for key, parts in names})
    return module.train(model.training)


def build_torch(config: ModelConfig) -> nn.Transformer:
    """An `nn.Transformer` of this shape; its constructor always adds final norms, so the stacks are built here."""
    options: dict[str, Any] = {
        "d_model": config.d_model,
        "nhead": config.num_heads,
        "dim_feedforward": config.d_ff,
        "dropout": config.dropout,
        "activation": config.activation,
        "layer_norm_eps": config.norm_epsilon,
        "batch_first": True,
        "norm_first": config.norm_placement == "pre",
        "bias": config.bias,
    }
    encoder_norm, decoder_norm = (
        nn.LayerNorm(config.d_model, config.norm_epsilon, bias=config.bias) if config.has_final_norm else None
        for _ in range(2)
    )
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**options), config.num_encoder_layers, encoder_norm, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), config.num_decoder_layers, decoder_norm)
    return nn.Transformer(
        config.d_model, config.num_heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    )


def torch_masks(source_mask: Bool[Tensor, "B S"], target_mask: Bool[Tensor, "B T"]) -> dict[str, Tensor]:
    """Keyword arguments for `nn.Transformer.forward` that hide padding and later target tokens."""
    return {
        "src_key_padding_mask": ~source_mask,
        "memory_key_padding_mask": ~source_mask,
        "tgt_key_padding_mask": ~target_mask,
        "tgt_mask": ~causal_mask(target_mask.shape[1], target_mask.device)[0, 0],
    }


def matching_names(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each state-dict key of torch.nn with our keys, whose concatenated tensors are the same tensor."""
    stacks = (
        ("encoder", config.num_encoder_layers, ENCODER_LAYER_NAMES),
        ("decoder", config.num_decoder_layers, DECODER_LAYER_NAMES),
    )
    for stack, num_layers, names in stacks:
        for kind in ("weight", "bias") if config.bias else ("weight",):
            for index in range(num_layers):
                layer = f"{stack}.layers.{index}"
                for theirs, ours in names.items():
                    yield f"{layer}.{theirs}{kind}", tuple(f"{layer}.{name}.{kind}" for name in ours)
            if config.has_final_norm:
                yield f"{stack}.norm.{kind}", (f"{stack}.norm.{kind}",)


def read_final_norm(module: nn.Transformer) -> bool:
    """Whether the two stacks end with a norm; in our model both do or neither."""
    norms = (module.encoder.norm, module.decoder.norm)
    if (norms[0] is None) != (norms[1] is None):
        raise ConfigError("nn.Transformer: only one stack has a final norm; our model needs both or none.")
    if not all(norm is None or isinstance(norm, nn.LayerNorm) for norm in norms):
        raise ConfigError(f"nn.Transformer: the final norm is {type(norms[0]).__name__}; only LayerNorm is supported.")
    return norms[0] is not None


def read_layers(module: nn.Transformer) -> dict[str, Any]:
    """The settings of all layers, which must be equal, as fields of `ModelConfig`."""
    shared: dict[str, Any] = {}
    for name, layer in (*module.encoder.layers.named_children(), *module.decoder.layers.named_children()):
        settings = read_layer(layer)
        for field, value in settings.items():
            if shared.setdefault(field, value) != value:
                raise ConfigError(
                    f"nn.Transformer: layer {name} has {field}={value}, others {shared[field]}; they must be equal."
                )
    return shared


def read_layer(layer: nn.Module) -> dict[str, Any]:
    """The settings of one layer, as fields of `ModelConfig`."""
    if not isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        raise ConfigError(
            f"nn.Transformer: layer type {type(layer).__name__} is not supported, only those of torch.nn."
        )
    parts: dict[str, Any] = dict(layer.named_children())
    norms = [part for name, part in parts.items() if name.startswith("norm")]
    attentions = [part for name, part in parts.items() if name in ("self_attn", "multihead_attn")]
    dropouts = [part for name, part in parts.items() if name in ("dropout1", "dropout2", "dropout3")]
    if not all(isinstance(norm, nn.LayerNorm) for norm in norms):
        raise ConfigError("nn.Transformer: norms other than LayerNorm are not supported.")
    if any(a.in_proj_weight is None or a.bias_k is not None or a.add_zero_attn for a in attentions):
        raise ConfigError("nn.Transformer: attention with kdim, vdim, add_bias_kv or add_zero_attn is not supported.")
    if (
        len({norm.eps for norm in norms}) > 1
        or len({a.dropout for a in attentions}) > 1
        or len({d.p for d in dropouts}) > 1
    ):
        raise ConfigError("nn.Transformer: the norms or dropouts of a layer differ; they must be equal.")
    return {
        "d_model": layer.linear1.in_features,
        "d_ff": layer.linear1.out_features,
        "num_heads": attentions[0].num_heads,
        "norm_placement": "pre" if layer.norm_first else "post",
        "norm_epsilon": norms[0].eps,
        "activation": read_activation(layer.activation),
        "bias": layer.linear1.bias is not None,
        "dropout": dropouts[0].p,
        "attention_dropout": attentions[0].dropout,
        "activation_dropout": layer.dropout.p,
    }


def read_activation(activation: Any) -> str:
    """Our name of an activation function or module of torch."""
    if activation is F.relu or isinstance(activation, nn.ReLU):
        return "relu"
    if activation is F.gelu or (isinstance(activation, nn.GELU) and activation.approximate == "none"):
        return "gelu"
    raise ConfigError(f"nn.Transformer: the activation {activation} is not supported, only relu and gelu.")
