"""Which languages a model with several directions translates a text from and into."""

from __future__ import annotations

import pytest

from heedful.config import CorpusConfig, DataConfig
from heedful.errors import DecodingError
from heedful.text.corpus import Direction
from heedful.text.language_routing import Directions


def corpus(source: str | None, target: str | None, *, both: bool = False) -> CorpusConfig:
    return CorpusConfig("a", "b", source_language=source, target_language=target, both_directions=both)


@pytest.fixture(scope="module")
def directions() -> Directions:
    data = DataConfig(train=(corpus("en", "de", both=True), corpus("en", "zh", both=True)))
    return Directions.of(data, ("de", "en", "zh"), {})


def test_directions_of_training_corpora(directions: Directions) -> None:
    assert set(directions.trained) == {("en", "de"), ("de", "en"), ("en", "zh"), ("zh", "en")}
    assert set(directions.languages) == {"en", "de", "zh"}
    assert directions.targets_for("en") == ("de", "zh") and directions.targets_for("zh") == ("en",)
    assert directions.is_ambiguous("en") and not directions.is_ambiguous("de")
    one = DataConfig(source_language="en", target_language="de", train=(corpus(None, None),))
    assert Directions.of(one, (), {}).trained == (Direction("en", "de"),)


def test_directions_of_prepared_corpora_come_from_the_report() -> None:
    report = [
        {"role": "train", "source_language": "en", "target_language": "de", "both_directions": True},
        {"role": "train", "source_language": "zh", "target_language": "en"},
        {"role": "test", "source_language": "fr", "target_language": "en"},
    ]
    found = Directions.of(DataConfig(prepared="prepared"), ("de", "en"), {"data": {"corpora": report}})
    assert found.trained == (Direction("en", "de"), Direction("de", "en"), Direction("zh", "en"))
    assert found.choose("Good morning to all of you")[:2] == ("en", "de")


def test_only_target_of_detected_source_is_chosen(directions: Directions) -> None:
    assert directions.choose("Guten Morgen")[:2] == ("de", "en")
    assert directions.choose("你好")[:2] == ("zh", "en")
    with pytest.raises(DecodingError, match=r"is in 'en' and can be translated into de, zh.*--to"):
        directions.choose("Good morning")
    assert directions.choose("Good morning", target="zh")[:2] == ("en", "zh")
    assert directions.choose("Good morning", target={"en": "de"})[:2] == ("en", "de")
    assert directions.choose("Guten Morgen", target={"en": "de"})[:2] == ("de", "en")
    for empty in ("", "42"):
        assert directions.choose(empty) == (None, "en", None, None)


def test_untrained_direction_gets_a_remark(directions: Directions) -> None:
    choice = directions.choose("Guten Morgen, wie geht es dir?", target="zh")
    assert choice[:2] == ("de", "zh") and choice.remark is not None
    assert "was not trained on de → zh (but de → en → zh)" in choice.remark
    assert directions.choose("Guten Morgen, wie geht es dir?", target="en").remark is None
    assert Directions((), ("de", "en", "zh")).choose("Guten Morgen, wie geht es dir?", target="zh").remark is None


def test_fine_tuned_model_keeps_initial_directions(directions: Directions) -> None:
    before = [list(pair) for pair in directions.trained]
    data, details = DataConfig(train=(corpus("en", "de"),)), {"training": {"started_from_directions": before}}
    tuned = Directions.of(data, directions.tags, details)
    assert tuned.choose("Good morning")[:2] == ("en", "de")  # the direction of the fine-tuning
    assert tuned.choose("Good morning", target="zh").remark is None
    assert tuned.choose("你好")[:2] == ("zh", "en")
    assert "was not trained on de → zh" in (tuned.choose("Guten Morgen, wie geht es dir?", target="zh").remark or "")
    one_target = Directions((Direction("de", "en"),), initial=(Direction("fr", "en"),))
    assert one_target.choose("Bonjour", source="fr")[:2] == ("fr", "en")


def test_english_is_the_preferred_target() -> None:
    data = DataConfig(train=(corpus("de", "zh", both=True), corpus("de", "en", both=True)))
    assert Directions.of(data, ("de", "en", "zh"), {}).choose("Guten Morgen")[:2] == ("de", "en")


def test_codes_with_regions() -> None:
    data = DataConfig(
        train=(corpus("en_US", "de-AT", both=True), corpus("zh-Hans", "en_US"), corpus("zh-Hans", "de-AT"))
    )
    regions = Directions.of(data, ("de-AT", "en_US"), {})
    assert regions.choose("你好")[:2] == ("zh-Hans", "en_US") and regions.choose("Guten Morgen")[:2] == (
        "de-AT",
        "en_US",
    )


def test_given_languages_override_detection(directions: Directions) -> None:
    assert directions.choose("Hamburg", source="de") == ("de", "en", None, None)
    with pytest.raises(DecodingError, match=r"source language 'fr'.*knows en, de, zh"):
        directions.choose("Hamburg", source="fr")
    with pytest.raises(DecodingError, match="cannot be translated into 'fr'"):
        directions.choose("Hamburg", target="fr")


def test_foreign_or_already_translated_text(directions: Directions) -> None:
    assert "in 'de' already" in (directions.choose("Guten Morgen", target="de").remark or "")
    assert "looks like ja" in (directions.choose("これは日本語です", target="de").remark or "")
    assert directions.choose("これは日本語です", source="zh").target == "en"
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
        with pytest.raises(DecodingError, match=f"looks like {language}, but this model knows en, de, zh.*--from"):
            directions.choose(text)


def test_ambiguous_target_error_mentions_source_only_if_detected(directions: Directions) -> None:
    with pytest.raises(
        DecodingError, match=r"is in 'en' and can be translated into .*--to.*, or correct its language \(--from"
    ):
        directions.choose("Schlaflos in New York")
    assert directions.choose("Schlaflos in New York", source="de").target == "en"
    with pytest.raises(DecodingError, match=r"--to, target_language\)\.$"):
        directions.choose("Good morning", source="en")


def test_single_foreign_word_does_not_change_the_language(directions: Directions) -> None:
    for text in ("Bonjour Tristesse is a novel that she wrote.", "He lives in Buenos Aires.", "The dove flew away."):
        assert directions.detect(text)[0] == "en"
    for text in ("Er sagte nur „Merci“ und ging mit dem Hund nach Hause.", "Ciao, bis morgen!", "Onde war da."):
        assert directions.detect(text)[0] == "de"
    for text in ("Hola Tom!", "We saw Sono."):
        assert directions.detect(text)[0] == "en"


def test_single_target_models_detect_nothing() -> None:
    plain = Directions((Direction("en", "de"),))
    assert plain.choose("你好") == ("en", "de", None, None)
    with pytest.raises(DecodingError, match="translates from en"):
        plain.choose("你好", source="zh")
    unknown = Directions((), ("aa", "bb"))
    with pytest.raises(DecodingError, match="no target language was given"):
        unknown.choose("1 2 3")
    assert unknown.choose("1 2 3", target="aa")[:2] == (None, "aa")
