"""`torch.nn.Transformer` and our model give equal outputs and gradients for the same weights."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.interop.torch_nn import from_torch, matching_names, to_torch, torch_masks
from heedful.model.attention import causal_mask, segment_mask
from heedful.model.positions import position_ids
from heedful.model.transformer import Transformer

D_MODEL, NUM_HEADS, D_FF = 16, 4, 24
SOURCE_MASK = torch.arange(6)[None] < torch.tensor([6, 3, 1])[:, None]
TARGET_MASK = torch.arange(5)[None] < torch.tensor([2, 5, 4])[:, None]
COMBINATIONS = list(product(("post", "pre"), ("relu", "gelu"), (True, False)))


def torch_transformer(
    norm_placement: str, activation: str, final_norm: bool, *, bias: bool = True, dropout: float = 0.0
) -> nn.Transformer:
    """An `nn.Transformer` built by torch alone, with all parameters different from their initial values."""
    options = {
        "dim_feedforward": D_FF,
        "dropout": dropout,
        "activation": activation,
        "norm_first": norm_placement == "pre",
        "layer_norm_eps": 1e-4,
        "bias": bias,
        "batch_first": True,
    }
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D_MODEL, NUM_HEADS, **options),
        3,
        norm=nn.LayerNorm(D_MODEL, eps=1e-4, bias=bias) if final_norm else None,
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(D_MODEL, NUM_HEADS, **options),
        2,
        norm=nn.LayerNorm(D_MODEL, eps=1e-4, bias=bias) if final_norm else None,
    )
    module = nn.Transformer(D_MODEL, NUM_HEADS, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def ours_from(module: nn.Transformer, dtype: torch.dtype = torch.float32) -> Transformer:
    config, weights = from_torch(module, source_vocab_size=11, target_vocab_size=11)
    model = Transformer(config).to(dtype)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == ["source_embedding.weight"]
    assert unexpected == []
    return model


def run_ours(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """The output of our two stacks for embedded tokens."""
    source_segments, target_segments = SOURCE_MASK.long(), TARGET_MASK.long()
    memory = model.encoder(source, segment_mask(source_segments, source_segments), position_ids(source_segments))
    return model.decoder(
        target,
        segment_mask(target_segments, target_segments) & causal_mask(target.shape[1], target.device),
        position_ids(target_segments),
        memory,
        segment_mask(target_segments, source_segments),
    )[0]


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize(("norm_placement", "activation", "final_norm"), COMBINATIONS)
def test_outputs_and_gradients_equal_torch(
    norm_placement: str, activation: str, final_norm: bool, attention: str
) -> None:
    theirs = torch_transformer(norm_placement, activation, final_norm)
    ours = ours_from(theirs)
    ours.use_attention(attention)
    compare(ours, theirs, dtype=torch.float32, tolerance=1e-5)


@pytest.mark.parametrize(("norm_placement", "activation", "final_norm"), COMBINATIONS)
def test_double_precision_equals_torch_to_ten_digits(norm_placement: str, activation: str, final_norm: bool) -> None:
    theirs = torch_transformer(norm_placement, activation, final_norm).double()
    compare(ours_from(theirs, torch.float64), theirs, dtype=torch.float64, tolerance=1e-10)


@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_without_biases_equals_torch(norm_placement: str) -> None:
    theirs = torch_transformer(norm_placement, "relu", final_norm=True, bias=False)
    compare(ours_from(theirs), theirs, dtype=torch.float32, tolerance=1e-5)


def compare(ours: Transformer, theirs: nn.Transformer, *, dtype: torch.dtype, tolerance: float) -> None:
    """Compare outputs of real tokens, and gradients of both inputs and all parameters."""
    inputs = [torch.randn(3, 6, D_MODEL, dtype=dtype), torch.randn(3, 5, D_MODEL, dtype=dtype)]
    direction = torch.randn(3, 5, D_MODEL, dtype=dtype) * TARGET_MASK[..., None]
    our_inputs = [x.clone().requires_grad_() for x in inputs]
    their_inputs = [x.clone().requires_grad_() for x in inputs]

    our_output = run_ours(ours, *our_inputs)
    their_output = theirs(*their_inputs, **torch_masks(SOURCE_MASK, TARGET_MASK))
    torch.testing.assert_close(our_output[TARGET_MASK], their_output[TARGET_MASK], rtol=0, atol=tolerance)

    (our_output * direction).sum().backward()
    (their_output * direction).sum().backward()
    for mine, yours in zip(our_inputs, their_inputs, strict=True):
        assert mine.grad is not None
        assert mine.grad.abs().max() > 0.01
        torch.testing.assert_close(mine.grad, yours.grad, rtol=tolerance, atol=tolerance)
    our_parameters, their_parameters = dict(ours.named_parameters()), dict(theirs.named_parameters())
    compared = set()
    for key, names in matching_names(ours.config):
        gradient = torch.cat([our_parameters[name].grad for name in names])
        scale = max(1.0, float(gradient.abs().max()))  # sums over many tokens: the error grows with the sum
        torch.testing.assert_close(gradient, their_parameters[key].grad, rtol=0, atol=tolerance * scale)
        compared.update(names)
    assert compared == {name for name in our_parameters if name.startswith(("encoder.", "decoder."))}


@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_whole_model_equals_embeddings_around_torch(norm_placement: str) -> None:
    config = small(norm_placement=norm_placement)
    model = Transformer(config).eval()
    theirs = to_torch(model)
    source, target_input = torch.randint(0, 11, (3, 6)), torch.randint(0, 11, (3, 5))
    with torch.no_grad():  # torch uses its fast path here, which must agree too
        logits = model(source, target_input, source_segments=SOURCE_MASK.long(), target_segments=TARGET_MASK.long())
        output = theirs(
            model._embed(model.source_embedding, None, source, position_ids(source)),
            model._embed_target(target_input, position_ids(target_input)),
            **torch_masks(SOURCE_MASK, TARGET_MASK),
        )
        expected = output @ model.source_embedding.weight.T
    torch.testing.assert_close(logits[TARGET_MASK], expected[TARGET_MASK], rtol=1e-5, atol=1e-5)


def small(**changes: object) -> ModelConfig:
    start = ModelConfig(
        source_vocab_size=11,
        target_vocab_size=11,
        d_model=D_MODEL,
        d_ff=D_FF,
        num_heads=NUM_HEADS,
        num_encoder_layers=2,
        num_decoder_layers=3,
    )
    return replace(start, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "pre", "activation": "gelu", "norm_epsilon": 1e-3},
        {"norm_placement": "pre", "final_norm": False, "bias": False},
        {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3},
        {"head_dim": D_MODEL // NUM_HEADS, "positions": "learned"},
    ],
)
def test_round_trip_changes_nothing(changes: dict[str, object]) -> None:
    model = Transformer(small(**changes))
    positions = model.config.positions
    config, weights = from_torch(to_torch(model), source_vocab_size=11, target_vocab_size=11, positions=positions)
    assert config == replace(model.config, final_norm=model.config.has_final_norm, head_dim=None)
    ours = {name: tensor for name, tensor in model.state_dict().items() if name.startswith(("encoder.", "decoder."))}
    assert weights.keys() == ours.keys()
    assert all(torch.equal(weights[name], ours[name]) for name in ours)


def test_default_constructor_of_torch_is_read() -> None:
    module = nn.Transformer(D_MODEL, NUM_HEADS, 1, 2, D_FF, batch_first=True)
    config, _ = from_torch(module, source_vocab_size=11, target_vocab_size=12)
    assert config == small(
        target_vocab_size=12,
        tying="target",
        num_encoder_layers=1,
        num_decoder_layers=2,
        final_norm=True,
        dropout=0.1,
        attention_dropout=0.1,
        activation_dropout=0.1,
    )


def test_weights_are_copies() -> None:
    module = torch_transformer("post", "relu", final_norm=False)
    _, weights = from_torch(module, source_vocab_size=11, target_vocab_size=11)
    before = module.encoder.layers[0].self_attn.in_proj_weight.detach().clone()
    weights["encoder.layers.0.self_attention.query.weight"].zero_()
    assert torch.equal(module.encoder.layers[0].self_attn.in_proj_weight, before)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"positions": "rotary"}, "positions=rotary"),
        ({"attention_scoring": "additive"}, "attention_scoring=additive"),
        ({"attention_scoring": "dot"}, "attention_scoring=dot"),
        ({"activation": "swiglu"}, "activation=swiglu"),
        ({"norm": "rms"}, "norm=rms"),
        ({"norm": "batch"}, "norm=batch"),
        ({"head_dim": 6}, "head_dim=6"),
        ({"key_dim": 6}, "key_dim=6"),
        ({"norm": "rms", "activation": "swiglu"}, "model.norm=rms and model.activation=swiglu"),
    ],
)
def test_options_that_torch_lacks_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        to_torch(Transformer(small(**changes)))


def spoil_activation(module: nn.Transformer) -> None:
    module.encoder.layers[1].activation = torch.tanh


def spoil_placement(module: nn.Transformer) -> None:
    module.decoder.layers[1].norm_first = True


def spoil_final_norm(module: nn.Transformer) -> None:
    module.encoder.norm = None


def spoil_final_norm_kind(module: nn.Transformer) -> None:
    module.encoder.norm = nn.RMSNorm(D_MODEL)


def spoil_norm_kind(module: nn.Transformer) -> None:
    module.encoder.layers[0].norm1 = nn.RMSNorm(D_MODEL)


def spoil_layer(module: nn.Transformer) -> None:
    module.encoder.layers[0] = nn.Linear(D_MODEL, D_MODEL)


def spoil_bias(module: nn.Transformer) -> None:
    module.decoder.layers[0].norm3 = nn.LayerNorm(D_MODEL, eps=1e-4, bias=False)


def spoil_epsilon(module: nn.Transformer) -> None:
    module.decoder.layers[0].norm3.eps = 1e-6


def spoil_attention(module: nn.Transformer) -> None:
    module.decoder.layers[0].self_attn.add_zero_attn = True


def spoil_extra(module: nn.Transformer) -> None:
    module.extra = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_activation, "activation .*tanh"),
        (spoil_placement, "layer 1 has norm_placement=pre"),
        (spoil_final_norm, "final norm"),
        (spoil_final_norm_kind, "RMSNorm"),
        (spoil_norm_kind, "other than LayerNorm"),
        (spoil_layer, "Linear"),
        (spoil_bias, r"decoder\.layers\.0\.norm3\.bias is missing"),
        (spoil_epsilon, "norms or dropouts of a layer differ"),
        (spoil_attention, "add_zero_attn"),
        (spoil_extra, r"no counterpart of extra\.weight"),
    ],
)
def test_unsupported_torch_modules_are_refused(spoil: object, words: str) -> None:
    module = torch_transformer("post", "relu", final_norm=True)
    spoil(module)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words):
        from_torch(module, source_vocab_size=11, target_vocab_size=11)


def test_rotary_positions_are_refused() -> None:
    module = torch_transformer("post", "relu", final_norm=True)
    with pytest.raises(ConfigError, match="rotary"):
        from_torch(module, source_vocab_size=11, target_vocab_size=11, positions="rotary")  # type: ignore[arg-type]
