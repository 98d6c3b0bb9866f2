"""Directory locks: a second writer is refused with an error that names the first one."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from heedful.directory_lock import lock_directory
from heedful.errors import ConfigError
from tests.cli.program import TINY, run

pytest.importorskip("fcntl")
ROOT = Path(__file__).parent.parent
HOLD = "import sys, time\nfrom heedful.directory_lock import lock_directory\n"
HOLD += "with lock_directory(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(60)\n"


def holder(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_second_process_is_refused_and_first_is_named(tmp_path: Path) -> None:
    with holder(tmp_path / "model") as process:
        try:
            with pytest.raises(ConfigError, match=f"PID {process.pid} on"), lock_directory(tmp_path / "model"):
                pass
        finally:
            process.send_signal(signal.SIGKILL)  # which also releases the lock
    with lock_directory(tmp_path / "model"):
        pass
    assert not (tmp_path / "model").exists()


def test_lock_is_reentrant(tmp_path: Path) -> None:
    with lock_directory(tmp_path / "model"):
        with lock_directory(tmp_path / "model"):
            (tmp_path / "model/file").touch()
        assert (tmp_path / "model/.lock").exists()
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["/usr/bin/heedful", "train", "--source", "a"], "heedful train --source"),
        (["", "a"], "python a"),
        (["heedful", "x" * 300], "heedful " + "x" * 192),
    ],
)
def test_lock_file_holds_pid_host_and_command_of_its_owner(
    arguments: list[str], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    with lock_directory(tmp_path / "model"):
        owner = json.loads((tmp_path / "model/.lock").read_bytes())
    assert owner == {"pid": os.getpid(), "host": socket.gethostname(), "command": command}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that `os.open` returns."""
    descriptors: list[int] = []
    original = os.open

    def recording_open(*arguments: Any) -> int:
        descriptors.append(original(*arguments))
        return descriptors[-1]

    monkeypatch.setattr(os, "open", recording_open)
    return descriptors


def assert_closed(descriptor: int) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_lock_file_is_readable_by_others_and_closed_at_the_end(tmp_path: Path, opened: list[int]) -> None:
    before = os.umask(0o022)
    try:
        with lock_directory(tmp_path / "model"):
            assert stat.S_IMODE((tmp_path / "model/.lock").stat().st_mode) == 0o644
    finally:
        os.umask(before)
    assert len(opened) == 1
    assert_closed(opened[0])


def test_refused_lock_closes_its_file_and_keeps_that_of_the_owner(tmp_path: Path, opened: list[int]) -> None:
    import fcntl

    path = tmp_path / ".lock"
    with path.open("w") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        owner.write('{"pid": 7, "host": "there", "command": "heedful train"}')
        owner.flush()
        message = r"another process \('heedful train', PID 7 on there\) is writing to this directory"
        with pytest.raises(ConfigError, match=message), lock_directory(tmp_path):
            pass
        assert_closed(opened[0])
        for unknown in ("{", "[]", '{"pid": 7}', '{"pid": "x", "host": "there", "command": ""}'):
            path.write_text(unknown)
            with pytest.raises(ConfigError, match=": another process is writing"), lock_directory(tmp_path):
                pass


def test_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("contents")
    (tmp_path / ".lock").symlink_to(tmp_path / "target")
    with lock_directory(tmp_path):
        pass
    assert (tmp_path / "target").read_text() == "contents"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a prepared corpus and a model with its optimizer's state."""
    folder = tmp_path_factory.mktemp("made")
    for name, shift in (("a", 0), ("b", 7)):
        lines = "".join(f"{number + shift} {number} {number % 13} x\n" for number in range(1500))
        (folder / name).write_text(lines, encoding="utf-8")
    corpus = ["--source", "a", "--target", "b"]
    run("prepare", *corpus, "-o", "prepared", cwd=folder)
    run("train", *corpus, *TINY, "--steps", 4, "--training.save_every=2", "-o", "model", cwd=folder)
    return folder


@pytest.mark.parametrize(
    ("verb", "directory"),
    [
        ("train --source a --target b", "new"),
        ("prepare --source a --target b", "new"),
        ("prepare --join prepared --join prepared", "new"),
        ("average model model", "new"),
        ("export -m model --to compact", "new"),
        ("export -m model --to ctranslate2", ".new.lock"),
        ("shortlist -m model", "model"),
    ],
)
def test_verbs_that_write_a_directory_name_the_lock_owner(verb: str, directory: str, made: Path) -> None:
    given = [*verb.split(), *(["-o", "new"] if directory != "model" else ["--source", "a", "--target", "b", "--force"])]
    with holder(made / directory) as process:
        try:
            run(*given, cwd=made, check=False).refused(f"PID {process.pid} on", "is writing to this directory")
        finally:
            process.kill()


def test_lock_of_a_killed_process_is_ignored(made: Path) -> None:
    with holder(made / "again") as process:
        process.kill()
    assert (made / "again/.lock").exists()
    run("prepare", "--source", "a", "--target", "b", "-o", "again", cwd=made)
    run("train", "--prepared", "again", *TINY, "--steps", 2, "-o", "again-model", cwd=made)
    assert not (made / "again/.lock").exists()


@pytest.mark.slow
def test_two_trainings_cannot_share_a_directory(tmp_path: Path) -> None:
    data = tmp_path / "digits"
    data.write_text("".join(f"{n} {n + 7} {n + 3}\n" for n in range(3000)), encoding="utf-8")
    other = tmp_path / "others"
    other.write_text("".join(f"{n + 3} {n + 7} {n}\n" for n in range(3000)), encoding="utf-8")
    command = [sys.executable, "-m", "heedful", "train", "--source", str(data), "--target", str(other)]
    command += ["-o", str(tmp_path / "model"), "--preset", "tiny", "--minutes", "2", "--model.d_model=16"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        while not (tmp_path / "model/.lock").exists():
            assert first.poll() is None
            time.sleep(0.05)
        second = subprocess.run(
            [*command, "--overwrite"], capture_output=True, text=True, env=environment, timeout=60, check=False
        )
        assert second.returncode == 2 and f"PID {first.pid} on" in second.stderr
        assert "Traceback" not in second.stderr
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()
