"""The CUDA graph search in plain torch, on any device, compared with the reference search."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import pytest
import torch

from heedful.config import DecodingConfig, ModelConfig
from heedful.decoding.cuda_graph.search import CudaGraphSearch, group_by_capacity, unsupported_reason
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.errors import ConfigError, DecodingError
from heedful.model.transformer import Transformer
from heedful.search_types import ConstraintFactory, DecodeRequest, Hypothesis, SpecialTokens

SPECIAL = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1, 7))
TINY = ModelConfig(
    source_vocab_size=40,
    target_vocab_size=40,
    d_model=32,
    d_ff=48,
    num_heads=4,
    num_encoder_layers=2,
    num_decoder_layers=2,
    max_length=64,
)
MODELS = {
    "post": {},
    "post, final norm, own head width": {"final_norm": True, "head_dim": 6, "attention_scoring": "dot"},
    "pre, RMSNorm, rotary, SwiGLU, nothing tied": {
        "norm_placement": "pre", "norm": "rms", "positions": "rotary", "activation": "swiglu", "tying": "none",
        "bias": False,
    },
    "pre, learned positions, gelu, no final norm": {
        "norm_placement": "pre", "positions": "learned", "activation": "gelu", "tying": "target", "final_norm": False,
        "key_dim": 6, "num_encoder_layers": 1,
    },
}  # fmt: skip
SEARCHES = {
    "greedy": {"method": "greedy"},
    "greedy, at least 5": {"method": "greedy", "min_length": 5},
    "beam 1": {"beam_size": 1},
    "beam 2": {"beam_size": 2, "num_best": 2, "length_penalty": "none"},
    "beam 3": {"beam_size": 3, "num_best": 1, "length_penalty": "average"},
    "beam 4": {"beam_size": 4, "num_best": 3, "min_length": 4},
    "beam 5": {"beam_size": 5, "num_best": 5, "length_penalty_alpha": 1.5},
}


def make_model(**changes: object) -> Transformer:
    """A model that ends its sentences at various lengths."""
    model = Transformer(replace(TINY, **changes)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model


def make_requests(count: int, *, prefixes: bool = False) -> list[DecodeRequest]:
    def tokens(fewest: int, most: int) -> tuple[int, ...]:
        return tuple(random.choices(range(4, 40), k=random.randint(fewest, most)))

    return [
        DecodeRequest((*tokens(0, 12), 3), tokens(0, 3) if prefixes else (), str(number), random.randint(3, 14))
        for number in range(count)
    ]


def found_by(engine: TorchEngine, requests: list[DecodeRequest], config: DecodingConfig) -> list[list[Hypothesis]]:
    results = engine.decode(requests, config, align=False, constraint_factory=None)
    return [results[request].hypotheses for request in requests]


def assert_equal(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[one.tokens for one in many] for many in found] == [[one.tokens for one in many] for many in expected]
    for one, other in zip(chain(*found), chain(*expected), strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.finished == other.finished


def why_not(
    model: object,
    config: DecodingConfig,
    *,
    requests: Sequence[DecodeRequest] = (),
    constraint_factory: ConstraintFactory | None = None,
) -> str:
    return unsupported_reason(model, requests, config, constraint_factory=constraint_factory, special=SPECIAL) or ""


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_cuda_graph_search_equals_reference(model: dict[str, object], search: dict[str, object]) -> None:
    made, requests = make_model(**model), make_requests(5, prefixes=True)
    config = DecodingConfig(**search)  # type: ignore[arg-type]
    readable = found_by(TorchEngine(made, SPECIAL), requests, config)
    assert len({len(many[0].tokens) for many in readable}) > 1
    assert_equal(found_by(TorchEngine(made, SPECIAL, use_cuda_graph=True), requests, config), readable)


@pytest.mark.parametrize("beams", [1, 3])
def test_continuous_batching_equals_single_sentences(beams: int) -> None:
    model, requests = make_model(), make_requests(17, prefixes=True)
    config = DecodingConfig(beam_size=beams, num_best=beams, tokens_per_batch=8 * 16 * beams)  # eight slots
    engine = TorchEngine(model, SPECIAL, use_cuda_graph=True)
    together = found_by(engine, requests, config)
    assert engine._search is not None
    assert [capacity.slots for capacity in engine._search.schedulers] == [8]
    alone = [found_by(engine, [request], config)[0] for request in requests]
    assert {capacity.slots for capacity in engine._search.schedulers} == {8, 1}
    assert_equal(together, alone)
    order = random.sample(range(len(requests)), len(requests))
    assert_equal(found_by(engine, [requests[index] for index in order], config), [alone[index] for index in order])


def test_ties_prefer_earlier_beam_and_lower_token() -> None:
    model = make_model(tying="none")
    assert model.output is not None
    with torch.no_grad():
        model.output.weight[5:] = model.output.weight[4]  # most tokens are equally likely, always
    config = DecodingConfig(beam_size=4, num_best=4, min_length=3)
    requests = make_requests(4)
    readable = found_by(TorchEngine(model, SPECIAL), requests, config)
    assert_equal(found_by(TorchEngine(model, SPECIAL, use_cuda_graph=True), requests, config), readable)


def test_changed_weights_are_used() -> None:
    model, requests, config = make_model(), make_requests(3), DecodingConfig(beam_size=2)
    engine = TorchEngine(model, SPECIAL, use_cuda_graph=True)
    before = found_by(engine, requests, config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    after = found_by(engine, requests, config)
    assert_equal(after, found_by(TorchEngine(model, SPECIAL), requests, config))
    assert after != before


def test_nan_weights_raise() -> None:
    model = make_model()
    with torch.no_grad():
        model.decoder.layers[1].feed_forward.output.weight[0, 0] = torch.nan  # type: ignore[union-attr, index]
    for settings in (DecodingConfig(beam_size=3), DecodingConfig(method="greedy")):
        with pytest.raises(DecodingError, match="NaN"):
            found_by(TorchEngine(model, SPECIAL, use_cuda_graph=True), make_requests(2), settings)


def test_cuda_graph_search_returns_alignment() -> None:
    model, requests, config = make_model(), make_requests(3), DecodingConfig(beam_size=2)
    use_cuda_graph = TorchEngine(model, SPECIAL, use_cuda_graph=True).decode(
        requests, config, align=True, constraint_factory=None
    )
    readable = TorchEngine(model, SPECIAL).decode(requests, config, align=True, constraint_factory=None)
    for request in requests:
        weights, expected = use_cuda_graph[request].attention, readable[request].attention
        assert weights is not None
        assert weights.shape == (len(use_cuda_graph[request].hypotheses[0].tokens) - 1, len(request.source) - 1)
        assert weights == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("model", "settings", "reason"),
    [
        ({"norm": "batch"}, {}, "model.norm=batch"),
        ({"attention_scoring": "additive"}, {}, "additive"),
        ({}, {"method": "sampling"}, "sampling"),
        ({}, {"no_repeat_ngram_size": 2}, "no_repeat_ngram_size"),
        ({}, {"beam_size": 9}, "beam_size above 8"),
        ({"target_vocab_size": 10, "source_vocab_size": 10}, {"beam_size": 4}, "vocabulary"),
    ],
)
def test_unsupported_reason_names_the_option(
    model: dict[str, object], settings: dict[str, object], reason: str
) -> None:
    config = DecodingConfig(**settings)  # type: ignore[arg-type]
    made = make_model(**model)
    assert reason in why_not(made, config)
    with pytest.raises(ConfigError, match=reason):
        found_by(TorchEngine(made, SPECIAL, use_cuda_graph=True), [], config)
    assert found_by(TorchEngine(made, SPECIAL), [], config) == []


def test_constraints_and_other_models_use_reference_search() -> None:
    config = DecodingConfig()
    assert why_not(make_model(), config) == ""
    assert "constraint" in why_not(make_model(), config, constraint_factory=lambda *_: None)
    assert "only Transformer" in why_not(object(), config)
    assert why_not(make_model().bfloat16(), config) == ""
    assert "neither" in why_not(make_model().half(), config)
    assert "longer" in why_not(make_model(), config, requests=[DecodeRequest((5, 3), (), "", 64)])
    assert "longer" in why_not(make_model(), config, requests=[DecodeRequest((5,) * 65, (), "", 10)])


def test_requests_are_grouped_by_capacity() -> None:
    lengths = [(10, 20), (100, 30), (64, 62), (65, 63), (90, 30)]
    requests = [
        DecodeRequest(tuple([5] * source), (), str(index), target) for index, (source, target) in enumerate(lengths)
    ]
    assert group_by_capacity(requests) == [[1, 4], [3], [2, 0]]
    search = CudaGraphSearch(make_model(), SPECIAL)
    capacity = search._choose_capacity([requests[3]], DecodingConfig(tokens_per_batch=1))
    assert (capacity.slots, capacity.beams, capacity.source, capacity.target) == (1, 4, 128, 128)
