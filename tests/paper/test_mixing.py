"""Feed-forward as convolutions gives equal outputs and gradients; the table's numbers agree with the formulas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.cli import run
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model.layers import FeedForward
from heedful.paper.mixing import (
    ConvolutionalFeedForward,
    MixingSizes,
    conv1d_to_feed_forward,
    feed_forward_to_conv1d,
    measure_mixing,
    mixing_layers,
    mixing_table,
)
from heedful.paper.text_tables import TABLE_FORMATS, markdown_table

ACTIVATIONS = ["relu", "gelu", "swiglu"]


@given(
    activation=st.sampled_from(ACTIVATIONS),
    bias=st.booleans(),
    length=st.integers(1, 9),
    back=st.booleans(),
    seed=st.integers(0, 99),
)
def test_outputs_and_gradients_are_equal(activation: str, bias: bool, length: int, back: bool, seed: int) -> None:
    torch.manual_seed(seed)
    if back:
        convolutional = ConvolutionalFeedForward(8, 20, activation=activation, bias=bias).double()
        feed_forward = conv1d_to_feed_forward(convolutional).eval()
    else:
        config = ModelConfig(d_model=8, d_ff=20, num_heads=2, activation=activation, bias=bias)  # type: ignore[arg-type]
        feed_forward = FeedForward(config).double().eval()
        convolutional = feed_forward_to_conv1d(feed_forward)
    x = torch.randn(3, length, 8, dtype=torch.float64)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [module(one) for module, one in zip((feed_forward, convolutional), inputs, strict=True)]
    torch.testing.assert_close(*outputs)
    direction = torch.randn_like(outputs[0])
    for output in outputs:
        (output * direction).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    ours, theirs = dict(feed_forward.named_parameters()), dict(convolutional.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        gradient, other = parameter.grad, theirs[name].grad
        assert gradient is not None and other is not None and gradient.abs().max() > 0
        torch.testing.assert_close(gradient, other.reshape(gradient.shape))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_conversion_there_and_back_keeps_every_bit(activation: str) -> None:
    config = ModelConfig(d_model=8, d_ff=20, num_heads=2, activation=activation)  # type: ignore[arg-type]
    feed_forward = FeedForward(config)
    again = conv1d_to_feed_forward(feed_forward_to_conv1d(feed_forward))
    for name, value in feed_forward.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_wider_kernels_are_refused() -> None:
    convolutional = ConvolutionalFeedForward(4, 8, activation="relu", bias=True)
    convolutional.inner = torch.nn.Conv1d(4, 8, kernel_size=3)
    with pytest.raises(ValueError, match="width 3"):
        conv1d_to_feed_forward(convolutional)


@given(length=st.integers(2, 12), width=st.sampled_from([4, 8, 16]), kernel_size=st.sampled_from([1, 3, 5]))
def test_counts_equal_formulas(length: int, width: int, kernel_size: int) -> None:
    sizes = MixingSizes(length=length, width=width, kernel_size=kernel_size)
    n, d, f, k = length, width, sizes.d_ff, kernel_size
    found = {name: measure_mixing(build, sizes) for name, build in mixing_layers(sizes).items()}
    assert {name: one.parameters for name, one in found.items()} == {
        "self_attention": 4 * (d * d + d),
        "feed_forward": 2 * d * f + d + f,
        "depthwise": d * k + d,
        "pointwise": d * d + d,
    }
    assert {name: one.flops for name, one in found.items()} == {
        "self_attention": 8 * n * d * d + 4 * n * n * d,
        "feed_forward": 4 * n * d * f,
        "depthwise": 2 * n * d * k,
        "pointwise": 2 * n * d * d,
    }


def test_positions_and_channels_reached_by_each_layer() -> None:
    sizes = MixingSizes(length=20, width=16, kernel_size=5)
    found = {name: measure_mixing(build, sizes) for name, build in mixing_layers(sizes).items()}
    assert {name: (one.positions, one.channels) for name, one in found.items()} == {
        "self_attention": (20, 16),
        "feed_forward": (1, 16),
        "depthwise": (5, 1),
        "pointwise": (1, 16),
    }
    assert {name: one.is_fixed for name, one in found.items()} == {
        "self_attention": False,
        "feed_forward": False,
        "depthwise": True,
        "pointwise": True,
    }


def test_table_shows_measured_numbers() -> None:
    sizes = MixingSizes(length=10, width=16, kernel_size=3)
    table, wider = mixing_table(sizes, "en"), mixing_table(replace(sizes, kernel_size=7), "en")
    assert [row[0] for row in table.rows][:2] == ["self-attention", "depthwise convolution"]
    assert [row[3] for row in table.rows] == ["10", "3", "1", "1"]
    assert [row[3] for row in wider.rows] == ["10", "7", "1", "1"]


@pytest.mark.parametrize("form", TABLE_FORMATS)
def test_mixing_verb_in_both_formats(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--length", "8", "--width", "16", "--kernel-size", "3"]
    assert run(["paper", "mixing", *sizes, "--format", form, "--lang", "zh"]) == 0
    printed = capsys.readouterr().out
    assert "逐通道卷积" in printed and "1,088" in printed  # 4·(16² + 16) parameters of attention
    assert run(["paper", "mixing", "--kernel-size", "4"]) == 2
    assert "odd" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="at least 1"):
        MixingSizes(length=0)


@pytest.mark.parametrize("page", ["walkthroughs.md", "walkthroughs.zh-CN.md"])
def test_documented_table_is_current(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "paper" / page).read_text(encoding="utf-8")
    table = mixing_table(MixingSizes(), "zh" if "zh" in page else "en")
    assert markdown_table(table.heading, table.rows) in text
