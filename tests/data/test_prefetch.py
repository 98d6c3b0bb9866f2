"""Prefetching changes nothing but the time: same batches, same errors, and no thread left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from small_stores import BOS, PAD, equal, random_store

from heedful.data.batch import Batch
from heedful.data.batch_stream import BatchStream, Position, worst_batch
from heedful.data.prefetch import prefetch


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


def numbered(count: int) -> Iterator[tuple[Position, Batch]]:
    for step in range(count):
        yield Position(0, step), worst_batch(1, step + 1, 9, 9)


def test_the_same_batches_in_the_same_order(tmp_path: Path) -> None:
    stream = BatchStream(random_store(tmp_path, 100), width=24, rows_per_step=4, seed=1, bos_id=BOS, pad_id=PAD)
    fetched = prefetch(stream.batches(), depth=3)
    for (position, batch), (other_position, other) in zip(
        islice(fetched, 30), islice(stream.batches(), 30), strict=True
    ):
        assert position == other_position
        assert equal(batch, other)
    fetched.close()
    assert threads() == []


def test_a_finite_iterator_ends() -> None:
    assert [position.step for position, _ in prefetch(numbered(7), depth=2)] == list(range(7))
    assert threads() == []


def test_it_works_ahead_but_not_further_than_depth() -> None:
    made: list[int] = []
    enough = threading.Event()

    def watched() -> Iterator[tuple[Position, Batch]]:
        for item in numbered(100):
            made.append(item[0].step)
            if len(made) == 4:
                enough.set()
            yield item

    fetched = prefetch(watched(), depth=2)
    next(fetched)
    assert enough.wait(timeout=30)  # one handed out, two in the queue, one waiting for room
    threading.Event().wait(0.25)
    assert made == [0, 1, 2, 3]
    fetched.close()
    assert threads() == []


def test_errors_arrive_after_the_batches_before_them() -> None:
    def broken() -> Iterator[tuple[Position, Batch]]:
        yield from numbered(3)
        raise RuntimeError("the disk is gone")

    fetched = prefetch(broken(), depth=1)
    assert [next(fetched)[0].step for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="the disk is gone"):
        next(fetched)
    assert threads() == []


def test_leaving_the_loop_ends_the_thread() -> None:
    for _ in prefetch(numbered(1000), depth=2):
        assert threads() == ["prefetch"]
        break
    assert threads() == []


@pytest.mark.gpu
def test_pinned_memory() -> None:
    for _, batch in prefetch(numbered(3), pin_memory=True):
        assert batch.source.is_pinned()
        assert torch.equal(batch.to("cuda", non_blocking=True).source.cpu(), batch.source)
