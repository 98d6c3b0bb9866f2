"""Slicing and moving batches."""

from __future__ import annotations

import torch

from heedful.data.batch_stream import worst_batch
from heedful.data.packing import Batch
from tests.data.random_stores import equal


def test_microbatches_make_up_the_batch() -> None:
    batch = worst_batch(5, 6, 20, 20)
    parts = [batch.rows(0, 2), batch.rows(2, 4), batch.rows(4, 6)]
    assert [part.num_rows for part in parts] == [2, 2, 1]
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    joined = Batch(**{name: torch.cat([vars(part)[name] for part in parts]) for name in vars(batch)})
    assert equal(joined, batch)


def test_moving_keeps_every_tensor() -> None:
    batch = worst_batch(2, 3, 20, 20).to("meta")
    assert all(tensor.device.type == "meta" for tensor in vars(batch).values())
