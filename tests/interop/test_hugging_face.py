"""A Marian model of Hugging Face and our model give equal logits and gradients for the same weights.

Needs the package transformers, which is part of `heedful[dev]`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.model.transformer import Transformer

transformers = pytest.importorskip("transformers")

VOCABULARY, LENGTH, PAD = 23, 16, 0
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 2], [10, 11, 2, PAD, PAD, PAD]])
TARGET_INPUT = torch.tensor([[1, 12, 13, 14], [1, 15, PAD, PAD]])
NAMES = {
    "self_attn_layer_norm": "self_attention_norm",
    "encoder_attn_layer_norm": "cross_attention_norm",
    "final_layer_norm": "feed_forward_norm",
    "self_attn": "self_attention",
    "encoder_attn": "cross_attention",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "output",
    "fc1": "feed_forward.inner",
    "fc2": "feed_forward.output",
    "encoder.embed_positions": "source_positions.embedding",
    "decoder.embed_positions": "target_positions.embedding",
    "shared": "source_embedding",
}
"""The parts of a Marian model, and their names here."""


def our_name(name: str) -> str:
    """The name of a weight of Marian's here."""
    for theirs, ours in NAMES.items():
        name = name.replace(f"{theirs}.", f"{ours}.")
    return name


def marian(activation: str) -> Any:
    """A small Marian model with random weights."""
    torch.manual_seed(1)
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY, d_model=16, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, activation_function=activation,
        max_position_embeddings=LENGTH, scale_embedding=True, pad_token_id=PAD, eos_token_id=2, forced_eos_token_id=2,
        decoder_start_token_id=1, dropout=0.0,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def ours_from(theirs: Any, activation: str) -> Transformer:
    """Our model with the same weights. Marian orders sines and cosines differently, so positions are a table here."""
    config = ModelConfig(
        source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY, d_model=16, d_ff=24, num_heads=4,
        num_encoder_layers=2, num_decoder_layers=3, dropout=0.0, positions="learned", max_length=LENGTH,
        activation=activation,  # type: ignore[arg-type]
    )  # fmt: skip
    model = Transformer(config).double().eval()
    tied = ("lm_head.weight", "final_logits_bias")
    weights = {
        our_name(name.removeprefix("model.")): value
        for name, value in theirs.state_dict().items()
        if name not in tied and not name.endswith("embed_tokens.weight")
    }
    model.load_state_dict(weights)  # strict: both have the same weights
    return model


def logits_of(theirs: Any, ours: Transformer) -> tuple[Tensor, Tensor]:
    """The logits of both models at the positions that are not padding."""
    source_mask, target_mask = SOURCE != PAD, TARGET_INPUT != PAD
    expected = theirs(
        input_ids=SOURCE, attention_mask=source_mask.long(), decoder_input_ids=TARGET_INPUT,
        decoder_attention_mask=target_mask.long(),
    ).logits  # fmt: skip
    found = ours(SOURCE, TARGET_INPUT, source_segments=source_mask.long(), target_segments=target_mask.long())
    return expected[target_mask], found[target_mask]


@pytest.mark.parametrize(("attention", "tolerance"), [("fused", 1e-9), ("explicit", 1e-6)])  # explicit: float32 scores
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_logits_and_gradients_equal_marian(activation: str, attention: str, tolerance: float) -> None:
    theirs = marian(activation)
    ours = ours_from(theirs, activation)
    ours.use_attention(attention)
    expected, found = logits_of(theirs, ours)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)

    for logits in (expected, found):
        logits.square().mean().backward()
    gradients = dict(ours.named_parameters())
    compared = 0
    for name, parameter in theirs.named_parameters():
        if parameter.grad is not None:
            gradient = gradients[our_name(name.removeprefix("model."))].grad
            torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=tolerance)
            compared += 1
    assert compared > 90


def test_changed_weight_fails_the_comparison() -> None:
    """With one weight changed, the comparison fails."""
    theirs = marian("relu")
    ours = ours_from(theirs, "relu")
    with torch.no_grad():
        ours.decoder.layers[0].cross_attention.key.weight[0, 0] += 0.1
    expected, found = logits_of(theirs, ours)
    assert (expected - found).abs().max() > 1e-6
