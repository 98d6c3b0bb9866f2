"""Unusual text: each line has one translation on one line, without broken characters."""

from __future__ import annotations

import random
import re
import unicodedata

import pytest

from heedful.decoding.text_splitting import is_visible
from heedful.decoding.translator import Translator
from heedful.native import available

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)
WORDS = (
    "the sun is warm Haus und Hof ein Vogel singt 我们 很 好 12 3.5 <b> </i> https://a.b/c ``` $x$ e\u0301 ﬁ ½".split()
)
RANGES = (
    (0x00, 0x20), (0x20, 0x7F), (0x7F, 0x100), (0x100, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE80),
    (0x2000, 0x2800), (0x3040, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xE000, 0xE100), (0xFE00, 0xFE10),
    (0xFF00, 0xFFFE), (0x10300, 0x10400), (0x1F300, 0x1FAFF), (0x20000, 0x20100), (0xE0020, 0xE0080),
    (0x10FF00, 0x110000),
)  # fmt: skip
BREAKS = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


def odd_lines(count: int) -> list[str]:
    """Short lines of words and characters of every kind, the same every time."""
    drawn, lines = random.Random(1), []
    for _ in range(count):
        parts = []
        for _ in range(drawn.randint(1, 3)):
            first, end = drawn.choice(RANGES)
            characters = "".join(chr(drawn.randrange(first, end)) for _ in range(drawn.randint(1, 3)))
            parts.append(drawn.choice([drawn.choice(WORDS), characters]))
        lines.append(drawn.choice(["", " "]).join(parts))
    return lines


def check(lines: list[str], target: str) -> None:
    translator = Translator.load(engine="native")
    source = "en" if target != "en" else "de"
    found = translator.translate(lines, source_language=source, target_language=target, method="greedy")
    assert len(found) == len(lines)
    for line, one in zip(lines, found, strict=True):
        new = {*one.text} - {*line}
        assert "\ufffd" not in new, (line, one.text)
        assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in new), (line, one.text)
        assert is_visible(one.text) == is_visible(line), (line, one.text)
        assert BREAKS.search(line) or not BREAKS.search(one.text), (line, one.text)


def test_unusual_lines() -> None:
    check(odd_lines(500), "de")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["de", "zh"])
def test_twenty_thousand_unusual_lines(target: str) -> None:
    lines = odd_lines(20_000)
    check(lines[::2] if target == "de" else lines[1::2], target)
