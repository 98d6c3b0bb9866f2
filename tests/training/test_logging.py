"""The output of a run on a terminal."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from heedful.training.logging import ConsoleReporter, FirstStep


def reporter_of_width(width: int, *, is_terminal: bool) -> tuple[ConsoleReporter, io.StringIO]:
    page = io.StringIO()
    reporter = ConsoleReporter()
    reporter.rich = Console(file=page, width=width, force_terminal=is_terminal, highlight=False)
    return reporter, page


def test_first_step_message_wraps_between_words() -> None:
    parts = {"starting_torch": 11.7, "opening_the_corpora": 21.3, "building_the_model": 1.25, "first_update": 10.9}
    record = FirstStep(1, sum(parts.values()), parts)
    for width in range(20, 90):
        reporter, page = reporter_of_width(width, is_terminal=True)
        reporter.started(record)
        lines = page.getvalue().splitlines()
        assert all(len(line) <= width for line in lines)
        assert " ".join(line.strip() for line in lines) == str(record)
    reporter, page = reporter_of_width(20, is_terminal=False)
    reporter.started(record)
    assert page.getvalue() == f"{record}\n"  # in a file a line stays a line


def test_progress_bar_only_on_terminal() -> None:
    for is_terminal in (True, False):
        reporter, page = reporter_of_width(100, is_terminal=is_terminal)
        with reporter.progress_bar("translating test", 1000) as tell:
            for _ in range(4):
                tell(250)
        shown: Any = re.search(r"translating test.*1000/1000", page.getvalue())
        assert bool(shown) == is_terminal
        assert is_terminal or not page.getvalue().strip()
