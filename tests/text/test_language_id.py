"""Detection of languages: scripts, words, what is no language, and what a model's languages leave to choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import DecodingError
from heedful.text.corpus import Direction
from heedful.text.language_id import PROFILES, can_detect, detect_language, script_of
from heedful.text.language_routing import Directions

BOX = ("en", "de", "zh")
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
def test_short_texts_that_people_try_first(language: str) -> None:
    for text in SHORT[language]:
        found, confidence = detect_language(text, among=BOX)
        assert found == language and 0.5 <= confidence <= 1, (text, found, confidence)


def test_whole_sentences_of_the_sample_corpus() -> None:
    for language in ("en", "de"):
        lines = (DATA / f"tatoeba.{language}").read_text(encoding="utf-8").splitlines()[:2000]
        right = sum(detect_language(line, among=BOX)[0] == language for line in lines)
        assert right >= 0.99 * len(lines)


@pytest.mark.parametrize("text", ["", "   ", "42", "…!?", "🙂", "١٢٣", "3 × 4 = 12"])
def test_what_has_no_letters_has_no_language(text: str) -> None:
    assert detect_language(text, among=BOX) == (None, 0.0) == detect_language(text)


def test_scripts() -> None:
    assert detect_language("これは日本語です", among=BOX) == (None, 0.0)
    assert detect_language("これは日本語です")[0] == "ja"
    assert detect_language("Привет", among=BOX) == (None, 0.0)
    assert detect_language("Привет, как дела?", among=("en", "ru"))[0] == "ru"
    assert detect_language("한국어입니다")[0] == "ko"
    assert detect_language("The character 人 means person.", among=BOX)[0] == "en"
    assert script_of("Ｈｅｌｌｏ")[0] == "LATIN"


def test_codes_come_back_as_they_were_given() -> None:
    assert detect_language("你好", among=("en_US", "zh-Hans"))[0] == "zh-Hans"
    assert detect_language("Guten Morgen", among=("en_US", "de-AT"))[0] == "de-AT"


def test_languages_that_have_only_a_list_of_words() -> None:
    assert detect_language("le chien est dans la maison et il ne dort pas")[0] == "fr"
    assert detect_language("el perro está en la casa y no es de los niños", among=("es", "en"))[0] == "es"
    assert detect_language("The dog is in the house.", among=("es", "en", "fr"))[0] == "en"


def test_what_can_be_told_apart() -> None:
    assert can_detect(BOX) and can_detect(("en", "fr", "ru", "ko"))
    assert not can_detect(("en", "pl"))  # one script, and no word of Polish
    assert not can_detect(("zh", "lzh")) and not can_detect(("aa", "bb")) and not can_detect(("en_GB", "en_US"))


def test_equal_texts_get_equal_answers_whatever_came_before() -> None:
    before = [detect_language(text, among=BOX) for text in SHORT["de"]]
    for text in ("The committee", "was", "die Frau"):
        detect_language(text)
    assert [detect_language(text, among=BOX) for text in SHORT["de"]] == before


def test_the_tables_are_small() -> None:
    assert PROFILES.stat().st_size < 60_000


# ---- what a model leaves to choose -----------------------------------------------------------------------------------


def corpus(source: str | None, target: str | None, *, both: bool = False) -> CorpusConfig:
    return CorpusConfig("a", "b", source_language=source, target_language=target, both_directions=both)


@pytest.fixture(scope="module")
def box() -> Directions:
    data = DataConfig(train=(corpus("en", "de", both=True), corpus("en", "zh", both=True)))
    return Directions.of(data, ("de", "en", "zh"), {})


def test_directions_of_the_data(box: Directions) -> None:
    assert set(box.learned) == {("en", "de"), ("de", "en"), ("en", "zh"), ("zh", "en")}
    assert set(box.languages) == {"en", "de", "zh"}
    assert box.targets_of("en") == ("de", "zh") and box.targets_of("zh") == ("en",)
    assert box.is_open("en") and not box.is_open("de")
    one = DataConfig(source_language="en", target_language="de", train=(corpus(None, None),))
    assert Directions.of(one, (), {}).learned == (Direction("en", "de"),)


def test_directions_of_corpora_that_were_prepared_before_are_those_of_their_report() -> None:
    report = [
        {"role": "train", "source_language": "en", "target_language": "de", "both_directions": True},
        {"role": "train", "source_language": "zh", "target_language": "en"},
        {"role": "test", "source_language": "fr", "target_language": "en"},
    ]
    found = Directions.of(DataConfig(prepared="prepared"), ("de", "en"), {"data": {"corpora": report}})
    assert found.learned == (Direction("en", "de"), Direction("de", "en"), Direction("zh", "en"))
    assert found.choose("Good morning to all of you")[:2] == ("en", "de")


def test_a_text_goes_where_its_language_leaves_one_choice(box: Directions) -> None:
    assert box.choose("Guten Morgen")[:2] == ("de", "en")
    assert box.choose("你好")[:2] == ("zh", "en")
    with pytest.raises(DecodingError, match=r"is in 'en' and may go into de, zh.*--to"):
        box.choose("Good morning")
    assert box.choose("Good morning", target="zh")[:2] == ("en", "zh")
    assert box.choose("Good morning", target={"en": "de"})[:2] == ("en", "de")
    assert box.choose("Guten Morgen", target={"en": "de"})[:2] == ("de", "en")
    for empty in ("", "42"):
        assert box.choose(empty) == (None, "en", None, None)


def test_a_pair_that_was_not_learned_is_remarked_on(box: Directions) -> None:
    told = box.choose("Guten Morgen, wie geht es dir?", target="zh")
    assert told[:2] == ("de", "zh") and told.remark is not None
    assert "has not learned de → zh (but de → en → zh)" in told.remark
    assert box.choose("Guten Morgen, wie geht es dir?", target="en").remark is None
    assert Directions((), ("de", "en", "zh")).choose("Guten Morgen, wie geht es dir?", target="zh").remark is None


def test_a_model_that_went_on_one_way_knows_what_it_had_learned_before(box: Directions) -> None:
    before = [list(pair) for pair in box.learned]
    data, details = DataConfig(train=(corpus("en", "de"),)), {"training": {"started_from_directions": before}}
    tuned = Directions.of(data, box.tags, details)
    assert tuned.choose("Good morning")[:2] == ("en", "de")  # what it was taught last
    assert tuned.choose("Good morning", target="zh").remark is None
    assert tuned.choose("你好")[:2] == ("zh", "en")
    assert "has not learned de → zh" in (tuned.choose("Guten Morgen, wie geht es dir?", target="zh").remark or "")
    one_target = Directions((Direction("de", "en"),), before=(Direction("fr", "en"),))
    assert one_target.choose("Bonjour", source="fr")[:2] == ("fr", "en")


def test_english_is_preferred_among_several() -> None:
    data = DataConfig(train=(corpus("de", "zh", both=True), corpus("de", "en", both=True)))
    assert Directions.of(data, ("de", "en", "zh"), {}).choose("Guten Morgen")[:2] == ("de", "en")


def test_codes_with_regions_are_the_same_languages() -> None:
    data = DataConfig(
        train=(corpus("en_US", "de-AT", both=True), corpus("zh-Hans", "en_US"), corpus("zh-Hans", "de-AT"))
    )
    regions = Directions.of(data, ("de-AT", "en_US"), {})
    assert regions.choose("你好")[:2] == ("zh-Hans", "en_US") and regions.choose("Guten Morgen")[:2] == (
        "de-AT",
        "en_US",
    )


def test_a_language_shows_behind_numbers_and_blanks_and_at_the_beginning_of_long_texts() -> None:
    assert detect_language(" " * 500 + "12 " * 300 + "Guten Morgen", among=BOX)[0] == "de"
    assert detect_language("Das ist ein langer Text. " * 10_000, among=BOX)[0] == "de"


def test_what_is_told_goes_before_what_is_detected(box: Directions) -> None:
    assert box.choose("Hamburg", source="de") == ("de", "en", None, None)
    with pytest.raises(DecodingError, match=r"said to be in 'fr'.*knows en, de, zh"):
        box.choose("Hamburg", source="fr")
    with pytest.raises(DecodingError, match="cannot go into 'fr'"):
        box.choose("Hamburg", target="fr")


def test_what_is_odd_is_remarked(box: Directions) -> None:
    assert "in 'de' already" in (box.choose("Guten Morgen", target="de").remark or "")
    assert "looks like ja" in (box.choose("これは日本語です", target="de").remark or "")
    assert box.choose("これは日本語です", source="zh").target == "en"
    for text, language in (
        ("これは日本語です", "ja"),
        ("le chien est dans la maison et il dort", "fr"),
        ("Привет", "ru"),
        ("Bonjour", "fr"),
        ("Merci beaucoup !", "fr"),
        ("Hola, ¿cómo estás?", "es"),
        ("Buongiorno, come stai?", "it"),
        ("Olá, tudo bem?", "pt"),
    ):
        with pytest.raises(DecodingError, match=f"looks like {language}, and this model knows en, de, zh.*--from"):
            box.choose(text)


def test_who_is_asked_for_a_target_may_also_correct_the_source(box: Directions) -> None:
    with pytest.raises(DecodingError, match=r"is in 'en' and may go into .*--to.*, or its true language \(--from"):
        box.choose("Schlaflos in New York")
    assert box.choose("Schlaflos in New York", source="de").target == "en"
    with pytest.raises(DecodingError, match=r"--to, target_language\)\.$"):
        box.choose("Good morning", source="en")


def test_a_foreign_word_makes_no_sentence_foreign(box: Directions) -> None:
    for text in ("Bonjour Tristesse is a novel that she wrote.", "He lives in Buenos Aires.", "The dove flew away."):
        assert box.detect(text)[0] == "en"
    for text in ("Er sagte nur „Merci“ und ging mit dem Hund nach Hause.", "Ciao, bis morgen!", "Onde war da."):
        assert box.detect(text)[0] == "de"
    for text in ("Hola Tom!", "We saw Sono."):
        assert box.detect(text)[0] == "en"


def test_models_that_leave_no_choice_detect_nothing() -> None:
    plain = Directions((Direction("en", "de"),))
    assert plain.choose("你好") == ("en", "de", None, None)
    with pytest.raises(DecodingError, match="translates from en"):
        plain.choose("你好", source="zh")
    unknown = Directions((), ("aa", "bb"))
    with pytest.raises(DecodingError, match="no target language was given"):
        unknown.choose("1 2 3")
    assert unknown.choose("1 2 3", target="aa")[:2] == (None, "aa")
