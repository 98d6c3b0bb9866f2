"""Language identification: scripts, words, and texts without a language."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.text.language_id import PROFILES, can_detect, detect_language, script_of

LANGUAGES = ("en", "de", "zh")
DATA = Path(__file__).parent.parent.parent / "examples" / "data"
SHORT = {
    "de": [
        "Hallo",
        "Danke",
        "Guten Morgen",
        "Gute Nacht",
        "Wie geht's?",
        "ja",
        "nein",
        "Bitte",
        "Ich liebe dich",
        "Zug",
    ],
    "en": [
        "Hello",
        "Thanks",
        "Good morning",
        "Good night",
        "How are you?",
        "yes",
        "no",
        "Please",
        "I love you",
        "train",
    ],
    "zh": [
        "你好",
        "谢谢",
        "早上好",
        "你好吗？",
        "是",
        "我爱你",
        "火车",
        "Tom 走了。",
        "使用 Azure CLI 创建 Kubernetes 群集",
    ],
}


@pytest.mark.parametrize("language", SHORT)
def test_short_greetings_are_identified(language: str) -> None:
    for text in SHORT[language]:
        detected, confidence = detect_language(text, among=LANGUAGES)
        assert detected == language and 0.5 <= confidence <= 1, (text, detected, confidence)


def test_sentences_of_sample_corpus() -> None:
    for language in ("en", "de"):
        lines = (DATA / f"tatoeba.{language}").read_text(encoding="utf-8").splitlines()[:2000]
        right = sum(detect_language(line, among=LANGUAGES)[0] == language for line in lines)
        assert right >= 0.99 * len(lines)


@pytest.mark.parametrize("text", ["", "   ", "42", "…!?", "🙂", "١٢٣", "3 × 4 = 12"])
def test_text_without_letters_has_no_language(text: str) -> None:
    assert detect_language(text, among=LANGUAGES) == (None, 0.0) == detect_language(text)


def test_language_follows_script() -> None:
    assert detect_language("これは日本語です", among=LANGUAGES) == (None, 0.0)
    assert detect_language("これは日本語です")[0] == "ja"
    assert detect_language("Привет", among=LANGUAGES) == (None, 0.0)
    assert detect_language("Привет, как дела?", among=("en", "ru"))[0] == "ru"
    assert detect_language("한국어입니다")[0] == "ko"
    assert detect_language("The character 人 means person.", among=LANGUAGES)[0] == "en"
    assert script_of("Ｈｅｌｌｏ")[0] == "LATIN"


def test_codes_with_region_are_returned_unchanged() -> None:
    assert detect_language("你好", among=("en_US", "zh-Hans"))[0] == "zh-Hans"
    assert detect_language("Guten Morgen", among=("en_US", "de-AT"))[0] == "de-AT"


def test_languages_with_only_a_word_list() -> None:
    assert detect_language("le chien est dans la maison et il ne dort pas")[0] == "fr"
    assert detect_language("el perro está en la casa y no es de los niños", among=("es", "en"))[0] == "es"
    assert detect_language("The dog is in the house.", among=("es", "en", "fr"))[0] == "en"


def test_can_detect_needs_distinct_scripts_or_word_lists() -> None:
    assert can_detect(LANGUAGES) and can_detect(("en", "fr", "ru", "ko"))
    assert not can_detect(("en", "pl"))  # the same script, and no word list of Polish
    assert not can_detect(("zh", "lzh")) and not can_detect(("aa", "bb")) and not can_detect(("en_GB", "en_US"))


def test_result_does_not_depend_on_earlier_texts() -> None:
    before = [detect_language(text, among=LANGUAGES) for text in SHORT["de"]]
    for text in ("The committee", "was", "die Frau"):
        detect_language(text)
    assert [detect_language(text, among=LANGUAGES) for text in SHORT["de"]] == before


def test_profiles_are_small() -> None:
    assert PROFILES.stat().st_size < 60_000


def test_leading_numbers_and_spaces_are_skipped_and_long_texts_truncated() -> None:
    assert detect_language(" " * 500 + "12 " * 300 + "Guten Morgen", among=LANGUAGES)[0] == "de"
    assert detect_language("Das ist ein langer Text. " * 10_000, among=LANGUAGES)[0] == "de"
