"""Learning the subwords (or whole words): from sentences to a SentencePiece model that fits the corpus."""

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
_CHUNK = 1000  # characters: SentencePiece passes over sentences of more than some 4,000 bytes, so long ones are cut
_RESERVED = "\0\t\n\r\u2585"  # it would skip the sentence
_SHARED_OPTIONS: dict[str, Any] = {
    "pad_id": PAD_ID,
    "unk_id": UNK_ID,
    "bos_id": BOS_ID,
    "eos_id": EOS_ID,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "max_sentence_length": 8 * _CHUNK,
    "num_threads": 4,  # a fixed number: unigram sums differ in the last bit with another
    "minloglevel": 2,
}


def choose_vocab_size(num_pairs: int, num_characters: int = 100) -> int:
    """A vocabulary size for a corpus: 2.5·pairs^0.7 subwords beside the characters, within 1,000 and 32,000.

    5,000 pairs of Latin script give about 1,300, 30,000 give 3,700, 160,000 give 11,300, 750,000 and more give 32,000:
    multiples of 8. Little text teaches little about rare subwords, and a small vocabulary is faster.
    """
    wanted = 256 + num_characters + 2.5 * num_pairs**0.7
    return int(min(max(wanted, 1000), 32_000)) // 8 * 8


def learn_subwords(
    sentences: list[str], config: TokenizerConfig, *, wanted: int | None, num_pairs: int, control_symbols: list[str]
) -> bytes:
    """A serialised SentencePiece model of these sentences: of `wanted` pieces, or of a size chosen for `num_pairs`.

    A size that the corpus cannot fill is lowered to what it can; a size too small for its characters is raised when
    chosen here and an error when wanted.
    """
    characters = _num_characters(sentences, config.character_coverage)
    size = wanted or choose_vocab_size(num_pairs, characters) + len(config.user_defined_symbols)
    prepared = counted_words(_chunks(sentences)) if _learns_from_words(config) else list(_chunks(sentences))
    for _ in range(4):
        try:
            return _run_trainer(prepared, config, size, control_symbols)
        except RuntimeError as error:
            size = _other_size(str(error), size, wanted)
    raise ConfigError(f"tokenizer.vocab_size: SentencePiece finds no size near {size} for this corpus; give another.")


def learn_words(sentences: Iterable[str]) -> bytes:
    """A serialised SentencePiece model with one piece for each word: all that stands between two spaces."""
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


def _other_size(message: str, size: int, wanted: int | None) -> int:
    """What SentencePiece's complaint asks for."""
    if too_high := re.search(r"too high \(\d+\)\. Please set it to a value <= (\d+)", message):
        largest = int(too_high[1])
        return largest // 8 * 8 if largest >= 1000 else largest
    if too_small := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        needed = int(too_small[1])
        if wanted is not None:
            raise ConfigError(
                f"tokenizer.vocab_size={wanted} is too small: bytes, tags and the corpus's own characters alone "
                f"are {needed}. Give more (double is a good start), or lower tokenizer.character_coverage."
            )
        return (needed * 3 // 2 + 7) // 8 * 8
    raise CorpusError(f"SentencePiece cannot learn from this corpus with {size} subwords: {message}")


def _learns_from_words(config: TokenizerConfig) -> bool:
    """Whether words and their counts are all that the trainer looks at: BPE, and no symbol that may hold a space."""
    return config.kind == "bpe" and not config.user_defined_symbols


def _run_trainer(sentences: Iterable[str], config: TokenizerConfig, size: int, control_symbols: list[str]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        input_format="tsv" if _learns_from_words(config) else "text",
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


def counted_words(sentences: Iterable[str]) -> list[str]:
    """Each word with a tab and how often it stands in the sentences: all that BPE looks at, in a tenth of the text."""
    counts = Counter(itertools.chain.from_iterable(sentence.split(" ") for sentence in sentences))
    empty = counts.pop("", 0)  # a second space in a row is a word of nothing but its mark: " " counts as two of these
    lines = [f"{word}\t{count}" for word, count in counts.items()]
    return [*lines, f" \t{empty // 2}"] if empty > 1 else lines


def _chunks(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        for character in _RESERVED:  # much faster than str.translate: hardly a sentence has one
            sentence = sentence.replace(character, " ")
        for start in range(0, len(sentence), _CHUNK):
            yield sentence[start : start + _CHUNK]


def _num_characters(sentences: Sequence[str], coverage: float) -> int:
    """How many different characters make up `coverage` of a corpus (of 100,000 sentences of it)."""
    counts: Counter[str] = Counter()
    for sentence in sentences[:: len(sentences) // 100_000 + 1]:
        counts.update(sentence)
    allowance = counts.total() * coverage
    covered = itertools.accumulate(count for _, count in counts.most_common())
    return 1 + sum(1 for total in covered if total < allowance)
