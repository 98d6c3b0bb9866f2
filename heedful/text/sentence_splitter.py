"""Sentence splitting and splitting of long texts, for any language; the pieces concatenate to the original text."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

_CLOSING = "\"'»«“”’‘›‹)\\]}"  # each of these quotation marks is a closing one in some language
_WIDE_CLOSING = "\"'”’)\\]}」』】〉》）］｝"
_FULL_STOPS = "。！？｡．…؟۔।॥‼⁇⁈⁉"  # end a sentence in any context
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
_SENTENCE_FINAL_ABBREVIATIONS = frozenset({"etc", "usw", "ecc", "enz", "a.m", "p.m", "u.s", "u.k"})  # before a capital


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the whitespace after it: `"".join(result) == text`.

    Chinese, Japanese, Arabic and Indic full stops always end a sentence. The marks . ! ? must precede whitespace, and
    a full stop must not follow a known abbreviation, a single initial, or a number of one or two digits.
    """
    return list(_sentences(text))


def split_long(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Split a text into pieces that fit: sentences, or parts of sentences that do not fit.

    A long sentence is cut into as few pieces as possible, at clauses, else at spaces, else between characters. A
    character is separated from its combining marks only if it does not fit with them. `"".join(result) == text`.
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
    """Whether a mark ends a sentence; only a single full stop or an ellipsis may not."""
    mark = match.group().rstrip()
    following = text[match.end() : match.end() + 1]
    if mark[:1] == "…":  # often inside a sentence
        return not following.islower()
    if not mark.startswith(".") or mark.startswith(".."):
        return mark[:1] in _FULL_STOPS + "；" or not following.islower()
    window = text[max(start, match.start() - 40) : match.start()]
    last_word = _LAST_WORD.search(window)
    word = last_word.group().lstrip("([{\"'«»„“”‘’‚¿¡") if last_word else ""
    lowered = word.lower()
    if lowered in _SENTENCE_FINAL_ABBREVIATIONS:
        return following.isupper()
    if lowered in _ABBREVIATIONS:
        return False
    if len(word) == 1 and word.isalpha() and word.isupper():  # J. R. R. Tolkien
        return False
    if word.isdigit() and len(word) <= 2:  # ordinals: am 3. Oktober; but "It costs 500. Buy it."
        return False
    return not following.islower()


LAST_LEVEL = 3
"""Sentences are cut at level 0 at clauses, 1 at spaces, 2 between grapheme clusters, 3 between any code points."""


def _cut(text: str, fits: Callable[[str], bool], *, level: int) -> list[str]:
    """Cut one sentence that does not fit, at the lowest level with any cut, into the largest pieces that fit."""
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
    """Offsets at which a text may be cut, with both ends; an array of 32-bit numbers, since texts can be long."""
    if level == LAST_LEVEL:
        return range(len(text) + 1)
    if level == 2:
        return array("I", chain(_cluster_starts(text), [len(text)]))
    ends = (match.end() for match in (_CLAUSE, _SPACE)[level].finditer(text))
    return array("I", chain([0], (end for end in ends if 0 < end < len(text)), [len(text)]))


def _largest_fitting(text: str, cuts: Sequence[int], position: int, fits: Callable[[str], bool]) -> int:
    """How many parts from `position` fit together, by doubling and then binary search."""

    def fit_together(count: int) -> bool:
        return fits(text[cuts[position] : cuts[position + count]])

    available = len(cuts) - 1 - position
    if not fit_together(1):
        return 0
    low, high = 1, 2
    while high <= available and fit_together(high):
        low, high = high, high * 2
    high = min(high, available + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fit_together(middle) else (low, middle)
    return low


def _cluster_starts(text: str) -> Iterator[int]:
    """Where grapheme clusters start (combining marks, joined emoji, skin tones, flags)."""
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
