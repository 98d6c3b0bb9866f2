"""Synthetic pairs with numbers and figures: both sides of each pair have the same value."""

from __future__ import annotations

import hashlib
import importlib
import re
import unicodedata
from decimal import Decimal

import pytest

from tests.recipes.recipe_scripts import made, run, script

numbers, figures = script("synthetic_numbers"), script("synthetic_figures")

# ---- numbers ---------------------------------------------------------------------------------------------------------

CHINESE_DIGITS = {**{digit: value for value, digit in enumerate("零一二三四五六七八九")}, "两": 2}
UNITS = {"million": 6, "billion": 9, "trillion": 12, "万": 4, "亿": 8, "万亿": 12, "": 0}


def value_of(numeral: str) -> int:
    """The value of a number in Chinese characters."""
    hundred_millions = ten_thousands = section = digit = 0
    for character in numeral:
        if character in "十百千":
            section, digit = section + (digit or 1) * 10 ** ("十百千".index(character) + 1), 0
        elif character == "万":
            ten_thousands, section, digit = (section + digit) * 10**4, 0, 0
        elif character == "亿":
            hundred_millions, ten_thousands = (ten_thousands + section + digit) * 10**8, 0
            section = digit = 0
        else:
            digit = CHINESE_DIGITS[character]
    return hundred_millions + ten_thousands + section + digit


def english_values(english: str) -> list[Decimal]:
    """All numbers of an English text."""
    found = re.findall(r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)(?: ([mb]illion|trillion))?", english)
    return sorted(Decimal(digits.replace(",", "")).scaleb(UNITS[unit]) for digits, unit in found)


def chinese_values(chinese: str) -> list[Decimal]:
    """All numbers of a Chinese text except months, which are words in English."""
    rest = re.sub(r"\d+月|红十字|(?<=[\d十百千])多(?=[万亿])", "", chinese)
    digits = r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)(万亿|亿|万)?"
    values = [Decimal(number.replace(",", "")).scaleb(UNITS[unit]) for number, unit in re.findall(digits, rest)]
    numerals = re.findall(
        "[一二两三四五六七八九十][一二三四五六七八九十百千万亿零]*[十百千万亿]", re.sub(digits, "", rest)
    )
    return sorted(values + [Decimal(value_of(numeral)) for numeral in numerals])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """The script's output, checked against a second run in another process."""
    folders = [tmp_path_factory.mktemp("numbers") / "text" for _ in range(2)]
    for seed, folder in enumerate(folders):
        assert run("synthetic_numbers", folder, hash_seed=seed).returncode == 0
    for name in ("numbers.en", "numbers.zh"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    sides = made(folders[0])
    return list(zip(sides["numbers.en"], sides["numbers.zh"], strict=True))


def test_number_of_distinct_pairs(pairs: list[tuple[str, str]]) -> None:
    assert len(pairs) == len(set(pairs)) == numbers.PAIRS == 40_000
    assert not [pair for pair in pairs if re.search("[{}]", "".join(pair)) or " " in pair[1]]


def test_output_equals_training_text(pairs: list[tuple[str, str]]) -> None:
    listed = {
        name: checksum for checksum, name in importlib.import_module("benchmarks.quality.bundled_model_sets").stated()
    }
    for side, name in enumerate(("text/numbers.en", "text/numbers.zh")):
        written = "".join(f"{pair[side]}\n" for pair in pairs)
        assert hashlib.sha256(written.encode()).hexdigest() == listed[name]


def test_numbers_match_on_both_sides(pairs: list[tuple[str, str]]) -> None:
    wrong = [pair for pair in pairs if english_values(pair[0]) != chinese_values(pair[1])]
    assert not wrong, wrong[:10]
    powers = {value.adjusted() for english, _ in pairs for value in english_values(english)}
    assert powers >= set(range(3, 13))


@pytest.mark.parametrize(
    ("english", "chinese", "same"),
    [
        ("3.5 million", "350万", True),
        ("3.5 million", "35万", False),
        ("35,000 on June 3", "三万五千，6月3日", True),
        ("35,000", "三万五百", False),
        ("more than 300,000", "30多万", True),
        ("1.23 billion", "十二亿三千万", True),
        ("2 trillion", "两万亿", True),
        ("2 trillion", "两亿", False),
    ],
)
def test_comparison_detects_wrong_numbers(english: str, chinese: str, *, same: bool) -> None:
    assert (english_values(english) == chinese_values(chinese)) is same


@pytest.mark.parametrize(
    ("value", "english", "chinese"),
    [
        (3000, "3,000", "三千"),
        (20_000, "20,000", "两万"),
        (35_000, "35,000", "三万五千"),
        (120_000, "120,000", "十二万"),
        (1_050_000, "1.05 million", "一百零五万"),
        (2_200_000, "2.2 million", "两百二十万"),
        (12_000_000, "12 million", "一千二百万"),
        (1_030_000_000, "1.03 billion", "十亿三千万"),
        (3_500_000_000_000, "3.5 trillion", "三万五千亿"),
    ],
)
def test_number_formats(value: int, english: str, chinese: str) -> None:
    assert (numbers.in_english(value), numbers.in_numerals(value)) == (english, chinese)
    assert [value] == english_values(english) == chinese_values(chinese)


@pytest.mark.parametrize(
    ("number", "hedged"), [("3万", "3万多"), ("30万", "30多万"), ("三百万", "三百多万"), ("35000", "35000多")]
)
def test_position_of_more_than(number: str, hedged: str) -> None:
    assert numbers.hedged_chinese(numbers.LARGER, number) == hedged


# ---- figures ---------------------------------------------------------------------------------------------------------

FIGURE_UNITS = {
    **dict.fromkeys(("k",), 3),
    **dict.fromkeys(("million", "m", "Million", "Millionen", "Mio."), 6),
    **dict.fromkeys(("billion", "bn", "Milliarde", "Milliarden", "Mrd."), 9),
    **dict.fromkeys(("trillion", "tn", "Billion", "Billionen", "Bio."), 12),
    **dict.fromkeys(("quadrillion", "Billiarden"), 15),
    **dict(zip(("", "万", "亿", "万亿"), (0, 4, 8, 12), strict=True)),
}
ENGLISH_SMALL = "two three four five six seven eight nine ten eleven twelve".split()
GERMAN_SMALL = "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()


def in_digits(written: str, words: list[str], units: str) -> str:
    """A text with the small numbers before its units in digits."""
    pattern = rf"\b({'|'.join(words)})(?= (?:{units})\b)"
    return re.sub(pattern, lambda found: str(words.index(found[1].lower()) + 2), written, flags=re.IGNORECASE)


def values(found: list[tuple[str, str]]) -> list[Decimal]:
    return sorted(Decimal(digits.replace(",", "")).scaleb(FIGURE_UNITS[unit]) for digits, unit in found)


def english_figures(english: str, *, whole_day: bool) -> list[Decimal]:
    """All figures of an English text; with `whole_day`, hours of the 24-hour clock."""
    rest = in_digits(english, ENGLISH_SMALL, "[mb]illion|trillion|quadrillion")
    if whole_day:
        hour = re.compile(r"\b(\d+)((?::\d\d)?) ?([ap])\.?m\b")
        rest = hour.sub(lambda found: f"{int(found[1]) % 12 + 12 * (found[3] == 'p')}{found[2]}", rest)
    unit = r"(?: (?=[a-z])|(?=[a-z]))(million|billion|trillion|quadrillion|tn|bn|m|k)\b"
    return values(re.findall(rf"(\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?)(?:{unit})?", rest))


def german_figures(german: str) -> list[Decimal]:
    """All figures of a German text."""
    rest = in_digits(german, GERMAN_SMALL, "Millionen|Milliarden|Billionen|Billiarden")
    number = r"(\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+(?:,\d+)?)"
    found = re.findall(rf"{number}(?: (Mill?i\w+|Bill?i\w+|Mio\.|Mrd\.|Bio\.))?", rest)
    return values([(digits.translate(str.maketrans(",.", ".,")), unit) for digits, unit in found])


def chinese_figures(chinese: str) -> list[Decimal]:
    """All figures in digits of a Chinese text, except months and decades without a century."""
    rest = re.sub(r"\d+月|20世纪\d0年代", "", unicodedata.normalize("NFKC", chinese))
    return values(re.findall(r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(万亿|亿|万)?", rest))


@pytest.fixture(scope="module")
def figure_pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    """The script's output, checked against a second run in another process."""
    folders = [tmp_path_factory.mktemp("figures") / "text" for _ in range(2)]
    for seed, folder in enumerate(folders):
        assert run("synthetic_figures", folder, hash_seed=seed).returncode == 0
    names = {"de": "german-figures", "zh": "chinese-figures"}
    assert sorted(made(folders[0])) == sorted(f"{names[side]}.{end}" for side in names for end in ("en", side))
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes()
    sides = made(folders[0])
    return {
        language: list(zip(sides[f"{name}.en"], sides[f"{name}.{language}"], strict=True))
        for language, name in names.items()
    }


@pytest.mark.parametrize(("language", "count"), [("de", 40_000), ("zh", 25_000)])
def test_number_of_generated_figures(figure_pairs: dict[str, list[tuple[str, str]]], language: str, count: int) -> None:
    pairs = figure_pairs[language]
    assert len(pairs) == len(set(pairs)) == figures.PAIRS[language] == count
    assert sum(map(len, figures.TEMPLATES[language])) >= 120
    odd = r"[{}|]|  |\.\.|[$€£¥][a-z]|^\s|\s$|(?<![,\d])1 (Million|Milliard|Billion|Billiard)en\b"
    assert not [pair for pair in pairs if re.search(odd, pair[0]) or re.search(odd, pair[1])]
    phrases = sum(not english.endswith((".", "?")) for english, _ in pairs)
    assert 0.10 < phrases / count < 0.15


def test_german_values_equal_english(figure_pairs: dict[str, list[tuple[str, str]]]) -> None:
    pairs = figure_pairs["de"]
    wrong = [pair for pair in pairs if english_figures(pair[0], whole_day=True) != german_figures(pair[1])]
    assert not wrong, wrong[:10]
    assert sum("Billion" in german for _, german in pairs) > 3000
    assert all(" %" in german for _, german in pairs if "%" in german)


def test_chinese_values_equal_english(figure_pairs: dict[str, list[tuple[str, str]]]) -> None:
    numerals, words = "[一二两三四五六七八九十百千半刻零]", "(hundred|thousand|half [mb]illion|(?<=[a-z]) [mb]illion)"
    plain = [pair for pair in figure_pairs["zh"] if not re.search(numerals, pair[1].replace("零下", ""))]
    plain = [pair for pair in plain if not re.search(words, pair[0])]
    plain = [(re.sub(r"19\d0s", "", english), chinese) for english, chinese in plain]
    wrong = [pair for pair in plain if english_figures(pair[0], whole_day=False) != chinese_figures(pair[1])]
    assert not wrong, wrong[:10]
    assert len(plain) > 10_000
    wide = sum(bool(re.search("[０-９]", chinese)) for _, chinese in figure_pairs["zh"])
    assert 0.09 < wide / figures.PAIRS["zh"] < 0.12


def words_value(english: str) -> Decimal:
    """The value of an English number in words."""
    total, section = Decimal(0), Decimal(0)
    powers = {"thousand": 3, "million": 6, "billion": 9}
    for word in english.replace(" and a half", " half").replace(" and ", " ").replace("-", " ").split():
        if word in powers:
            total, section = total + section.scaleb(powers[word]), Decimal(0)
        elif word == "hundred":
            section *= 100
        elif word == "half":
            section += Decimal("0.5")
        else:
            section += figures.ONES.index(word) if word in figures.ONES else 10 * figures.TENS.index(word)
    return total + section


def test_chinese_values_equal_english_words(figure_pairs: dict[str, list[tuple[str, str]]]) -> None:
    found = [pair for pair in figure_pairs["zh"] if re.fullmatch("[a-z -]+ people", pair[0])]
    assert len(found) > 50
    for english, chinese in found:
        value = [Decimal(value_of(chinese[:-1]))] if not re.search(r"\d", chinese) else chinese_figures(chinese)
        assert [words_value(english.removesuffix(" people"))] == value, (english, chinese)


@pytest.mark.parametrize(
    ("english", "german", "same"),
    [
        ("€1,849.00 at 10:45 p.m.", "1.849,00 € um 22.45 Uhr", True),
        ("€1,849.00", "1,849.00 €", False),
        ("$3.5 trillion", "3,5 Billionen Dollar", True),
        ("$3.5 billion", "3,5 Billionen Dollar", False),
        ("$5m", "fünf Millionen Dollar", True),
        ("March 5, 2019", "5. März 2019", True),
    ],
)
def test_comparison_detects_wrong_german_values(english: str, german: str, *, same: bool) -> None:
    assert (english_figures(english, whole_day=True) == german_figures(german)) is same


@pytest.mark.parametrize(
    ("value", "english", "german", "chinese"),
    [
        (12, "twelve", "zwölf", "十二"),
        (21, "twenty-one", "einundzwanzig", "二十一"),
        (250, "two hundred and fifty", "zweihundertfünfzig", "两百五十"),
        (1600, "one thousand six hundred", "eintausendsechshundert", "一千六百"),
        (2200, "two thousand two hundred", "zweitausendzweihundert", "两千二百"),
        (12_000, "twelve thousand", "zwölftausend", "一万两千"),
        (17_000, "seventeen thousand", "siebzehntausend", "一万七千"),
        (350_000, "three hundred and fifty thousand", "dreihundertfünfzigtausend", "三十五万"),
    ],
)
def test_numbers_in_words(value: int, english: str, german: str, chinese: str) -> None:
    written = figures.english_words(value), figures.german_words(value), figures.chinese_words(value)
    assert written == (english, german, chinese)
    assert value_of(chinese) == value


@pytest.mark.parametrize(
    ("hour", "minute", "style", "english", "german", "chinese"),
    [
        (8, 30, "bare", {"half past eight"}, {"halb neun"}, {"八点半"}),
        (8, 30, "day", {"half past eight in the morning"}, {"halb neun morgens"}, {"上午八点半", "早上八点半"}),
        (12, 30, "bare", {"half past twelve"}, {"halb eins"}, {"十二点半"}),
        (1, 0, "bare", {"one o'clock"}, {"ein Uhr"}, {"一点", "一点钟"}),
        (2, 15, "bare", {"quarter past two", "a quarter past two"}, {"Viertel nach zwei"}, {"两点一刻"}),
        (
            8,
            45,
            "bare",
            {"quarter to nine", "a quarter to nine"},
            {"Viertel vor neun"},
            {"差一刻九点", "八点四十五", "八点四十五分"},
        ),
        (5, 40, "bare", {"twenty to six"}, {"zwanzig vor sechs"}, {"五点四十", "五点四十分"}),
        (8, 25, "bare", {"twenty-five past eight"}, {"fünf vor halb neun"}, {"八点二十五", "八点二十五分"}),
        (15, 0, "short", {"3 p.m.", "3 pm", "3pm"}, {"15 Uhr"}, {"下午3点"}),
        (
            22,
            45,
            "short",
            {"10:45 p.m.", "10:45 pm", "10:45pm"},
            {"22.45 Uhr", "22:45 Uhr"},
            {"晚上10点45分", "晚上10:45"},
        ),
        (15, 40, "long", {"15:40"}, {"15:40 Uhr", "15.40 Uhr"}, {"15:40", "15点40分"}),
        (12, 0, "day", {"noon"}, {"zwölf Uhr mittags"}, {"中午", "中午十二点"}),
        (0, 0, "day", {"midnight"}, {"Mitternacht"}, {"午夜", "半夜十二点"}),
    ],
)
def test_times_of_day(
    hour: int, minute: int, style: str, english: set[str], german: set[str], chinese: set[str]
) -> None:
    clock, rng = figures.Clock(hour, minute, style), figures.Random(1)
    for write, written in zip(
        (figures.clock_english, figures.clock_german, figures.clock_chinese), (english, german, chinese), strict=True
    ):
        assert {write(rng, clock) for _ in range(200)} == written
