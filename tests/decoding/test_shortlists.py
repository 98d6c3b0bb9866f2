"""A shortlist out of pairs: words that belong together, frequent words of each language, what stays as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heedful.config import CorpusConfig, TokenizerConfig
from heedful.decoding.shortlists import PairsInIds, ShortlistSize, collect_pairs, make_shortlist
from heedful.decoding.special_tokens import special_tokens
from heedful.errors import CorpusError
from heedful.text.tokenizer import Tokenizer, train_tokenizer

WORDS = {"cat": ("Katze", "chat"), "dog": ("Hund", "chien"), "house": ("Haus", "maison"), "tree": ("Baum", "arbre")}
PAIRS = [(f"the {a} sees the {b}", a, b) for a in WORDS for b in WORDS if a != b]
GERMAN = [f"hier sieht {WORDS[a][0]} bald {WORDS[b][0]}" for _, a, b in PAIRS]
FRENCH = [f"ici voit {WORDS[a][1]} donc {WORDS[b][1]}" for _, a, b in PAIRS]
ENGLISH = [text for text, _, _ in PAIRS]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    pairs = [*zip(ENGLISH * 3, GERMAN * 3, strict=True), *zip(ENGLISH * 3, FRENCH * 3, strict=True)]
    return train_tokenizer(pairs, TokenizerConfig(vocab_size=420), tags=("de", "fr"))


def ids(tokenizer: Tokenizer, text: str) -> set[int]:
    return set(tokenizer.encode_prefix(text))


def test_a_tag_brings_the_frequent_words_of_its_language_alone(tokenizer: Tokenizer) -> None:
    pairs = PairsInIds(tokenizer)
    pairs.add(ENGLISH, GERMAN, "de")
    pairs.add(ENGLISH, FRENCH, "fr")
    sizes = (tokenizer.source_vocab_size + 3, tokenizer.target_vocab_size + 3)  # rows without a piece
    made = make_shortlist(pairs, ShortlistSize(per_token=2, frequent=4), vocab_sizes=sizes)
    assert made.num_sources == sizes[0]
    german = set(made.candidates(tokenizer.encode_source("the cat", "de")).tolist())
    french = set(made.candidates(tokenizer.encode_source("the cat", "fr")).tolist())
    assert ids(tokenizer, "hier") <= german and not ids(tokenizer, "hier") <= french
    assert ids(tokenizer, "donc") <= french and not ids(tokenizer, "donc") <= german
    for candidates in (german, french):
        assert tokenizer.eos_id in candidates
        assert ids(tokenizer, "cat") <= candidates  # a name would stay as it is
        assert not candidates & {tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id}
        assert {piece for piece in tokenizer.pieces(sorted(candidates)) if piece.startswith("<0x")}.__len__() == 256


def test_a_language_without_pairs_keeps_all_words(tokenizer: Tokenizer) -> None:
    pairs = PairsInIds(tokenizer)
    pairs.add(ENGLISH, GERMAN, "de")
    sizes = (tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    made = make_shortlist(pairs, ShortlistSize(per_token=2, frequent=4), vocab_sizes=sizes)
    french, german = (made.candidates(tokenizer.encode_source("the cat", tag)) for tag in ("fr", "de"))
    special = special_tokens(tokenizer)
    assert set(french.tolist()) == set(range(sizes[1])) - {special.pad_id, special.bos_id, *special.forbidden}
    assert len(german) < len(french)


def test_words_become_their_translations(tokenizer: Tokenizer) -> None:
    pairs = PairsInIds(tokenizer)
    pairs.add(ENGLISH, GERMAN, "de")
    made = make_shortlist(
        pairs,
        ShortlistSize(per_token=3, frequent=0),
        vocab_sizes=(tokenizer.source_vocab_size, tokenizer.target_vocab_size),
    )
    for english, (german, _) in WORDS.items():
        token = tokenizer.encode_source(f"the {english}", "de")[2]
        assert set(made.of(token).tolist()) & ids(tokenizer, f"x {german}")


def test_pairs_are_taken_evenly(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("".join(f"{number}\n" for number in range(50)))
    (tmp_path / "a.de").write_text("".join(f"{number}\n" if number != 8 else "\n" for number in range(50)))
    corpus = CorpusConfig(source=str(tmp_path / "a.en"), target=str(tmp_path / "a.de"))
    for most, expected in ((100, [n for n in range(50) if n != 8]), (30, None)):
        found = collect_pairs(tokenizer, [(corpus, "de")], most=most)
        numbers = [int(tokenizer.decode_source(found.source(i).tolist())) for i in range(len(found))]
        assert len(found) <= most and numbers == (expected or sorted(numbers))
        assert max(np.diff(numbers)) <= 4 and numbers[-1] >= 46
    with pytest.raises(CorpusError, match="no pair"):
        make_shortlist(PairsInIds(tokenizer), ShortlistSize(), vocab_sizes=(9, 9))
