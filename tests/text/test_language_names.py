"""What people call a language, and which of a model's codes it means."""

from __future__ import annotations

import pytest

from heedful.errors import DecodingError
from heedful.text.corpus import Direction
from heedful.text.language_names import language_code, target_code
from heedful.text.language_routing import Directions

BUNDLED = ("de", "en", "zh")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *((given, "de") for given in ("de", "DE", "de-DE", "de_AT", "german", "Deutsch", "deu", "ger", " 德语 ")),
        *((given, "en") for given in ("EN", "en-GB", "en_US", "English", "eng", "英文")),
        *((given, "zh") for given in ("zh-CN", "zh-Hans", "zh_Hans_CN", "中文", "Chinese", "zho", "简体中文")),
        *((given, given) for given in ("fr", "Klingon", "d", "", "denmark")),
    ],
)
def test_codes_and_names_of_a_model(given: str, meant: str) -> None:
    assert language_code(given, BUNDLED) == meant


def test_codes_of_a_model_itself_win_and_may_be_any() -> None:
    assert language_code("deu", ("deu", "de")) == "deu"
    assert language_code("German", ("deu_Latn", "eng_Latn")) == "deu_Latn"
    assert language_code("EN", ("en_US", "de")) == "en_US"
    assert language_code("en-GB", ("en_US", "de")) == "en_US"
    assert language_code("Digits", ("digits", "reversed")) == "digits"
    assert language_code("de", ("de-AT", "de-CH")) == "de"  # which of them is not said
    both = ("zh-Hans", "zh-Hant")
    assert [language_code(code, both) for code in ("zh", "zh-TW", "zh_HK", "cmn", "繁體中文")] == [
        "zh-Hans",
        "zh-Hant",
        "zh-Hant",
        "zh-Hans",
        "zh-Hant",
    ]
    assert language_code("zh-TW", ("zh-Hans", "en")) == "zh-TW"


def test_traditional_characters_are_not_promised_by_a_model_that_has_chinese_alone() -> None:
    assert language_code("zh-TW", BUNDLED) == "zh"  # as a source
    for given in ("zh-TW", "zh-Hant", "zh_HK", "繁體中文"):
        with pytest.raises(DecodingError, match=r"traditional characters.*ask for 'zh'"):
            target_code(given, BUNDLED)
    directions = Directions((Direction("en", "de"), Direction("de", "en")), BUNDLED)
    assert directions.target_code({"English": "zh-CN", "DE": "en-US"}) == {"en": "zh", "de": "en"}
    assert directions.target_code(None) is None and directions.source_code("Chinesisch") == "zh"
    assert Directions((Direction("en", "de"),)).target_code("German") == "de"
