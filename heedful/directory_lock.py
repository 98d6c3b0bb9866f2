"""A lock on a directory that a process writes: a second writer is refused and learns who the first one is."""

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

NAME = ".lock"
_held: dict[str, int] = {}
_guard = threading.Lock()


@contextmanager
def lock_directory(directory: str | Path) -> Iterator[None]:
    """Hold a directory against other processes until the end; it is made if need be, and removed if still empty.

    A process that holds it already may lock it again. Where the file system or the system has no locks, nothing is
    locked. The lock ends with the process, however that ends.
    """
    place = Path(directory)
    key = os.path.realpath(place)
    with _guard:
        _held[key] = _held.get(key, 0) + 1
        is_outer = _held[key] == 1
    try:
        if is_outer:
            with _locked(place):
                yield
        else:
            yield
    finally:
        with _guard:
            _held[key] -= 1


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    path = place / NAME
    try:
        place.mkdir(parents=True, exist_ok=True)
        file = _open_locked(path, fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"{place}: {_holder(path)} is writing into this directory; wait for it to end, stop it, or choose another."
        ) from None
    except OSError:  # no permission, which whoever writes reports, or no locks here
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
            place.rmdir()  # unless there is something in it


def _open_locked(path: Path, lock: object, how: int) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        try:
            lock(file, how)  # type: ignore[operator]
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(file)):  # else its holder has just removed it
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
            found = json.loads(file.read(4096))
        return f"another process ({found['command']!r}, number {int(found['pid'])} on {found['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
