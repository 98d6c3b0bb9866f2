"""A finite automaton over byte tokens, so that a search only generates valid UTF-8.

With byte fallback, a vocabulary has a token for each byte, and a model may combine them wrongly. A search allows only
bytes that continue valid UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF), and no control
characters other than tab and line break, no U+FFFD and no noncharacters next to it. Other tokens and the end token are
allowed only between characters, and a character may begin only if all of its bytes fit into the maximum length.

`heedful/native/src/utf8_automaton.cpp` implements the same automaton.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

COMPLETE, ONE, TWO, THREE, AFTER_C2, AFTER_E0, AFTER_ED, AFTER_EF, AFTER_EFBF, AFTER_F0, AFTER_F4 = range(11)

NEEDED = (0, 1, 2, 3, 1, 2, 2, 2, 1, 3, 3)
"""Number of bytes that complete the character in each state."""

TRANSITIONS = (
    *((COMPLETE, 0x09, 0x0A, COMPLETE), (COMPLETE, 0x0D, 0x0D, COMPLETE), (COMPLETE, 0x20, 0x7E, COMPLETE)),
    *((COMPLETE, 0xC2, 0xC2, AFTER_C2), (COMPLETE, 0xC3, 0xDF, ONE), (COMPLETE, 0xE0, 0xE0, AFTER_E0)),
    *((COMPLETE, 0xE1, 0xEC, TWO), (COMPLETE, 0xED, 0xED, AFTER_ED), (COMPLETE, 0xEE, 0xEE, TWO)),
    *((COMPLETE, 0xEF, 0xEF, AFTER_EF), (COMPLETE, 0xF0, 0xF0, AFTER_F0), (COMPLETE, 0xF1, 0xF3, THREE)),
    *((COMPLETE, 0xF4, 0xF4, AFTER_F4), (ONE, 0x80, 0xBF, COMPLETE), (TWO, 0x80, 0xBF, ONE)),
    *((THREE, 0x80, 0xBF, TWO), (AFTER_C2, 0xA0, 0xBF, COMPLETE), (AFTER_E0, 0xA0, 0xBF, ONE)),
    *((AFTER_ED, 0x80, 0x9F, ONE), (AFTER_EF, 0x80, 0xBE, ONE), (AFTER_EF, 0xBF, 0xBF, AFTER_EFBF)),
    *((AFTER_EFBF, 0x80, 0xBC, COMPLETE), (AFTER_F0, 0x90, 0xBF, TWO), (AFTER_F4, 0x80, 0x8F, TWO)),
)
"""Transitions: (state, first byte, last byte, next state)."""


def make_next() -> list[list[int]]:
    """NEXT[state][byte]: the next state; -1 if the byte is invalid."""
    table = [[-1] * 256 for _ in NEEDED]
    for state, first, last, after in TRANSITIONS:
        table[state][first : last + 1] = [after] * (last + 1 - first)
    return table


NEXT = make_next()


def is_valid_utf8(ids: Iterable[int], byte_ids: Sequence[int]) -> bool:
    """Whether the byte tokens among these ids form complete, allowed characters."""
    byte_of = dict(zip(byte_ids, range(256), strict=False))
    state = COMPLETE
    for number in ids:
        byte = byte_of.get(number)
        if byte is None and state != COMPLETE:
            return False
        state = COMPLETE if byte is None else NEXT[state][byte]
        if state < 0:
            return False
    return state == COMPLETE
