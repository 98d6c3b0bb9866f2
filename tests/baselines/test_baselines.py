"""The baselines have the properties of the Transformer: one protocol, cached = uncached, packed = alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from heedful.build_model import build_model
from heedful.config import ModelConfig
from heedful.errors import ConfigError

SMALL = ModelConfig(
    source_vocab_size=30,
    target_vocab_size=30,
    d_model=16,
    d_ff=32,
    num_heads=2,
    num_encoder_layers=2,
    num_decoder_layers=2,
)
VARIANTS = {
    "gru-additive": replace(SMALL, architecture="recurrent", attention_scoring="additive"),
    "gru-dot": replace(SMALL, architecture="recurrent", attention_scoring="dot"),
    "lstm-additive": replace(SMALL, architecture="recurrent", cell="lstm", attention_scoring="additive"),
    "lstm-dot": replace(SMALL, architecture="recurrent", cell="lstm", tying="none"),
    "gru-additive-monotonic": replace(
        SMALL,
        architecture="recurrent",
        attention_scoring="additive",
        cross_attention="local_monotonic",
        attention_window=1,
    ),
    "lstm-monotonic": replace(
        SMALL, architecture="recurrent", cell="lstm", cross_attention="local_monotonic", attention_window=2
    ),
    "lstm-additive-predictive": replace(
        SMALL,
        architecture="recurrent",
        cell="lstm",
        attention_scoring="additive",
        cross_attention="local_predictive",
        attention_window=3,
    ),
    "gru-predictive": replace(SMALL, architecture="recurrent", cross_attention="local_predictive", attention_window=2),
    "gru-additive-hard": replace(SMALL, architecture="recurrent", attention_scoring="additive", cross_attention="hard"),
    "lstm-dot-hard": replace(
        SMALL, architecture="recurrent", cell="lstm", attention_scoring="dot", cross_attention="hard"
    ),
    "convolutional": replace(SMALL, architecture="convolutional"),
    "convolutional-wide": replace(
        SMALL, architecture="convolutional", kernel_size=5, positions="learned", num_decoder_layers=3, tying="target"
    ),
}


@pytest.fixture(params=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> torch.nn.Module:
    return build_model(VARIANTS[request.param]).eval()


def padded_sources() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, 4:] = mask[2, 6:] = False
    return torch.randint(4, 30, (3, 7)), mask


def test_cached_step_equals_full_forward_pass(model: torch.nn.Module) -> None:
    source, mask = padded_sources()
    target = torch.randint(4, 30, (3, 6))
    whole = model(source, target, mask.long())
    state = model.start(model.encode(source, mask), num_beams=1, max_length=8)
    steps = [model.step(target[:, t], state).logits for t in range(6)]
    torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_decoder_state_reorder_and_removal(model: torch.nn.Module) -> None:
    source, mask = padded_sources()
    state = model.start(model.encode(source, mask), num_beams=2, max_length=8)
    first = torch.randint(4, 30, (6,))
    model.step(first, state)
    state.reorder(torch.tensor([1, 0, 3, 3, 4, 5]))
    state.select(torch.tensor([2, 1]))
    assert state.num_rows == 4
    output = model.step(torch.tensor([5, 6, 7, 8]), state, need_weights=True)
    histories = [(2, [first[4], 5]), (2, [first[5], 6]), (1, [first[3], 7]), (1, [first[3], 8])]
    for row, (sentence, tokens) in enumerate(histories):
        alone = model.start(
            model.encode(source[sentence : sentence + 1], mask[sentence : sentence + 1]), num_beams=1, max_length=8
        )
        for token in tokens:
            expected = model.step(torch.tensor([int(token)]), alone).logits[0]
        torch.testing.assert_close(output.logits[row], expected, atol=1e-5, rtol=1e-5)
    assert output.attention is not None
    if model.config.cross_attention != "local_predictive":  # whose weights are multiplied by a Gaussian
        torch.testing.assert_close(output.attention.sum(-1), torch.ones(output.attention.shape[:3]))
    assert (output.attention[2:, :, :, 4:] == 0).all()  # sentence 1 has four real tokens


def test_packed_rows_equal_single_sentences(model: torch.nn.Module) -> None:
    lengths = [[(3, 4), (2, 2), (4, 3)], [(6, 5)]]
    source, target = torch.randint(4, 30, (2, 10)), torch.randint(4, 30, (2, 11))
    sides = [torch.zeros(2, 10, dtype=torch.long), torch.zeros(2, 11, dtype=torch.long)]
    positions = [torch.zeros_like(side) for side in sides]
    spans = []
    for row, pairs in enumerate(lengths):
        starts = [0, 0]
        for number, pair in enumerate(pairs, start=1):
            ends = [start + length for start, length in zip(starts, pair, strict=True)]
            for side, (start, end) in enumerate(zip(starts, ends, strict=True)):
                sides[side][row, start:end] = number
                positions[side][row, start:end] = torch.arange(end - start)
            spans.append((row, starts, ends))
            starts = ends
    packed = model(source, target, *sides, *positions)
    for row, starts, ends in spans:
        alone = model(source[row : row + 1, starts[0] : ends[0]], target[row : row + 1, starts[1] : ends[1]])
        torch.testing.assert_close(packed[row, starts[1] : ends[1]], alone[0], atol=1e-5, rtol=1e-5)


def test_future_and_padding_change_nothing(model: torch.nn.Module) -> None:
    source, mask = padded_sources()
    target = torch.randint(4, 30, (3, 6))
    before = model(source, target, mask.long())
    later = target.clone()
    later[:, 4] = (later[:, 4] + 1) % 30
    torch.testing.assert_close(model(source, later, mask.long())[:, :4], before[:, :4])
    noisy = torch.where(mask, source, (source + 3) % 30)
    torch.testing.assert_close(model(noisy, target, mask.long()), before)


def test_every_parameter_gets_a_gradient(model: torch.nn.Module) -> None:
    model.train()
    source, mask = padded_sources()
    model(source, torch.randint(4, 30, (3, 6)), mask.long()).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name
        assert "position" in name or parameter.grad.abs().sum() > 0, name


def test_unsupported_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="rotary"):
        replace(SMALL, architecture="convolutional", positions="rotary")
    with pytest.raises(ConfigError, match="scaled_dot or dot"):  # it would compare without a scale by default
        replace(SMALL, architecture="convolutional", attention_scoring="additive")
    replace(SMALL, architecture="recurrent", attention_scoring="additive", positions="rotary")  # has no positions
    with pytest.raises(ConfigError, match="even"):
        replace(SMALL, architecture="recurrent", d_model=15, num_heads=1)
