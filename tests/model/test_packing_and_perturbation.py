"""Packed rows equal single sentences, and masked tokens change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.model.attention import causal_mask, segment_mask
from heedful.model.transformer import Transformer
from tests.small_models import SMALL, VARIANTS, build, random_tokens, real_tokens


class Rows(NamedTuple):
    """Several pairs in each row, in the order of the model's arguments."""

    source: Tensor
    target_input: Tensor
    source_segments: Tensor
    target_segments: Tensor
    source_positions: Tensor
    target_positions: Tensor


Pair = tuple[Tensor, Tensor]


def pack(rows: list[list[Pair]], *, width: int) -> Rows:
    """Pack the pairs of each row one after the other; the rest is padding with arbitrary tokens."""
    packed = Rows(*(torch.zeros(len(rows), width, dtype=torch.long) for _ in range(6)))
    packed.source.random_(0, 11)
    packed.target_input.random_(0, 11)
    for row, pairs in enumerate(rows):
        starts = [0, 0]
        for segment, pair in enumerate(pairs, start=1):
            for side, tokens in enumerate(pair):
                place = (row, slice(starts[side], starts[side] + len(tokens)))
                packed[side][place] = tokens
                packed[side + 2][place] = segment
                packed[side + 4][place] = torch.arange(len(tokens))
                starts[side] += len(tokens)
    return packed


def random_rows(lengths: list[list[tuple[int, int]]]) -> list[list[Pair]]:
    return [[(random_tokens(1, s)[0], random_tokens(1, t)[0]) for s, t in row] for row in lengths]


def assert_each_pair_as_if_alone(model: Transformer, rows: list[list[Pair]], *, width: int) -> None:
    packed = pack(rows, width=width)
    logits = model(*packed)
    for row, pairs in enumerate(rows):
        for segment, (source, target_input) in enumerate(pairs, start=1):
            alone = model(source[None], target_input[None])[0]
            together = logits[row][packed.target_segments[row] == segment]
            torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)  # rounding depends on the shape


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_packed_pairs_equal_pairs_alone(name: str, attention: str) -> None:
    model = build(VARIANTS[name])
    model.use_attention(attention)
    rows = random_rows([[(3, 4), (1, 1), (5, 3)], [(7, 2), (2, 6)], [(10, 10)]])
    assert_each_pair_as_if_alone(model, rows, width=12)


pair_lengths = st.tuples(st.integers(1, 4), st.integers(1, 4))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@settings(max_examples=12)
@given(lengths=st.lists(st.lists(pair_lengths, max_size=4), min_size=1, max_size=3), seed=st.integers(0, 2**31))
@torch.no_grad()
def test_any_packing_equals_pairs_alone(positions: str, lengths: list[list[tuple[int, int]]], seed: int) -> None:
    model = build(replace(SMALL, positions=positions, num_encoder_layers=1), seed=seed)
    assert_each_pair_as_if_alone(model, random_rows(lengths), width=16)


@torch.no_grad()
def test_without_segments_a_row_is_one_sentence() -> None:
    model = build(SMALL)
    source, target_input = random_tokens(2, 5), random_tokens(2, 4)
    positions = [torch.arange(length).expand(2, length) for length in (5, 4)]
    spelt_out = model(source, target_input, torch.ones_like(source), torch.ones_like(target_input), *positions)
    assert torch.equal(model(source, target_input), spelt_out)


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_later_target_token_changes_nothing_before_it(name: str) -> None:
    model = build(VARIANTS[name])
    source, target_input = random_tokens(2, 5), random_tokens(2, 6)
    before = model(source, target_input)
    for index in range(1, 6):
        changed = target_input.clone()
        changed[:, index] = (changed[:, index] + 1) % 11
        after = model(source, changed)
        torch.testing.assert_close(after[:, :index], before[:, :index], rtol=0, atol=1e-6)
        assert (after[:, index] - before[:, index]).abs().max() > 1e-3  # it does change its own position


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_padding_changes_nothing(name: str) -> None:
    model = build(VARIANTS[name])
    source, target_input = random_tokens(3, 6), random_tokens(3, 5)
    source_real, target_real = real_tokens([6, 3, 1], 6), real_tokens([2, 5, 4], 5)
    before = model(source, target_input, source_real.long(), target_real.long())
    other_source = torch.where(source_real, source, (source + 3) % 11)
    other_target = torch.where(target_real, target_input, (target_input + 3) % 11)
    after = model(other_source, other_target, source_real.long(), target_real.long())
    assert torch.equal(after[target_real], before[target_real])
    wider = torch.cat([source, random_tokens(3, 4)], dim=1)
    after = model(wider, target_input, real_tokens([6, 3, 1], 10).long(), target_real.long())
    torch.testing.assert_close(after[target_real], before[target_real], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", ["source", "target_input"])
@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_other_pair_in_row_changes_nothing(name: str, side: str) -> None:
    model = build(VARIANTS[name])
    packed = pack(random_rows([[(3, 4), (4, 3), (2, 2)]]), width=12)
    before = model(*packed)
    tokens, segments = getattr(packed, side), getattr(packed, side.replace("_input", "") + "_segments")
    changed = packed._replace(**{side: torch.where(segments == 2, (tokens + 1) % 11, tokens)})
    after = model(*changed)
    same, altered = (packed.target_segments == 1) | (packed.target_segments == 3), packed.target_segments == 2
    assert torch.equal(after[same], before[same])
    assert (after[altered] - before[altered]).abs().max() > 1e-3


@pytest.mark.parametrize("attention", ["fused", "explicit"])
@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_masked_tokens_get_no_gradient(norm_placement: str, attention: str) -> None:
    """The gradient of a position reaches only embeddings that it may attend to, not later, other or padding tokens."""
    model = build(replace(SMALL, norm_placement=norm_placement, tying="none"))
    model.use_attention(attention)
    packed = pack(random_rows([[(3, 4), (4, 3)]]), width=9)
    # Every position has a different token, so that the gradient of an embedding row is that of a position.
    source, target_input = torch.arange(9)[None], torch.arange(9)[None]
    logits = model(source, target_input, *packed[2:])
    logits[0, 5].square().sum().backward()  # the second token of the second pair
    for table, visible in ((model.source_embedding, {3, 4, 5, 6}), (model.target_embedding, {4, 5})):
        assert table is not None
        assert table.weight.grad is not None
        reached = set(table.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist())
        assert reached == visible


def test_masks_are_true_where_attention_is_allowed() -> None:
    segments = torch.tensor([[1, 1, 2, 0]])
    expected = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    assert torch.equal(segment_mask(segments, segments), expected[None, None])
    assert torch.equal(
        segment_mask(segments, segments) & causal_mask(4, segments.device),
        torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)[None, None],
    )
    sources = torch.tensor([[2, 2, 1, 0, 0]])
    assert segment_mask(segments, sources)[0, 0].long().tolist() == [
        [0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
