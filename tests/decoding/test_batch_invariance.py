"""Batch invariance: the bits of a translation do not depend on the other sentences of its batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch

from heedful.build_model import build_model
from heedful.config import DecodingConfig, ModelConfig
from heedful.decoding.engines.torch_engine import TorchEngine, make_fixed_shape_batches, padded_width
from heedful.search_types import DecodeRequest, DecodeResult, SpecialTokens

EOS, VOCABULARY = 3, 60
SPECIAL = SpecialTokens(pad_id=0, bos_id=2, eos_id=EOS, forbidden=(1,))
SHAPE: dict[str, Any] = {
    "source_vocab_size": VOCABULARY,
    "target_vocab_size": VOCABULARY,
    "d_model": 48,
    "d_ff": 80,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "max_length": 128,
}


def make_requests(count: int) -> list[DecodeRequest]:
    """Sentences of 1 to 40 tokens with individual length limits, some with a prefix."""
    draw = random.Random(5)
    requests = []
    for number in range(count):
        length = draw.randint(1, 40)
        source = (*(draw.randrange(4, VOCABULARY) for _ in range(length)), EOS)
        prefix = (draw.randrange(4, VOCABULARY),) if number % 7 == 0 else ()
        requests.append(DecodeRequest(source, prefix, str(number), max_length=draw.randint(2, 15)))
    return requests


def bits(result: DecodeResult) -> list[tuple[list[int], list[float], float]]:
    return [(found.tokens, found.token_log_probs, found.score) for found in result.hypotheses]


@pytest.mark.parametrize(
    "settings",
    [{"beam_size": 4, "num_best": 2}, {"method": "greedy"}, {"method": "sampling", "num_best": 2}],
    ids=lambda settings: settings.get("method", "beam"),
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "post", "positions": "rotary", "norm": "rms"},
        {"activation": "swiglu", "num_heads": 2},
        {"architecture": "recurrent", "num_heads": 1},
        {"architecture": "recurrent", "num_heads": 1, "cell": "lstm", "attention_scoring": "dot"},
        {"architecture": "convolutional", "num_heads": 1},
        {"self_attention": "local", "cross_attention": "local_monotonic", "attention_window": 2},
        {"cross_attention": "local_predictive", "attention_window": 3, "num_heads": 2},
        {"self_attention": "hard", "cross_attention": "hard"},
        {"architecture": "recurrent", "num_heads": 1, "cross_attention": "local_predictive", "attention_window": 2},
        {
            "architecture": "recurrent",
            "num_heads": 1,
            "attention_scoring": "additive",
            "cross_attention": "local_monotonic",
            "attention_window": 2,
        },
    ],
    ids=[
        "pre",
        "rotary",
        "swiglu",
        "recurrent",
        "luong",
        "convolutional",
        "local",
        "predictive",
        "hard",
        "recurrent_predictive",
        "recurrent_monotonic",
    ],
)
def test_sentence_bits_do_not_depend_on_batch(settings: dict[str, Any], changes: dict[str, Any]) -> None:
    torch.manual_seed(1)
    engine = TorchEngine(build_model(ModelConfig(**{**SHAPE, **changes})).eval(), SPECIAL)
    assert_mates_have_no_part(engine, DecodingConfig(**settings))


@pytest.mark.parametrize("beam_size", [1, 3, 5])
def test_small_batches_on_two_threads_do_not_change_bits(beam_size: int, two_threads: None) -> None:
    torch.manual_seed(1)
    engine = TorchEngine(build_model(ModelConfig(**{**SHAPE, "num_heads": 2})).eval(), SPECIAL)
    assert_mates_have_no_part(engine, DecodingConfig(beam_size=beam_size, tokens_per_batch=100 * beam_size))


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Set two threads, and restore the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def assert_mates_have_no_part(engine: TorchEngine, config: DecodingConfig) -> None:
    requests = make_requests(40)
    expected = engine.decode(requests, config, align=False, constraint_factory=None)
    order = random.Random(1).sample(requests, len(requests))
    starts = [0, 1, 4, 11, 27, len(order)]  # alone, and in parts of several sizes
    for start, end in pairwise(starts):
        found = engine.decode(order[start:end], config, align=False, constraint_factory=None)
        for request in order[start:end]:
            assert bits(found[request]) == bits(expected[request])


@pytest.mark.parametrize("align", [False, True])
def test_padding_does_not_exceed_max_length(align: bool) -> None:
    engine = TorchEngine(
        build_model(ModelConfig(**{**SHAPE, "positions": "learned", "max_length": 20})).eval(), SPECIAL
    )
    requests = [
        DecodeRequest((*(4 + place for place in range(length - 1)), EOS), (), "", max_length=8) for length in (17, 20)
    ]
    together = engine.decode(requests, DecodingConfig(), align=align, constraint_factory=None)
    for request in requests:
        assert bits(engine.decode([request], DecodingConfig(), align=align, constraint_factory=None)[request]) == bits(
            together[request]
        )


def test_not_batch_invariant_search_changes_only_last_digits() -> None:
    torch.manual_seed(1)
    engine, requests = TorchEngine(build_model(ModelConfig(**SHAPE)).eval(), SPECIAL), make_requests(40)
    slow, fast = (
        engine.decode(requests, DecodingConfig(batch_invariant=invariant), align=False, constraint_factory=None)
        for invariant in (True, False)
    )
    for request in requests:
        assert slow[request].hypotheses[0].tokens == fast[request].hypotheses[0].tokens
        assert slow[request].hypotheses[0].score == pytest.approx(fast[request].hypotheses[0].score, abs=1e-5)


def test_batch_invariant_batch_size_depends_on_width_only() -> None:
    lengths = [3, 16, 17, 40, 5, 33, 100, 9]
    batches = make_fixed_shape_batches(lengths, tokens_per_batch=512, rows_per_sentence=2)
    assert sorted({index for batch in batches for index in batch}) == list(range(len(lengths)))
    for batch in batches:
        widths = {padded_width(lengths[index]) for index in batch}
        assert len(widths) == 1
        assert len(batch) == {16: 16, 32: 8, 48: 4, 112: 1}[widths.pop()]  # multiples of 4 within 512 tokens
    assert make_fixed_shape_batches([4], tokens_per_batch=8192, rows_per_sentence=1) == [[0] * 16]
    assert make_fixed_shape_batches([500], tokens_per_batch=100, rows_per_sentence=4) == [[0]]
