"""Checks of a translation against its source: different numbers, and repetition loops.

A number in digits on one side must have a counterpart on the other, in digits or words: 1,234.5 is 1.234,5, 1.5 billion
is 1,5 Milliarden and 15 亿, 3 pm is 15 Uhr, May 5 is 5月5日, the 1990s are 20 世纪 90 年代. Numbers in words need no
counterpart, and the number of occurrences does not matter. Uncertain cases count as equal;
`benchmarks/robustness/number_checks.py` measures how often correct translations are flagged and wrong ones missed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from typing import NamedTuple

# ---- numbers ---------------------------------------------------------------------------------------------------------

Value = tuple[str, int]
"""A number as its significant digits and a power of ten: 1500 is ("15", 2)."""

SPELLED = ("de", "en", "zh")
"""Languages with known number words. In others, a number up to `MAX_SPELLED` may be a word."""
MAX_SPELLED = 20

HALF_WIDTH_FORMS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: " "}
DIGITS = re.compile(r"\d+(?:[.,'’٫٬]\d+|[ \u00a0\u202f\u2009]\d{3}(?!\d))*")
SCALE_WORD = re.compile(
    r"(?:\s|-)?(?:(?P<english>hundred|thousand|million|billion|trillion|[mb]illionen|milliarden?|hundert|tausend|tsd|mio"
    r"|mrd|bio|mn|bn|trn|lakh|crore|[kmbt])(?![a-zäöüß])|[多余餘几幾来來个個]?\s?(?P<chinese>[十百千万萬亿億兆]+))",
    re.IGNORECASE,
)
SCALES: dict[str, tuple[int, ...]] = {
    "hundred": (2,), "hundert": (2,), "thousand": (3,), "tausend": (3,), "tsd": (3,), "k": (0, 3), "lakh": (5,),
    "million": (6,), "millionen": (6,), "mio": (6,), "mn": (6,), "m": (0, 6), "crore": (7,), "milliarde": (9,),
    "milliarden": (9,), "mrd": (9,), "bn": (9,), "b": (0, 9), "billion": (9, 12), "billionen": (12,), "bio": (12,),
    "trillion": (12, 18), "trn": (12,), "t": (0, 3, 12),
}  # fmt: skip
CHINESE_SCALES = {"十": 1, "百": 2, "千": 3, "万": 4, "萬": 4, "亿": 8, "億": 8, "兆": 12}

CENTURY = re.compile(r"(\d{1,2})\s*世[纪紀]\s*(\d)0\s*年代")
HUNDRED_MILLIONS = re.compile(r"(\d+)\s*[亿億]\s*(\d{1,4})\s*[万萬]")
RANGE = re.compile(r"\W*(?:to|and|or|bis|und|oder|至|到)?\W*", re.IGNORECASE)
TIME = re.compile(r"\b[ap]\.?\s?m\b|uhr|o'clock|[点點时時:]|晚|下午", re.IGNORECASE)

ENGLISH = {
    **dict(zip("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
               "seventeen eighteen nineteen".split(), range(20), strict=True)),
    **dict(zip("twenty thirty forty fifty sixty seventy eighty ninety".split(), range(20, 100, 10), strict=True)),
    **dict(zip("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
               "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split(), range(1, 21),
               strict=True)),
}  # fmt: skip
MULTIPLIERS = {"hundred": 100, "hundreds": 100, "hundredth": 100, "thousand": 1000, "thousands": 1000, "million": 10**6,
               "millions": 10**6, "billion": 10**9, "billions": 10**9, "trillion": 10**12}  # fmt: skip
MONTHS = (
    "jan january januar jänner", "feb february februar", "mar march märz mrz", "apr april", "may mai", "jun june juni",
    "jul july juli", "aug august", "sep sept september", "oct october okt oktober", "nov november",
    "dec december dez dezember",
)  # fmt: skip
OTHER_WORDS: dict[str, tuple[str, ...]] = {
    **{name: (str(number),) for number, names in enumerate(MONTHS, start=1) for name in names.split()},
    **dict.fromkeys("once single sole einmal erste ersten erster erstes".split(), ("1",)),
    **dict.fromkeys("twice both pair pairs couple double dual twin zwo beide beiden beider doppelt doppelte "
                    "doppelten paar zweifach".split(), ("2",)),
    **dict.fromkeys("thrice triple triples dritte dritten dritter drittes drittel threefold dreifach".split(), ("3",)),
    **dict.fromkeys("half halves halb halbe halben halber hälfte".split(), ("2", "0.5", "50", "30")),
    **dict.fromkeys("third thirds".split(), ("3",)),
    **dict.fromkeys("quarter quarters viertel quartal quadruple".split(), ("4", "0.25", "25", "15")),
    **dict.fromkeys("anderthalb eineinhalb".split(), ("1.5",)),
    **dict.fromkeys("siebte siebten siebter siebtes".split(), ("7",)),
    **dict.fromkeys("dozen dozens dutzend dutzende dutzenden".split(), ("12",)),
    **dict.fromkeys("decade decades jahrzehnt jahrzehnte jahrzehnten".split(), ("10",)),
    **dict.fromkeys("century centuries jahrhundert jahrhunderte jahrhunderten hunderte hunderten".split(), ("100",)),
    **dict.fromkeys("millennium millennia tausende tausenden".split(), ("1000",)),
    **dict.fromkeys("fortnight fortnightly".split(), ("2", "14")),
    **dict.fromkeys("no none null nil kein keine keinen keiner".split(), ("0",)),
    **dict.fromkeys("noon midday mittag mittags mitternacht midnight".split(), ("12", "0", "24")),
}  # fmt: skip
GERMAN_ONES = {
    name: number for number, name in enumerate("null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf "
                                               "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split())
}  # fmt: skip
GERMAN_TENS = dict(
    zip("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(), range(20, 100, 10), strict=True)
)
CHINESE = {
    **{digit: number for number, digit in enumerate("零一二三四五六七八九")},
    **{digit: number for number, digit in enumerate("〇壹贰叁肆伍陆柒捌玖")},
    **dict.fromkeys("两兩双雙", 2),
}
CHINESE_NUMERAL = re.compile(f"[{''.join(CHINESE)}十百千万萬亿億兆廿]{{1,30}}(?:点[{''.join(CHINESE)}]{{1,30}})?")
ROMAN = re.compile(r"\b[IVXLC]{1,8}\b")
ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


class WrittenNumber(NamedTuple):
    """A number in digits."""

    digits: str
    """All digits, without separators."""
    values: frozenset[Value]
    """Possible values: 1.234 is 1234 or 1.234."""
    parts: tuple[str, ...]
    """The digits between separators."""

    @property
    def integer(self) -> int | None:
        """A number of up to four digits without separators."""
        return int(self.digits) if len(self.parts) == 1 and len(self.digits) <= 4 else None


def numbers_differ(source: str, translation: str, *, languages: tuple[str | None, str | None] = ("en", "zh")) -> bool:
    """Whether the numbers of a translation differ from those of its source; `languages`: codes of both."""
    return bool(number_differences(source, translation, languages=languages))


def number_differences(
    source: str, translation: str, *, languages: tuple[str | None, str | None] = ("en", "zh")
) -> list[str]:
    """The numbers in digits without a counterpart on the other side, those of the source first."""
    sides = [normalized(source), normalized(translation)]
    written = [list(numbers_in_digits(side)) for side in sides]
    if written[0] == written[1]:
        return []
    values = [{value for one in side for value in one.values} for side in written]
    unmatched: list[str] = []
    for side in (0, 1):
        other = 1 - side
        missing = [one for one in written[side] if not one.values & values[other]]
        if not missing:
            continue
        spelled = (languages[other] or "").split("-")[0] in SPELLED
        known = values[other] | set(values_in_words(sides[other]))
        stream = "".join(one.digits for one in written[other])
        times = any(map(TIME.search, sides))
        unmatched += [
            one.digits
            for one in missing
            if not has_counterpart(one, known, written[other], stream, times=times, spelled=spelled)
        ]
    return unmatched


def has_counterpart(
    one: WrittenNumber, known: set[Value], others: list[WrittenNumber], stream: str, *, times: bool, spelled: bool
) -> bool:
    """Whether a number in digits has a counterpart among the values of the other side."""
    number = one.integer
    if one.values & known or (not spelled and number is not None and number <= MAX_SPELLED):
        return True
    if len(one.digits) >= 5 and one.digits in stream:
        return True
    known = known | {value_of(part) for other in others if is_date_or_time(other) for part in other.parts}
    if all(value_of(part) in known or is_hour(part, known, times=times) for part in one.parts):
        return True
    if number is None:
        return False
    years = [other.integer for other in others if other.integer is not None and len(other.digits) == 4]
    if len(one.digits) == 2 and any(number in (year % 100, year // 100 + 1) for year in years):
        return True
    return len(one.digits) == 4 and any(len(o.digits) == 2 and o.integer == number % 100 for o in others)


def is_date_or_time(one: WrittenNumber) -> bool:
    """Whether the parts of a number may be separate numbers: 7.5.2003, 10.30."""
    is_time = len(one.parts) == 2 and len(one.parts[1]) == 2 and len(one.parts[0]) <= 2
    return is_time or len(one.parts) > 2


def is_hour(digits: str, known: set[Value], *, times: bool) -> bool:
    """Whether a number may be omitted, as 1 often is, or is an hour of the other 12-hour half."""
    number = int(digits[:4])
    hours = [hour for hour in (number + 12, number - 12) if 0 <= hour <= 24]
    return number == 1 or (times and (number == 0 or any(value_of(str(hour)) in known for hour in hours)))


def normalized(text: str) -> str:
    """A text with half-width characters, and Chinese centuries and multiples of 亿 as one number."""
    if text.isascii():
        return text
    text = text.translate(HALF_WIDTH_FORMS)
    if "世" in text:
        text = CENTURY.sub(lambda match: f"{(int(match[1]) - 1) * 10 + int(match[2])}0", text)
    if "亿" in text or "億" in text:
        text = HUNDRED_MILLIONS.sub(lambda match: str(int(match[1]) * 10**8 + int(match[2]) * 10**4), text)
    return text


def numbers_in_digits(text: str) -> Iterator[WrittenNumber]:
    """The numbers in digits in a text."""
    matches = list(DIGITS.finditer(text))
    for match, following in zip_longest(matches, matches[1:]):
        raw = match[0] if match[0].isascii() else "".join(ascii_digit(character) for character in match[0])
        parts = tuple(re.findall(r"\d+", raw))
        scales = scales_at(text, match.end())
        if not scales and following and RANGE.fullmatch(text, match.end(), following.start()):
            scales = (0, *scales_at(text, following.end()))
        yield WrittenNumber("".join(parts), frozenset(readings(raw, parts, scales or (0,))), parts)


def scales_at(text: str, place: int) -> tuple[int, ...]:
    """The powers of ten that the word after a number may mean; empty without such a word."""
    scale = SCALE_WORD.match(text, place)
    if not scale:
        return ()
    if scale["chinese"]:
        return (sum(CHINESE_SCALES[character] for character in scale["chinese"]),)
    return SCALES[scale["english"].lower()]


def readings(raw: str, parts: tuple[str, ...], scales: tuple[int, ...]) -> Iterator[Value]:
    """Possible values of a number: the last separator is a decimal point, or all separators group digits."""
    for scale in scales:
        if len(parts) == 1 or all(len(part) == 3 for part in parts[1:]):
            yield value_of("".join(parts), scale)
        if len(parts) > 1 and raw[-len(parts[-1]) - 1] in ".,٫":
            yield value_of("".join(parts), scale - len(parts[-1]))


def value_of(digits: str, scale: int = 0) -> Value:
    """The value of digits times a power of ten."""
    significant = digits.lstrip("0")
    if not significant:
        return "0", 0
    short = significant.rstrip("0")
    return short, scale + len(significant) - len(short)


def ascii_digit(character: str) -> str:
    """A decimal digit of any script as an ASCII one; separators are kept."""
    return str(unicodedata.decimal(character, character))


def values_in_words(text: str) -> Iterator[Value]:
    """Values of the number words in a text, in any of the languages."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    yield from english_values(words)
    yield from german_values(words)
    for word in words:
        for number in OTHER_WORDS.get(word, ()):
            whole, _, fraction = number.partition(".")
            yield value_of(whole + fraction, -len(fraction))
    for match in ROMAN.finditer(text):
        digits = [ROMAN_DIGITS[letter] for letter in match[0]]
        pairs = zip(digits, [*digits[1:], 0], strict=True)
        yield value_of(str(sum(-now if now < after else now for now, after in pairs)))
    if not text.isascii():
        yield from chinese_values(text)
        yield from character_values(text)


def english_values(words: list[str]) -> Iterator[Value]:
    """Numbers in English words: each sequence as a whole, and its parts."""
    total = current = 0
    parts: list[int] = []
    for word in [*words, ""]:
        stem = word if word in ENGLISH or word in MULTIPLIERS else word.removesuffix("s")
        stem = f"{stem[:-4]}y" if stem.endswith("ieth") else stem
        stem = f"{stem[:-3]}y" if stem.endswith("tie") else stem
        if stem in ENGLISH:
            current += ENGLISH[stem]
            parts.append(ENGLISH[stem])
        elif stem in MULTIPLIERS:
            factor = MULTIPLIERS[stem]
            current = max(current, 1) * factor
            if factor > 100:
                total, current = total + current, 0
        elif word not in ("and", "a") and (parts or total or current):
            yield value_of(str(total + current))
            yield from (value_of(str(part)) for part in parts)
            if len(parts) in (2, 3) and 10 <= parts[0] <= 20:  # nineteen eighty-four
                yield value_of(str(parts[0] * 100 + sum(parts[1:])))
            total, current, parts = 0, 0, []


def german_values(words: list[str]) -> Iterator[Value]:
    """Numbers at the beginning of German words, as in zweihundertfünfzig, dreimal and vierjährig."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        match = german_number().match(word)
        if not match or not match[0]:
            continue
        number = german_below_thousand(match[3] or "")
        if match[1] is not None:
            number += 1000 * (german_below_thousand(match[2] or "") or 1)
        yield value_of(str(number))
        for scale in SCALES.get(after, ()):
            yield value_of(str(number), scale)


@cache
def german_number() -> re.Pattern[str]:
    """Matches thousands, and the rest, at the beginning of a word."""
    ones = "|".join(sorted(GERMAN_ONES, key=len, reverse=True))
    below_hundred = rf"(?:(?:(?:{ones})und)?(?:{'|'.join(GERMAN_TENS)}|dreissig)|(?:{ones}))"
    below_thousand = rf"(?:(?:{ones})?hundert(?:und)?(?:{below_hundred})?|{below_hundred})"
    return re.compile(rf"(({below_thousand})?tausend(?:und)?)?({below_thousand})?")


def german_below_thousand(word: str) -> int:
    """The value of a German number below a thousand, or of hundreds such as neunzehnhundert."""
    hundreds, separator, rest = word.replace("dreissig", "dreißig").rpartition("hundert")
    total = 100 * (GERMAN_ONES.get(hundreds, 0) or 1) if separator else 0
    rest = rest.removeprefix("und")
    for name, tens in GERMAN_TENS.items():
        if rest.endswith(name):
            return total + tens + GERMAN_ONES.get(rest[: -len(name)].removesuffix("und"), 0)
    return total + GERMAN_ONES.get(rest, 0)


def chinese_values(text: str) -> Iterator[Value]:
    """Numbers in Chinese characters: each numeral as a whole, and its digits."""
    for match in CHINESE_NUMERAL.finditer(text):
        whole, _, fraction = match[0].partition("点")
        tail = "".join(str(CHINESE[digit]) for digit in fraction)
        yield value_of(f"{chinese_number(whole)}{tail}", -len(tail))
        yield value_of(str(chinese_number(whole)))
        yield from (value_of(str(CHINESE[digit])) for digit in whole if digit in CHINESE)
    for sign, numbers in (
        ("半", ("2", "50", "30")),
        ("刻", ("15", "45")),
        ("打", ("12",)),
        ("无", ("0",)),
        ("没", ("0",)),
    ):
        if sign in text:
            yield from map(value_of, numbers)
    if "半" in text:
        yield value_of("5", -1)


def chinese_number(numeral: str) -> int:
    """The value of a whole number in Chinese characters; without units, digits are positional: 一九九八."""
    if all(character in CHINESE for character in numeral):
        return int("".join(str(CHINESE[character]) for character in numeral))
    total = section = digit = 0
    for character in numeral.replace("廿", "二十"):
        if character in CHINESE:
            digit = CHINESE[character]
        elif CHINESE_SCALES[character] < 4:
            section, digit = section + (digit or 1) * 10 ** CHINESE_SCALES[character], 0
        else:
            total, section, digit = (total + section + digit or 1) * 10 ** CHINESE_SCALES[character], 0, 0
    return total + section + digit


def character_values(text: str) -> Iterator[Value]:
    """Values of numeric characters such as ² ½ ① Ⅳ."""
    for character in set(text):
        number = None if character.isdecimal() or character in CHINESE else unicodedata.numeric(character, None)
        if number is not None and 0 < number < 1:
            yield value_of(f"{number:.6f}".replace(".", ""), -6)
            yield value_of(str(round(1 / number)))
        elif number is not None and number == int(number):
            yield value_of(str(int(number)))


# ---- repetition ------------------------------------------------------------------------------------------------------

REPEATED_PHRASE = re.compile(r"(.{1,40}?)\1\1\1+|(.{8,60}?)\2\2+", re.DOTALL)
"""A phrase at least four times in a row, or one of eight or more characters three times."""
MIN_LOOP_LENGTH = 12
"""Shorter repetitions, such as "no, no, no, no", are not loops."""


def is_repetition_loop(source: str, translation: str) -> bool:
    """Whether a translation repeats a phrase for more than twice as long as its source repeats any."""
    length = longest_repetition(translation)
    return length > MIN_LOOP_LENGTH and length > 2 * longest_repetition(source)


def longest_repetition(text: str) -> int:
    """Characters of the longest repetition of a phrase with a letter or digit; 0 if there is none."""
    matches = (match[0] for match in REPEATED_PHRASE.finditer(text))
    return max((len(match) for match in matches if any(map(str.isalnum, match))), default=0)
