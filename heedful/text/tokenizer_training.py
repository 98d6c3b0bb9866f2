"""Tokenizer training: from sentences to a SentencePiece model of subwords, or a vocabulary of whole words."""

from __future__ import annotations

import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from heedful.config import TokenizerConfig
from heedful.errors import ConfigError, CorpusError

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
_CHUNK_SIZE = 1000  # characters: SentencePiece skips sentences of more than about 4,000 bytes, so long ones are split
_RESERVED = "\0\t\n\r\u2585"  # SentencePiece skips sentences with these characters
_SHARED_OPTIONS: dict[str, Any] = {
    "pad_id": PAD_ID,
    "unk_id": UNK_ID,
    "bos_id": BOS_ID,
    "eos_id": EOS_ID,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "max_sentence_length": 8 * _CHUNK_SIZE,
    "num_threads": 4,  # fixed: the sums of unigram training depend on it in the last bit
    "minloglevel": 2,
}


def choose_vocab_size(num_pairs: int, num_characters: int = 100) -> int:
    """A vocabulary size for a corpus: 2.5·pairs^0.7 subwords plus the characters, between 1,000 and 32,000.

    5,000 pairs of Latin script give about 1,300, 30,000 give 3,700, 160,000 give 11,300, 750,000 and more give 32,000:
    multiples of 8. With little text, rare subwords are poorly trained, and a small vocabulary is faster.
    """
    size = 256 + num_characters + 2.5 * num_pairs**0.7
    return int(min(max(size, 1000), 32_000)) // 8 * 8


def train_subwords(
    sentences: list[str],
    config: TokenizerConfig,
    *,
    vocab_size: int | None,
    num_pairs: int,
    control_symbols: list[str],
) -> bytes:
    """A serialised SentencePiece model of `vocab_size` pieces, or of a size chosen for `num_pairs`.

    A size too large for the corpus is lowered to the possible maximum. A size too small for its characters is an error
    if given, and raised if chosen here.
    """
    characters = _num_characters(sentences, config.character_coverage)
    size = vocab_size or choose_vocab_size(num_pairs, characters) + len(config.user_defined_symbols)
    text = count_words(_split_long(sentences)) if _trains_on_words(config) else list(_split_long(sentences))
    for _ in range(4):
        try:
            return _run_trainer(text, config, size, control_symbols)
        except RuntimeError as error:
            size = _size_from_error(str(error), size, vocab_size)
    raise ConfigError(f"tokenizer.vocab_size: SentencePiece accepts no size near {size} for this corpus; set another.")


def build_word_vocabulary(sentences: Iterable[str]) -> bytes:
    """A serialised SentencePiece model with one piece for each space-separated word."""
    words = sorted({word for sentence in sentences for word in sentence.split(" ") if word})
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words),
        model_writer=model,
        model_type="word",
        use_all_vocab=True,
        character_coverage=1.0,
        **_SHARED_OPTIONS,
    )
    return model.getvalue()


def _size_from_error(message: str, size: int, vocab_size: int | None) -> int:
    """The vocabulary size that SentencePiece's error message suggests."""
    if too_high := re.search(r"too high \(\d+\)\. Please set it to a value <= (\d+)", message):
        largest = int(too_high[1])
        return largest // 8 * 8 if largest >= 1000 else largest
    if too_small := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        needed = int(too_small[1])
        if vocab_size is not None:
            raise ConfigError(
                f"tokenizer.vocab_size={vocab_size} is too small: bytes, tags and the characters of the corpus alone "
                f"take {needed}. Increase it (twice that is a good start), or lower tokenizer.character_coverage."
            )
        return (needed * 3 // 2 + 7) // 8 * 8
    raise CorpusError(f"SentencePiece cannot train on this corpus with {size} subwords: {message}")


def _trains_on_words(config: TokenizerConfig) -> bool:
    """Whether the trainer needs only words and their counts: BPE without symbols that may contain a space."""
    return config.kind == "bpe" and not config.user_defined_symbols


def _run_trainer(sentences: Iterable[str], config: TokenizerConfig, size: int, control_symbols: list[str]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        input_format="tsv" if _trains_on_words(config) else "text",
        model_writer=model,
        model_type=config.kind,
        vocab_size=size,
        byte_fallback=config.byte_fallback,
        character_coverage=config.character_coverage,
        control_symbols=control_symbols,
        user_defined_symbols=list(config.user_defined_symbols),
        train_extremely_large_corpus=False,
        **_SHARED_OPTIONS,
    )
    return model.getvalue()


def count_words(sentences: Iterable[str]) -> list[str]:
    """Each word with a tab and its count: all that BPE training needs, in a tenth of the text."""
    counts = Counter(itertools.chain.from_iterable(sentence.split(" ") for sentence in sentences))
    empty = counts.pop("", 0)  # the second of two spaces is an empty word; " " counts as two of these
    lines = [f"{word}\t{count}" for word, count in counts.items()]
    return [*lines, f" \t{empty // 2}"] if empty > 1 else lines


def _split_long(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        for character in _RESERVED:  # much faster than str.translate, since few sentences have any
            sentence = sentence.replace(character, " ")
        for start in range(0, len(sentence), _CHUNK_SIZE):
            yield sentence[start : start + _CHUNK_SIZE]


def _num_characters(sentences: Sequence[str], coverage: float) -> int:
    """How many distinct characters make up `coverage` of the text, estimated on 100,000 sentences."""
    counts: Counter[str] = Counter()
    for sentence in sentences[:: len(sentences) // 100_000 + 1]:
        counts.update(sentence)
    allowance = counts.total() * coverage
    covered = itertools.accumulate(count for _, count in counts.most_common())
    return 1 + sum(1 for total in covered if total < allowance)
