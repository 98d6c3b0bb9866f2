"""The word cache: the same ids as SentencePiece, and the same pieces from word counts."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import TokenizerConfig
from heedful.text import tokenizer_training
from heedful.text.tokenizer import Tokenizer, WordCache, train_tokenizer

SENTENCES = [f"the {colour}  cat sat on {n} mats, né à Łódź " for n, colour in enumerate(["red", "blue", "old"] * 40)]
PAIRS = [(sentence, sentence.upper()) for sentence in SENTENCES]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(PAIRS, TokenizerConfig(vocab_size=400), tags=["de", "fr"])


def unpacked(packed: list[bytes]) -> list[list[int]]:
    return [np.frombuffer(ids, dtype="<u2").tolist() for ids in packed]


@given(st.lists(st.text(alphabet=st.sampled_from("the catRÉD né\u2581\u3000\t\x00😀ﬁ中\ud800  "), max_size=30)))
def test_packed_ids_equal_encoded_ids(tokenizer: Tokenizer, texts: list[str]) -> None:
    assert tokenizer._target._word_cache is not None
    assert unpacked(tokenizer.pack_targets(texts)) == tokenizer.encode_targets(texts)
    assert unpacked(tokenizer.pack_sources(texts, "fr")) == tokenizer.encode_sources(texts, "fr")


def test_clearing_the_cache_changes_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.text.tokenizer._MAX_CACHED_WORDS", 3)
    for sentence in SENTENCES[:10]:
        assert unpacked(tokenizer.pack_targets([sentence])) == [tokenizer.encode_target(sentence)]


@pytest.mark.parametrize(
    "settings", [{"kind": "unigram", "vocab_size": 330}, {"byte_fallback": False, "vocab_size": 99}]
)
def test_unsupported_models_encode_whole_sentences(settings: dict[str, Any]) -> None:
    other = train_tokenizer(PAIRS, TokenizerConfig(**settings))
    assert other._target._word_cache is None
    assert unpacked(other.pack_targets(SENTENCES)) == other.encode_targets(SENTENCES)


def sentence_model(**options: Any) -> Any:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=tokenizer_training._split_long(SENTENCES), model_writer=model, model_type="bpe",
        vocab_size=400,
        byte_fallback=True, character_coverage=0.9998, **{**tokenizer_training._SHARED_OPTIONS, **options},
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.mark.parametrize(
    "options",
    [{"split_by_whitespace": False}, {"normalization_rule_name": "nfkc"}, {"remove_extra_whitespaces": True}],
)
def test_models_with_pieces_across_spaces_are_not_supported(options: dict[str, Any]) -> None:
    assert WordCache.supports(sentence_model())
    assert not WordCache.supports(sentence_model(**options))


def test_training_on_word_counts_equals_training_on_sentences() -> None:
    config = TokenizerConfig(vocab_size=400)
    counted = sentencepiece.SentencePieceProcessor(
        model_proto=tokenizer_training.train_subwords(
            SENTENCES, config, vocab_size=400, num_pairs=1, control_symbols=[]
        )
    )
    plain = sentence_model()
    assert [counted.id_to_piece(n) for n in range(400)] == [plain.id_to_piece(n) for n in range(400)]
