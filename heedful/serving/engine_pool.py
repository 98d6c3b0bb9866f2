"""Supervised engine processes: they are started, watched, restarted after death, and replaced when models are reloaded.

A batch whose process dies is sent to the next one, so no request fails. A text that keeps killing processes is found
by sending the texts of its batch one by one, and only it fails.
"""

from __future__ import annotations

import asyncio
import json
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from heedful.cpu_count import usable_cores
from heedful.errors import HeedfulError
from heedful.model_dir.registry import default_models, find_model
from heedful.process_pool import answer_of, head_of, module_command, module_environment, receive_from
from heedful.serving.batcher import Item
from heedful.serving.json_log import log
from heedful.serving.metrics import Metrics
from heedful.serving.settings import ServerSettings
from heedful.text.corpus import Direction

BATCH_ATTEMPTS, ATTEMPTS = 2, 5
"""How often a batch is sent, and then each of its texts, before the text fails."""
FRESH_SECONDS = 10.0
"""The server is ready while some engine process translated something so recently."""
LOAD_SECONDS = 120.0
"""Time to load the models; quantizing a large model for the first time takes long."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to start a process that dies while it loads; the pause doubles."""


class EngineDied(Exception):  # noqa: N818
    """An engine process ended, or was ended because it took too long."""


class EngineProcess:
    """One engine process; `request` sends one message at a time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.last_success = float("-inf")
        """When it last translated something, by `time.monotonic`."""
        self.exited = asyncio.ensure_future(process.wait())
        self._lock = asyncio.Lock()

    @classmethod
    async def start(cls, models: Sequence[tuple[str, Path]], engine: str, threads: int) -> tuple[EngineProcess, Any]:
        """Start a process and load the models; returns it and the description of the models."""
        environment = module_environment({"OMP_NUM_THREADS": str(threads)})
        command = module_command("heedful.serving.engine_worker")
        started = cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment))
        try:
            listed = [(name, str(path)) for name, path in models]
            answer = await started.request({"do": "load", "models": listed, "engine": engine}, LOAD_SECONDS)
        except BaseException:
            started.kill()
            await asyncio.shield(started.exited)  # the event loop must not end before the process
            raise
        return started, answer

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self.exited.done()

    @property
    def is_fresh(self) -> bool:
        """Whether it runs and translated something recently."""
        return self.is_alive and time.monotonic() - self.last_success < FRESH_SECONDS

    async def request(self, message: dict[str, Any], seconds: float) -> Any:
        """The answer to a message. Raises `EngineDied`, or the `HeedfulError` of the process."""
        async with self._lock:
            try:
                async with asyncio.timeout(seconds):
                    parts = await self._exchange(json.dumps(message).encode())
            except (TimeoutError, asyncio.CancelledError) as error:
                self.kill()  # its answer would be taken for that of the next message
                if not isinstance(error, TimeoutError):
                    raise
                parts = []
        if not parts:
            self.kill()
            await asyncio.wait([self.exited])
            raise EngineDied
        return json.loads(answer_of(parts)[0])

    async def _exchange(self, part: bytes) -> list[bytes]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):  # then there is no answer
            self.process.stdin.write(head_of([part]) + part)
            await self.process.stdin.drain()
        return await receive_from(self.process.stdout)

    async def retire(self) -> None:
        """Let the current message finish, then end the process."""
        async with self._lock:
            self.kill()

    def kill(self) -> None:
        """End the process, which has no state to lose."""
        with suppress(ProcessLookupError):
            self.process.kill()


class Slot:
    """The place of one engine process, which is filled again when the process dies."""

    def __init__(self) -> None:
        self.engine: EngineProcess | None = None
        self.filled = asyncio.Event()

    def fill(self, engine: EngineProcess) -> EngineProcess | None:
        """Put a process into the slot; returns the one that was in it."""
        previous, self.engine = self.engine, engine
        self.filled.set()
        return previous

    async def current(self) -> EngineProcess:
        """The process of this slot, once it has one that runs."""
        while self.engine is None or not self.engine.is_alive:
            self.filled.clear()
            await self.filled.wait()
        return self.engine


class EnginePool:
    """The engine processes of a server."""

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        cores = usable_cores()
        self.num_workers = settings.workers or max(1, cores // 2)
        self.num_threads = settings.threads or max(1, cores // self.num_workers)
        self.description: dict[str, Any] = {"models": [], "beam_size": 1}
        """What the engine processes say: the models with their directions, and the default beam size."""
        self.directions: list[Direction] = []
        """All pairs of languages that the models translate, in the order of the models."""
        self._slots = [Slot() for _ in range(self.num_workers)]
        self._tasks: list[asyncio.Task[None]] = []
        self._reloading = asyncio.Lock()

    async def start(self) -> None:
        """Start all processes; `HeedfulError` if a model cannot be loaded."""
        await self.reload()
        for slot in self._slots:
            self._tasks.append(asyncio.create_task(self._supervise(slot)))
            self._tasks.append(asyncio.create_task(self._watch(slot)))

    async def stop(self) -> None:
        """End all processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for slot in self._slots:
            if slot.engine is not None:
                slot.engine.kill()
                await slot.engine.exited

    async def reload(self) -> None:
        """Load the models again in new processes, which then replace the old ones.

        Batches that the old processes have begun are finished. If a model cannot be loaded, the old ones stay.
        """
        async with self._reloading:
            launched = await asyncio.gather(*(self._launch() for _ in self._slots), return_exceptions=True)
            started = [one for one in launched if not isinstance(one, BaseException)]
            problem = next((one for one in launched if isinstance(one, BaseException)), None)
            if problem is not None:
                for engine, _ in started:
                    engine.kill()
                raise problem
            self.description = started[0][1]
            pairs = (Direction(*pair) for model in self.description["models"] for pair in model["directions"])
            self.directions = list(dict.fromkeys(pairs))
            for slot, (engine, _) in zip(self._slots, started, strict=True):
                if previous := slot.fill(engine):
                    self._tasks.append(asyncio.create_task(previous.retire()))
            self._tasks = [task for task in self._tasks if not task.done()]

    def is_ready(self) -> bool:
        """Whether some process translated something recently and still runs."""
        return any(slot.engine is not None and slot.engine.is_fresh for slot in self._slots)

    def process_ids(self) -> list[int]:
        """The ids of the processes that run."""
        return [slot.engine.process.pid for slot in self._slots if slot.engine is not None and slot.engine.is_alive]

    async def translate(self, lane: int, key: dict[str, Any], items: Sequence[Item]) -> list[dict[str, Any]]:
        """The results of a batch from the process in slot `lane`; {"failed": True} for what no process finishes."""
        for _ in range(BATCH_ATTEMPTS if len(items) > 1 else ATTEMPTS):
            engine = await self._slots[lane].current()
            if all(item.future.done() for item in items):  # nobody waits any more
                break
            texts, prefixes = [item.text for item in items], [item.prefix for item in items]
            message = {"do": "translate", "key": key, "texts": texts, "prefixes": prefixes}
            with suppress(EngineDied):
                answer = await engine.request(message, self.settings.engine_seconds)
                engine.last_success = time.monotonic()
                return list(answer["results"])
            self.metrics.batches_repeated.add()
        if len(items) == 1:
            return [{"failed": True}]
        return [(await self.translate(lane, key, [item]))[0] for item in items]

    async def _launch(self) -> tuple[EngineProcess, dict[str, Any]]:
        started = time.monotonic()
        models = models_to_serve(self.settings.models)
        try:
            engine, description = await EngineProcess.start(models, self.settings.engine, self.num_threads)
        except EngineDied:
            raise HeedfulError("an engine process died while it loaded the models.") from None
        canary = canary_for(description)
        try:
            await engine.request(canary, self.settings.engine_seconds)
        except EngineDied:
            raise HeedfulError("an engine process died in its first translation.") from None
        engine.last_success = time.monotonic()
        self.metrics.load_seconds.set(time.monotonic() - started)
        return engine, description

    async def _supervise(self, slot: Slot) -> None:
        """Start a new process whenever the one in the slot has died."""
        pause = FIRST_PAUSE
        while True:
            engine = await slot.current()
            await asyncio.wait([engine.exited])
            if slot.engine is not engine:  # replaced by a reload
                continue
            log("engine_died", exit_code=engine.process.returncode)
            self.metrics.restarts.add()
            while slot.engine is engine:
                try:
                    started, _ = await self._launch()
                    if slot.engine is engine:
                        slot.fill(started)
                    else:  # a reload has filled the slot meanwhile
                        started.kill()
                    pause = FIRST_PAUSE
                except (HeedfulError, OSError) as error:  # OSError: too many processes or files, or too little memory
                    log("engine_not_started", problem=str(error))
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)

    async def _watch(self, slot: Slot) -> None:
        """Let an idle process translate something now and then; one that does not answer is restarted."""
        interval = self.settings.canary_seconds
        while True:
            await asyncio.sleep(interval / 2)
            engine = slot.engine
            if engine is None or time.monotonic() - engine.last_success < interval:
                continue
            canary = canary_for(self.description)
            with suppress(EngineDied, HeedfulError):
                await engine.request(canary, self.settings.engine_seconds)
                engine.last_success = time.monotonic()


def canary_for(description: dict[str, Any]) -> dict[str, Any]:
    """The message for a test translation."""
    source, target = description["models"][0]["directions"][0]
    settings: dict[str, Any] = {"num_best": 1, "beam_size": None, "align": False, "split": "long", "glossary": []}
    key = {"source": source, "target": target, **settings}
    return {"do": "translate", "key": key, "texts": ["1"], "prefixes": [None]}


def models_to_serve(named: Sequence[str]) -> list[tuple[str, Path]]:
    """The names and directories of the models: those named, else those that translate by default."""
    names: dict[str, Path] = {}
    for path in [find_model(name).absolute() for name in named] or default_models():
        name, count = path.name, 2
        while names.get(name, path) != path:
            name, count = f"{path.name}-{count}", count + 1
        names[name] = path
    return list(names.items())
