"""The cache: feeding tokens one by one gives the logits of the full target, for every option of the model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heedful.model.seq2seq import DecoderState, Seq2Seq
from heedful.model.transformer import Transformer
from tests.small_models import SMALL, VARIANTS, build, random_tokens, real_tokens

LENGTHS, WIDTH, STEPS = [6, 3, 1], 6, 5


def full_logits(model: Transformer, source: Tensor, target_input: Tensor, lengths: list[int] = LENGTHS) -> Tensor:
    return model(source, target_input, real_tokens(lengths, source.shape[1]).long())


def start(model: Transformer, source: Tensor, *, num_beams: int = 1, room: int = STEPS) -> DecoderState:
    memory = model.encode(source, real_tokens(LENGTHS, WIDTH))
    return model.start(memory, num_beams=num_beams, max_length=room)


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_cached_steps_equal_full_forward(name: str, attention: str) -> None:
    model = build(VARIANTS[name])
    model.use_attention(attention)
    source, target_input = random_tokens(3, WIDTH), random_tokens(3, STEPS)
    expected = full_logits(model, source, target_input)
    state = start(model, source, room=STEPS + 3)
    for index in range(STEPS):
        logits = model.step(target_input[:, index], state).logits
        torch.testing.assert_close(logits, expected[:, index], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["paper", "modern", "learned", "additive", "batch"])
@torch.no_grad()
def test_reordered_cache_equals_recomputed_histories(name: str) -> None:
    model, num_beams = build(VARIANTS[name]), 4
    source = random_tokens(3, WIDTH)
    state = start(model, source, num_beams=num_beams)
    assert state.num_rows == 12
    histories = torch.empty(12, 0, dtype=torch.long)
    for _ in range(STEPS):
        tokens = torch.randint(0, 13, (12,))
        histories = torch.cat([histories, tokens[:, None]], dim=1)
        logits = model.step(tokens, state).logits
        expected = model(
            source.repeat_interleave(num_beams, dim=0),
            histories,
            real_tokens(LENGTHS, WIDTH).long().repeat_interleave(num_beams, dim=0),
        )
        torch.testing.assert_close(logits, expected[:, -1], rtol=1e-4, atol=1e-5)
        rows = (torch.arange(3)[:, None] * num_beams + torch.randint(0, num_beams, (3, num_beams))).flatten()
        state.reorder(rows)
        histories = histories[rows]


@pytest.mark.parametrize("name", ["paper", "modern"])
@torch.no_grad()
def test_select_keeps_sentences_unchanged(name: str) -> None:
    model, num_beams = build(VARIANTS[name]), 2
    source, target_input = random_tokens(3, WIDTH), random_tokens(6, STEPS)
    all_rows, some_rows = start(model, source, num_beams=num_beams), start(model, source, num_beams=num_beams)
    for index in range(2):
        model.step(target_input[:, index], all_rows)
        model.step(target_input[:, index], some_rows)
    some_rows.select(torch.tensor([2, 0]))  # the order may change too
    kept = torch.tensor([4, 5, 0, 1])
    assert some_rows.num_rows == 4
    for index in range(2, STEPS):
        expected = model.step(target_input[:, index], all_rows, need_weights=True)
        output = model.step(target_input[kept, index], some_rows, need_weights=True)
        torch.testing.assert_close(output.logits, expected.logits[kept], rtol=1e-5, atol=1e-5)
        assert output.attention is not None
        assert expected.attention is not None
        torch.testing.assert_close(output.attention, expected.attention[kept], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["paper", "deep_decoder", "head_dim", "additive"])
@torch.no_grad()
def test_cross_attention_weights_of_step(name: str) -> None:
    model = build(VARIANTS[name])
    source, tokens = random_tokens(3, WIDTH), torch.randint(0, 11, (6,))
    silent, shown = start(model, source, num_beams=2), start(model, source, num_beams=2)
    without, output = model.step(tokens, silent), model.step(tokens, shown, need_weights=True)
    assert without.attention is None
    assert output.attention is not None
    torch.testing.assert_close(without.logits, output.logits, rtol=1e-5, atol=1e-5)
    config = model.config
    assert output.attention.shape == (6, config.num_decoder_layers, config.num_heads, WIDTH)
    torch.testing.assert_close(output.attention.sum(dim=-1), torch.ones(output.attention.shape[:-1]))
    padding = ~real_tokens(LENGTHS, WIDTH).repeat_interleave(2, dim=0)[:, None, None].expand_as(output.attention)
    assert (output.attention[padding] == 0).all()


@torch.no_grad()
def test_weights_of_beams_belong_to_their_rows() -> None:
    model = build(SMALL)
    source, tokens = random_tokens(3, WIDTH), torch.randint(0, 11, (6,))
    together = model.step(tokens, start(model, source, num_beams=2), need_weights=True).attention
    assert together is not None
    for beam in range(2):
        alone = model.step(tokens[beam::2], start(model, source), need_weights=True).attention
        torch.testing.assert_close(together[beam::2], alone, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_states_are_independent() -> None:
    model = build(SMALL)
    source, target_input = random_tokens(3, WIDTH), random_tokens(3, STEPS)
    expected = full_logits(model, source, target_input)
    first, second = start(model, source), start(model, source.flip(0))
    for index in range(STEPS):
        logits = model.step(target_input[:, index], first).logits
        model.step(random_tokens(3, 1)[:, 0], second)
        torch.testing.assert_close(logits, expected[:, index], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_empty_source_gives_finite_logits() -> None:
    model = build(SMALL)
    memory = model.encode(random_tokens(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    output = model.step(torch.tensor([1, 2]), model.start(memory, num_beams=1, max_length=2), need_weights=True)
    assert torch.isfinite(output.logits).all()
    assert output.attention is not None
    assert (output.attention == 0).all()


def test_transformer_implements_seq2seq() -> None:
    model = build(SMALL)
    assert isinstance(model, Seq2Seq)
    assert isinstance(start(model, random_tokens(3, WIDTH)), DecoderState)
    assert model.max_length == SMALL.max_length
