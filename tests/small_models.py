"""Small model configurations, one for each option, and random token rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.norms import BatchNorm
from heedful.model.transformer import Transformer

SMALL = ModelConfig(
    source_vocab_size=13,
    target_vocab_size=13,
    d_model=16,
    d_ff=24,
    num_heads=2,
    num_encoder_layers=2,
    num_decoder_layers=2,
    max_length=32,
    dropout=0.0,
)

VARIANTS: dict[str, ModelConfig] = {
    "paper": SMALL,
    "pre": replace(SMALL, norm_placement="pre"),
    "post_with_final_norm": replace(SMALL, final_norm=True),
    "pre_without_final_norm": replace(SMALL, norm_placement="pre", final_norm=False),
    "rms": replace(SMALL, norm="rms"),
    "batch": replace(SMALL, norm="batch"),
    "batch_pre": replace(SMALL, norm="batch", norm_placement="pre"),
    "learned": replace(SMALL, positions="learned"),
    "rotary": replace(SMALL, positions="rotary"),
    "gelu": replace(SMALL, activation="gelu"),
    "swiglu": replace(SMALL, activation="swiglu"),
    "dot": replace(SMALL, attention_scoring="dot"),
    "additive": replace(SMALL, attention_scoring="additive"),
    "head_dim": replace(SMALL, head_dim=6, num_heads=3),
    "key_dim": replace(SMALL, key_dim=3),
    "key_dim_additive": replace(SMALL, key_dim=20, head_dim=4, attention_scoring="additive"),
    "key_dim_rotary": replace(SMALL, key_dim=4, head_dim=7, positions="rotary"),
    "no_bias": replace(SMALL, bias=False),
    "no_bias_batch": replace(SMALL, bias=False, norm="batch"),
    "tied_target": replace(SMALL, tying="target", source_vocab_size=11),
    "untied": replace(SMALL, tying="none", source_vocab_size=11),
    "deep_encoder": replace(SMALL, num_encoder_layers=3, num_decoder_layers=1),
    "deep_decoder": replace(SMALL, num_encoder_layers=1, num_decoder_layers=3),
    "local": replace(SMALL, self_attention="local", attention_window=2),
    "local_monotonic": replace(SMALL, cross_attention="local_monotonic", attention_window=1),
    "local_predictive": replace(SMALL, cross_attention="local_predictive", attention_window=2),
    "hard": replace(SMALL, self_attention="hard", cross_attention="hard"),
    "modern": replace(
        SMALL, norm_placement="pre", norm="rms", positions="rotary", activation="swiglu", bias=False, head_dim=4
    ),
}
"""Every option of the model, each at least once with another value than its default."""


def build(config: ModelConfig, *, seed: int = 0) -> Transformer:
    """A model in which every weight matters: norms, biases and running statistics differ from 0 and 1 too."""
    torch.manual_seed(seed)
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.running_mean.normal_(std=0.5)
                module.running_variance.uniform_(0.5, 2.0)
    return model.eval()


def random_tokens(num_rows: int, length: int, *, below: int = 11) -> Tensor:
    """Rows of random token ids."""
    return torch.randint(0, below, (num_rows, length))


def real_tokens(lengths: list[int], width: int) -> Tensor:
    """A token mask (True = real) for rows of these lengths."""
    return torch.arange(width)[None, :] < torch.tensor(lengths)[:, None]
