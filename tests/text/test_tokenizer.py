"""The tokenizer: lossless encoding, special tokens, tags, determinism, and damaged files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heedful.config import TokenizerConfig
from heedful.errors import ConfigError, CorpusError, DecodingError, ModelDirectoryError
from heedful.text.tokenizer import Tokenizer, choose_vocab_size, sample_indices, train_tokenizer

NOUNS = "house tree river child mother garden window teacher letter summer".split()
NAMEN = "Haus Baum Fluss Kind Mutter Garten Fenster Lehrer Brief Sommer".split()
PAIRS = [
    (f"The {a} sees the {b} {n}.", f"Das {c} sieht das {d} {n}.")
    for n, (a, c) in enumerate(zip(NOUNS, NAMEN, strict=True))
    for b, d in zip(NOUNS, NAMEN, strict=True)
]
KINDS = [(kind, joint) for kind in ("bpe", "unigram") for joint in (True, False)]


def train(kind: str = "bpe", *, joint: bool = True, vocab_size: int | None = 400, **settings: object) -> Tokenizer:
    config = TokenizerConfig(kind=kind, joint=joint, vocab_size=vocab_size)  # type: ignore[arg-type]
    return train_tokenizer(PAIRS, config, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=KINDS, ids=lambda param: f"{param[0]}-{'joint' if param[1] else 'separate'}")
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind, joint = request.param
    return train(kind, joint=joint, vocab_size=340, tags=("de", "en"))


@given(text=st.text())
@example(text="The ▁ house ▁▁")
@example(text="▁\uffff\U0010ffff\U0010fffe")
@example(text="  two  spaces  ")
@example(text="\u3000全角\u00a0\ufeff\t\r\n\v\u2028")
@example(text="<2de></s><unk><pad><0x41>")
@example(text="e\u0301 é 👩\u200d🚀")
def test_decoding_restores_any_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode_target(text)) == text
    assert tokenizer.decode_source(tokenizer.encode_source(text, "de")) == text


def test_special_tokens_are_added_once(tokenizer: Tokenizer) -> None:
    tag = tokenizer.encode_source("", "de")[0]
    source, target = tokenizer.encode_source("The house", "de"), tokenizer.encode_target("Das Haus")
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2, 3)
    assert source[0] == tag
    assert tokenizer.source_pieces([tag]) == ["<2de>"]
    assert source[-1] == target[-1] == tokenizer.eos_id
    assert tokenizer.bos_id not in source + target
    assert tokenizer.encode_prefix("Das Haus") == target[:-1]


@pytest.mark.parametrize("text", ["<2de>", "<2en> The house", "a</s>b", "<s>", "<pad>", "<unk>"])
def test_special_tokens_in_text_are_ordinary_characters(tokenizer: Tokenizer, text: str) -> None:
    specials = {0, 1, 2, 3, tokenizer.encode_source("", "de")[0], tokenizer.encode_source("", "en")[0]}
    assert not specials & set(tokenizer.encode_source(text, "de")[1:-1])


def test_batches_equal_single_sentences(tokenizer: Tokenizer) -> None:
    texts = ["The house", "", "▁", "你好 tree", "Das Haus sieht"]
    assert tokenizer.encode_sources(texts, "en", num_threads=2) == [tokenizer.encode_source(t, "en") for t in texts]
    assert tokenizer.encode_targets(texts, num_threads=2) == [tokenizer.encode_target(t) for t in texts]


def test_save_and_load_round_trip(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    names = {"tokenizer.model"} if tokenizer.joint else {"source.model", "target.model"}
    assert {path.name for path in tmp_path.iterdir()} == names | {"tokenizer.json"}
    assert (loaded.kind, loaded.joint, loaded.tags) == (tokenizer.kind, tokenizer.joint, ("de", "en"))
    assert loaded.encode_source("The tree ▁", "en") == tokenizer.encode_source("The tree ▁", "en")
    assert loaded.encode_target("Der Baum") == tokenizer.encode_target("Der Baum")


@pytest.mark.parametrize(("kind", "joint"), KINDS)
def test_training_is_deterministic(kind: str, joint: bool, tmp_path: Path) -> None:
    for name in ("first", "second"):
        train(kind, joint=joint, vocab_size=330).save(tmp_path / name)
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes()


def test_pieces_show_bytes_and_special_tokens() -> None:
    tokenizer = train()
    pieces = tokenizer.pieces(tokenizer.encode_target("Haus é"))
    assert pieces[0].startswith("▁")
    assert pieces[-3:] == ["<0xC3>", "<0xA9>", "</s>"]


def test_decoding_omits_special_tokens_and_refuses_unknown_ids() -> None:
    tokenizer = train(tags=("de",))
    ids = [tokenizer.bos_id, *tokenizer.encode_source("The tree", "de"), tokenizer.pad_id]
    assert tokenizer.decode(ids) == "The tree"
    for wrong in (-1, tokenizer.target_vocab_size):
        with pytest.raises(DecodingError, match="ids"):
            tokenizer.decode([wrong])


def test_lone_surrogate_becomes_replacement_character() -> None:
    tokenizer = train()
    assert tokenizer.decode(tokenizer.encode_target("a\ud800b")) == "a\ufffdb"


def test_target_tags_are_required_and_checked() -> None:
    many, one, none = train(tags=("de", "fr")), train(tags=("de",)), train()
    with pytest.raises(DecodingError, match="de, fr"):
        many.encode_source("a")
    with pytest.raises(DecodingError, match="'it'"):
        many.encode_source("a", "it")
    assert one.encode_source("a") == one.encode_source("a", "de")
    assert none.encode_source("a", "de") == none.encode_source("a")


def test_vocabulary_size_follows_corpus_size() -> None:
    sizes = [choose_vocab_size(n) for n in (1, 1000, 5000, 30_000, 170_000, 1_000_000, 100_000_000)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-2], sizes[-1]) == (1000, 32_000, 32_000)
    assert 3000 <= choose_vocab_size(30_000) <= 5000
    assert choose_vocab_size(30_000, 4000) > choose_vocab_size(30_000)
    assert all(size % 8 == 0 for size in sizes)


@pytest.mark.parametrize(("kind", "joint"), KINDS)
def test_too_large_vocabulary_size_is_lowered(kind: str, joint: bool) -> None:
    assert 260 < train(kind, joint=joint, vocab_size=30_000).target_vocab_size < 1000
    assert 260 < train(kind, joint=joint, vocab_size=None).target_vocab_size < 1000


def test_too_small_vocabulary_size_is_raised_or_refused() -> None:
    letters = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    pairs = [(letters[i : i + 30], letters[i + 10 : i + 40]) for i in range(0, 3000, 5)]
    config = TokenizerConfig(character_coverage=1.0)
    assert train_tokenizer(pairs, config).source_vocab_size > 3256
    with pytest.raises(ConfigError, match="vocab_size=300 is too small"):
        train_tokenizer(pairs, config, vocab_size=300)


def test_long_sentences_are_used_for_training() -> None:
    pairs = [("日本語" * 5000, "x")]
    tokenizer = train_tokenizer(pairs, TokenizerConfig(character_coverage=1.0))
    assert not any(piece.startswith("<0x") for piece in tokenizer.pieces(tokenizer.encode_target("日本語")))


@pytest.mark.parametrize("character", ["\0", "\t", "▅", "▁", "\n"])
def test_reserved_characters_do_not_exclude_a_sentence(character: str) -> None:
    pairs = [(f"日本{character}語", f"日本{character}語")] * 20
    tokenizer = train_tokenizer(pairs, TokenizerConfig(character_coverage=1.0))
    assert not any(piece.startswith("<0x") for piece in tokenizer.pieces(tokenizer.encode_target("日本語")))


@pytest.mark.parametrize(("num_pairs", "limit"), [(5, 10), (10, 10), (11, 10), (5000, 37)])
def test_sample_is_a_reservoir(num_pairs: int, limit: int) -> None:
    chance, sample = random.Random(3), list(range(min(num_pairs, limit)))
    for count in range(limit + 1, num_pairs + 1):
        if (place := int(chance.random() * count)) < limit:
            sample[place] = count - 1
    assert sample_indices(num_pairs, TokenizerConfig(max_sentences=2 * limit), seed=3).tolist() == sample


def test_max_sentences_are_sampled_from_the_whole_corpus() -> None:
    pairs = ((f"a{n}", f"b{n}") for n in range(3000))
    few = train_tokenizer(pairs, TokenizerConfig(max_sentences=20, vocab_size=30_000))
    assert few.source_vocab_size < 500


def test_unknown_characters_without_byte_fallback() -> None:
    tokenizer = train_tokenizer(PAIRS, TokenizerConfig(byte_fallback=False, vocab_size=100))
    assert tokenizer.unk_id in tokenizer.encode_target("你")
    assert tokenizer.decode(tokenizer.encode_target("Das Haus")) == "Das Haus"


def test_empty_corpus_is_refused() -> None:
    with pytest.raises(CorpusError, match="no sentence"):
        train_tokenizer([], TokenizerConfig())


def test_training_prints_nothing_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train(vocab_size=None)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    train().save(tmp_path)
    good = (tmp_path / "tokenizer.json").read_text()
    model = (tmp_path / "tokenizer.model").read_bytes()
    changed = json.dumps({**json.loads(good), "tags": ["xx"]})
    no_kind = json.dumps({key: value for key, value in json.loads(good).items() if key != "kind"})
    for text in (
        "{",
        "[]",
        "{}",
        changed,
        no_kind,
        good.replace('"eos": 3', '"eos": 2'),
        good.replace("true", "false"),
    ):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(ModelDirectoryError, match=str(tmp_path)):
            Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(good)
    for content in (b"", b"garbage", model[: len(model) // 2]):
        (tmp_path / "tokenizer.model").write_bytes(content)
        with pytest.raises(ModelDirectoryError, match=str(tmp_path)):
            Tokenizer.load(tmp_path)
    with pytest.raises(ModelDirectoryError, match="tokenizer"):
        Tokenizer.load(tmp_path / "nowhere")
