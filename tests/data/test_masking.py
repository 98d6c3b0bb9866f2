"""Masking: shares of hidden tokens, tokens that are never hidden, equal masks on all ranks and after resuming."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from heedful.data.batch_stream import BatchStream, fixed_batches
from heedful.data.masking import MASKED, RANDOM, SHARE, Masking
from heedful.data.packing import Batch
from heedful.data.store import PairStore, StoreWriter

PAD, UNK, BOS, EOS, MASK, VOCAB = 0, 1, 2, 3, 4, 200
ORDINARY = tuple(range(5, VOCAB))


def masking(seed: int = 1) -> Masking:
    return Masking(seed, MASK, EOS, ORDINARY)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PairStore:
    """Texts as pairs of a line with itself."""
    generator = torch.Generator().manual_seed(0)
    texts = []
    for _ in range(600):
        length = int(torch.randint(1, 14, (1,), generator=generator))
        texts.append([*torch.randint(5, VOCAB, (length,), generator=generator).tolist(), EOS])
    directory = tmp_path_factory.mktemp("store")
    with StoreWriter(directory, VOCAB, VOCAB) as writer:
        writer.add(texts, texts, [0] * len(texts))
    return PairStore.open(directory)


def stream(store: PairStore, *, seed: int = 1, rank: int = 0, world_size: int = 1) -> BatchStream:
    return BatchStream(
        store, width=32, rows_per_step=6, seed=seed, bos_id=BOS, pad_id=PAD, rank=rank, world_size=world_size,
        masking=masking(seed),
    )  # fmt: skip


def equal(one: Batch, other: Batch) -> bool:
    return all(torch.equal(value, getattr(other, name)) for name, value in vars(one).items())


def test_shares_of_hidden_tokens() -> None:
    tokens = torch.randint(5, VOCAB, (200, 500), generator=torch.Generator().manual_seed(1))
    segments = torch.ones_like(tokens)
    positions = torch.arange(500).expand_as(tokens)
    plain = Batch(tokens, segments, positions, tokens, tokens, segments, positions)
    batch = masking().apply(plain, 0, 0)
    chosen = batch.target_segments > 0
    assert chosen.float().mean().item() == pytest.approx(SHARE, abs=0.005)
    inputs, outputs = batch.source[chosen], batch.target_output[chosen]
    is_mask, is_same = inputs == MASK, inputs == outputs
    by_chance = RANDOM / len(ORDINARY)  # a random token may be the token itself
    assert is_mask.float().mean().item() == pytest.approx(MASKED, abs=0.01)
    assert is_same.float().mean().item() == pytest.approx(1 - MASKED - RANDOM + by_chance, abs=0.01)
    others = inputs[~is_mask & ~is_same]
    assert set(others.tolist()) <= set(ORDINARY)
    assert len(set(others.tolist())) > 0.99 * len(ORDINARY)
    assert torch.equal(batch.source[~chosen], tokens[~chosen])
    assert torch.equal(batch.source_segments, segments)
    assert torch.equal(batch.target_output, tokens)


def test_ends_and_padding_are_never_hidden_and_every_row_predicts_something(store: PairStore) -> None:
    for _, batch in islice(stream(store).batches(), 20):
        chosen = batch.target_segments > 0
        real = batch.source_segments > 0
        assert chosen[real.any(dim=1)].any(dim=1).all()
        assert not (chosen & ~real).any()
        assert not (chosen & (batch.target_output == EOS)).any()
        assert (batch.source[~real] == PAD).all()
        assert (batch.source[batch.target_output == EOS] == EOS).all()


def test_masks_are_a_function_of_seed_and_position(store: PairStore) -> None:
    first = list(islice(stream(store).batches(), 30))
    assert all(equal(batch, again) for (_, batch), (_, again) in zip(first, stream(store).batches(), strict=False))
    position, expected = first[17]
    resumed = next(iter(stream(store).batches(*position)))
    assert resumed[0] == position
    assert equal(resumed[1], expected)
    hidden = [batch.source == MASK for _, batch in first]
    assert not torch.equal(hidden[0], hidden[1])
    first_epoch, second_epoch = (stream(store).batch(epoch, 0).target_segments > 0 for epoch in (0, 1))
    assert not torch.equal(first_epoch, second_epoch)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_share_the_masks_of_one_process(store: PairStore, world_size: int) -> None:
    whole = stream(store)
    for step in (0, 5):
        expected = whole.batch(0, step)
        parts = [stream(store, rank=rank, world_size=world_size) for rank in range(world_size)]
        batches = [part.batch(0, step) for part in parts]
        for row in range(6):
            part = batches[row % world_size]
            assert torch.equal(part.source[row // world_size], expected.source[row])
            assert torch.equal(part.target_segments[row // world_size], expected.target_segments[row])
        assert sum(batch.num_tokens for batch in batches) == expected.num_tokens
        assert {part.num_tokens(0, step) for part in parts} == {expected.num_tokens}


def test_validation_hides_the_same_tokens_every_time(store: PairStore) -> None:
    def batches(rank: int = 0, world_size: int = 1) -> list[Batch]:
        return list(fixed_batches(store, 32, 6, BOS, PAD, rank=rank, world_size=world_size, masking=masking()))

    assert all(equal(one, other) for one, other in zip(batches(), batches(), strict=True))
    halves = [batches(rank, 2) for rank in range(2)]
    for number, batch in enumerate(batches()):
        for rank, half in enumerate(halves):
            assert torch.equal(half[number].source, batch.source[rank::2])
            assert torch.equal(half[number].target_segments, batch.target_segments[rank::2])
    hidden = [batch.source == MASK for batch in batches()]
    assert not torch.equal(hidden[0], hidden[1])


def test_plain_batches_do_not_change(store: PairStore, tmp_path: Path) -> None:
    plain = BatchStream(store, width=32, rows_per_step=6, seed=1, bos_id=BOS, pad_id=PAD).batch(0, 3)
    masked = stream(store).batch(0, 3)
    assert torch.equal(plain.target_output, masked.target_output)
    assert torch.equal(plain.target_segments, masked.source_segments)
    assert torch.equal(plain.target_positions, masked.source_positions)
