"""The CUDA graph search with its kernels equals the reference search and is deterministic."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from heedful.config import DecodingConfig, ModelConfig
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search import force_decode
from heedful.model.transformer import Transformer
from heedful.search_types import DecodeRequest
from tests.decoding.test_cuda_graph import MODELS, SPECIAL, assert_equal, found_by, make_model, make_requests
from tests.decoding.test_utf8_automaton import SPECIAL as WITH_BYTES
from tests.decoding.test_utf8_automaton import byte_model, byte_requests

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*TensorFloat32")]
CUDA = torch.device("cuda")
BOTH_TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
WIDE = ModelConfig(
    source_vocab_size=6000, target_vocab_size=6000, num_encoder_layers=2, num_decoder_layers=2, max_length=128
)


@pytest.mark.parametrize(
    ("model", "beams"), [*((model, 3) for model in MODELS.values()), (MODELS["post"], 1), (MODELS["post"], 8)]
)
def test_kernels_equal_plain_torch(model: dict[str, object], beams: int) -> None:
    made, requests = make_model(**model), make_requests(12, prefixes=True)
    config = DecodingConfig(beam_size=beams, num_best=beams, min_length=3)
    plain = found_by(TorchEngine(made, SPECIAL), requests, config)
    made.to(CUDA)
    assert_equal(found_by(TorchEngine(made, SPECIAL, device=CUDA, use_cuda_graph=True), requests, config), plain)


@pytest.mark.parametrize("beams", [1, 2, 3, 8])
@pytest.mark.parametrize("prefixes", [False, True])
def test_kernels_equal_plain_torch_with_byte_tokens(beams: int, prefixes: bool) -> None:
    model, requests = deepcopy(byte_model(1)), byte_requests(40, prefixes=prefixes)
    config = DecodingConfig(beam_size=beams, num_best=beams)
    plain = found_by(TorchEngine(model, WITH_BYTES), requests, config)
    model.to(CUDA)
    assert_equal(found_by(TorchEngine(model, WITH_BYTES, device=CUDA, use_cuda_graph=True), requests, config), plain)


def wide_model(dtype: torch.dtype, **changes: Any) -> Transformer:
    model = Transformer(replace(WIDE, **changes)).eval()
    with torch.no_grad():  # clear preferences, and ends at various lengths
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.03)
        if model.output is not None:
            model.output.weight.mul_(2.0)
    return model.to(CUDA, dtype)


def wide_requests(count: int) -> list[DecodeRequest]:
    return [
        DecodeRequest(
            (*random.choices(range(8, 6000), k=random.randint(1, 60)), 3), (), str(number), random.randint(8, 50)
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("search", [{"method": "greedy"}, {"beam_size": 4, "num_best": 2}], ids=["greedy", "beam 4"])
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_float32_equals_reference_search(search: dict[str, Any], placement: str) -> None:
    model, requests = wide_model(torch.float32, norm_placement=placement, tying="none"), wide_requests(200)
    config = DecodingConfig(**search)
    use_cuda_graph = found_by(TorchEngine(model, SPECIAL, device=CUDA, use_cuda_graph=True), requests, config)
    readable = found_by(TorchEngine(model, SPECIAL, device=CUDA, use_cuda_graph=False), requests, config)
    differing = [
        (request, ours[0], theirs[0])
        for request, ours, theirs in zip(requests, use_cuda_graph, readable, strict=True)
        if ours[0].tokens != theirs[0].tokens
    ]
    assert len(differing) <= 2  # of two nearly equal hypotheses, another order of summation may keep the other
    for request, *both in differing:
        source = torch.tensor([request.source] * 2, device=CUDA)
        forced = force_decode(
            model,
            source,
            torch.ones_like(source, dtype=torch.bool),
            [one.tokens for one in both],
            bos_id=SPECIAL.bos_id,
        )
        for one, true in zip(both, forced, strict=True):
            assert one.log_prob == pytest.approx(true.log_prob, abs=1e-3)


@BOTH_TYPES
@pytest.mark.parametrize("changes", [{}, {"norm_placement": "pre", "positions": "rotary", "activation": "swiglu"}])
def test_translation_bits_do_not_depend_on_batch(dtype: torch.dtype, changes: dict[str, object]) -> None:
    model, requests = wide_model(dtype, tying="none", **changes), wide_requests(600)
    engine = TorchEngine(model, SPECIAL, device=CUDA, use_cuda_graph=True)
    for settings in ({"beam_size": 4, "num_best": 4}, {"method": "greedy"}):
        config = DecodingConfig(**settings, tokens_per_batch=1 << 20)  # type: ignore[arg-type]
        everyone = found_by(engine, requests, config)
        assert len({len(many[0].tokens) for many in everyone}) > 5
        for batch in (1, 7, 64):
            chosen = random.sample(range(len(requests)), min(3 * batch, len(requests)) if batch > 1 else 12)
            for first in range(0, len(chosen), batch):
                members = chosen[first : first + batch]
                found = found_by(engine, [requests[index] for index in members], config)
                assert found == [everyone[index] for index in members]


@BOTH_TYPES
def test_tile_sizes_do_not_change_matmul_bits(dtype: torch.dtype) -> None:
    from heedful.fused.kernels.decode_layers import TILES, matmul
    from heedful.fused.kernels.sizes import SPLIT_SIZE

    for depth, width in ((512, 1536), (2048, 512), (96, 72)):
        x, weight = torch.randn(700, depth, device=CUDA).to(dtype), torch.randn(width, depth, device=CUDA).to(dtype)
        bias = torch.randn(width, device=CUDA).to(dtype)
        results = []
        for tile in {tile for tiles in TILES[dtype].values() for tile in tiles}:
            for rows in (1, 17, 700):
                output = torch.empty(rows, width, device=CUDA)
                matmul(x[:rows], weight, bias, output, tile=tile)
                results.append(output)
            parts = torch.empty(-(-depth // SPLIT_SIZE), 700, width, device=CUDA)
            matmul(x, weight, None, parts, tile=tile)
            total = torch.zeros(700, width, device=CUDA)
            for part in parts:
                total += part
            results.append(total + bias.float())
        for result in results:
            assert torch.equal(result, results[2][: len(result)])
        expected = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
        torch.testing.assert_close(results[2].double(), expected, rtol=1e-3, atol=1e-3)


def test_new_sentence_does_not_read_flags_of_previous_one() -> None:
    model, requests = wide_model(torch.float32, tying="none"), wide_requests(150)
    engine = TorchEngine(model, SPECIAL, device=CUDA, use_cuda_graph=True)
    few = DecodingConfig(beam_size=2, tokens_per_batch=2 * 45 * 8)
    many = DecodingConfig(beam_size=2, tokens_per_batch=1 << 20)
    assert found_by(engine, requests, few) == found_by(engine, requests, many)
    assert engine._search is not None
    assert {capacity.slots for capacity in engine._search.schedulers} >= {8, 256}
