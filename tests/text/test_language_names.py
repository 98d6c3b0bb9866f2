"""Codes and names of languages, and which of a model's codes they mean."""

from __future__ import annotations

import pytest

from heedful.errors import DecodingError
from heedful.text.corpus import Direction
from heedful.text.language_names import NAMES, english_and_chinese_name, language_code, target_code
from heedful.text.language_routing import Directions

BUNDLED = ("de", "en", "zh")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        *((given, "de") for given in ("de", "DE", "de-DE", "de_AT", "german", "Deutsch", "deu", "ger", " 德语 ")),
        *((given, "en") for given in ("EN", "en-GB", "en_US", "English", "eng", "英文")),
        *((given, "zh") for given in ("zh-CN", "zh-Hans", "zh_Hans_CN", "中文", "Chinese", "zho", "简体中文")),
        *((given, given) for given in ("fr", "Klingon", "d", "", "denmark")),
    ],
)
def test_names_and_codes_map_to_language_code(given: str, code: str) -> None:
    assert language_code(given, BUNDLED) == code


def test_known_codes_take_precedence() -> None:
    assert language_code("deu", ("deu", "de")) == "deu"
    assert language_code("German", ("deu_Latn", "eng_Latn")) == "deu_Latn"
    assert language_code("EN", ("en_US", "de")) == "en_US"
    assert language_code("en-GB", ("en_US", "de")) == "en_US"
    assert language_code("Digits", ("digits", "reversed")) == "digits"
    assert language_code("de", ("de-AT", "de-CH")) == "de"  # ambiguous
    both = ("zh-Hans", "zh-Hant")
    assert [language_code(code, both) for code in ("zh", "zh-TW", "zh_HK", "cmn", "繁體中文")] == [
        "zh-Hans",
        "zh-Hant",
        "zh-Hant",
        "zh-Hans",
        "zh-Hant",
    ]
    assert language_code("zh-TW", ("zh-Hans", "en")) == "zh-TW"


def test_target_code_refuses_traditional_chinese() -> None:
    assert language_code("zh-TW", BUNDLED) == "zh"  # accepted as a source
    for given in ("zh-TW", "zh-Hant", "zh_HK", "繁體中文"):
        with pytest.raises(DecodingError, match=r"traditional characters.*ask for 'zh'"):
            target_code(given, BUNDLED)


def test_directions_accept_names() -> None:
    directions = Directions((Direction("en", "de"), Direction("de", "en")), BUNDLED)
    assert directions.target_code({"English": "zh-CN", "DE": "en-US"}) == {"en": "zh", "de": "en"}
    assert directions.target_code(None) is None and directions.source_code("Chinesisch") == "zh"
    assert Directions((Direction("en", "de"),)).target_code("German") == "de"


def test_languages_have_names_in_english_and_chinese() -> None:
    names = {line.split()[0]: english_and_chinese_name(line.split()[0]) for line in NAMES.strip().splitlines()}
    assert all((found["en"] and found["en"].isascii()) or code == "nb" for code, found in names.items())
    assert {code for code, found in names.items() if found["zh"] == found["en"]} == {"nb", "nn"}
    assert names["de"] == {"en": "German", "zh": "德语"}
    assert names["ja"] == {"en": "Japanese", "zh": "日语"}
    assert names["zh"] == {"en": "Chinese", "zh": "中文"}
    assert english_and_chinese_name("deu") == names["de"]
    assert english_and_chinese_name("digits") == {}
