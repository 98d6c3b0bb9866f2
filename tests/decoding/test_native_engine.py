"""The native engine behind the translator: torch's translations in float32, the same bits in any batch, refusals."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from heedful.checkpoint import save_model
from heedful.config import Config, ModelConfig, TokenizerConfig
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.native import available
from heedful.text.tokenizer import train_tokenizer

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)

TEXTS = [" ".join(random.Random(number).choices("abcdefgh", k=number % 9 + 1)) for number in range(24)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows nothing, but decides clearly."""
    folder = tmp_path_factory.mktemp("native")
    tokenizer = train_tokenizer([(text, text) for text in TEXTS], TokenizerConfig(byte_fallback=False))
    size = tokenizer.target_vocab_size
    torch.manual_seed(3)
    config = ModelConfig(
        source_vocab_size=size, target_vocab_size=size, d_model=32, d_ff=64, num_heads=2,
        num_encoder_layers=2, num_decoder_layers=1, max_length=40,
    )  # fmt: skip
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    path = folder / "model"
    save_model(path, weights=model, config=Config(model=config), tokenizer=tokenizer)
    return path


@pytest.mark.parametrize(
    "settings", [{"method": "greedy"}, {}, {"num_best": 3}, {"no_repeat_ngram": 2, "min_length": 3}]
)
def test_in_float32_the_translations_are_those_of_torch(directory: Path, settings: dict[str, object]) -> None:
    native = Translator.load(directory, engine="native", quantization="float32")
    ours = Translator.load(directory, device="cpu", engine="torch")
    for one, other in zip(native.translate(TEXTS, **settings), ours.translate(TEXTS, **settings), strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-4)


def test_in_int8_a_sentence_has_the_same_bits_alone_and_among_others(directory: Path) -> None:
    native = Translator.load(directory, engine="native")
    together = dict(zip(TEXTS, native.translate(TEXTS), strict=True))
    shuffled = random.Random(1).sample(TEXTS, len(TEXTS))
    for text, found in zip(shuffled, native.translate(shuffled), strict=True):
        assert found == together[text]
    assert native.translate(TEXTS[5:6])[0] == together[TEXTS[5]]


def test_what_it_cannot_do_is_refused_by_name(directory: Path) -> None:
    native = Translator.load(directory, engine="native")
    with pytest.raises(ConfigError, match="alignment"):
        native.translate(TEXTS[:1], align=True)
    with pytest.raises(ConfigError, match="sampling"):
        native.translate(TEXTS[:1], method="sampling")
    with pytest.raises(ConfigError, match="cuda"):
        Translator.load(directory, engine="native", device="cuda")
    with pytest.raises(ConfigError, match="int16"):
        Translator.load(directory, engine="native", quantization="int16")
