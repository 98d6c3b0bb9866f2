"""Long inputs into sentences, in any language and without losing a character: the pieces join to the text again."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

_CLOSING = "\"'»«“”’‘›‹)\\]}"  # in some language each of these quotation marks closes
_WIDE_CLOSING = "\"'”’)\\]}」』】〉》）］｝"
_FULL_STOPS = "。！？｡．…؟۔।॥‼⁇⁈⁉"  # end a sentence whatever follows
_END = re.compile(
    rf"[{_FULL_STOPS}；][{_FULL_STOPS}.!?]*[{_WIDE_CLOSING}]*\s*"
    rf"|(?<![.!?])[.!?]++[{_FULL_STOPS}]*[{_CLOSING}]*+\s+"
)
_CLAUSE = re.compile(rf"[,;:，、；：،؛—–…][{_WIDE_CLOSING}]*\s*|\s[-–—]\s+|(?<![.!?])[.!?]++[{_CLOSING}]*+\s+")
_SPACE = re.compile(r"\s+")
_LAST_WORD = re.compile(r"\S*$")
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof st sr jr rev hon gen col capt lt sgt messrs mme mlle vs etc e.g i.e cf viz al approx dept est
    fig figs no nos vol vols pp p ch sec ed eds inc ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec a.m
    p.m u.s u.k z.b d.h u.a bzw ca evtl ggf inkl exkl vgl nr str hr fr frl hrsg jh jhd jahrh geb gest mio mrd tel abs
    art bd bspw usw zzgl sog o.ä u.ä i.d.r v.a m.e z.t z.zt dipl ing sen jun p.ex av env chap c.-à-d sra srta ud uds
    ee.uu pág núm av avda sig sigg dott ecc pag bijv enz blz dhr mevr t.a.v
    """.split()
)
_MAY_END = frozenset(
    {"etc", "usw", "ecc", "enz", "a.m", "p.m", "u.s", "u.k"}
)  # before a capital they do end a sentence


def split_sentences(text: str) -> list[str]:
    """The sentences of a text. Whitespace stays at the end of its sentence: `"".join(result) == text`.

    Chinese, Japanese, Arabic and Indic full stops end a sentence at once; . ! ? need whitespace after them, and a
    full stop none of these before it: a known abbreviation, a single initial, or (before a lower-case word) a number.
    """
    return list(_sentences(text))


def split_long(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Pieces of a text that all fit: whole sentences where possible, else cut at clauses, at spaces, or anywhere.

    Each sentence stays alone, a cut one in as few pieces as fit. `"".join(result) == text`. A character with its
    combining marks is cut apart only where it alone does not fit.
    """
    if not text or fits(text):
        return [text] if text else []
    pieces: list[str] = []
    for sentence in split_sentences(text):
        pieces.extend([sentence] if fits(sentence) else _cut(sentence, fits, level=0))
    return pieces


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(text):
        if match.end() < len(text) and _ends_sentence(text, start, match):
            yield text[start : match.end()]
            start = match.end()
    if start < len(text):
        yield text[start:]


def _ends_sentence(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the mark really ends a sentence; only a single full stop is ever in doubt."""
    mark = match.group().rstrip()
    following = text[match.end() : match.end() + 1]
    if mark[:1] == "…":  # inside a sentence as often as at its end
        return not following.islower()
    if not mark.startswith(".") or mark.startswith(".."):
        return mark[:1] in _FULL_STOPS + "；" or not following.islower()
    window = text[max(start, match.start() - 40) : match.start()]
    found = _LAST_WORD.search(window)
    word = found.group().lstrip("([{\"'«»„“”‘’‚¿¡") if found else ""
    lowered = word.lower()
    if lowered in _MAY_END:
        return following.isupper()
    if lowered in _ABBREVIATIONS:
        return False
    if len(word) == 1 and word.isalpha() and word.isupper():  # J. R. R. Tolkien
        return False
    if word.isdigit() and len(word) <= 2:  # ordinals: am 3. Oktober; but "It costs 500. Buy it."
        return False
    return not following.islower()


LAST_LEVEL = 3
"""Where a sentence is cut, the gentlest way first: at clauses, at spaces, between clusters, anywhere."""


def _cut(text: str, fits: Callable[[str], bool], *, level: int) -> list[str]:
    """Cut one sentence that does not fit, at the gentlest level that helps, and fill the pieces up again."""
    cuts = _cuts(text, level)
    if len(cuts) == 2:
        return [text] if level == LAST_LEVEL else _cut(text, fits, level=level + 1)
    result: list[str] = []
    position = 0
    while position < len(cuts) - 1:
        count = _largest_fitting(text, cuts, position, fits)
        piece = text[cuts[position] : cuts[position + max(count, 1)]]
        result.extend([piece] if count or level == LAST_LEVEL else _cut(piece, fits, level=level + 1))
        position += max(count, 1)
    return result


def _cuts(text: str, level: int) -> Sequence[int]:
    """Where a text may be cut, its two ends included: numbers of four bytes, since a text can be long."""
    if level == LAST_LEVEL:
        return range(len(text) + 1)
    if level == 2:
        return array("I", chain(_cluster_starts(text), [len(text)]))
    ends = (match.end() for match in (_CLAUSE, _SPACE)[level].finditer(text))
    return array("I", chain([0], (end for end in ends if 0 < end < len(text)), [len(text)]))


def _largest_fitting(text: str, cuts: Sequence[int], position: int, fits: Callable[[str], bool]) -> int:
    """How many parts from `position` fit together: doubled while it goes, then halved, so that few are tried."""

    def together(count: int) -> bool:
        return fits(text[cuts[position] : cuts[position + count]])

    available = len(cuts) - 1 - position
    if not together(1):
        return 0
    low, high = 1, 2
    while high <= available and together(high):
        low, high = high, high * 2
    high = min(high, available + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if together(middle) else (low, middle)
    return low


def _cluster_starts(text: str) -> Iterator[int]:
    """Where characters begin, each with its combining marks, joiners, variants, skin tone or second half of a flag."""
    start = 0
    for place, character in enumerate(text):
        if place and (
            _continues(character) or text[place - 1] == "\u200d" or _second_half(text[start:place], character)
        ):
            continue
        start = place
        yield start


def _continues(character: str) -> bool:
    if character.isascii():
        return False
    return (
        unicodedata.category(character) in ("Mn", "Me", "Mc")
        or character == "\u200d"
        or 0x1F3FB <= ord(character) <= 0x1F3FF
        or 0xE0020 <= ord(character) <= 0xE007F
    )


def _second_half(cluster: str, character: str) -> bool:
    flags = range(0x1F1E6, 0x1F200)
    return ord(character) in flags and len(cluster) == 1 and ord(cluster) in flags
