"""Ctrl-C and SIGTERM while a run works: told to it, so that it ends where it can be gone on with."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def caught(stop: Callable[[int], None], *, alone: bool) -> Iterator[None]:
    """Tell `stop` the number of each signal that asks the program to end; a second one ends it, if it is `alone`.

    Of several ranks none ends before the others: torchrun passes a Ctrl-C on to ranks that the terminal told too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def catch(number: int, frame: object) -> None:
        came.append(number)
        stop(number)
        if alone:
            restore()

    def restore() -> None:
        for kind, handler in earlier.items():
            signal.signal(kind, handler)

    earlier = {kind: signal.signal(kind, catch) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if alone or not came:
            restore()
