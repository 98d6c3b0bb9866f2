"""Worker processes that communicate through pipes and never outlive the process that started them.

A worker runs `python -m heedful.<module>`, so nothing is imported from the calling program or its directory.
Nothing is pickled. `WorkerProcess` and `ProcessPool` are for the calling process, `serve` is for the worker.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

import heedful.errors
from heedful.errors import HeedfulError

if TYPE_CHECKING:
    import asyncio

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerDiedError(Exception):
    """A worker process died before it answered; `exit_code` is negative if a signal killed it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class WorkerProcess:
    """One worker process, started by the first request and killed at the end of the `with` block."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self.module = module
        self.environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._lock = threading.Lock()

    def post(self, parts: Sequence[bytes]) -> None:
        """Send a message that has no answer."""
        process = self._started()
        assert process.stdin is not None
        with suppress(OSError):  # the next `request` reports it
            send(process.stdin, parts)

    def request(self, parts: Sequence[bytes]) -> list[bytes]:
        """Send a message and wait for its answer. Raises the worker's `HeedfulError`, or `WorkerDiedError`."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin, parts)
            answer = receive(process.stdout)
        except OSError:
            answer = []
        if not answer:
            raise WorkerDiedError(process.wait())
        return answer_of(answer)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:  # after an error, a thread may get here after the end of the block
            if self._ended:
                raise HeedfulError("the worker processes have ended.")
            self._process = self._process or start_module(self.module, environment=self.environment)
            return self._process

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = True
            process = self._process
        if process is not None:
            kill(process)


Worker = TypeVar("Worker", bound=WorkerProcess)


class ProcessPool(Generic[Worker]):
    """Worker processes that share a stream of items; they are killed at the end of the `with` block."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = workers
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()  # running workers are reused before others start
        self._stack = ExitStack()

    def __enter__(self) -> ProcessPool[Worker]:
        self._threads = self._stack.enter_context(ThreadPoolExecutor(len(self.workers), "worker"))
        for worker in reversed(self.workers):  # entered after the threads, so killed before the threads are joined
            self._stack.enter_context(worker)
            self._idle.put(worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def map_in_order(self, function: Callable[[Worker, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Call `function` with an idle worker and each item; yields results in order and reads few items ahead."""

        def run(item: Item) -> Result:
            worker = self._idle.get()
            try:
                return function(worker, item)
            finally:
                self._idle.put(worker)

        pending: deque[Future[Result]] = deque()
        try:
            for item in items:
                pending.append(self._threads.submit(run, item))
                if len(pending) >= 2 * len(self.workers):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def start_module(
    module: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdin: IO[bytes] | int = subprocess.PIPE,
    stdout: IO[bytes] | int = subprocess.PIPE,
    stderr: IO[bytes] | int | None = None,
    start_new_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Run a module of this package in a new process; `environment` is added to the environment of this process."""
    return subprocess.Popen(
        module_command(module, *arguments),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=module_environment(environment),
        start_new_session=start_new_session,
    )


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package; nothing is imported from the working directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment in which another process finds this package."""
    package = Path(heedful.errors.__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **(added or {})}


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker (workers have no state to lose) and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError, ValueError):
            pipe.close()  # type: ignore[union-attr]


# ---- messages --------------------------------------------------------------------------------------------------------


def send(pipe: IO[bytes], parts: Sequence[bytes]) -> None:
    """Write a message of one or more parts."""
    pipe.write(head_of(parts))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def head_of(parts: Sequence[bytes]) -> bytes:
    """What precedes the parts of a message: their number and sizes."""
    return struct.pack(f"<q{len(parts)}q", len(parts), *map(len, parts))


async def receive_from(reader: asyncio.StreamReader) -> list[bytes]:
    """`receive` for a pipe that asyncio reads."""
    try:
        count = struct.unpack("<q", await reader.readexactly(8))[0]
        sizes = struct.unpack(f"<{count}q", await reader.readexactly(8 * count))
        return [await reader.readexactly(size) for size in sizes]
    except (EOFError, OSError):  # IncompleteReadError is an EOFError
        return []


def answer_of(parts: list[bytes]) -> list[bytes]:
    """The answer in a message from a worker, without its error; raises the worker's `HeedfulError`."""
    if parts[0]:
        error = json.loads(parts[0])
        raise getattr(heedful.errors, error["type"])(*error["arguments"])
    return parts[1:]


def receive(pipe: IO[bytes]) -> list[bytes]:
    """The parts of the next message; empty at the end of the pipe, even in the middle of a message."""
    start = pipe.read(8)
    count = struct.unpack("<q", start)[0] if len(start) == 8 else 0
    head = pipe.read(8 * count)
    sizes = struct.unpack(f"<{count}q", head) if len(head) == 8 * count else ()
    parts = [pipe.read(size) for size in sizes]
    return parts if [len(part) for part in parts] == list(sizes) else []


# ---- in the worker ---------------------------------------------------------------------------------------------------


def serve(answer: Callable[[list[bytes]], Sequence[bytes] | None]) -> None:
    """Answer messages from standard input until its end (None: no answer); a `HeedfulError` is raised in the caller.

    The process exits at once when the process that started it ends, even in the middle of a message.
    """
    messages, output = read_messages(receive)
    while True:
        try:
            result = answer(messages.get())
            parts = None if result is None else [b"", *result]
        except HeedfulError as error:
            parts = [json.dumps({"type": type(error).__name__, "arguments": error.args}).encode()]
        if parts is not None:
            try:
                send(output, parts)
            except BrokenPipeError:  # the parent process has ended
                os._exit(0)


def read_messages(read: Callable[[IO[bytes]], Any]) -> tuple[queue.SimpleQueue[Any], IO[bytes]]:
    """In a worker: a queue of the messages that `read` returns for standard input, and the pipe for answers.

    Everything printed goes to stderr. Ctrl-C reaches the whole process group and is ignored here.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        while message := read(sys.stdin.buffer):
            messages.put(message)
        os._exit(0)  # the parent process has ended

    threading.Thread(target=listen, daemon=True).start()
    return messages, output
