"""Computes scores in the background, one process a metric, while this process continues to translate.

TER alone takes twenty seconds on one core for 3,000 sentences. Each process runs
`python -m heedful.evaluation.background_scoring`, which reads and writes JSON. At most one a core runs at a time.
"""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from heedful.cpu_count import usable_cores
from heedful.evaluation.score import USUAL_METRICS, Score, score
from heedful.process_pool import start_module

SMALL = 500
"""With fewer sentences starting processes costs more than it saves."""


class Aside:
    """What `score` gives for these arguments, begun at once; `scores` waits for it."""

    def __init__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        *,
        metrics: Sequence[str] = USUAL_METRICS,
        target_language: str | None = None,
    ) -> None:
        texts = {"hypotheses": list(hypotheses), "references": list(references), "target_language": target_language}
        self._arguments: list[dict[str, Any]] = [{**texts, "metrics": [metric]} for metric in metrics]
        is_small = len(hypotheses) < SMALL
        self._made = [None if is_small else _begin(arguments) for arguments in self._arguments]

    def scores(self) -> list[Score]:
        """One score for each metric. What a process failed to make is made here, where errors are told."""
        found: list[Score] = []
        for arguments, made in zip(self._arguments, self._made, strict=True):
            said = made.result() if made is not None else None
            found += score(**arguments) if said is None else [Score.from_dict(plain) for plain in json.loads(said)]
        return found


@functools.cache
def _room() -> threading.BoundedSemaphore:
    """As many places as there are cores; a process has one of them."""
    return threading.BoundedSemaphore(usable_cores())


def _begin(arguments: dict[str, Any]) -> Future[bytes | None]:
    """What a process says, once there is a place for it and it is done; None if it failed."""
    made: Future[bytes | None] = Future()

    def wait() -> None:
        try:
            with _room():
                process = _start(arguments)
                said = process.communicate()[0]
            made.set_result(said if process.returncode == 0 else None)
        except OSError:  # no room for another process, or for its file: then the scores are made here
            made.set_result(None)
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=wait, name="scoring", daemon=True).start()
    return made


def _start(arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as file:  # a pipe would keep this process waiting until the other reads
        file.write(json.dumps(arguments).encode())
        file.seek(0)
        return start_module("heedful.evaluation.background_scoring", stdin=file, stderr=subprocess.DEVNULL)


def main() -> None:
    """Be one of the processes."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the whole group; no traceback of this one is wanted
    found = score(**json.loads(sys.stdin.buffer.read()))
    sys.stdout.write(json.dumps([one.to_dict() for one in found]))


if __name__ == "__main__":
    main()
