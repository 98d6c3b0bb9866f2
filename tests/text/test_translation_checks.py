"""Translation checks: equivalent and different numbers, and repetition loops."""

from __future__ import annotations

import pytest

from heedful.text.translation_checks import is_repetition_loop, number_differences, numbers_differ

EQUAL = [
    ("1,234.5", "1.234,5"), ("1,234.5", "1234.5"), ("1234", "１２３４"), ("20,000", "2万"),
    ("1 234 567", "1.234.567"),
    ("3 apples", "drei Äpfel"), ("3 apples", "三个苹果"), ("three", "3"), ("2 hours", "两个小时"),
    ("a dozen eggs", "12 个鸡蛋"),
    ("1.5 billion people", "1,5 Milliarden Menschen"), ("1.5 billion", "15 亿"), ("120 million", "1亿2000万"),
    ("4 亿", "400 million"), ("2 million", "zwei Millionen"), ("$5bn", "5 Mrd. Dollar"),
    ("30,000 to 100,000", "3万到10万"),
    ("May 5", "5. Mai"), ("May 5", "5月5日"), ("2003-05-07", "07.05.2003"), ("in 1998", "一九九八年"),
    ("'98", "1998"),
    ("3 pm", "15 Uhr"), ("at 3:30 p.m.", "um 15:30 Uhr"), ("10:30", "10.30 Uhr"), ("at 10:00 am", "上午 10 点"),
    ("the 3rd", "der dritte"), ("20th birthday", "zwanzigsten Geburtstag"), ("21st century", "21 世纪"),
    ("1990s", "1990er Jahre"), ("the 1990s", "20 世纪 90 年代"), ("the 90s", "die 1990er"),
    ("1984", "nineteen eighty-four"),
    ("25%", "百分之二十五"), ("half of it", "50 %"), ("250 people", "zweihundertfünfzig Leute"),
    ("1200", "zwölfhundert"),
    ("007", "007"), ("0800 123 456", "0800123456"), ("m²", "m2"), ("Louis XIV", "路易 14 世"), ("3 times", "dreimal"),
    ("1 file", "eine Datei"), ("no digits at all", "gar keine Ziffern"), ("", ""),
]  # fmt: skip
DIFFERENT = [
    ("3 licences at $49 each", "４９美元的３４．９９１０００１．９"), ("3 licences", "4 Lizenzen"), ("three", "4"),
    ("1.5 billion", "15 万亿"), ("5 million", "5 Milliarden"), ("1,234", "1,243"), ("1990s", "1980er Jahre"),
    ("in 1998", "1999年"), ("7 cats", "Katzen"), ("802.11n", "802.19"), ("aged 64", "三十六岁"), ("10 pm", "20 Uhr"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), EQUAL)
def test_equivalent_numbers_pass(left: str, right: str) -> None:
    assert number_differences(left, right) == []
    assert number_differences(right, left) == []


@pytest.mark.parametrize(("source", "translation"), DIFFERENT)
def test_different_numbers_are_detected(source: str, translation: str) -> None:
    assert numbers_differ(source, translation)
    assert numbers_differ(translation, source)


def test_small_numbers_may_be_words_in_unknown_languages() -> None:
    assert not numbers_differ("7 cats", "sept chats", languages=("en", "fr"))
    assert numbers_differ("7 cats", "chats", languages=("en", "de"))
    assert numbers_differ("777 cats", "sept chats", languages=("en", "fr"))


@pytest.mark.parametrize(
    "text", ["1" * 20_000, "1.2" * 5000, "二" * 9000, "五千" * 5000, "½²①Ⅷ" * 99, "X" * 99, "٣٤ ৪"]
)
def test_any_text_can_be_checked(text: str) -> None:
    assert not numbers_differ(text, text)
    numbers_differ(text, "3")
    numbers_differ("7", text)


def test_repetition_loops() -> None:
    loop = "在喀喀喀喀喀喀喀喀喀喀喀喀喀喀喀喀的陆地产"
    assert is_repetition_loop("landing in Kandahar", loop)
    assert is_repetition_loop("a sentence", "und das ist so, und das ist so, und das ist so, und das ist so")
    assert not is_repetition_loop(loop, loop)
    assert not is_repetition_loop("Well …", "........................................")
    assert not is_repetition_loop("no, no!", "nein, nein, nein!")
    assert not is_repetition_loop("It is a plain sentence.", "Das ist ein gewöhnlicher Satz, der nicht lang ist.")
