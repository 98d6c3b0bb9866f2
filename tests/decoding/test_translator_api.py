"""The translator and its translations as Python objects: any iterable, pickles, repr, str, typed settings."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import heedful
from heedful.config import DecodingConfig
from heedful.search_types import SearchSettings

ROOT = Path(__file__).parent.parent.parent
TEXTS = ["Guten Morgen!", "Wo ist der Bahnhof?"]


@pytest.fixture(scope="module")
def translator() -> heedful.Translator:
    return heedful.Translator.load("en-de-zh", device="cpu")


def test_any_iterable_of_texts_is_translated(translator: heedful.Translator) -> None:
    expected = translator.translate(TEXTS)
    assert translator.translate(text for text in TEXTS) == expected == translator.translate(dict.fromkeys(TEXTS))
    assert translator.translate(iter([])) == []
    with pytest.raises(TypeError, match="one string; pass a list"):
        translator.translate("Guten Morgen!")
    with pytest.raises(TypeError, match="text 2 is a int"):
        translator.translate(iter(["a", 1]))  # type: ignore[list-item]


def test_str_of_translation_is_its_text(translator: heedful.Translator) -> None:
    found = translator.translate(TEXTS)
    assert [str(one) for one in found] == [one.text for one in found]
    assert f"{found[0]}" == "Good morning!" and "log_prob=" in repr(found[0])


def test_translator_is_pickled_by_path_and_settings(translator: heedful.Translator) -> None:
    packed = pickle.dumps(translator)
    assert len(packed) < 10_000  # no weights
    again = pickle.loads(packed)
    assert again.loaded_from == translator.loaded_from and again.config == translator.config
    assert again.translate(TEXTS) == translator.translate(TEXTS)
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).translate(['Guten Morgen!'])[0])"
    other = subprocess.run([sys.executable, "-c", code], input=packed, capture_output=True, cwd=ROOT, check=True)
    assert other.stdout.decode().strip() == "Good morning!"
    made = heedful.Translator(translator.engine, translator.tokenizer)
    with pytest.raises(TypeError, match=r"made from a model in memory.*Translator\.load"):
        pickle.dumps(made)


def test_repr_shows_model_engine_and_languages(translator: heedful.Translator) -> None:
    shown = repr(translator)
    for words in ("Translator('", "en-de-zh'", "engine='", "de → en, "):
        assert words in shown
    assert "0x" not in repr(heedful.Translator(translator.engine, translator.tokenizer))


@pytest.mark.parametrize("name", ["translate", "translate_lines", "engine_for", "uses_shortlist"])
def test_settings_types_match_decoding_config(name: str) -> None:
    hints = typing.get_type_hints(DecodingConfig)
    assert typing.get_type_hints(SearchSettings) == hints and SearchSettings.__total__ is False
    parameter = inspect.signature(getattr(heedful.Translator, name)).parameters["settings"]
    assert parameter.annotation == "Unpack[SearchSettings]"
