"""The Transformer: tying, initialisation, parameter counts, state dict keys, dropout, compilation."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.build_model import build_model, num_parameters
from heedful.config import ModelConfig
from heedful.config_loading import build_config
from heedful.model.positions import sinusoidal_encoding
from heedful.model.transformer import Transformer
from tests.small_models import SMALL, VARIANTS, build, random_tokens


def logits_of(model: Transformer) -> Tensor:
    torch.manual_seed(7)
    return model(random_tokens(2, 5), random_tokens(2, 4))


def stacks_only(model: Transformer) -> int:
    return num_parameters(model.encoder) + num_parameters(model.decoder)


def test_three_way_tying_shares_one_matrix() -> None:
    model = build(SMALL)
    assert num_parameters(model) - stacks_only(model) == 13 * 16
    assert model.target_embedding is None
    assert model.output is None
    tokens, positions = torch.tensor([[4]]), torch.tensor([[0]])
    assert torch.equal(
        model._embed_target(tokens, positions), model._embed(model.source_embedding, None, tokens, positions)
    )
    x = torch.randn(1, 2, 16)
    assert torch.equal(model._logits(x), F.linear(x, model.source_embedding.weight))


def test_target_tying_shares_target_embedding_and_output() -> None:
    model = build(replace(SMALL, tying="target", source_vocab_size=11))
    assert num_parameters(model) - stacks_only(model) == (11 + 13) * 16
    assert model.target_embedding is not None
    x = torch.randn(1, 2, 16)
    assert torch.equal(model._logits(x), F.linear(x, model.target_embedding.weight))


def test_no_tying_shares_nothing() -> None:
    model = build(replace(SMALL, tying="none", source_vocab_size=11))
    assert num_parameters(model) - stacks_only(model) == (11 + 13 + 13) * 16
    assert model.output is not None
    assert model.output.bias is None
    x = torch.randn(1, 2, 16)
    assert torch.equal(model._logits(x), F.linear(x, model.output.weight))


def test_tied_matrix_gets_both_gradients() -> None:
    model = build(SMALL)
    logits_of(model).square().sum().backward()
    assert model.source_embedding.weight.grad is not None
    assert (model.source_embedding.weight.grad.abs().sum(dim=1) > 0).all()  # the output uses every row


@pytest.mark.parametrize("name", VARIANTS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = build(VARIANTS[name]).train()
    torch.log_softmax(logits_of(model), dim=-1)[..., 2].sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


def test_embeddings_are_scaled_before_positions_are_added() -> None:
    model = build(SMALL)
    tokens, positions = torch.tensor([[3, 5]]), torch.tensor([[0, 9]])
    embedded = model._embed(model.source_embedding, None, tokens, positions)
    expected = model.source_embedding.weight[tokens] * 4.0 + sinusoidal_encoding(positions, 16)
    torch.testing.assert_close(embedded, expected)


def test_learned_positions_are_added_on_each_side() -> None:
    model = build(replace(SMALL, positions="learned"))
    assert model.source_positions is not None
    assert model.target_positions is not None
    tokens, positions = torch.tensor([[3, 5]]), torch.tensor([[0, 9]])
    scaled = model.source_embedding.weight[tokens] * 4.0
    source = model._embed(model.source_embedding, model.source_positions, tokens, positions)
    torch.testing.assert_close(source, scaled + model.source_positions.embedding.weight[positions])
    target = model._embed_target(tokens, positions)
    torch.testing.assert_close(target, scaled + model.target_positions.embedding.weight[positions])


@pytest.mark.parametrize("name", VARIANTS)
def test_initial_values(name: str) -> None:
    torch.manual_seed(0)
    config = replace(VARIANTS[name], d_model=64, source_vocab_size=500, target_vocab_size=500)
    model = Transformer(config)
    for key, parameter in model.named_parameters():
        if key.endswith("norm.weight"):
            assert (parameter == 1).all(), key
        elif key.endswith("bias"):
            assert (parameter == 0).all(), key
        elif "embedding" in key:
            assert parameter.std().item() == pytest.approx(64**-0.5, rel=0.1), key
        else:
            bound = (6 / sum(parameter.shape)) ** 0.5
            assert 0.9 * bound < parameter.abs().max() <= bound, key
    logits = logits_of(model.eval())
    assert 0.1 < logits.std() < 10  # the predictions of an untrained model are nearly uniform


PAPER_SIZES = {"base": (65e6, 0.05), "big": (213e6, 0.02)}


@pytest.mark.parametrize("preset", PAPER_SIZES)
def test_preset_parameter_counts_are_papers(preset: str) -> None:
    expected, tolerance = PAPER_SIZES[preset]
    with torch.device("meta"):
        model = build_model(build_config({}, preset).model)
    assert model.config.source_vocab_size == 37_000
    assert num_parameters(model) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("preset", ["tiny", "small", "iwslt", "base", "big"])
def test_presets_can_be_built(preset: str) -> None:
    with torch.device("meta"):
        model = build_model(build_config({"model": {"source_vocab_size": 100, "target_vocab_size": 100}}, preset).model)
        logits = model(torch.ones(2, 5, dtype=torch.long), torch.ones(2, 3, dtype=torch.long))
    assert logits.shape == (2, 3, 100)


ATTENTION_KEYS = [f"{part}.{kind}" for part in ("query", "key", "value", "output") for kind in ("weight", "bias")]
ENCODER_LAYER_KEYS = [
    *(f"self_attention.{key}" for key in ATTENTION_KEYS),
    "self_attention_norm.weight",
    "self_attention_norm.bias",
    "feed_forward.inner.weight",
    "feed_forward.inner.bias",
    "feed_forward.output.weight",
    "feed_forward.output.bias",
    "feed_forward_norm.weight",
    "feed_forward_norm.bias",
]
DECODER_LAYER_KEYS = [
    *ENCODER_LAYER_KEYS,
    *(f"cross_attention.{key}" for key in ATTENTION_KEYS),
    "cross_attention_norm.weight",
    "cross_attention_norm.bias",
]
"""The names under which weights are stored. They are an interface: published models depend on them."""


def keys_of(**changes: object) -> set[str]:
    config = replace(SMALL, num_encoder_layers=1, num_decoder_layers=1, **changes)  # type: ignore[arg-type]
    return set(Transformer(config).state_dict())


PAPER_KEYS = {
    "source_embedding.weight",
    *(f"encoder.layers.0.{key}" for key in ENCODER_LAYER_KEYS),
    *(f"decoder.layers.0.{key}" for key in DECODER_LAYER_KEYS),
}
NORM_KEYS = {key for key in PAPER_KEYS if "_norm." in key}


def test_state_dict_keys_of_base_model() -> None:
    assert keys_of() == PAPER_KEYS


@pytest.mark.parametrize(
    ("changes", "added", "removed"),
    [
        ({"tying": "target"}, {"target_embedding.weight"}, set()),
        ({"tying": "none"}, {"target_embedding.weight", "output.weight"}, set()),
        ({"positions": "rotary"}, set(), set()),
        ({"positions": "learned"}, {f"{s}_positions.embedding.weight" for s in ("source", "target")}, set()),
        ({"norm_placement": "pre"}, {f"{s}coder.norm.{k}" for s in ("en", "de") for k in ("weight", "bias")}, set()),
        ({"norm": "rms"}, set(), {key for key in NORM_KEYS if key.endswith("bias")}),
        ({"bias": False}, set(), {key for key in PAPER_KEYS if key.endswith("bias")}),
        (
            {"norm": "batch"},
            {
                key.replace("weight", buffer)
                for key in NORM_KEYS
                for buffer in ("running_mean", "running_variance")
                if key.endswith("weight")
            },
            set(),
        ),
        (
            {"activation": "swiglu"},
            {f"{s}coder.layers.0.feed_forward.gate.{k}" for s in ("en", "de") for k in ("weight", "bias")},
            set(),
        ),
        (
            {"attention_scoring": "additive"},
            {
                f"{place}_attention.scoring.vector"
                for place in ("encoder.layers.0.self", "decoder.layers.0.self", "decoder.layers.0.cross")
            },
            set(),
        ),
    ],
)
def test_state_dict_keys_of_options(changes: dict[str, object], added: set[str], removed: set[str]) -> None:
    assert keys_of(**changes) == (PAPER_KEYS | added) - removed


@pytest.mark.parametrize("name", VARIANTS)
def test_state_dict_roundtrip(name: str) -> None:
    model, other = build(VARIANTS[name], seed=1), build(VARIANTS[name], seed=2)
    assert not torch.equal(logits_of(model), logits_of(other))
    other.load_state_dict(model.state_dict())
    assert torch.equal(logits_of(model), logits_of(other))


DROPOUTS = ["dropout", "embedding_dropout", "attention_dropout", "activation_dropout"]


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("kind", DROPOUTS)
def test_dropouts_act_only_in_training(kind: str, attention: str) -> None:
    config = replace(SMALL, **{"embedding_dropout": 0.0, kind: 0.5})
    model, without = build(config), build(SMALL)
    model.use_attention(attention)
    without.use_attention(attention)
    expected = logits_of(without)
    assert torch.equal(logits_of(model), expected)
    model.train()
    source, target_input = random_tokens(2, 5), random_tokens(2, 4)
    first, second = model(source, target_input), model(source, target_input)
    assert (first - second).abs().max() > 1e-3
    model.eval()
    assert torch.equal(logits_of(model), expected)


@pytest.mark.parametrize("name", [name for name in VARIANTS if "batch" not in name])
def test_train_mode_without_dropout_equals_eval(name: str) -> None:
    model = build(VARIANTS[name])
    assert torch.equal(logits_of(model.train()), logits_of(model.eval()))


def test_embedding_dropout_follows_dropout_unless_set() -> None:
    assert Transformer(replace(SMALL, dropout=0.3)).embedding_dropout == 0.3
    assert Transformer(replace(SMALL, dropout=0.3, embedding_dropout=0.0)).embedding_dropout == 0.0


@pytest.mark.parametrize("kind", DROPOUTS)
def test_dropout_keeps_the_expected_value(kind: str) -> None:
    """The mean of the first dropout's output over many draws equals its input."""
    config = replace(SMALL, **{"embedding_dropout": 0.0, kind: 0.4})
    model = build(config).train()
    layer = model.encoder.layers[0]
    copies = 4000
    x = torch.randn(1, 3, 16).expand(copies, 3, 16)

    def outcome() -> Tensor:
        if kind == "embedding_dropout":
            tokens, positions = torch.tensor([[1, 2]]).expand(copies, 2), torch.tensor([[0, 1]]).expand(copies, 2)
            return model._embed(model.source_embedding, None, tokens, positions)
        if kind == "activation_dropout":
            return layer.feed_forward(x)
        if kind == "attention_dropout":
            attention, mask = layer.self_attention, torch.ones(copies, 1, 3, 3, dtype=torch.bool)
            return attention(x, mask=mask)[0]
        layer.norm_placement = "pre"  # a norm after the sum would have another expected value
        mask = torch.ones(copies, 1, 3, 3, dtype=torch.bool)
        return layer.add_and_norm(x, x, layer.self_attention_norm, mask)

    with torch.no_grad():
        mean, spread = outcome().mean(dim=0), outcome().std(dim=0)
        model.eval()
        assert spread.max() > 0.1
        assert ((mean - outcome()[0]).abs() <= 6 * spread / copies**0.5 + 1e-5).all()


def test_parameter_count_formula() -> None:
    config = ModelConfig(
        source_vocab_size=50, target_vocab_size=50, d_model=8, d_ff=20, num_heads=3, head_dim=5,
        num_encoder_layers=2, num_decoder_layers=3,
    )  # fmt: skip
    attention = 4 * 8 * 15 + 3 * 15 + 8
    feed_forward = 2 * 8 * 20 + 20 + 8
    norm = 16
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    assert num_parameters(Transformer(config)) == 50 * 8 + 2 * encoder_layer + 3 * decoder_layer


def test_key_dim_does_not_change_value_width() -> None:
    whole = ModelConfig(source_vocab_size=50, target_vocab_size=50, num_encoder_layers=1, num_decoder_layers=1)
    attention = Transformer(replace(whole, key_dim=16)).encoder.layers[0].self_attention
    assert attention.query.weight.shape == attention.key.weight.shape == (8 * 16, 512)
    assert attention.value.weight.shape == attention.output.weight.shape == (512, 512)
    assert attention.scoring.scale == 16**-0.5
    fewer = num_parameters(Transformer(whole)) - num_parameters(Transformer(replace(whole, key_dim=16)))
    assert fewer == 3 * 2 * (8 * 48 * 512 + 8 * 48)  # three attentions, queries and keys, with their biases


def test_wrong_shape_is_refused() -> None:
    if not hasattr(Transformer.forward, "__wrapped__"):
        pytest.skip("shapes are not checked in this process")
    model = build(SMALL)
    with pytest.raises(Exception, match=re.compile("type-check", re.IGNORECASE)):
        model(random_tokens(2, 5), random_tokens(3, 4))
    with pytest.raises(Exception, match=re.compile("type-check", re.IGNORECASE)):
        model(random_tokens(2, 5).float(), random_tokens(2, 4))


def packed_inputs() -> tuple[Tensor, ...]:
    segments = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]])
    return random_tokens(2, 6), random_tokens(2, 6), segments, segments, positions, positions


@pytest.mark.compile
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(VARIANTS["modern"], id="modern"),
        pytest.param(replace(VARIANTS["batch"], positions="learned", attention_scoring="additive"), id="the_others"),
    ],
)
def test_options_compile_without_graph_breaks(config: ModelConfig) -> None:
    """One full graph, forward and backward; run with torch's operators, because generating machine code is slow."""
    config = replace(config, num_encoder_layers=1, num_decoder_layers=1)
    eager, compiled = build(config).train(), build(config).train()
    inputs = packed_inputs()
    expected = eager(*inputs)
    logits = torch.compile(compiled, fullgraph=True, backend="aot_eager")(*inputs)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    for model_logits in (logits, expected):
        model_logits.square().sum().backward()
    for parameter, other in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-3, atol=1e-3)
    for buffer, other_buffer in zip(compiled.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(buffer, other_buffer)


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:torch\..*")  # inductor's imports use deprecated parts of torch
def test_compiled_model_equals_eager() -> None:
    model, inputs = build(replace(SMALL, num_encoder_layers=1, num_decoder_layers=1)), packed_inputs()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, options={"cpp_cache_precompile_headers": False})(*inputs)
        torch.testing.assert_close(compiled, model(*inputs), rtol=1e-4, atol=1e-5)
