"""Valid UTF-8 from every engine and search method."""

from __future__ import annotations

import dataclasses
import random
import unicodedata
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import DecodingConfig
from heedful.decoding.engines.native_engine import NativeDecodingEngine
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.translator import Translator
from heedful.decoding.utf8_automaton import is_valid_utf8
from heedful.model.transformer import Transformer
from heedful.model_dir.shortlist import Shortlist
from heedful.native import NativeEngine, available
from heedful.native.convert import convert, shape_of
from heedful.native.weight_file import write_weight_file
from heedful.search_types import DecodeRequest, Engine, SpecialTokens
from tests.decoding.test_cuda_graph import TINY, found_by

FIRST = 8
BYTES = tuple(range(FIRST, FIRST + 256))
VOCABULARY = FIRST + 256 + 20
ASCII = range(FIRST + 0x20, FIRST + 0x7F)
OTHERS = range(FIRST + 256 + 2, VOCABULARY)  # all but two: only multi-byte characters and these remain
SPECIAL = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1, 7, *ASCII, *OTHERS), byte_ids=BYTES)
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"method": "greedy"},
    "beam 1": {"beam_size": 1},
    "beam 4": {"beam_size": 4, "num_best": 4},
    "beam 3, no bigram twice, at least 6": {"beam_size": 3, "no_repeat_ngram_size": 2, "min_length": 6},
}
EMOJI = ["It's hot today. ❤️", "Let's go 🚀🎉 to Łódź!", "naïve ☕ ﷽ 𓀀", "👍🏽 OK", "I ♥ NY 🗽", "ẞ ﬁ Ω ½ ™ 🏳️‍🌈"]
native_only = pytest.mark.skipif(not available(), reason=available().reason)


# ---- the automaton ---------------------------------------------------------------------------------------------------


def is_permitted(text: str) -> bool:
    return all(
        character in "\t\n\r" or (unicodedata.category(character) != "Cc" and not "\ufffd" <= character <= "\uffff")
        for character in text
    )


def test_all_characters_except_controls_and_errors_are_allowed() -> None:
    for code in (*range(0x900), *range(0x900, 0x110000, 61), *range(0xFFC0, 0x10040), 0x10FFFF):
        if not 0xD800 <= code < 0xE000:
            assert is_valid_utf8([FIRST + byte for byte in chr(code).encode()], BYTES) == is_permitted(chr(code))


@given(st.one_of(st.binary(max_size=8), st.text(max_size=3).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_only_valid_utf8_is_allowed(written: bytes) -> None:
    try:
        expected = is_permitted(written.decode())
    except UnicodeDecodeError:
        expected = False
    assert is_valid_utf8([FIRST + byte for byte in written], BYTES) == expected


def test_other_tokens_are_allowed_only_between_characters() -> None:
    heart = [FIRST + byte for byte in "❤".encode()]
    assert is_valid_utf8([300, *heart, 300], BYTES)
    assert not is_valid_utf8([*heart[:2], 300, heart[2]], BYTES)
    assert not is_valid_utf8(heart[:2], BYTES)


# ---- models that prefer arbitrary bytes ------------------------------------------------------------------------------


@cache
def byte_model(seed: int) -> Transformer:
    """A random model whose vocabulary consists mostly of bytes."""
    torch.manual_seed(seed)
    model = Transformer(replace(TINY, source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model


def byte_requests(count: int, *, prefixes: bool = False) -> list[DecodeRequest]:
    drawn = random.Random(1)
    beginnings = [(), "é".encode(), "❤".encode()[:1], "❤".encode()[:2], "🎉".encode()[:3], b"\x80\xff", b"a\xf0\x9f"]
    return [
        DecodeRequest(
            (*drawn.choices(range(FIRST, VOCABULARY), k=drawn.randint(1, 12)), 3),
            tuple(FIRST + byte for byte in beginnings[number % len(beginnings)]) if prefixes else (),
            str(number),
            drawn.randint(5, 14) if prefixes else number % 14,
        )
        for number in range(count)
    ]


def native_engine(folder: Path, model: Transformer, precision: str) -> NativeDecodingEngine:
    weights = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    path = folder / f"{precision}.bin"
    write_weight_file(
        path,
        fingerprint=bytes(32),
        shape=shape_of(model.config, int8=precision == "int8"),
        tensors=convert(model.config, weights, precision=precision),
    )
    engine = NativeDecodingEngine.__new__(NativeDecodingEngine)
    engine.engine, engine.max_length = NativeEngine(path, num_threads=1), model.config.max_length
    engine.special, engine.num_tags = SPECIAL, 0
    return engine


def assert_valid_utf8(engine: Engine, requests: list[DecodeRequest], config: DecodingConfig) -> int:
    """Check that all hypotheses are valid after their prefixes; returns the number of generated bytes above ASCII."""
    results = engine.decode(requests, config, align=False, constraint_factory=None)
    count = 0
    for request in requests:
        for hypothesis in results[request].hypotheses:
            tokens = hypothesis.tokens[:-1]
            assert is_valid_utf8(tokens, BYTES), tokens
            assert len(tokens) <= request.max_length
            count += sum(FIRST + 128 <= token < FIRST + 256 for token in tokens)
    return count


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("seed", [1, 2])
def test_torch_generates_valid_utf8(search: dict[str, Any], seed: int) -> None:
    config, engine = DecodingConfig(**search), TorchEngine(byte_model(seed), SPECIAL)
    assert assert_valid_utf8(engine, byte_requests(40), config) > 0


def test_sampling_generates_valid_utf8() -> None:
    config = DecodingConfig(method="sampling", num_best=3, temperature=3.0)
    assert assert_valid_utf8(TorchEngine(byte_model(1), SPECIAL), byte_requests(40), config) > 100


@pytest.mark.parametrize("beams", [1, 2, 4])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("prefixes", [False, True])
def test_cuda_graph_search_equals_reference_with_byte_tokens(beams: int, seed: int, prefixes: bool) -> None:
    requests, config = byte_requests(20, prefixes=prefixes), DecodingConfig(beam_size=beams, num_best=beams)
    readable, use_cuda_graph = (TorchEngine(byte_model(seed), SPECIAL, use_cuda_graph=flag) for flag in (False, True))
    expected, found = (found_by(engine, requests, config) for engine in (readable, use_cuda_graph))
    assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in expected]
    if not prefixes:
        assert assert_valid_utf8(use_cuda_graph, requests, config) > 0


@native_only
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("seed", [1, 2])
def test_native_utf8_results_equal_torch(tmp_path: Path, search: dict[str, Any], seed: int) -> None:
    config, model = DecodingConfig(**search), byte_model(seed)
    native = native_engine(tmp_path, model, "float32")
    for requests in (byte_requests(40), byte_requests(40, prefixes=True)):
        expected, found = (found_by(engine, requests, config) for engine in (TorchEngine(model, SPECIAL), native))
        assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in expected]


@native_only
@pytest.mark.parametrize("speculative", [False, True])
def test_int8_generates_valid_utf8_with_speculative_decoding(tmp_path: Path, speculative: bool) -> None:
    native = native_engine(tmp_path, byte_model(1), "int8")
    native.engine.speculative = speculative
    greedy = DecodingConfig(method="greedy")
    assert sum(assert_valid_utf8(native, [request], greedy) for request in byte_requests(60)) > 0
    assert assert_valid_utf8(native, byte_requests(60), DecodingConfig(beam_size=5, num_best=5)) > 0


@native_only
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_shortlist_generates_valid_utf8(tmp_path: Path, search: dict[str, Any]) -> None:
    drawn = np.random.default_rng(1)
    starts = np.arange(0, 6 * VOCABULARY + 1, 6)
    targets = drawn.integers(FIRST, VOCABULARY, 6 * VOCABULARY).astype(np.int32)
    native = native_engine(tmp_path, byte_model(1), "int8")
    native.engine.use_shortlist(Shortlist(starts, targets, np.array([3], dtype=np.int32)))
    assert assert_valid_utf8(native, byte_requests(40), DecodingConfig(**search)) > 0


def test_prefix_ending_inside_a_character_is_continued() -> None:
    requests = [
        request for request in byte_requests(35, prefixes=True) if request.prefix and FIRST + 0xFF not in request.prefix
    ]
    assert assert_valid_utf8(TorchEngine(byte_model(1), SPECIAL), requests, DecodingConfig()) > 0


# ---- the bundled model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["torch", pytest.param("native", marks=native_only), "ctranslate2"])
def test_bundled_model_generates_valid_utf8(engine: str) -> None:
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
    translator = Translator.load(engine=engine, device="cpu")
    methods: list[dict[str, Any]] = [{"method": "greedy"}, {"beam_size": 4, "num_best": 4}, {"max_length": 9}]
    if engine == "torch":
        methods = [{"method": "sampling", "num_best": 2}]
    for settings in methods:
        for found in translator.translate(EMOJI, source_language="en", target_language="de", **settings):
            texts = [one.text for one in found.n_best]
            assert not any("\ufffd" in text for text in texts), texts


@native_only
def test_valid_utf8_with_bytes_only() -> None:
    translator = Translator.load(engine="native")
    special = translator.special
    others = tuple(
        n for n in range(translator.tokenizer.target_vocab_size) if n not in (special.eos_id, *special.byte_ids)
    )
    requests = [
        DecodeRequest(tuple(translator.tokenizer.encode_source(text, "de")), (), text, 12, others) for text in EMOJI
    ]
    for search in ({"method": "greedy"}, {"beam_size": 4, "num_best": 2}):
        results = translator.engine.decode(requests, DecodingConfig(**search), align=False, constraint_factory=None)
        for result in results.values():
            for hypothesis in result.hypotheses:
                assert {*hypothesis.tokens} <= {special.eos_id, *special.byte_ids}
                assert is_valid_utf8(hypothesis.tokens[:-1], special.byte_ids)


@native_only
def test_utf8_constraint_does_not_change_scores_without_bytes() -> None:
    translator = Translator.load(engine="native")
    native = translator.engine
    texts = [
        f"{number} {subject} {verb} in the garden of the old house near the river."
        for number in (3, 20, 118)
        for subject in ("children", "dogs", "of the men")
        for verb in ("play", "have been seen", "slept well")
    ]
    requests = [DecodeRequest(tuple(translator.tokenizer.encode_source(text, "de")), (), text, 60) for text in texts]
    config, special = DecodingConfig(num_best=2), translator.special
    found = native.decode(requests, config, align=False, constraint_factory=None)
    native.special = dataclasses.replace(special, byte_ids=())
    unconstrained = native.decode(requests, config, align=False, constraint_factory=None)
    for request in requests:
        if not any({*one.tokens} & {*special.byte_ids} for one in unconstrained[request].hypotheses):
            assert found[request] == unconstrained[request]
