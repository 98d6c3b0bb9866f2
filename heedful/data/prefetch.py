"""Prefetching: the next batches are made in the background while the device computes."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Generic, TypeVar

from heedful.data.batch import Batch

P = TypeVar("P")


def prefetch(
    batches: Iterable[tuple[P, Batch]], *, depth: int = 2, pin_memory: bool = False
) -> Generator[tuple[P, Batch], None, None]:
    """The same batches with their positions, made by a thread up to `depth` ahead, in pinned memory when asked.

    An error in making them is raised here. `close()`, or letting go of the generator, ends the thread.
    """
    worker = _Worker(batches, depth=depth, pin_memory=pin_memory)
    worker.thread.start()
    try:
        while not isinstance(item := worker.queue.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        worker.finish()


@dataclass(frozen=True)
class _End:
    """What comes after the last batch: nothing, or the error that made it the last."""

    error: BaseException | None


class _Worker(Generic[P]):
    """The thread that fills a queue."""

    def __init__(self, batches: Iterable[tuple[P, Batch]], *, depth: int, pin_memory: bool) -> None:
        self.batches, self.pin_memory = batches, pin_memory
        self.queue: Queue[tuple[P, Batch] | _End] = Queue(maxsize=depth)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.work, name="prefetch", daemon=True)

    def work(self) -> None:
        """Make batches until there are no more or nobody wants them."""
        try:
            for position, batch in self.batches:
                self.put((position, batch.pin_memory() if self.pin_memory else batch))
                if self.stop.is_set():
                    return
        except BaseException as error:  # whatever it is belongs to the thread that asked for batches
            self.put(_End(error))
        else:
            self.put(_End(None))

    def put(self, item: tuple[P, Batch] | _End) -> None:
        """Wait for room in the queue, unless told to stop."""
        while not self.stop.is_set():
            try:
                self.queue.put(item, timeout=0.1)
            except Full:
                continue
            return

    def finish(self) -> None:
        """End the thread: make room for what it may be waiting to put, and wait for it."""
        self.stop.set()
        try:
            while True:
                self.queue.get_nowait()
        except Empty:
            self.thread.join()
