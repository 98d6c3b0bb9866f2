"""The batcher with a function instead of engines: fairness, batches, limits, cancellation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from heedful.serving.batcher import Batcher, Item, QueueFull, estimated_tokens
from heedful.serving.metrics import Metrics


class RecordingEngine:
    """Remembers its batches; translates when `gate` is open."""

    def __init__(self) -> None:
        self.batches: list[tuple[Any, list[str]]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def translate(self, lane: int, key: Any, items: list[Item]) -> Sequence[str]:
        await self.gate.wait()
        self.batches.append((key, [item.text for item in items]))
        await asyncio.sleep(0)
        return [item.text.upper() for item in items]

    @property
    def order(self) -> list[str]:
        return [text for _, texts in self.batches for text in texts]


def make_batcher(engine: RecordingEngine, **changes: Any) -> Batcher:
    options: dict[str, Any] = {"num_lanes": 1, "batch_cost": 160, "wait_seconds": 0.0}
    limits = {"max_items": 100_000, "max_items_per_client": 50_000}
    return Batcher(engine.translate, Metrics(), **{**options, **limits, **changes})


def item(text: str, key: str = "en-de", cost: float = 16) -> Item:
    return Item(key, text, None, cost, asyncio.get_running_loop().create_future())


async def results(items: Sequence[Item]) -> list[str]:
    return list(await asyncio.gather(*(one.future for one in items)))


def test_a_client_with_one_text_does_not_wait_for_one_with_ten_thousand() -> None:
    async def run() -> None:
        engine = RecordingEngine()
        batcher = make_batcher(engine)
        engine.gate.clear()
        batcher.start()
        many = [item(f"many {number}") for number in range(10_000)]
        batcher.submit("many", many)
        await asyncio.sleep(0)  # the first batch is taken
        single = item("single")
        batcher.submit("single", [single])
        engine.gate.set()
        assert await single.future == "SINGLE"
        assert engine.order.index("single") <= 20  # in the batch after the one that had begun
        assert (await results(many))[-1] == "MANY 9999"
        await batcher.stop()

    asyncio.run(run())


def test_clients_share_by_work_and_not_by_number_of_texts() -> None:
    async def run() -> None:
        engine = RecordingEngine()
        batcher = make_batcher(engine, batch_cost=10)
        long = [item(f"long {number}", cost=100) for number in range(50)]
        short = [item(f"short {number}", cost=10) for number in range(500)]
        batcher.submit("a", long)
        batcher.submit("b", short)
        batcher.start()
        await results(long[:25])
        work = {"long": 0, "short": 0}
        for text in engine.order:
            work[text.split()[0]] += 100 if text.startswith("long") else 10
        assert abs(work["long"] - work["short"]) <= 200
        await batcher.stop()

    asyncio.run(run())


def test_a_client_that_was_idle_has_saved_nothing_up() -> None:
    async def run() -> None:
        engine = RecordingEngine()
        batcher = make_batcher(engine, batch_cost=10)
        busy = [item(f"busy {number}", cost=10) for number in range(300)]
        batcher.submit("busy", busy)
        batcher.start()
        await results(busy[:200])
        late = [item(f"late {number}", cost=10) for number in range(50)]
        batcher.submit("late", late)
        await results(late)
        since = engine.order[engine.order.index("late 0") :]
        assert sum(text.startswith("busy") for text in since[:20]) >= 9
        await batcher.stop()

    asyncio.run(run())


def test_texts_share_a_batch_only_with_equal_keys_and_within_the_budget() -> None:
    async def run() -> None:
        chance = random.Random(5)
        engine = RecordingEngine()
        batcher = make_batcher(engine, num_lanes=2)
        items = [
            item(f"{number}", key=chance.choice("abc"), cost=chance.choice([16, 40, 500])) for number in range(400)
        ]
        for one in items:
            batcher.submit(f"client {chance.randrange(20)}", [one])
        batcher.start()
        assert await results(items) == [one.text for one in items]
        keys, costs = {one.text: one.key for one in items}, {one.text: one.cost for one in items}
        for key, texts in engine.batches:
            assert {keys[text] for text in texts} == {key}
            assert len(texts) == 1 or sum(costs[text] for text in texts) <= 160
        assert sorted(engine.order, key=int) == [one.text for one in items]
        assert any(len(texts) > 3 for _, texts in engine.batches)
        await batcher.stop()

    asyncio.run(run())


def test_texts_of_one_client_with_equal_keys_keep_their_order() -> None:
    async def run() -> None:
        engine = RecordingEngine()
        batcher = make_batcher(engine)
        items = [item(f"{number}", key=f"{number % 3}") for number in range(90)]
        batcher.submit("client", items)
        batcher.start()
        await results(items)
        for key in "012":
            assert [text for one, texts in engine.batches if one == key for text in texts] == [
                one.text for one in items if one.key == key
            ]
        await batcher.stop()

    asyncio.run(run())


def test_a_batch_waits_for_company_only_after_batches_of_several_texts() -> None:
    async def run() -> None:
        engine = RecordingEngine()
        batcher = make_batcher(engine, wait_seconds=30.0)  # far longer than the test
        batcher.start()
        for number in range(3):  # one client at a time: nothing to wait for
            batcher.submit("alone", [one := item(f"alone {number}")])
            await one.future
        batcher.submit("many", first := [item(f"first {number}") for number in range(8)])
        await results(first)
        second = [item(f"second {number}") for number in range(3)]
        for one in second:
            batcher.submit(one.text, [one])
            await asyncio.sleep(0.01)
        await results(second)
        assert engine.batches[-1][1] == ["second 0", "second 1", "second 2"]
        await batcher.stop()

    asyncio.run(run())


def test_the_queue_is_bounded_for_all_and_for_each_client() -> None:
    async def run() -> None:
        engine = RecordingEngine()
        batcher = make_batcher(engine, max_items=10, max_items_per_client=6)
        batcher.submit("a", [item("a") for _ in range(6)])
        with pytest.raises(QueueFull):
            batcher.submit("a", [item("a")])
        batcher.submit("b", [item("b") for _ in range(4)])
        with pytest.raises(QueueFull) as full:
            batcher.submit("c", [item("c")])
        assert full.value.seconds > 0
        assert batcher.num_queued == 10
        batcher.start()
        engine.gate.set()
        while not batcher.is_idle:
            await asyncio.sleep(0)
        batcher.submit("c", [last := item("c")])
        assert await last.future == "C"
        await batcher.stop()

    asyncio.run(run())


def test_cancelled_texts_reach_no_engine_and_leave_their_room() -> None:
    async def run() -> None:
        engine = RecordingEngine()
        batcher = make_batcher(engine, max_items_per_client=100)
        gone = [item(f"gone {number}") for number in range(100)]
        stays = [item(f"stays {number}") for number in range(20)]
        batcher.submit("a", gone)
        batcher.submit("b", stays)
        for one in gone:
            one.future.cancel()
        batcher.drop_cancelled("a")
        assert batcher.num_queued == 20
        batcher.submit("a", [item("again") for _ in range(100)])
        batcher.start()
        await results(stays)
        assert not any(text.startswith("gone") for text in engine.order)
        assert batcher.metrics.texts_cancelled.values[()] == 100
        await batcher.stop()

    asyncio.run(run())


def test_an_error_of_the_engine_reaches_the_texts_of_its_batch_only() -> None:
    async def run() -> None:
        async def translate(lane: int, key: Any, items: list[Item]) -> Sequence[str]:
            if key == "bad":
                raise ValueError("broken")
            return [one.text for one in items]

        batcher = make_batcher(RecordingEngine())
        batcher.translate = translate
        bad, good = [item("x", key="bad") for _ in range(3)], [item("y") for _ in range(3)]
        batcher.submit("a", bad)
        batcher.submit("b", good)
        batcher.start()
        assert await results(good) == ["y"] * 3
        for one in bad:
            with pytest.raises(ValueError, match="broken"):
                await one.future
        await batcher.stop()

    asyncio.run(run())


def test_waiting_time_is_estimated_from_the_fair_share() -> None:
    async def run() -> None:
        batcher = make_batcher(RecordingEngine())
        batcher.rate = 100.0
        batcher.submit("many", [item("m", cost=10) for _ in range(100)])
        assert batcher.seconds_until_done("many", 10) == pytest.approx(10.1)
        assert batcher.seconds_until_done("single", 10) == pytest.approx(0.2)

    asyncio.run(run())


def test_tokens_are_estimated_in_any_script() -> None:
    assert estimated_tokens("") == estimated_tokens("Hello.") == 16
    assert 90 <= estimated_tokens("The quick brown fox. " * 20) <= 120
    assert 60 <= estimated_tokens("我不知道。" * 20) <= 120
