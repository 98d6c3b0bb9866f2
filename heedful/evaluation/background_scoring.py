"""Compute scores in background processes, one for each metric, while this process continues to translate.

TER alone takes twenty seconds for 3,000 sentences on one core. Each process runs
`python -m heedful.evaluation.background_scoring`, which reads and writes JSON. At most one process runs on each core.
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
from heedful.evaluation.score import DEFAULT_METRICS, Score, score
from heedful.process_pool import start_module

MIN_SENTENCES = 500
"""With fewer sentences, starting processes costs more than it saves."""


class BackgroundScores:
    """Starts `score` with these arguments; `scores` waits for the result."""

    def __init__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        *,
        metrics: Sequence[str] = DEFAULT_METRICS,
        target_language: str | None = None,
    ) -> None:
        texts = {"hypotheses": list(hypotheses), "references": list(references), "target_language": target_language}
        self._arguments: list[dict[str, Any]] = [{**texts, "metrics": [metric]} for metric in metrics]
        is_small = len(hypotheses) < MIN_SENTENCES
        self._futures = [None if is_small else _score_in_background(arguments) for arguments in self._arguments]

    def scores(self) -> list[Score]:
        """One score for each metric; a metric whose process failed is computed here, where its error is raised."""
        scores: list[Score] = []
        for arguments, future in zip(self._arguments, self._futures, strict=True):
            output = future.result() if future is not None else None
            scores += score(**arguments) if output is None else [Score.from_dict(plain) for plain in json.loads(output)]
        return scores


@functools.cache
def _free_cores() -> threading.BoundedSemaphore:
    """Limits the number of processes to the number of cores."""
    return threading.BoundedSemaphore(usable_cores())


def _score_in_background(arguments: dict[str, Any]) -> Future[bytes | None]:
    """The output of a scoring process; None if it failed."""
    future: Future[bytes | None] = Future()

    def wait() -> None:
        try:
            with _free_cores():
                process = _start(arguments)
                output = process.communicate()[0]
            future.set_result(output if process.returncode == 0 else None)
        except OSError:  # too many processes or a full disk: the score is computed in this process instead
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=wait, name="scoring", daemon=True).start()
    return future


def _start(arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as file:  # a pipe would block until the process reads
        file.write(json.dumps(arguments).encode())
        file.seek(0)
        return start_module("heedful.evaluation.background_scoring", stdin=file, stderr=subprocess.DEVNULL)


def main() -> None:
    """Entry point of a scoring process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the whole group; print no traceback
    scores = score(**json.loads(sys.stdin.buffer.read()))
    sys.stdout.write(json.dumps([one.to_dict() for one in scores]))


if __name__ == "__main__":
    main()
