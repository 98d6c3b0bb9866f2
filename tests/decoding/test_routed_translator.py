"""The bundled models as one translator: which model translates a text, and which models are loaded."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from heedful.decoding.translator import RoutedTranslator, Translator
from heedful.errors import DecodingError, TextError
from heedful.inspection.trace import trace
from heedful.model_dir.registry import BUNDLED, bundled_models, default_model, default_models
from tests.cli.program import run

CHINESE, GERMAN = "今天天气很好。", "Das Wetter ist heute schön."


@pytest.fixture
def routed() -> RoutedTranslator:
    translator = Translator.load()
    assert isinstance(translator, RoutedTranslator)
    return translator


def loaded(translator: RoutedTranslator) -> list[str]:
    return [model.name for model in translator._loaded]


def alone(name: str, text: str, **settings: str) -> str:
    return Translator.load(BUNDLED / name).translate([text], **settings)[0].text  # type: ignore[arg-type]


def test_pair_model_comes_first_and_default_model_last() -> None:
    assert [model.name for model in bundled_models()] == ["en-zh", "en-de-zh"] == [m.name for m in default_models()]
    assert default_model().name == "en-de-zh"


@pytest.mark.parametrize(
    ("text", "target", "model"),
    [
        (CHINESE, None, "en-zh"),
        ("The weather is nice today.", "zh", "en-zh"),
        (GERMAN, None, "en-de-zh"),
        ("The weather is nice today.", "de", "en-de-zh"),
        (GERMAN, "zh", "en-de-zh"),
    ],
)
def test_only_the_model_of_the_direction_is_loaded(
    routed: RoutedTranslator, text: str, target: str | None, model: str
) -> None:
    [found] = routed.translate([text], target_language=target)
    assert loaded(routed) == [model]
    assert found == Translator.load(BUNDLED / model).translate([text], target_language=target)[0]


def test_mixed_texts_keep_their_order(routed: RoutedTranslator) -> None:
    texts = [CHINESE, GERMAN, "", CHINESE + GERMAN, "你好吗？"]
    found = routed.translate(texts, target_language="en")
    assert [one.text for one in found[:2]] == [alone("en-zh", CHINESE), alone("en-de-zh", GERMAN)]
    assert found[4].text == alone("en-zh", texts[4]) and [one.source_language for one in found[:2]] == ["zh", "de"]
    assert sorted(loaded(routed)) == ["en-de-zh", "en-zh"]


def test_german_line_in_a_chinese_text(routed: RoutedTranslator) -> None:
    lines = [CHINESE, "我明天去上海，后天回来。", "Ich bin müde.", "请把门关上。"]
    found = [one.text for one in routed.translate_lines(lines)]
    assert found[2] == alone("en-de-zh", lines[2], target_language="en") and found[0] == alone("en-zh", CHINESE)


def test_chinese_into_chinese_is_remarked(routed: RoutedTranslator) -> None:
    [found] = routed.translate(["今天我们去公园散步。"], target_language="zh")
    assert found.remark == "seems to be in 'zh' already"


def test_errors_name_the_text_of_the_request(routed: RoutedTranslator) -> None:
    with pytest.raises(DecodingError, match=r"into 'fr': this model translates into de, en, zh"):
        routed.translate(["Hello"], target_language="fr")
    with pytest.raises(TextError, match=r"^text 3 has a target prefix"):
        routed.translate([GERMAN, GERMAN, CHINESE], target_language="en", target_prefix=[None, None, "a " * 600])


def test_settings_apply_to_every_model(routed: RoutedTranslator) -> None:
    found = routed.translate([CHINESE, GERMAN], num_best=2, method="beam", beam_size=3)
    assert [len(one.n_best) for one in found] == [2, 2]
    routed.config = Translator.load(BUNDLED / "en-zh")._search_settings({"method": "greedy"})
    assert routed.translate([CHINESE])[0] == Translator.load(BUNDLED / "en-zh").translate([CHINESE], method="greedy")[0]


def test_pickled_translator_loads_the_same_models(routed: RoutedTranslator) -> None:
    copy = pickle.loads(pickle.dumps(routed))  # noqa: S301
    assert copy.models == routed.models and loaded(copy) == []
    assert copy.translate([CHINESE]) == routed.translate([CHINESE])


def test_documents_and_traces(routed: RoutedTranslator) -> None:
    assert routed.translate_document(f"# {CHINESE}\n", "markdown") == f"# {alone('en-zh', CHINESE)}\n"
    assert loaded(routed) == ["en-zh"]
    assert trace(None, CHINESE, wanted=()).text == trace(BUNDLED / "en-zh", CHINESE, wanted=()).text


def test_environment_names_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEEDFUL_MODEL", "en-de-zh")
    translator = Translator.load()
    assert not isinstance(translator, RoutedTranslator)
    assert translator.translate([CHINESE])[0].text == alone("en-de-zh", CHINESE)


def test_shell_and_files(tmp_path: Path) -> None:
    expected = [alone("en-zh", CHINESE), alone("en-de-zh", GERMAN)]
    assert run("translate", CHINESE, GERMAN).out.splitlines() == expected
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text(f"{CHINESE}\n{GERMAN}\n" * 40, encoding="utf-8")
    run("translate", "-i", text, "-o", out, "--workers", 2, "--chunk-lines", 20, "--to", "en")
    assert out.read_text("utf-8").splitlines() == expected * 40
    assert run("translate", "--to", "fr", CHINESE, check=False).refused("'fr'", "de, en, zh")
    assert run("translate", "-m", "en-zh", "--to", "de", CHINESE, check=False).refused("'de'", "en, zh")
