"""Batches of the synthetic tasks, training on them, and accuracy by length."""

from __future__ import annotations

import random

import pytest
import torch

from heedful.paper.synthetic_tasks import (
    BOS_ID,
    EOS_ID,
    FIRST_DIGIT,
    TASKS,
    SyntheticTraining,
    accuracy,
    draw_digits,
    make_batch,
    small_config,
    token_loss,
    train_on_task,
)


@pytest.mark.parametrize("task", TASKS)
def test_batches_are_padded_and_hold_the_target_of_each_source(task: str) -> None:
    settings = SyntheticTraining(task=task, min_length=2, max_length=20, pairs_per_batch=12)
    sources = draw_digits(random.Random(3), settings)
    lengths = [len(source) for source in sources]
    assert max(lengths) - min(lengths) <= settings.length_spread
    batch = make_batch(task, sources)
    for row, source in enumerate(sources):
        target = [FIRST_DIGIT + digit for digit in TASKS[task](source)]
        num_real = len(source) + 1
        assert batch.source[row, :num_real].tolist() == [*(FIRST_DIGIT + digit for digit in source), EOS_ID]
        assert batch.target_output[row, :num_real].tolist() == [*target, EOS_ID]
        assert batch.target_input[row, :num_real].tolist() == [BOS_ID, *target]
        assert not batch.source[row, num_real:].any() and not batch.target_output[row, num_real:].any()
        assert batch.target_segments[row].tolist() == [1] * num_real + [0] * (batch.source.shape[1] - num_real)


def test_training_depends_on_the_seed_alone() -> None:
    settings = SyntheticTraining(steps=3, max_length=5, pairs_per_batch=4)
    config = small_config(num_encoder_layers=1, num_decoder_layers=1)
    first, second = train_on_task(config, settings), train_on_task(config, settings)
    assert first.losses == second.losses
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True))


def test_copying_is_learned_and_measured() -> None:
    settings = SyntheticTraining(steps=400, max_length=4, learning_rate=5e-3)
    reports: list[tuple[str, int, int | None]] = []
    config = small_config(num_encoder_layers=1, num_decoder_layers=1)
    trained = train_on_task(config, settings, report=lambda *values: reports.append(values))
    assert len(reports) == 400 and trained.losses[-1] < 0.1 < trained.losses[0]
    short, long = accuracy(trained.model, "copy", 3), accuracy(trained.model, "copy", 16)
    assert short.exact > 0.9 and short.tokens >= short.exact
    assert long.exact == 0 and long.tokens < 0.9
    assert token_loss(trained.model, "copy", [[1, 2, 3]]) < token_loss(trained.model, "reverse", [[1, 2, 3]])
