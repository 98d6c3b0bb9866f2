"""The native engine in the translator: equality with torch, batch invariance, unsupported options."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heedful.config import Config, ModelConfig, TokenizerConfig
from heedful.decoding.files.job import TranslationJob
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.model_dir import save_model
from heedful.model_dir.save_load import KEY, AlignmentSource, save_details
from heedful.native import Availability, available
from heedful.text.tokenizer import train_tokenizer

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)

TEXTS = [" ".join(random.Random(number).choices("abcdefgh", k=number % 9 + 1)) for number in range(24)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_of(tmp_path_factory.mktemp("native") / "model")


def model_of(path: Path, **options: Any) -> Path:
    """An untrained model with clear preferences."""
    tokenizer = train_tokenizer([(text, text) for text in TEXTS], TokenizerConfig(byte_fallback=False))
    size = tokenizer.target_vocab_size
    torch.manual_seed(3)
    config = ModelConfig(
        source_vocab_size=size, target_vocab_size=size, d_model=32, d_ff=64, num_heads=2,
        num_encoder_layers=2, num_decoder_layers=1, max_length=40, **options,
    )  # fmt: skip
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    save_model(path, weights=model, config=Config(model=config), tokenizer=tokenizer)
    return path


@pytest.mark.parametrize(
    "settings", [{"method": "greedy"}, {}, {"num_best": 3}, {"no_repeat_ngram_size": 2, "min_length": 3}]
)
def test_float32_translations_equal_torch(directory: Path, settings: dict[str, object]) -> None:
    native = Translator.load(directory, engine="native", quantization="float32")
    ours = Translator.load(directory, device="cpu", engine="torch")
    for one, other in zip(native.translate(TEXTS, **settings), ours.translate(TEXTS, **settings), strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-4)


def test_int8_sentence_bits_do_not_depend_on_batch(directory: Path) -> None:
    native = Translator.load(directory, engine="native")
    together = dict(zip(TEXTS, native.translate(TEXTS), strict=True))
    shuffled = random.Random(1).sample(TEXTS, len(TEXTS))
    for text, found in zip(shuffled, native.translate(shuffled), strict=True):
        assert found == together[text]
    assert native.translate(TEXTS[5:6])[0] == together[TEXTS[5]]


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_alignments_equal_torch(directory: Path, kind: str) -> None:
    native = Translator.load(directory, engine="native", quantization=kind)
    aligned = native.translate(TEXTS, align=True)
    for found, plain in zip(aligned, native.translate(TEXTS), strict=True):
        assert (found.text, found.score) == (plain.text, plain.score)
    ours = Translator.load(directory, device="cpu", engine="torch").translate(TEXTS, align=True)
    same = [pair for pair in zip(aligned, ours, strict=True) if pair[0].tokens == pair[1].tokens]
    assert len(same) == len(TEXTS) if kind == "float32" else len(same) > len(TEXTS) / 2
    for found, other in same:
        near = 1e-5 if kind == "float32" else 0.1
        np.testing.assert_allclose(found.attention, other.attention, atol=near)
    np.testing.assert_array_equal(native.translate(TEXTS[4:5], align=True)[0].attention, aligned[4].attention)


@pytest.mark.parametrize("head", [None, 0, 1])
@pytest.mark.parametrize("offset", [0, 1])
def test_recorded_alignment_sources_equal_torch(directory: Path, tmp_path: Path, offset: int, head: int | None) -> None:
    chosen = AlignmentSource(layer=0, offset=offset, head=head)
    copy = shutil.copytree(directory, tmp_path / "model")
    save_details(copy, {KEY: chosen.to_dict()})
    translators = [
        Translator.load(copy, engine="native", quantization="float32"),
        Translator.load(copy, device="cpu", engine="torch"),
    ]
    assert [translator.engine.alignment for translator in translators] == [chosen] * 2
    found = [translator.translate(TEXTS, align=True, split="always", max_length=6) for translator in translators]
    for ours, theirs in zip(*found, strict=True):
        assert ours.tokens == theirs.tokens and ours.source_tokens == theirs.source_tokens
        assert ours.attention.shape == (len(ours.tokens), len(ours.source_tokens))
        np.testing.assert_allclose(ours.attention, theirs.attention, atol=1e-5)


def test_auto_uses_native_on_cpus_and_torch_otherwise(directory: Path) -> None:
    auto = Translator.load(directory, device="cpu")
    assert auto.engine_for() == ("native", "int8")
    assert auto.translate(TEXTS) == Translator.load(directory, engine="native").translate(TEXTS)
    assert Translator.load(directory, device="cpu", quantization="float32").engine_for() == ("torch", "float32")
    assert auto.engine_for(method="sampling") == ("torch", "float32")
    ours = Translator.load(directory, device="cpu", engine="torch")
    assert ours.engine_for() == ("torch", "float32")
    drawn = {"method": "sampling", "seed": 3}
    assert auto.translate(TEXTS[:3], **drawn) == ours.translate(TEXTS[:3], **drawn)


def test_file_translation_records_one_engine(directory: Path) -> None:
    assert TranslationJob(str(directory)).engine_name("cpu") == "native"
    assert TranslationJob(str(directory), search={"method": "sampling"}).engine_name("cpu") == "torch"
    assert TranslationJob(str(directory), quantization="float32").engine_name("cpu") == "torch"
    assert TranslationJob(str(directory), engine="torch").engine_name("cpu") == "torch"


def test_auto_uses_torch_if_native_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_of(tmp_path / "additive", attention_scoring="additive")
    auto = Translator.load(tmp_path / "additive", device="cpu")
    assert auto.engine_for() == ("torch", "float32") and auto.translate(TEXTS[:2])
    with pytest.raises(ConfigError, match="attention_scoring=additive"):
        Translator.load(tmp_path / "additive", engine="native")
    with pytest.raises(ConfigError, match="quantization=int8"):
        Translator.load(tmp_path / "additive", device="cpu", quantization="int8")
    assert not list(tmp_path.glob("additive/native*"))
    model_of(tmp_path / "plain")
    monkeypatch.setattr("heedful.decoding.engines.has_gpu", lambda: True)
    assert Translator.load(tmp_path / "plain", device="cpu").engine_for()[0] == "native"
    assert Translator.load(tmp_path / "plain").engine_for()[0] == "torch"
    monkeypatch.undo()
    missing = Availability("it was not compiled", usable=False)
    for place in ("engines", "engines.native_engine"):
        monkeypatch.setattr(f"heedful.decoding.{place}.available", lambda: missing)
    assert Translator.load(tmp_path / "plain", device="cpu").engine_for()[0] == "torch"
    with pytest.raises(ConfigError, match="not compiled"):
        Translator.load(tmp_path / "plain", engine="native")


def test_what_it_cannot_do_is_refused_by_name(directory: Path) -> None:
    native = Translator.load(directory, engine="native")
    native.constraint_factory = lambda texts, max_lengths, device: None
    with pytest.raises(ConfigError, match="token constraint"):
        native.translate(TEXTS[:1])
    native.constraint_factory = None
    with pytest.raises(ConfigError, match="sampling"):
        native.translate(TEXTS[:1], method="sampling")
    with pytest.raises(ConfigError, match="cuda"):
        Translator.load(directory, engine="native", device="cuda")
    with pytest.raises(ConfigError, match="int16"):
        Translator.load(directory, engine="native", quantization="int16")
