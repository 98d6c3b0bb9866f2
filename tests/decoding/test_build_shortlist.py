"""Building shortlists from sentence pairs, merging them by language, and their file format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from heedful.config import CorpusConfig, TokenizerConfig
from heedful.decoding.build_shortlist import (
    ShortlistSize,
    TokenizedPairs,
    collect_pairs,
    make_shortlist,
    merge_shortlists,
)
from heedful.errors import CorpusError, ModelDirectoryError
from heedful.model_dir.shortlist import Shortlist, parse_plain_shortlist, parse_shortlist, write_shortlist
from heedful.model_dir.weights import read_header
from heedful.search_types import special_tokens
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


def test_tag_adds_frequent_tokens_of_its_language(tokenizer: Tokenizer) -> None:
    pairs = TokenizedPairs(tokenizer)
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


def test_language_without_pairs_allows_all_tokens(tokenizer: Tokenizer) -> None:
    pairs = TokenizedPairs(tokenizer)
    pairs.add(ENGLISH, GERMAN, "de")
    sizes = (tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    made = make_shortlist(pairs, ShortlistSize(per_token=2, frequent=4), vocab_sizes=sizes)
    french, german = (made.candidates(tokenizer.encode_source("the cat", tag)) for tag in ("fr", "de"))
    special = special_tokens(tokenizer)
    assert set(french.tolist()) == set(range(sizes[1])) - {special.pad_id, special.bos_id, *special.forbidden}
    assert len(german) < len(french)


def test_shortlist_contains_translations_of_words(tokenizer: Tokenizer) -> None:
    pairs = TokenizedPairs(tokenizer)
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
    with pytest.raises(CorpusError, match="no sentence pairs"):
        make_shortlist(TokenizedPairs(tokenizer), ShortlistSize(), vocab_sizes=(9, 9))


def made_of(tokenizer: Tokenizer, *corpora: tuple[list[str], str]) -> Shortlist:
    pairs = TokenizedPairs(tokenizer)
    for texts, language in corpora:
        pairs.add(ENGLISH, texts, language)
    sizes = (tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    return make_shortlist(pairs, ShortlistSize(per_token=3, frequent=4), vocab_sizes=sizes)


def candidates(made: Shortlist, tokenizer: Tokenizer, tag: str) -> set[int]:
    return set(made.candidates(tokenizer.encode_source("the cat sees", tag)).tolist())


def test_merge_shortlists_adds_and_replaces_languages(tokenizer: Tokenizer, tmp_path: Path) -> None:
    german, french = made_of(tokenizer, (GERMAN, "de")), made_of(tokenizer, (FRENCH, "fr"))
    both, kept = merge_shortlists(german, french, tokenizer)
    assert kept == ["de"]
    assert both.settings == {"per_token": 3, "frequent": 4, "pairs": 24, "pairs_de": 12, "pairs_fr": 12}
    assert candidates(both, tokenizer, "de") >= candidates(german, tokenizer, "de")
    assert candidates(both, tokenizer, "fr") >= candidates(french, tokenizer, "fr")
    for token in range(both.num_sources):  # nothing but what one of the two has, each list rising
        assert set(both.of(token).tolist()) <= {*german.of(token).tolist(), *french.of(token).tolist()}
        assert (np.diff(both.of(token)) > 0).all()
    write_shortlist(tmp_path / "file", both)
    sizes = (tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    stored = parse_shortlist(tmp_path / "file", tmp_path, sizes)
    wrong = made_of(tokenizer, ([text.replace("Katze", "bald bald hier") for text in GERMAN], "de"))
    assert wrong.settings["pairs_de"] == 12
    spoiled, kept = merge_shortlists(stored, wrong, tokenizer)
    assert kept == ["fr"]
    again, _ = merge_shortlists(spoiled, german, tokenizer)
    cat = tokenizer.encode_source("the cat", "de")[2]
    for name in ("starts", "targets", "always", "languages"):
        assert np.array_equal(getattr(again, name), getattr(merge_shortlists(french, german, tokenizer)[0], name)), name
    assert ids(tokenizer, "x Katze") & set(again.of(cat).tolist())


def test_merge_shortlists_replaces_all_languages(tokenizer: Tokenizer) -> None:
    first = made_of(tokenizer, (FRENCH, "de"), (GERMAN, "fr"))
    second = made_of(tokenizer, (GERMAN, "de"), (FRENCH, "fr"))
    assert merge_shortlists(first, second, tokenizer) == (second, [])


def test_merge_keeps_all_words_of_shortlist_without_languages(tokenizer: Tokenizer) -> None:
    german, french = made_of(tokenizer, (GERMAN, "de")), made_of(tokenizer, (FRENCH, "fr"))
    plain = replace(german, languages=None, settings={"per_token": 3, "frequent": 4, "pairs": 12})
    both, kept = merge_shortlists(plain, french, tokenizer)
    assert kept == ["de"]
    assert candidates(both, tokenizer, "de") >= candidates(german, tokenizer, "de")
    assert len(candidates(both, tokenizer, "de")) < tokenizer.target_vocab_size - 10


@pytest.mark.parametrize(("largest", "stored"), [(60_000, "U16"), (70_000, "I32")])
def test_small_ids_are_stored_as_uint16(tmp_path: Path, largest: int, stored: str) -> None:
    place = tmp_path / "file"
    targets = np.array([4, largest], dtype=np.int32)
    write_shortlist(place, Shortlist(np.array([0, 1, 2]), targets, np.array([3], dtype=np.int32)))
    assert read_header(place, place)["targets"][0] == stored
    found = parse_shortlist(place, place, (2, largest + 1))
    assert found.targets.dtype == np.int32
    assert found.targets.tolist() == targets.tolist()
    assert found.languages is None
    plain = parse_plain_shortlist(place.read_bytes())
    assert [list(numbers) for numbers in plain] == [list(one) for one in found.lists()]


def test_earlier_shortlist_format_is_read(tmp_path: Path) -> None:
    arrays = {"starts": np.array([0, 1, 2]), "targets": np.array([4, 5], np.int32), "always": np.array([3], np.int32)}
    save_file(arrays, tmp_path / "file", metadata={"pairs": "7"})
    found = parse_shortlist(tmp_path / "file", tmp_path, (2, 6))
    assert (found.of(1).tolist(), found.settings) == ([5], {"pairs": 7})
    for wrong in (np.array([1], np.uint8), np.array([1, 2], np.int32), np.array([[1, 2]], np.uint8)):
        save_file({**arrays, "languages": wrong}, tmp_path / "file")
        with pytest.raises(ModelDirectoryError, match="languages"):
            parse_shortlist(tmp_path / "file", tmp_path, (2, 6))
        with pytest.raises(ValueError, match="languages"):
            parse_plain_shortlist((tmp_path / "file").read_bytes())


def test_both_readers_refuse_invalid_shortlist(tmp_path: Path) -> None:
    arrays = {"starts": np.array([0, 1, 2]), "targets": np.array([4, 5], np.int32), "always": np.array([3], np.int32)}
    for wrong in (
        {"starts": arrays["starts"], "targets": arrays["targets"]},
        {**arrays, "targets": np.array([4.0, 5.0], np.float32)},
        {**arrays, "always": np.array([[3]], np.int32)},
        {**arrays, "others": np.array([3], np.int32)},
    ):
        save_file(wrong, tmp_path / "file")
        with pytest.raises(ModelDirectoryError):
            parse_shortlist(tmp_path / "file", tmp_path, (2, 6))
        with pytest.raises((ValueError, KeyError)):
            parse_plain_shortlist((tmp_path / "file").read_bytes())
    save_file(arrays, tmp_path / "file")
    whole = (tmp_path / "file").read_bytes()
    for damaged in (whole[:-1], whole[:30], b"", whole.replace(b"[0,24]", b"[16,40]")):
        with pytest.raises((ValueError, KeyError)):
            parse_plain_shortlist(damaged)
