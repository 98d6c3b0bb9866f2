"""Engines that die, hang or are replaced, and shutdown: under load nothing is lost."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from heedful.model_dir.registry import default_model
from tests.serving.running_server import SENTENCES, Load, RunningServer, running_server

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the children from /proc")
TOKEN = "secret of the operators"
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    settings = {"request_seconds": 60, "workers": 2, "log_requests": False, "operations_token": TOKEN}
    with running_server(tmp_path, **settings) as server:
        yield server


@asynccontextmanager
async def load_on(server: RunningServer, num_clients: int = 8) -> AsyncIterator[Load]:
    """Clients that translate until the end of the block, after which every answer is checked."""
    load = Load(server.port, num_clients)
    load.start()
    try:
        await load.wait_for(20)
        yield load
    finally:
        await load.stop()
    assert load.lost == []
    assert {status for _, status, _ in load.results} == {200}
    translations = {sentence: {text for one, _, text in load.results if one == sentence} for sentence in SENTENCES}
    assert all(len(found) <= 1 for found in translations.values()), translations


def test_killed_engines_lose_no_request(server: RunningServer) -> None:
    async def run() -> None:
        chance = random.Random(3)
        async with load_on(server) as load:
            for _ in range(6):
                victims = await asyncio.to_thread(server.engine_ids)
                for victim in victims if chance.random() < 0.5 else victims[:1]:
                    os.kill(victim, signal.SIGKILL)
                await load.wait_for(10)
            assert load.refused == 0

    asyncio.run(run())
    assert server.metric("engine_restarts_total") >= 6
    assert "engine_died exit_code=-9" in server.log()
    server.wait_until(server.is_ready)


def test_readiness_is_lost_with_the_engines_and_comes_back(server: RunningServer) -> None:
    assert server.is_ready()
    before = server.engine_ids()
    for victim in before:
        os.kill(victim, signal.SIGSTOP)  # else they would be replaced too soon to see it
        os.kill(victim, signal.SIGKILL)
    server.wait_until(lambda: not server.is_ready())
    assert server.get("/livez").status == 200
    server.wait_until(server.is_ready)
    assert set(before).isdisjoint(server.engine_ids())
    assert server.translate("It is raining.", source="en").status == 200


def test_an_engine_that_hangs_is_replaced(tmp_path: Path) -> None:
    with running_server(tmp_path, workers=1, engine_seconds=1, canary_seconds=0.5, request_seconds=60) as server:
        victim = server.engine_ids()[0]
        os.kill(victim, signal.SIGSTOP)
        assert server.translate("It is raining.", source="en").status == 200
        assert victim not in server.engine_ids()
        assert server.metric("batches_repeated_total") >= 1


@pytest.mark.slow
def test_a_text_that_no_engine_finishes_fails_alone(tmp_path: Path) -> None:
    settings = {"engine_seconds": 2, "max_characters": 400_000, "max_body_bytes": 1_000_000, "request_seconds": 120}

    async def run(server: RunningServer) -> None:
        parameters = {"source": "en", "target": "de", "beam_size": 10, "alternatives": 5}
        text = " ".join(f"The train number {number} from Hamburg is late again." for number in range(6000))
        heavy = asyncio.create_task(asyncio.to_thread(server.translate, text, **parameters))
        async with load_on(server, num_clients=2) as load:
            while not heavy.done():
                await load.wait_for(1)
        assert heavy.result().status == 503

    with running_server(tmp_path, workers=2, **settings) as server:
        asyncio.run(run(server))
        assert server.metric("engine_restarts_total") >= 3
        assert server.translate("It is raining.", source="en").status == 200


def test_reloads_lose_no_request(server: RunningServer) -> None:
    async def run() -> None:
        async with load_on(server) as load:
            for number in range(4):
                before = set(server.engine_ids())
                if number % 2:
                    answer = await asyncio.to_thread(server.request, "POST", "/operations/reload", headers=WITH_TOKEN)
                    assert answer.status == 200
                    assert "en-de-zh" in answer.json()["models"]
                else:
                    server.signal(signal.SIGHUP)
                    while server.log().count("reloaded") <= number:
                        await load.wait_for(1)
                await load.wait_for(10)
                async with asyncio.timeout(30):
                    while before & set(server.engine_ids()):
                        await asyncio.sleep(0.05)
            assert load.refused == 0

    asyncio.run(run())
    assert server.metric("engine_restarts_total") == 0


def test_reloading_needs_the_token(server: RunningServer) -> None:
    assert server.request("POST", "/operations/reload").status == 403
    assert server.request("POST", "/operations/reload", headers={"Authorization": "Bearer wrong"}).status == 403
    assert server.get("/metrics").status == 403
    assert server.get("/metrics", headers=WITH_TOKEN).status == 200


def test_a_damaged_model_is_not_loaded_and_the_old_one_stays(tmp_path: Path) -> None:
    model = Path(shutil.copytree(default_model(), tmp_path / "own"))
    with running_server(tmp_path, "-m", str(model), operations_token=TOKEN) as server:
        before = server.translate("It is raining.", source="en").json()
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
        answer = server.request("POST", "/operations/reload", headers=WITH_TOKEN)
        assert answer.status == 409
        assert "model.safetensors" in answer.json()["error"]
        assert server.translate("It is raining.", source="en").json() == before
        assert server.is_ready()


def test_sigterm_finishes_what_was_accepted(server: RunningServer) -> None:
    async def run() -> None:
        async with load_on(server, num_clients=16):
            server.signal(signal.SIGTERM)
            assert await asyncio.to_thread(server.process.wait, 30) == 0

    asyncio.run(run())


def test_a_second_signal_ends_the_server_at_once(server: RunningServer) -> None:
    async def run() -> None:
        load = Load(server.port, 8)
        load.start()
        await load.wait_for(8)
        engines = server.engine_ids()
        for engine in engines:
            os.kill(engine, signal.SIGSTOP)  # so that no request can finish
        await asyncio.sleep(0.2)
        server.signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert server.process.poll() is None
        server.signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, 30) == 128 + signal.SIGTERM
        for engine in engines:
            os.kill(engine, signal.SIGCONT)  # now they see that the server has ended, and end too
        await load.stop()

    asyncio.run(run())
