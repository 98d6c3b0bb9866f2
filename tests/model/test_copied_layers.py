"""Layers copied instead of built: `deepcopy` repeats the random numbers, a repeated object shares its weights."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from heedful.config import ModelConfig
from heedful.model.attention import segment_mask
from heedful.model.layers import EncoderLayer
from heedful.model.positions import position_ids
from heedful.model.transformer import Transformer

CONFIG = ModelConfig(
    d_model=16, d_ff=32, num_heads=2, num_encoder_layers=3, num_decoder_layers=3, dropout=0.0,
    source_vocab_size=20, target_vocab_size=20,
)  # fmt: skip


def built() -> nn.ModuleList:
    torch.manual_seed(1)
    return nn.ModuleList(EncoderLayer(CONFIG) for _ in range(3))


def deep_copied() -> nn.ModuleList:
    torch.manual_seed(1)
    layer = EncoderLayer(CONFIG)
    return nn.ModuleList(deepcopy(layer) for _ in range(3))


def repeated() -> nn.ModuleList:
    torch.manual_seed(1)
    return nn.ModuleList([EncoderLayer(CONFIG)] * 3)


def first_matrices(layers: nn.ModuleList) -> list[torch.Tensor]:
    return [layer.feed_forward.inner.weight for layer in layers]  # type: ignore[union-attr]


def update(layers: nn.ModuleList) -> None:
    """One step of gradient descent on random numbers."""
    torch.manual_seed(2)
    x, segments = torch.randn(2, 5, CONFIG.d_model), torch.ones(2, 5, dtype=torch.long)
    for layer in layers:
        x = layer(x, segment_mask(segments, segments), position_ids(segments))
    (x - torch.randn_like(x)).square().mean().backward()
    with torch.no_grad():
        for parameter in layers.parameters():
            assert parameter.grad is not None
            parameter -= 0.1 * parameter.grad


def test_deepcopied_layers_start_identical() -> None:
    """What goes wrong: `deepcopy` copies the values, so a stack of copies begins as the same layer three times."""
    first, *others = first_matrices(deep_copied())
    assert all(torch.equal(first, other) for other in others)
    assert all(first.data_ptr() != other.data_ptr() for other in others)  # equal, but not shared

    first, *others = first_matrices(built())
    assert not any(torch.equal(first, other) for other in others)


def test_deepcopied_layers_diverge_in_training() -> None:
    """Each copy has its own gradient, because it is at another depth; the copies differ after one update."""
    layers = deep_copied()
    update(layers)
    first, *others = first_matrices(layers)
    assert not any(torch.equal(first, other) for other in others)


def test_repeated_layer_shares_its_weights() -> None:
    """What goes wrong: `[layer] * 3` is one layer named three times: training changes one set of weights."""
    layers = repeated()
    assert sum(map(torch.numel, layers.parameters())) * 3 == sum(map(torch.numel, built().parameters()))
    update(layers)
    first, *others = first_matrices(layers)
    assert all(other is first for other in others)


def test_torch_encoder_starts_with_identical_layers() -> None:
    """`nn.TransformerEncoder` deep-copies the layer it is given; `nn.Transformer` draws the matrices again."""
    torch.manual_seed(1)
    sizes = {"d_model": 16, "nhead": 2, "dim_feedforward": 32}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes, batch_first=True), num_layers=2)
    assert torch.equal(encoder.layers[0].linear1.weight, encoder.layers[1].linear1.weight)
    whole = nn.Transformer(**sizes, num_encoder_layers=2, num_decoder_layers=2, batch_first=True).encoder
    assert not torch.equal(whole.layers[0].linear1.weight, whole.layers[1].linear1.weight)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_transformer_layers_start_different(side: str) -> None:
    torch.manual_seed(1)
    layers = getattr(Transformer(CONFIG), side).layers
    matrices = [parameter for layer in layers for parameter in layer.parameters() if parameter.ndim == 2]
    assert len({parameter.data_ptr() for parameter in matrices}) == len(matrices)
    assert len({tuple(parameter.flatten().tolist()) for parameter in matrices}) == len(matrices)
