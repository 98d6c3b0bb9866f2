"""`Batcher`: texts of all clients are translated in shared batches, fairly between clients.

It knows a function that translates a batch, and nothing of HTTP. A lane is one engine process: it takes a batch, waits
for its results, and takes the next. The next text is always one of the client that has received least so far, so a
client with ten thousand texts does not delay one with a single text. Texts share a batch if their keys are equal.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import count
from typing import Any

from heedful.search_types import MIN_COUNTED_TOKENS
from heedful.serving.metrics import Metrics

TranslateBatch = Callable[[int, Any, list["Item"]], Awaitable[Sequence[Any]]]
"""(lane, key, items) -> the result of each item."""
BYTES_PER_TOKEN = 4
"""Bytes of UTF-8 in a token, about: 4 English letters, or one and a half Chinese characters."""
FIRST_RATE = 5000.0
"""Assumed cost units that the engines translate in a second, until the rate has been measured."""
NEW_RATE_WEIGHT = 0.1
MIN_MEASURED_SECONDS = 0.001


class QueueFull(Exception):  # noqa: N818
    """The queue has no room; `seconds` is the estimated time until it has."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(eq=False)
class Item:
    """A text that waits for its translation."""

    key: Hashable
    """What the texts of a batch share: languages and search settings."""
    text: str
    prefix: str | None
    cost: float
    """Estimated work: source tokens times beam size."""
    future: asyncio.Future[Any]
    number: int = 0
    """Counts the items in the order in which they came."""
    queued_at: float = field(default_factory=time.monotonic)


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has; short ones count more, as in the engines."""
    return max(MIN_COUNTED_TOKENS, len(text.encode("utf-8", errors="replace")) // BYTES_PER_TOKEN + 2)


class ClientQueue:
    """The waiting texts of one client, by key."""

    def __init__(self, received: float) -> None:
        self.received = received
        """How much work was done for this client, in virtual time: new clients begin at that of the others."""
        self.by_key: dict[Hashable, deque[Item]] = {}
        self.num_items, self.cost = 0, 0.0

    def add(self, item: Item) -> None:
        """Queue an item."""
        self.by_key.setdefault(item.key, deque()).append(item)
        self.num_items += 1
        self.cost += item.cost

    def oldest_key(self) -> Hashable:
        """The key of the item that waits longest."""
        return min(self.by_key, key=lambda key: self.by_key[key][0].number)

    def take(self, key: Hashable) -> Item:
        """Remove the first item with a key."""
        items = self.by_key[key]
        item = items.popleft()
        if not items:
            del self.by_key[key]
        self.num_items -= 1
        self.cost -= item.cost
        return item

    def drop_cancelled(self) -> int:
        """Remove the items that nobody waits for; returns their number."""
        before = self.num_items
        for key, items in list(self.by_key.items()):
            kept = deque(item for item in items if not item.future.done())
            if kept:
                self.by_key[key] = kept
            else:
                del self.by_key[key]
        remaining = [item for items in self.by_key.values() for item in items]
        self.num_items, self.cost = len(remaining), sum(item.cost for item in remaining)
        return before - self.num_items


class Batcher:
    """Queues texts and forms batches of them."""

    def __init__(
        self,
        translate: TranslateBatch,
        metrics: Metrics,
        *,
        num_lanes: int,
        batch_cost: float,
        wait_seconds: float,
        max_items: int,
        max_items_per_client: int,
    ) -> None:
        self.translate, self.metrics, self.num_lanes = translate, metrics, num_lanes
        self.batch_cost, self.wait_seconds = batch_cost, wait_seconds
        self.max_items, self.max_items_per_client = max_items, max_items_per_client
        self.rate = FIRST_RATE
        """Measured cost units that one lane translates in a second."""
        self._clients: dict[str, ClientQueue] = {}
        self._num_items = 0
        self._in_progress = 0
        self._virtual_time = 0.0
        self._numbers = count()
        self._arrived = asyncio.Event()
        self._expected = 1.0
        """Mean number of texts in recent batches: how many are worth waiting for."""
        self._lanes: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to translate."""
        self._lanes = [asyncio.create_task(self._run(lane)) for lane in range(self.num_lanes)]

    async def stop(self) -> None:
        """Stop; texts that still wait are cancelled."""
        for task in self._lanes:
            task.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        for queue in self._clients.values():
            for items in queue.by_key.values():
                for item in items:
                    item.future.cancel()

    @property
    def num_queued(self) -> int:
        """Number of texts that wait."""
        return self._num_items

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being translated."""
        return not self._num_items and not self._in_progress

    def seconds_until_done(self, client: str, cost: float) -> float:
        """Estimated time until a client's waiting texts and more of this cost are done, given the fair shares."""
        queue = self._clients.get(client)
        own = cost + (queue.cost if queue else 0.0)
        others = sum(min(other.cost, own) for name, other in self._clients.items() if name != client)
        return (own + others) / (self.rate * self.num_lanes)

    def submit(self, client: str, items: Sequence[Item]) -> None:
        """Queue the texts of a request, or raise `QueueFull`; each item's future receives its result."""
        queue = self._clients.get(client)
        own = queue.num_items if queue else 0
        if own + len(items) > self.max_items_per_client or self._num_items + len(items) > self.max_items:
            total = sum(queue.cost for queue in self._clients.values())
            raise QueueFull(total / (self.rate * self.num_lanes))
        if queue is None:
            queue = self._clients[client] = ClientQueue(self._virtual_time)
        if not queue.num_items:
            queue.received = max(queue.received, self._virtual_time)
        for item in items:
            item.number = next(self._numbers)
            queue.add(item)
        self._num_items += len(items)
        self._arrived.set()

    def drop_cancelled(self, client: str) -> None:
        """Remove the texts of a client that nobody waits for."""
        queue = self._clients.get(client)
        if queue is not None:
            dropped = queue.drop_cancelled()
            self._num_items -= dropped
            self.metrics.texts_cancelled.add(dropped)
            self._forget_idle_clients()

    async def _run(self, lane: int) -> None:
        while True:
            while not self._num_items:
                self._arrived.clear()
                await self._arrived.wait()
            await self._wait_for_company()
            key, items = self._take_batch()
            if not items:
                continue
            self._in_progress += 1
            try:
                await self._translate_batch(lane, key, items)
            finally:
                self._in_progress -= 1

    async def _wait_for_company(self) -> None:
        """Wait a few milliseconds for further texts, if recent batches had as many."""
        deadline = time.monotonic() + self.wait_seconds
        while self._num_items < self._expected - 0.5 and (left := deadline - time.monotonic()) > 0:
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                return

    def _take_batch(self) -> tuple[Hashable, list[Item]]:
        """Remove the texts of the next batch from the queue, up to the budget, always for who has received least."""
        waiting = [queue for queue in self._clients.values() if queue.num_items]
        if not waiting:
            return None, []
        key = min(waiting, key=lambda queue: queue.received).oldest_key()
        heap = [(queue.received, index, queue) for index, queue in enumerate(waiting) if key in queue.by_key]
        heapify(heap)
        items: list[Item] = []
        cost = 0.0
        while heap:
            received, index, queue = heap[0]
            if items and cost + queue.by_key[key][0].cost > self.batch_cost:
                break
            item = queue.take(key)
            self._num_items -= 1
            if not item.future.done():
                items.append(item)
                cost += item.cost
                self._virtual_time = max(self._virtual_time, received)
                queue.received += item.cost
            if key in queue.by_key:
                heapreplace(heap, (queue.received, index, queue))
            else:
                heappop(heap)
        self._forget_idle_clients()
        return key, items

    def _forget_idle_clients(self) -> None:
        """Forget clients without texts that have received no more than the others."""
        for client, queue in list(self._clients.items()):
            if not queue.num_items and (queue.received <= self._virtual_time or not self._num_items):
                del self._clients[client]

    async def _translate_batch(self, lane: int, key: Hashable, items: list[Item]) -> None:
        started = time.monotonic()
        for item in items:
            self.metrics.queue_seconds.observe(started - item.queued_at)
        cost = sum(item.cost for item in items)
        self._expected += 0.3 * (len(items) - self._expected)
        self.metrics.batch_texts.observe(len(items))
        self.metrics.batch_fill.observe(cost / self.batch_cost)
        try:
            results = await self.translate(lane, key, items)
        except BaseException as error:
            for item in items:
                if not item.future.done():
                    item.future.cancel() if isinstance(error, asyncio.CancelledError) else item.future.set_exception(
                        error
                    )
            if not isinstance(error, Exception):
                raise
            return
        seconds = max(time.monotonic() - started, MIN_MEASURED_SECONDS)
        self.metrics.batch_seconds.observe(seconds)
        self.rate += NEW_RATE_WEIGHT * (cost / seconds - self.rate)
        for item, result in zip(items, results, strict=True):
            if not item.future.done():
                item.future.set_result(result)
