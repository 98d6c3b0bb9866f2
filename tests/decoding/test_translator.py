"""The translator around the search: order, lengths, languages, n-best, alignment, errors."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import Config, DataConfig, DecodingConfig, ModelConfig, TokenizerConfig
from heedful.decoding.engines.torch_engine import make_batches
from heedful.decoding.tokenizer_cache import TokenizerCache
from heedful.decoding.translation import TOO_LONG, best_combinations
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, DecodingError
from heedful.model.transformer import Transformer
from heedful.model_dir import save_model
from heedful.text.tokenizer import train_tokenizer
from tests.decoding.stub_models import CopyModel, TableModel

WORDS = "the cat sat on a mat . der hund lief in das haus , und die katze schlief !".split()


def make_tokenizer(tags=(), **settings):
    sentences = [" ".join(WORDS[start : start + 5]) for start in range(len(WORDS))]
    pairs = [(sentence, sentence[::-1]) for sentence in sentences]
    return train_tokenizer(pairs, TokenizerConfig(vocab_size=330, **settings), tags=tags)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def copier(tokenizer):
    """A translator from any language into the same language."""
    return Translator(CopyModel(vocab_size=tokenizer.target_vocab_size), tokenizer, typical_length=24)


@pytest.fixture(scope="module")
def transformer(tokenizer):
    torch.manual_seed(1)
    size = tokenizer.target_vocab_size
    return Transformer(
        ModelConfig(
            source_vocab_size=size, target_vocab_size=size, d_model=16, d_ff=32, num_heads=2,
            num_encoder_layers=1, num_decoder_layers=2, max_length=64,
        )
    ).eval()  # fmt: skip


@pytest.fixture
def encoded(tokenizer, monkeypatch):
    """The texts passed to the tokenizer, one entry per call."""
    calls: list[tuple[str, ...]] = []
    encode = tokenizer.encode_sources

    def counted(texts, target_language=None, *, num_threads=1):
        calls.append(tuple(texts))
        return encode(texts, target_language, num_threads=num_threads)

    monkeypatch.setattr(tokenizer, "encode_sources", counted)
    return calls


def test_order_is_kept_and_duplicates_are_decoded_once(tokenizer):
    model = CopyModel(vocab_size=tokenizer.target_vocab_size)
    texts = ["the cat", "a", "der hund lief in das haus", "the cat", "", "mat ."] * 3
    translations = Translator(model, tokenizer).translate(texts, tokens_per_batch=100_000, batch_invariant=False)
    assert [t.text for t in translations] == texts
    assert model.largest_batch == 4


def test_texts_are_tokenized_once_in_batches(tokenizer, encoded):
    texts = [f"{word} cat {number}" for number in range(600) for word in ("the", "der")]
    translator = Translator(CopyModel(vocab_size=tokenizer.target_vocab_size), tokenizer, typical_length=24)
    assert [one.text for one in translator.translate([*texts, *texts[:9], " a mat "])] == [*texts, *texts[:9], "a mat"]
    assert encoded == [(*texts, "a mat")]


def test_lines_are_tokenized_in_batches_and_num_tokens_is_not_cached(tokenizer, encoded):
    translator = Translator(CopyModel(vocab_size=tokenizer.target_vocab_size), tokenizer, typical_length=24)
    assert translator.translate(["the cat\r\n der \n\nthe cat", "a mat"])[0].text == "the cat\r\n der \n\nthe cat"
    assert encoded == [("the cat", "der", "a mat")]
    encoded.clear()
    assert translator.translate(["Der hund. Die katze."], split="always")[0].num_sentences == 2
    assert encoded[-1] == ("Der hund.", "Die katze.")
    encoded.clear()
    cache = TokenizerCache(tokenizer)
    assert cache.num_tokens("the cat", None) == len(cache.encode("the cat", None)) == cache.num_tokens("the cat", None)
    assert encoded == [("the cat",), ("the cat",)]  # num_tokens does not cache


@pytest.mark.parametrize("num_threads", [1, 3])
def test_decode_all_equals_decode(tokenizer, num_threads):
    texts = ["the cat", "", "für Katze ▁ 猫", "\ud800", "a\tmat\u2028."]
    ids = [tokenizer.encode_prefix(text) for text in texts]
    assert tokenizer.decode_all(ids, num_threads=num_threads) == [tokenizer.decode(one) for one in ids]
    assert tokenizer.pieces(ids[2]) == tokenizer.pieces(np.array(ids[2])) == tokenizer.pieces(ids[2])
    assert tokenizer.decode_all([]) == []
    assert tokenizer.decode_all([[], ids[0]]) == ["", "the cat"]
    assert tokenizer.decode_all([[]]) == [""]
    with pytest.raises(DecodingError, match="ids must lie between"):
        tokenizer.pieces([tokenizer.target_vocab_size])


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\u3000\n", "\u200b", "\ufeff\n \u2060"])
def test_empty_text_stays_empty(copier, text):
    (translation,) = copier.translate([text], align=True)
    assert (translation.text, translation.tokens, translation.num_sentences) == ("", [], 0)
    assert (translation.log_prob, translation.alignment) == (0.0, [])
    assert json.loads(json.dumps(translation.to_dict()))["text"] == ""
    assert copier.translate([]) == []


@given(
    st.text(alphabet=st.sampled_from("thecats. !?。好行,\n\r \u3000ß😀"), max_size=120),
    st.sampled_from(["long", "always"]),
)
def test_long_texts_keep_every_character(copier, text, split):
    (translation,) = copier.translate([text], split=split, beam_size=1)
    assert translation.text == text.strip()
    assert translation.finished
    longest = max([len(copier.tokenizer.encode_source(line)) for line in text.splitlines()], default=0)
    assert translation.num_sentences > 1 or longest <= 2 * copier.typical_length


def test_too_long_text_is_split_or_copied(tokenizer):
    class Short(CopyModel):
        max_length = 30

    translator = Translator(Short(vocab_size=tokenizer.target_vocab_size), tokenizer)
    text = "the cat sat on a mat, " * 30 + "x" * 200
    (translation,) = translator.translate([text], beam_size=2)
    assert translation.text == text
    assert translation.num_sentences > 10
    before, left, after = translator.translate(["a", f"the\n{text}\na", "cat"], split="never", align=True)
    assert (before.text, left.text, after.text) == ("a", f"the\n{text}\na", "cat")
    assert left.warnings == [TOO_LONG] and not before.warnings and not after.warnings
    assert left.num_sentences == 2 and len(left.alignment) == len(left.tokens) > 0


def test_invalid_requests_are_refused(copier):
    with pytest.raises(TypeError, match=r"pass a list of strings, such as \['the cat'\]"):
        copier.translate("the cat")
    with pytest.raises(TypeError, match="pass a list"):
        copier.translate(["the cat"], target_prefix="the")
    with pytest.raises(TypeError, match=r"text 2 is a int|[Tt]ype-check error"):
        copier.translate(["a", 3])
    with pytest.raises(ConfigError, match=r"decoding\.beam_sise: unknown key.*did you mean 'beam_size'"):
        copier.translate(["a"], beam_sise=3)
    with pytest.raises(ConfigError, match="num_best"):
        copier.translate(["a"], beam_size=2, num_best=3)
    with pytest.raises(DecodingError, match="1 target prefixes for 2 texts"):
        copier.translate(["a", "b"], target_prefix=["a"])
    with pytest.raises(DecodingError, match="text 1 has a target prefix of"):
        copier.translate(["a"], target_prefix=["the cat sat on a mat"], max_length=3)


@pytest.mark.parametrize(
    "settings", [{"beam_size": 4, "num_best": 3}, {"method": "sampling", "num_best": 3, "seed": 5}]
)
def test_n_best(tokenizer, settings):
    translator = Translator(TableModel(vocab_size=tokenizer.target_vocab_size, scale=3.0), tokenizer)
    text = "The cat sat. Der hund lief! Das haus."
    for split, pieces in (("never", 1), ("always", 3)):
        (translation,) = translator.translate([text], split=split, max_length=6, **settings)
        first = translation.n_best[0]
        assert (first.text, first.tokens) == (translation.text, translation.tokens)
        assert (first.log_prob, first.score) == (translation.log_prob, translation.score)
        scores = [alternative.score for alternative in translation.n_best]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert translation.num_sentences == pieces
        assert len(json.loads(json.dumps(translation.to_dict()))["n_best"]) == 3


def test_best_combinations_equal_exhaustive_search(tokenizer):
    translator = Translator(TableModel(vocab_size=tokenizer.target_vocab_size, scale=3.0), tokenizer)
    alone = translator.translate(["The cat.", "Der hund!"], num_best=4, max_length=5)
    (joined,) = translator.translate(["The cat. Der hund!"], num_best=4, max_length=5, split="always")
    sums = sorted((a.score + b.score for a in alone[0].n_best for b in alone[1].n_best), reverse=True)
    assert [alternative.score for alternative in joined.n_best] == pytest.approx(sums[:4])
    assert joined.log_prob == pytest.approx(alone[0].log_prob + alone[1].log_prob)
    assert best_combinations([], 3) == [[]]


@pytest.mark.parametrize("tags", [(), ("de", "en")])
def test_alignment_excludes_special_tokens(tags):
    tokenizer = make_tokenizer(tags)
    skip = 1 if tags else 0
    model = CopyModel(vocab_size=tokenizer.target_vocab_size, skip=skip)
    translator = Translator(model, tokenizer)
    language = tags[0] if tags else None
    texts = ["The cat sat. Der hund!", "das haus"]
    for text, translation in zip(
        texts, translator.translate(texts, align=True, split="always", target_language=language), strict=True
    ):
        length = len(translation.tokens)
        assert translation.text == text
        assert translation.tokens == translation.source_tokens
        assert not {"</s>", "<2de>", "<s>"} & set(translation.tokens)
        assert translation.alignment == [(place, place) for place in range(length)]
        assert translation.attention.shape == (length, length)
        np.testing.assert_array_equal(translation.attention, np.eye(length))
        plain = json.loads(json.dumps(translation.to_dict()))
        assert plain["alignment"][0] == [0, 0]
        assert len(plain["attention"]) == length


def test_no_alignment_by_default(copier):
    (translation,) = copier.translate(["the cat"])
    assert translation.alignment is None
    assert "attention" not in translation.to_dict()


def test_target_languages():
    tagged = make_tokenizer(("de", "en"))
    translator = Translator(CopyModel(vocab_size=tagged.target_vocab_size, skip=1), tagged)
    assert translator.translate(["the cat"], target_language="de")[0].text == "the cat"
    with pytest.raises(DecodingError, match="into de, en"):
        translator.translate(["the cat"], target_language="fr")
    assert set(translator.special.forbidden) == {
        tagged.unk_id,
        *(tagged.encode_source("", tag)[0] for tag in ("de", "en")),
    }
    only_german = Translator(translator.model, make_tokenizer(), target_language="de")
    with pytest.raises(DecodingError, match="into 'de' only"):
        only_german.translate(["the cat"], target_language="fr")


def test_target_prefix(tokenizer):
    translator = Translator(TableModel(vocab_size=tokenizer.target_vocab_size), tokenizer)
    free, forced, empty = translator.translate(
        ["the cat", "the cat", ""], target_prefix=[None, "das haus", "die"], max_length=12
    )
    assert forced.text.startswith("das haus")
    assert not free.text.startswith("das haus")
    assert empty.text == ""


def test_translation_at_maximum_length_is_not_finished(copier):
    cut, whole = copier.translate(["the cat sat on a mat .", "a"], max_length=3)
    assert not cut.finished
    assert len(cut.tokens) == 3
    assert whole.finished


def test_streaming_reads_input_lazily(copier):
    taken = []

    def lines():
        for number in range(10):
            taken.append(number)
            yield f"the cat {number}\n"

    stream = copier.translate_lines(lines(), chunk_size=3, beam_size=1)
    assert taken == []
    assert next(stream).text == "the cat 0"
    assert taken == [0, 1, 2]
    assert [translation.text for translation in stream] == [f"the cat {number}" for number in range(1, 10)]


def test_translation_of_a_line_is_one_line(tokenizer):
    newline = next(i for i in range(tokenizer.target_vocab_size) if tokenizer.pieces([i]) == ["<0x0A>"])

    class Breaking(CopyModel):
        def logits(self, source, prefix):
            logits = super().logits(source, prefix)
            if len(prefix) == 1:
                logits[newline] += 100
            return logits

    translator = Translator(Breaking(vocab_size=tokenizer.target_vocab_size), tokenizer)
    (translation,) = translator.translate(["the cat sat"], beam_size=1)
    assert "<0x0A>" in translation.tokens
    assert "\n" not in translation.text


def test_batches_have_a_maximum_number_of_rows():
    """Logits of 8192 rows over a vocabulary of 37,000 would take a gigabyte, several times over."""
    batches = make_batches([2] * 3000, tokens_per_batch=8192, rows_per_sentence=4)
    assert max(map(len, batches)) * 4 <= 512


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 200), st.integers(1, 4))
def test_make_batches_contains_everything_once(lengths, tokens_per_batch, rows):
    batches = make_batches(lengths, tokens_per_batch=tokens_per_batch, rows_per_sentence=rows)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or len(batch) * longest * rows <= tokens_per_batch


def test_batch_size_does_not_change_translations(transformer, tokenizer):
    translator = Translator(transformer, tokenizer)
    texts = ["the cat sat", "a mat .", "der hund lief in das haus", "und", "die katze schlief !"]
    together = translator.translate(texts, max_length=10, num_best=2, align=True)
    one_by_one = translator.translate(texts, max_length=10, num_best=2, align=True, tokens_per_batch=1)
    for a, b in zip(together, one_by_one, strict=True):
        assert a.tokens == b.tokens
        assert a.alignment == b.alignment
        assert a.score == pytest.approx(b.score, abs=1e-5)
        assert a.attention.shape == (len(a.tokens), len(a.source_tokens))


def test_dropout_is_disabled_during_translation_and_restored(transformer, tokenizer):
    translator = Translator(transformer, tokenizer)
    quiet = translator.translate(["the cat sat"], max_length=8)
    transformer.train()
    assert translator.translate(["the cat sat"], max_length=8) == quiet
    assert transformer.training
    transformer.eval()


def test_threads_may_share_a_translator(transformer, tokenizer):
    translator = Translator(transformer, tokenizer)
    texts = [["the cat sat"], ["der hund", "a mat ."], ["und die katze schlief !"]]
    expected = [translator.translate(one, max_length=8) for one in texts]
    found = [None] * len(texts)

    def work(index):
        found[index] = translator.translate(texts[index], max_length=8)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def test_load_restores_model_and_settings(tmp_path, transformer, tokenizer):
    config = Config(
        model=transformer.config,
        data=DataConfig(source_language="en", target_language="de"),
        decoding=DecodingConfig(beam_size=2, max_length=7, checks=False, protect=False),
    )
    details = {"lengths": {"source_p99": 40}}
    save_model(tmp_path / "model", weights=transformer, config=config, tokenizer=tokenizer, details=details)
    translator = Translator.load(tmp_path / "model", device="cpu", engine="torch")
    assert (translator.typical_length, translator.max_segment_length, translator.target_language) == (40, 64, "de")
    expected = Translator(transformer, tokenizer, config.decoding).translate(["the cat", "und"])
    assert translator.translate(["the cat", "und"]) == expected
    plain = Translator.load(tmp_path / "model", device="cpu", engine="torch", quantization="float32")
    assert plain.translate(["the cat", "und"]) == expected
    for quantization, message in (("int8", "float32 and bfloat16"), ("bfloat16", "on GPUs, not on cpu")):
        with pytest.raises(ConfigError, match=message):
            Translator.load(tmp_path / "model", device="cpu", engine="torch", quantization=quantization)
