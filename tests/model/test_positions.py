"""Positions: the paper's formula computed naively, rotary positions, and learned ones."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.model.positions import LearnedPositions, rotate, shift_matrix, sinusoidal_encoding


@given(positions=st.lists(st.integers(0, 1023), min_size=1, max_size=5), half=st.integers(1, 16))
def test_sinusoidal_encoding_follows_formula(positions: list[int], half: int) -> None:
    d_model = 2 * half
    encoding = sinusoidal_encoding(torch.tensor([positions]), d_model)
    assert encoding.shape == (1, len(positions), d_model)
    for index, position in enumerate(positions):
        for i in range(half):
            angle = position / 10_000 ** (2 * i / d_model)
            # A float32 angle of about 1000 is itself known to 6e-5 only.
            assert math.isclose(encoding[0, index, 2 * i], math.sin(angle), abs_tol=1e-6 + 3e-7 * angle)
            assert math.isclose(encoding[0, index, 2 * i + 1], math.cos(angle), abs_tol=1e-6 + 3e-7 * angle)


@given(offset=st.integers(-3000, 3000), d_model=st.sampled_from([2, 16, 64, 512]))
@settings(max_examples=20)
def test_shift_matrix_shifts_every_position(offset: int, d_model: int) -> None:
    """PE(pos + k) = M_k PE(pos) with the same M_k for thousands of positions, near and far, forward and back."""
    positions = torch.arange(3000, 8000)[None]
    here, there = (sinusoidal_encoding(places, d_model)[0] for places in (positions, positions + offset))
    shifted = here @ shift_matrix(offset, d_model).T
    # A float32 angle of 11,000 is itself known to 5e-4 only.
    torch.testing.assert_close(shifted, there, rtol=0, atol=3e-3)
    if offset:
        assert (here - there).abs().max() > 0.1


@given(first=st.integers(-100, 100), second=st.integers(-100, 100))
def test_shift_matrices_compose_and_are_orthogonal(first: int, second: int) -> None:
    one, other, both = (shift_matrix(offset, 16) for offset in (first, second, first + second))
    torch.testing.assert_close(one @ other, both, rtol=0, atol=1e-4)
    torch.testing.assert_close(one @ one.T, torch.eye(16), rtol=0, atol=1e-5)


@given(
    query_position=st.integers(0, 100),
    key_position=st.integers(0, 100),
    shift=st.integers(0, 500),
    head_dim=st.sampled_from([2, 4, 6, 16]),
    seed=st.integers(0, 2**31),
)
def test_rotary_dot_products_depend_on_distance_only(
    query_position: int, key_position: int, shift: int, head_dim: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(1, 2, 1, head_dim, generator=generator) for _ in range(2))

    def product(first: int, second: int) -> torch.Tensor:
        rotated_query = rotate(query, torch.tensor([[first]]))
        rotated_key = rotate(key, torch.tensor([[second]]))
        return (rotated_query * rotated_key).sum(dim=-1)

    here, there = product(query_position, key_position), product(query_position + shift, key_position + shift)
    torch.testing.assert_close(here, there, rtol=1e-3, atol=2e-3)


def test_rotary_dot_products_depend_on_distance() -> None:
    query, key = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 1, 4)
    near, far = (
        (rotate(query, torch.tensor([[0]])) * rotate(key, torch.tensor([[distance]]))).sum() for distance in (1, 3)
    )
    assert (near - far).abs() > 1e-2


@given(position=st.integers(0, 1023), head_dim=st.sampled_from([2, 4, 6, 16]), seed=st.integers(0, 2**31))
def test_rotate_keeps_norms_and_position_zero(position: int, head_dim: int, seed: int) -> None:
    x = torch.randn(1, 2, 2, head_dim, generator=torch.Generator().manual_seed(seed))
    rotated = rotate(x, torch.tensor([[0, position]]))
    assert torch.equal(rotated[:, :, 0], x[:, :, 0])
    torch.testing.assert_close(rotated.norm(dim=-1), x.norm(dim=-1), rtol=1e-5, atol=1e-5)


def test_rotate_turns_each_pair_by_its_angle() -> None:
    position, head_dim = 7, 6
    x = torch.randn(1, 1, 1, head_dim)
    rotated = rotate(x, torch.tensor([[position]]))[0, 0, 0]
    for i in range(head_dim // 2):
        turned = complex(x[0, 0, 0, 2 * i], x[0, 0, 0, 2 * i + 1]) * complex(
            math.cos(position / 10_000 ** (2 * i / head_dim)), math.sin(position / 10_000 ** (2 * i / head_dim))
        )
        assert math.isclose(rotated[2 * i], turned.real, abs_tol=1e-5)
        assert math.isclose(rotated[2 * i + 1], turned.imag, abs_tol=1e-5)


def test_rotate_keeps_dtype() -> None:
    assert rotate(torch.randn(1, 1, 2, 4).bfloat16(), torch.tensor([[0, 5]])).dtype == torch.bfloat16


def test_learned_positions_are_embedding_rows() -> None:
    learned = LearnedPositions(8, 4)
    positions = torch.tensor([[0, 7, 3], [3, 3, 1]])
    assert torch.equal(learned(positions), learned.embedding.weight[positions])
