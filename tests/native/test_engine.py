"""The native engine matches torch in float32 and approximates it in int8, with the same search."""

from __future__ import annotations

import dataclasses
import tracemalloc
from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.backend_support import require_support
from heedful.config import DecodingConfig, ModelConfig
from heedful.decoding.search import alignment_weights, force_decode
from heedful.errors import ConfigError, DecodingError
from heedful.model_dir.save_load import AlignmentSource
from heedful.native import NativeEngine, available
from heedful.native.engine import distribute
from tests.native.native_models import (
    BOS,
    EOS,
    SPECIAL,
    engine_of,
    random_model,
    random_sources,
    small_config,
    torch_logits,
    torch_search,
)

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)

OPTIONS = [
    {},
    {"norm_placement": "pre"},
    {"norm_placement": "post", "final_norm": True},
    {"norm_placement": "pre", "final_norm": False},
    {"norm": "rms", "activation": "swiglu"},
    {"activation": "gelu", "positions": "learned"},
    {"positions": "rotary", "norm_placement": "pre", "activation": "swiglu"},
    {"attention_scoring": "dot", "bias": False},
    {"tying": "target", "source_vocab_size": 50},
    {"tying": "none", "source_vocab_size": 50, "num_encoder_layers": 3, "num_decoder_layers": 1},
    {"d_model": 36, "d_ff": 50, "num_heads": 3, "head_dim": 10, "source_vocab_size": 71, "target_vocab_size": 71},
    {"d_model": 128, "d_ff": 256, "num_heads": 1, "positions": "rotary"},
    {"target_vocab_size": 1100, "tying": "target"},
]
named = [",".join(f"{key}={value}" for key, value in options.items()) or "paper" for options in OPTIONS]
SOURCE = [5, 9, 44, 17, 4, 30, 3]
TARGET = [BOS, 8, 12, 33, 41, 6, 6, 21, 60, 11]


@pytest.mark.parametrize("options", OPTIONS, ids=named)
def test_float32_logits_match_torch(options: dict[str, object], tmp_path: Path) -> None:
    model = random_model(small_config(**options))
    expected = torch_logits(model, SOURCE, TARGET)
    found = engine_of(model, tmp_path, precision="float32").logits(SOURCE, TARGET)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("options", OPTIONS, ids=named)
def test_int8_logits_approximate_torch(options: dict[str, object], tmp_path: Path) -> None:
    model = random_model(small_config(**options))
    expected = torch_logits(model, SOURCE, TARGET)
    found = engine_of(model, tmp_path, precision="int8").logits(SOURCE, TARGET)
    assert np.linalg.norm(found - expected) < 0.04 * np.linalg.norm(expected)
    assert not np.array_equal(found, expected)


SEARCHES = [
    DecodingConfig(method="greedy"),
    DecodingConfig(method="greedy", min_length=6, no_repeat_ngram_size=2),
    DecodingConfig(beam_size=1),
    DecodingConfig(beam_size=4),
    DecodingConfig(beam_size=4, num_best=4, length_penalty="average", length_penalty_alpha=1.0),
    DecodingConfig(beam_size=5, num_best=3, length_penalty="none"),
    DecodingConfig(beam_size=3, num_best=2, min_length=4, no_repeat_ngram_size=2),
    DecodingConfig(beam_size=40, num_best=8, length_penalty_alpha=1.2),
]


@pytest.mark.parametrize("config", SEARCHES, ids=lambda c: f"{c.method}{c.beam_size}-{c.num_best}-{c.length_penalty}")
def test_float32_search_matches_torch(config: DecodingConfig, tmp_path: Path) -> None:
    model = random_model(small_config(tying="none"), seed=3)
    sources = random_sources(12)
    max_lengths = [min(3 + 2 * len(source), 30) for source in sources]
    max_lengths[0] = 0  # only the end token
    prefix = [[], [7, 8], *[[] for _ in sources[2:]]]
    max_lengths[1] = 5
    expected = torch_search(model, sources, config, max_lengths, prefix)
    engine = engine_of(model, tmp_path, precision="float32")
    found = engine.translate_ids(sources, config, SPECIAL, max_lengths=max_lengths, prefix=prefix)
    assert [[h.tokens for h in hypotheses] for hypotheses in found] == [[h.tokens for h in hyps] for hyps in expected]
    pairs = zip(chain.from_iterable(found), chain.from_iterable(expected), strict=True)
    for ours, theirs in pairs:
        assert ours.finished == theirs.finished
        np.testing.assert_allclose(ours.token_log_probs, theirs.token_log_probs, atol=5e-5)
        np.testing.assert_allclose([ours.log_prob, ours.score], [theirs.log_prob, theirs.score], atol=2e-4)


@pytest.mark.parametrize("size", [0.1, 1.0, 100.0], ids=["alike", "lively", "far apart"])
@pytest.mark.parametrize("vocab_size", [71, 531, 1100])
def test_log_probabilities_match_logits(vocab_size: int, size: float, tmp_path: Path) -> None:
    model = random_model(small_config(tying="none", target_vocab_size=vocab_size), seed=4)
    with torch.no_grad():
        model.output.weight.mul_(size)
    engine = engine_of(model, tmp_path, precision="int8")
    config = DecodingConfig(beam_size=3, num_best=3, min_length=5)
    for hypothesis in engine.translate_ids([SOURCE], config, SPECIAL, max_lengths=[9])[0]:
        tokens = [*hypothesis.tokens, *([EOS] if hypothesis.finished else [])]
        logits = engine.logits(SOURCE, [BOS, *hypothesis.tokens]).astype(np.float64)[: len(tokens)]
        expected = torch.log_softmax(torch.from_numpy(logits), dim=-1).numpy()
        found = hypothesis.token_log_probs
        np.testing.assert_allclose(
            found,
            expected[np.arange(len(found)), tokens[: len(found)]],
            rtol=0,
            atol=1e-6 + 2e-7 * np.abs(logits).max(),
        )
    assert (np.ptp(logits) > 200) == (size == 100.0), "logits so different that most probabilities are zero"


def test_int8_translations_mostly_match_torch(tmp_path: Path) -> None:
    model = random_model(small_config(d_model=64, d_ff=128), seed=2)
    sources, config = random_sources(60), DecodingConfig(method="greedy")
    limits = [12] * len(sources)
    expected = torch_search(model, sources, config, limits)
    found = engine_of(model, tmp_path, precision="int8").translate_ids(sources, config, SPECIAL, max_lengths=limits)
    same = [ours[0].tokens[:6] == theirs[0].tokens[:6] for ours, theirs in zip(found, expected, strict=True)]
    assert np.mean(same) > 0.6


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("config", [DecodingConfig(method="greedy"), DecodingConfig(beam_size=4, num_best=2)])
def test_translation_does_not_depend_on_batch(precision: str, config: DecodingConfig, tmp_path: Path) -> None:
    model = random_model(small_config(d_model=80, num_heads=5, target_vocab_size=1300, tying="target"), seed=5)
    sources = random_sources(120, longest=20)
    limits = [len(source) + 5 for source in sources]
    engine = engine_of(model, tmp_path, precision=precision)
    together = engine.translate_ids(sources, config, SPECIAL, max_lengths=limits)
    alone = [
        engine.translate_ids([s], config, SPECIAL, max_lengths=[m])[0] for s, m in zip(sources, limits, strict=True)
    ]
    assert together == alone
    small = dataclasses.replace(config, tokens_per_batch=200)  # many batches, distributed to workers
    assert engine.translate_ids(sources, small, SPECIAL, max_lengths=limits) == together
    with pytest.raises(DecodingError, match="vocabulary"):
        engine.translate_ids([*sources, [99_999]], small, SPECIAL, max_lengths=[*limits, 5])
    order = np.random.default_rng(1).permutation(len(sources)).tolist()
    shuffled = engine.translate_ids(
        [sources[i] for i in order], config, SPECIAL, max_lengths=[limits[i] for i in order]
    )
    assert shuffled == [together[i] for i in order]


def test_threads_and_instruction_sets_are_bit_identical(tmp_path: Path) -> None:
    from heedful.native.bindings import kernel_names

    model = random_model(
        small_config(
            d_model=80, num_heads=5, activation="swiglu", norm_placement="pre", target_vocab_size=1300, tying="target"
        )
    )
    sources = random_sources(30, longest=20)
    limits = [len(source) + 5 for source in sources]
    config = DecodingConfig(beam_size=3, num_best=3)
    first = engine_of(model, tmp_path, precision="int8", num_threads=1).translate_ids(
        sources, config, SPECIAL, max_lengths=limits
    )
    for kernels in kernel_names():
        for num_threads in (1, 2, 5):
            engine = engine_of(model, tmp_path, precision="int8", num_threads=num_threads, kernels=kernels)
            assert engine.kernels == kernels
            assert engine.translate_ids(sources, config, SPECIAL, max_lengths=limits) == first
            engine.close()


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("options", OPTIONS, ids=named)
def test_model_options_are_bit_identical_on_all_instruction_sets(
    options: dict[str, object], precision: str, tmp_path: Path
) -> None:
    from heedful.native.bindings import kernel_names

    model = random_model(small_config(**options))
    found = {
        engine_of(model, tmp_path, precision=precision, num_threads=1, kernels=name).logits(SOURCE, TARGET).tobytes()
        for name in kernel_names()
    }
    assert len(found) == 1


@pytest.mark.parametrize("alike", [0.0, 0.3, 1.0], ids=["clear", "some alike", "all alike"])
@pytest.mark.parametrize(
    "config",
    [
        DecodingConfig(method="greedy"),
        DecodingConfig(method="greedy", min_length=25, no_repeat_ngram_size=3),
        DecodingConfig(beam_size=1, min_length=70),
    ],
    ids=["plain", "constrained", "long"],
)
def test_speculative_decoding_is_bit_identical(alike: float, config: DecodingConfig, tmp_path: Path) -> None:
    from heedful.native.bindings import kernel_names

    shape = small_config(d_model=64, target_vocab_size=1500, tying="none", max_length=100)
    model = random_model(shape, seed=7)
    with torch.no_grad():  # tokens that a sketch cannot distinguish
        rows = model.output.weight
        same = torch.rand(len(rows)) < alike
        rows[same] = rows[9] + 0.01 * rows[9].std() * torch.randn_like(rows[same])
    sources = random_sources(9, longest=20)
    limits = [0, 1, 2, 17, 40, 79, 80, 90, 99]
    prefix = [[], [], [9], *[[] for _ in sources[3:-1]], [7, 8, 9] * 8]
    expected = None
    for kernels, num_threads in product(kernel_names(), (1, 3)):
        engine = engine_of(model, tmp_path, precision="int8", num_threads=num_threads, kernels=kernels)
        together = engine.translate_ids(sources, config, SPECIAL, max_lengths=limits, prefix=prefix)
        expected = expected or together
        assert together == expected
        for number in range(len(sources) - 1):  # one sentence, and two of different lengths
            for some in (slice(number, number + 1), slice(number, number + 2)):
                given = {"max_lengths": limits[some], "prefix": prefix[some]}
                assert engine.translate_ids(sources[some], config, SPECIAL, **given) == expected[some]
        accepted, rejected = engine.speculation_counts()
        if kernels == "portable":  # portable kernels do not speculate
            assert (accepted, rejected) == (0, 0)
        else:
            assert accepted > 0
            assert (rejected > accepted) == (alike == 1.0)
        engine.close()


@pytest.mark.parametrize("bias", [-100.0, -1.2, -0.6, 100.0], ids=["all zero", "few left", "some left", "none zero"])
@pytest.mark.parametrize(("d_model", "d_ff"), [(32, 64), (96, 50), (320, 130)])
def test_skipping_zeros_after_relu_is_bit_identical(bias: float, d_model: int, d_ff: int, tmp_path: Path) -> None:
    from heedful.native.bindings import kernel_names

    model = random_model(small_config(d_model=d_model, d_ff=d_ff, norm_placement="pre"))
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.feed_forward.inner.bias.add_(bias)
    sources = random_sources(9)
    for config in (DecodingConfig(method="greedy", min_length=5), DecodingConfig(beam_size=4, min_length=5)):
        expected = None  # the whole batch reads all weights, single sentences skip most
        for kernels, num_threads in product(kernel_names(), (1, 3)):
            engine = engine_of(model, tmp_path, precision="int8", num_threads=num_threads, kernels=kernels)
            together = engine.translate_ids(sources, config, SPECIAL, max_lengths=[6] * len(sources))
            expected = expected or together
            assert together == expected
            for source, one in zip(sources, expected, strict=True):
                assert engine.translate_ids([source], config, SPECIAL, max_lengths=[6]) == [one]
            engine.close()


def test_distributing_batches_to_threads_is_bit_identical(tmp_path: Path) -> None:
    model, sources = random_model(small_config()), random_sources(30, seed=9)
    config, limits = DecodingConfig(beam_size=4, num_best=4), [12] * 30
    alone, both = (engine_of(model, tmp_path, precision="int8", num_threads=threads) for threads in (1, 2))
    expected = alone.translate_ids(sources, config, SPECIAL, max_lengths=limits)
    assert both.translate_ids(sources, config, SPECIAL, max_lengths=limits) == expected
    for few in (sources[:1], sources[:20], []):
        found = both.translate_ids(few, config, SPECIAL, max_lengths=limits[: len(few)])
        assert found == expected[: len(few)]


def test_only_large_batches_are_distributed() -> None:
    beam, greedy = DecodingConfig(beam_size=4), DecodingConfig(method="greedy")
    batch = list(range(40))
    shares = distribute([batch], beam, 3)
    assert [len(share) for share in shares] == [14, 13, 13]
    assert sorted(chain.from_iterable(shares)) == batch
    assert not distribute([batch], greedy, 3), "too few rows for each thread"
    assert not distribute([batch, batch[:5]], beam, 3), "one of them has too few"
    assert not distribute([batch], beam, 1)
    assert not distribute([], beam, 3)
    many = [[index] for index in range(6)]
    assert distribute(many, greedy, 3) == many


def test_invalid_requests_raise_errors(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")

    def translate(
        source: list[int], config: DecodingConfig | None = None, limit: int = 5, prefix: tuple[int, ...] = ()
    ):
        return engine.translate_ids(
            [source], config or DecodingConfig(), SPECIAL, max_lengths=[limit], prefix=[list(prefix)]
        )

    assert translate([3])[0][0].tokens[-1] == 3
    assert engine.translate_ids([], DecodingConfig(), SPECIAL, max_lengths=[]) == []
    for source in ([70], [-1], [2**31 - 1], [2**40], [-(2**31)]):
        with pytest.raises(DecodingError, match="vocabulary"):
            translate(source)
    for source, limit in (([], 5), ([4] * 41, 5), ([4], 40), ([4], -1), ([4], 2**31 - 1)):
        with pytest.raises(DecodingError, match="tokens"):
            translate(source, limit=limit)
    with pytest.raises(DecodingError, match="prefix"):
        translate([4, 3], limit=2, prefix=(5, 6, 7))
    with pytest.raises(DecodingError, match="token 99 is not in the vocabulary"):
        translate([4, 3], prefix=(99,))
    with pytest.raises(ConfigError, match="sampling"):
        translate([4], DecodingConfig(method="sampling"))
    with pytest.raises(DecodingError, match="same length"):
        engine.translate_ids([[4]], DecodingConfig(), SPECIAL, max_lengths=[])
    with pytest.raises(ConfigError, match="no avx4096 kernels"):
        NativeEngine(engine.path, kernels="avx4096")
    engine.close()
    with pytest.raises(DecodingError, match="closed"):
        translate([4])


def test_refused_length_limit_allocates_no_results(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    tracemalloc.start()
    try:
        with pytest.raises(DecodingError, match="target tokens"):
            engine.translate_ids([[4]], DecodingConfig(), SPECIAL, max_lengths=[2**31 - 1])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000


def test_attention_weights_match_torch(tmp_path: Path) -> None:
    model = random_model(small_config(num_decoder_layers=3))
    engine = engine_of(model, tmp_path, precision="float32")
    sources, random = random_sources(9), np.random.default_rng(5)
    targets = [[BOS, *random.integers(4, 70, random.integers(0, 14)).tolist()] for _ in sources]
    for source, target in zip(sources, targets, strict=True):
        row = torch.tensor([source])
        given = row, torch.ones_like(row, dtype=torch.bool)
        [forced] = force_decode(model, *given, [[*target[1:], EOS]], bos_id=BOS, need_weights=True)
        for layer, head in product(range(3), (None, 0, 3)):
            [found] = engine.align_ids([source], [target], layer=layer, head=head)
            expected = alignment_weights(forced.attention, AlignmentSource(layer, 0, head))
            np.testing.assert_allclose(found, expected, atol=1e-5)
    together = engine.align_ids(sources, targets, layer=2, head=1)
    for source, target, found in zip(sources, targets, together, strict=True):
        np.testing.assert_array_equal(found, engine.align_ids([source], [target], layer=2, head=1)[0])
    for layer, head in ((3, None), (-1, None), (0, 4), (0, -2)):
        with pytest.raises(DecodingError, match="no such layer or head"):
            engine.align_ids(sources, targets, layer=layer, head=head)


@pytest.mark.parametrize(
    "options",
    [
        {"architecture": "recurrent"},
        {"architecture": "convolutional"},
        {"norm": "batch"},
        {"attention_scoring": "additive"},
        {"key_dim": 4},
    ],
    ids=str,
)
def test_unsupported_options_are_refused_by_name(options: dict[str, object]) -> None:
    config: ModelConfig = small_config(**options)
    name, value = next(iter(options.items()))
    with pytest.raises(ConfigError, match=f"model.{name}={value}"):
        require_support("native_engine", config)
    require_support("native_engine", small_config())
    require_support("native_engine", small_config(key_dim=8))
