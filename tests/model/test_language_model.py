"""Language models: equal to `nn.TransformerEncoder`, cached = uncached, packed = alone, and the masks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from heedful.build_model import build_model
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.interop.torch_nn import ENCODER_LAYER_NAMES
from heedful.model.attention import causal_mask
from heedful.model.language_model import LanguageModel
from heedful.model.norms import BatchNorm
from heedful.model.seq2seq import Seq2Seq
from tests.small_models import SMALL, VARIANTS, random_tokens

KINDS = ("encoder", "decoder")
STEPS = 7


def language_model(name: str, kind: str) -> LanguageModel:
    """A small language model with the options of a variant, with no weight at 0 or 1."""
    torch.manual_seed(0)
    model = build_model(
        replace(VARIANTS[name], architecture=kind, source_vocab_size=13, cross_attention="global")  # type: ignore[arg-type]
    )
    assert isinstance(model, LanguageModel)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.running_mean.normal_(std=0.5)
                module.running_variance.uniform_(0.5, 2.0)
    return model.eval()


def torch_stack(model: LanguageModel) -> nn.TransformerEncoder:
    """The same stack of layers as torch.nn, with the same weights."""
    config = model.config
    layer = nn.TransformerEncoderLayer(
        config.d_model, config.num_heads, config.d_ff, dropout=0.0, activation=config.activation,
        batch_first=True, norm_first=config.norm_placement == "pre",
    )  # fmt: skip
    norm = nn.LayerNorm(config.d_model) if config.has_final_norm else None
    stack = nn.TransformerEncoder(layer, len(model.layers), norm, enable_nested_tensor=False)
    ours = model.state_dict()
    weights = {
        f"layers.{index}.{theirs}{kind}": torch.cat([ours[f"layers.{index}.{name}.{kind}"] for name in names])
        for index in range(len(model.layers))
        for theirs, names in ENCODER_LAYER_NAMES.items()
        for kind in ("weight", "bias")
    }
    weights |= {name: tensor for name, tensor in ours.items() if name.startswith("norm.")}
    stack.load_state_dict(weights)
    return stack.to(model.embedding.weight.dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["paper", "pre", "gelu", "post_with_final_norm", "learned"])
def test_outputs_and_gradients_equal_torch_encoder(name: str, kind: str) -> None:
    model = language_model(name, kind).double().train()
    stack = torch_stack(model).train()
    tokens, positions = random_tokens(3, STEPS), torch.arange(STEPS).expand(3, -1)
    ours = model(tokens, tokens)
    blocked = ~causal_mask(STEPS, tokens.device)[0, 0] if kind == "decoder" else None
    theirs = model._project(stack(model._embed(tokens, positions), mask=blocked))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)

    direction = torch.randn_like(ours)
    (ours * direction).sum().backward()
    gradient = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    (theirs * direction).sum().backward()
    assert model.embedding.weight.grad is not None
    torch.testing.assert_close(gradient["embedding.weight"], model.embedding.weight.grad)
    for index, layer in enumerate(stack.layers):
        for theirs_name, ours_names in ENCODER_LAYER_NAMES.items():
            expected = dict(layer.named_parameters())[f"{theirs_name}weight"].grad
            assert expected is not None
            assert expected.abs().sum() > 0
            found = torch.cat([gradient[f"layers.{index}.{part}.weight"] for part in ours_names])
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_cached_steps_equal_all_steps_at_once(name: str) -> None:
    model = language_model(name, "decoder")
    tokens = random_tokens(3, STEPS)
    expected = model.logits(tokens)
    memory = model.encode(tokens, torch.ones_like(tokens, dtype=torch.bool))
    state = model.start(memory, num_beams=1, max_length=STEPS + 2)
    for index in range(STEPS):
        logits = model.step(tokens[:, index], state).logits
        torch.testing.assert_close(logits, expected[:, index], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_reordered_and_selected_cache_equals_recomputed_histories() -> None:
    model, num_beams = language_model("modern", "decoder"), 4
    assert isinstance(model, Seq2Seq)
    source = random_tokens(3, 2)
    state = model.start(model.encode(source, source >= 0), num_beams=num_beams, max_length=STEPS)
    assert state.num_rows == 12
    histories = torch.empty(12, 0, dtype=torch.long)
    for step in range(STEPS):
        newest = random_tokens(len(histories), 1)
        histories = torch.cat([histories, newest], dim=1)
        logits = model.step(newest[:, 0], state).logits
        torch.testing.assert_close(logits, model.logits(histories)[:, -1], rtol=1e-4, atol=1e-5)
        if step == 3:
            state.select(torch.tensor([0, 2]))
            histories = histories.view(3, num_beams, -1)[[0, 2]].flatten(0, 1)
        parents = torch.randint(0, num_beams, (len(histories) // num_beams, num_beams))
        rows = (torch.arange(len(parents))[:, None] * num_beams + parents).flatten()
        state.reorder(rows)
        histories = histories[rows]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_packed_texts_equal_texts_alone(name: str, kind: str) -> None:
    model = language_model(name, kind)
    texts = [random_tokens(1, length)[0] for length in (3, 1, 5)]
    lengths = torch.tensor([len(text) for text in texts])
    tokens = torch.cat([*texts, random_tokens(1, 2)[0]])[None]
    segments = torch.cat([torch.repeat_interleave(torch.arange(1, 4), lengths), torch.zeros(2, dtype=torch.long)])[None]
    positions = torch.cat([torch.arange(int(length)) for length in (*lengths, 2)])[None]
    packed = model(tokens, tokens, segments, segments, positions, positions)[0]
    for segment, text in enumerate(texts, start=1):
        alone = model(text[None], text[None])[0]
        torch.testing.assert_close(packed[segments[0] == segment], alone, rtol=1e-4, atol=1e-4)


def changed_positions(model: LanguageModel, tokens: Tensor, index: int) -> Tensor:
    """The positions whose logits change with the token at one position."""
    other = tokens.clone()
    other[0, index] = (other[0, index] + 1) % 11
    return (model.logits(tokens) != model.logits(other)).any(dim=-1)[0]


@pytest.mark.parametrize("name", ["paper", "pre", "rotary", "learned", "additive"])
@torch.no_grad()
def test_only_encoder_sees_later_tokens(name: str) -> None:
    tokens = random_tokens(1, STEPS)
    changed = changed_positions(language_model(name, "decoder"), tokens, 3)
    assert changed.tolist() == [False] * 3 + [True] * 4
    assert changed_positions(language_model(name, "encoder"), tokens, 3).all()


def test_decoder_reads_target_and_encoder_reads_source() -> None:
    tokens, other = random_tokens(2, 4), random_tokens(2, 4)
    decoder, encoder = language_model("paper", "decoder"), language_model("paper", "encoder")
    assert torch.equal(decoder(tokens, other), decoder.logits(other))
    assert torch.equal(encoder(tokens, other), encoder.logits(tokens))


@pytest.mark.parametrize(("kind", "used"), [("encoder", 3), ("decoder", 1)])
def test_number_of_layers_is_that_of_the_stack(kind: str, used: int) -> None:
    assert len(language_model("deep_encoder", kind).layers) == used


def test_two_vocabularies_are_refused() -> None:
    with pytest.raises(ConfigError, match="architecture=decoder has one vocabulary"):
        replace(SMALL, architecture="decoder", tying="none", source_vocab_size=11)


def test_rotary_positions_need_dot_products() -> None:
    with pytest.raises(ConfigError, match="rotary"):
        ModelConfig(architecture="encoder", positions="rotary", attention_scoring="additive")
