"""Worker processes: results in order, errors, and no process that outlives its parent."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from heedful.errors import TextError
from heedful.process_pool import ProcessPool, WorkerDiedError, WorkerProcess, start_module

MODULE = """
import os, sys, time
from heedful.errors import TextError
from heedful.process_pool import serve

def answer(message):
    word = message[0]
    if word == b"no answer":
        return None
    if word == b"exit":
        os._exit(3)
    if word == b"error":
        raise TextError(7, "is odd")
    if word == b"print":
        print("something a library prints")
    if word.isdigit():
        time.sleep(float(word) / 100)
    return [word.upper(), str(os.getpid()).encode()]

serve(answer)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module whose worker answers in capitals, with its process number."""
    (tmp_path / "shouting_worker.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "shouting_worker"


def test_answers_come_in_the_order_of_the_items_from_several_processes(module: str) -> None:
    items = [b"9", b"1", b"5", b"2", b"7", b"1", b"3", b"1"]
    with ProcessPool([WorkerProcess(module) for _ in range(3)]) as pool:
        answers = list(pool.map_in_order(lambda worker, item: worker.request([item]), items))
    assert [word for word, _ in answers] == items
    processes = {int(number) for _, number in answers}
    assert 1 < len(processes) <= 3
    assert not any(Path(f"/proc/{number}").exists() for number in processes)


def test_workers_start_only_when_they_are_needed(module: str) -> None:
    with ProcessPool([WorkerProcess(module) for _ in range(4)]) as pool:
        answers = list(pool.map_in_order(lambda worker, item: worker.request([item]), [b"a"]))
        assert [word for word, _ in answers] == [b"A"]
        assert sum(worker._process is not None for worker in pool.workers) == 1


def test_few_items_are_read_ahead(module: str) -> None:
    read: list[int] = []

    def items() -> object:
        for number in range(100):
            read.append(number)
            yield b"1"

    with ProcessPool([WorkerProcess(module) for _ in range(2)]) as pool:
        answers = pool.map_in_order(lambda worker, item: worker.request([item]), items())  # type: ignore[arg-type]
        next(answers)
        assert len(read) == 4


def test_errors_of_a_worker_arrive_whole_and_it_continues(module: str) -> None:
    with WorkerProcess(module) as worker:
        with pytest.raises(TextError) as caught:
            worker.request([b"error"])
        assert (caught.value.number, caught.value.problem) == (7, "is odd")
        worker.post([b"no answer"])
        assert worker.request([b"print"])[0] == b"PRINT"


def test_worker_that_dies_is_an_error_with_its_exit_code(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerProcess(module) as worker, pytest.raises(WorkerDiedError) as caught:
        worker.request([b"exit"])
    assert caught.value.exit_code == 3
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with WorkerProcess(module) as worker, pytest.raises(WorkerDiedError) as caught:
        worker.request([b"a"])
    assert caught.value.exit_code == 1


def test_end_of_the_block_kills_workers_that_are_busy(module: str) -> None:
    with pytest.raises(KeyboardInterrupt), ProcessPool([WorkerProcess(module) for _ in range(2)]) as pool:
        answers = pool.map_in_order(lambda worker, item: worker.request([item]), [b"1", b"99999", b"99999"])
        next(answers)
        raise KeyboardInterrupt
    processes = [worker._process for worker in pool.workers]
    assert all(process is None or process.poll() is not None for process in processes)
    assert not any(thread.name.startswith("worker") for thread in threading.enumerate())


def test_worker_ends_with_the_process_that_started_it(module: str) -> None:
    process = start_module(module)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    process.stdout.close()


def test_modules_import_nothing_from_the_working_directory(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "queue.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(folder)
    with WorkerProcess(module) as worker:
        assert worker.request([b"a"])[0] == b"A"


def test_environment_is_added_to_that_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "showing.py").write_text("import os; print(os.environ['ONE'], os.environ['TWO'], flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("ONE", "kept")
    process = start_module("showing", environment={"TWO": "added"}, stdin=subprocess.DEVNULL)
    assert process.communicate()[0].decode().split() == ["kept", "added"]
