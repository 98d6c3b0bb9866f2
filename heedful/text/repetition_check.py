"""Whether a translation goes round in circles: a phrase again and again, far more often than in its source."""

from __future__ import annotations

import re

RUN = re.compile(r"(.{1,40}?)\1\1\1+|(.{8,60}?)\2\2+", re.DOTALL)
"""A phrase four times in a row or more; one of eight characters three times."""
SHORTEST = 12
"""Characters of the shortest run that counts: "no, no, no, no" is none."""


def is_loop(source: str, translation: str) -> bool:
    """Whether a translation has a run of one phrase that is more than twice as long as any in its source."""
    found = longest_run(translation)
    return found > SHORTEST and found > 2 * longest_run(source)


def longest_run(text: str) -> int:
    """Characters of the longest run of one phrase that has a letter or digit; 0 if there is none."""
    return max((len(run[0]) for run in RUN.finditer(text) if any(map(str.isalnum, run[0]))), default=0)
