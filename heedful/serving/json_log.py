"""The log of the server on stderr: one line for each event, as text or JSON.

Events contain no text of clients, no keys and no addresses.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any

_format = "text"


def configure_log(log_format: str) -> None:
    """Choose "text" or "json" for the lines."""
    global _format
    _format = log_format


def log(event: str, **details: Any) -> None:
    """Write an event with its details."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    if _format == "json":
        line = json.dumps({"time": stamp, "event": event, **details}, ensure_ascii=True)
    else:
        listed = " ".join(f"{name}={_plain(value)}" for name, value in details.items())
        line = f"{stamp} {event} {listed}".rstrip()
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def log_exception(error: BaseException | None) -> None:
    """Log where an error was raised; its message may quote a client's text and is left out."""
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    places = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames[-6:]))
    log("internal_error", type=type(error).__name__, at=places)


def _plain(value: Any) -> str:
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return json.dumps(text) if not text.isprintable() or " " in text else text
