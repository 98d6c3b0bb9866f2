"""A lock on an output directory: a second writer gets an error that names the first one."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heedful.errors import ConfigError

LOCK_FILE = ".lock"
_held: dict[str, int] = {}
_guard = threading.Lock()


@contextmanager
def lock_directory(directory: str | Path) -> Iterator[None]:
    """Lock a directory against other processes for the `with` block; it is created, and removed again if empty.

    The process that holds the lock may lock the directory again. The lock ends when the process ends. On systems and
    file systems without locks, this does nothing.
    """
    folder = Path(directory)
    key = os.path.realpath(folder)
    with _guard:
        _held[key] = _held.get(key, 0) + 1
        is_outer = _held[key] == 1
    try:
        if is_outer:
            with _locked(folder):
                yield
        else:
            yield
    finally:
        with _guard:
            _held[key] -= 1


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    path = directory / LOCK_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = _open_locked(path, fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"{directory}: {_holder(path)} is writing to this directory; wait until it ends, stop it, or "
            f"choose another directory."
        ) from None
    except OSError:  # no locks here, or no permission, which the writer will report
        yield
        return
    try:
        yield
    finally:
        try:
            with suppress(OSError):
                path.unlink()
        finally:
            os.close(file)
        with suppress(OSError):
            directory.rmdir()  # fails if not empty


def _open_locked(path: Path, lock: object, mode: int) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            lock(file, mode)  # type: ignore[operator]
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(file)):  # else the previous holder has just removed it
                    os.ftruncate(file, 0)
                    os.write(file, json.dumps(_self()).encode())
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _self() -> dict[str, object]:
    words = [os.path.basename(sys.argv[0] or "python"), *sys.argv[1:3]]
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": " ".join(words)[:200]}


def _holder(path: Path) -> str:
    try:
        with path.open("rb") as file:
            owner = json.loads(file.read(4096))
        return f"another process ({owner['command']!r}, PID {int(owner['pid'])} on {owner['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
