"""Search restricted to a shortlist's candidates; bit-identical in any batch and with all kernels."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.config import DecodingConfig
from heedful.decoding.engines.torch_engine import pad
from heedful.decoding.search import beam_search, greedy_search
from heedful.errors import ConfigError, DecodingError
from heedful.model_dir.shortlist import Shortlist
from heedful.native import NativeEngine, available
from heedful.native.bindings import kernel_names
from tests.native.native_models import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    UNK,
    engine_of,
    random_model,
    random_sources,
    small_config,
)

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)

SIZE = 1300
GREEDY, BEAM = DecodingConfig(method="greedy"), DecodingConfig(beam_size=4, num_best=3)
ODD = DecodingConfig(beam_size=3, num_best=2, min_length=4, no_repeat_ngram_size=2, length_penalty="average")


def shortlist_of(lists: list[list[int]], always: list[int]) -> Shortlist:
    starts = np.append(0, np.cumsum([len(one) for one in lists]))
    targets = np.array([token for one in lists for token in one], dtype=np.int32)
    return Shortlist(starts, targets, np.array(always, dtype=np.int32))


def random_shortlist(*, num_sources: int = 70, per_token: int = 20, seed: int = 1) -> Shortlist:
    random = np.random.default_rng(seed)
    lists = [sorted(set(random.integers(0, SIZE, per_token).tolist())) for _ in range(num_sources)]
    return shortlist_of(lists, sorted({EOS, *random.integers(4, SIZE, 30).tolist()}))


@pytest.fixture(scope="module", params=["int8", "float32"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeEngine:
    return make_engine(tmp_path_factory.mktemp("engine"), precision=request.param)


def make_engine(folder: Path, *, precision: str = "int8", kernels: str | None = None) -> NativeEngine:
    model = random_model(small_config(d_model=80, num_heads=5, target_vocab_size=SIZE, tying="target"), seed=5)
    return engine_of(model, folder, precision=precision, kernels=kernels)


@pytest.mark.parametrize("config", [GREEDY, BEAM, ODD], ids=["greedy", "beam", "odd"])
def test_shortlist_of_all_tokens_is_bit_identical(engine: NativeEngine, config: DecodingConfig) -> None:
    sources = random_sources(30)
    limits = [len(source) + 5 for source in sources]
    expected = engine.translate_ids(
        sources, dataclasses.replace(config, shortlist=False), SPECIAL, max_lengths=limits, prefix=prefixes(sources)
    )
    for lists, always in ((70 * [[]], list(range(SIZE))), (70 * [list(range(SIZE))], [])):
        engine.use_shortlist(shortlist_of(lists, always))
        found = engine.translate_ids(sources, config, SPECIAL, max_lengths=limits, prefix=prefixes(sources))
        assert found == expected
        assert found[:1] == engine.translate_ids(
            sources[:1], config, SPECIAL, max_lengths=limits[:1], prefix=prefixes(sources)[:1]
        )


def prefixes(sources: list[list[int]]) -> list[list[int]]:
    return [[700 + i, 9][: i % 3] for i in range(len(sources))]


@pytest.mark.parametrize("config", [GREEDY, BEAM, ODD], ids=["greedy", "beam", "odd"])
def test_sentence_bits_do_not_depend_on_batch(engine: NativeEngine, config: DecodingConfig) -> None:
    """With few candidates the columns are packed; with many, the whole vocabulary is used."""
    sources = random_sources(60, longest=20)
    limits = [len(source) + 5 for source in sources]
    for per_token in (3, 90):
        engine.use_shortlist(random_shortlist(per_token=per_token))
        together = engine.translate_ids(sources, config, SPECIAL, max_lengths=limits, prefix=prefixes(sources))
        each = zip(sources, limits, prefixes(sources), strict=True)
        alone = [engine.translate_ids([s], config, SPECIAL, max_lengths=[m], prefix=[p])[0] for s, m, p in each]
        assert together == alone
        small = dataclasses.replace(config, tokens_per_batch=150)  # many batches, distributed to workers
        assert engine.translate_ids(sources, small, SPECIAL, max_lengths=limits, prefix=prefixes(sources)) == alone


def test_kernels_are_bit_identical(tmp_path: Path) -> None:
    sources, found = random_sources(20), []
    for name in kernel_names():
        engine = make_engine(tmp_path, kernels=name)
        engine.use_shortlist(random_shortlist())
        found.append(engine.translate_ids(sources, BEAM, SPECIAL, max_lengths=[12] * 20))
        engine.close()
    assert all(one == found[0] for one in found)


class Masked:
    """A model whose logits are minus infinity except for the allowed tokens."""

    def __init__(self, model: torch.nn.Module, allowed: np.ndarray) -> None:
        self.model = model
        self.closed = torch.ones(SIZE, dtype=torch.bool)
        self.closed[torch.from_numpy(allowed.astype(np.int64))] = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.model, name)

    def step(self, *arguments: object, **named: object) -> object:
        output = self.model.step(*arguments, **named)  # type: ignore[operator]
        return dataclasses.replace(output, logits=output.logits.masked_fill(self.closed, -torch.inf))


@pytest.mark.parametrize("config", [GREEDY, BEAM, ODD], ids=["greedy", "beam", "odd"])
def test_search_matches_torch_with_masked_logits(config: DecodingConfig, tmp_path: Path) -> None:
    model = random_model(small_config(d_model=80, num_heads=5, target_vocab_size=SIZE, tying="target"), seed=5)
    engine = engine_of(model, tmp_path, precision="float32")
    shortlist = random_shortlist()
    engine.use_shortlist(shortlist)
    search = greedy_search if config.method == "greedy" else beam_search
    for source in random_sources(6, seed=3):
        allowed = np.union1d(shortlist.candidates(source), [EOS, 9, 700])
        masked = Masked(model, allowed)
        given, mask = pad([tuple(source)], pad_id=PAD, device=torch.device("cpu"))
        with torch.inference_mode():
            expected = search(masked, given, mask, config, SPECIAL, max_lengths=[12], prefix=[[9, 700]])[0]
        found = engine.translate_ids([source], config, SPECIAL, max_lengths=[12], prefix=[[9, 700]])[0]
        assert [one.tokens for one in found] == [one.tokens for one in expected]
        np.testing.assert_allclose([one.log_prob for one in found], [one.log_prob for one in expected], atol=2e-4)
        for one in found:
            assert set(one.tokens) <= set(allowed.tolist()) - {PAD, UNK, BOS}


def test_candidates_of_source_tokens_and_always() -> None:
    shortlist = shortlist_of([[], [], [], [5], [9, 4], [7, 5]], always=[11])
    assert shortlist.candidates([4, 5, 3]).tolist() == [4, 5, 7, 9, 11]
    assert shortlist.candidates([0]).tolist() == [11]


def test_translation_ends_without_candidates(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    engine.use_shortlist(shortlist_of(70 * [[]], []))
    found = engine.translate_ids([[5, EOS]], BEAM, SPECIAL, max_lengths=[5])
    assert [one.tokens for one in found[0]] == [[EOS]]
    assert found[0][0].log_prob == 0  # the only candidate has probability 1


def test_shortlist_of_another_model_is_refused(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    good = random_shortlist()
    wrong = {
        "another number of source tokens": random_shortlist(num_sources=69),
        "one after another": dataclasses.replace(good, starts=good.starts[np.r_[0, 2, 1, 3 : len(good.starts)]]),
        "full size": dataclasses.replace(good, starts=np.append(good.starts[:-1], good.starts[-1] + 1)),
        "not in the vocabulary": dataclasses.replace(good, targets=np.where(good.targets == good.targets[7], SIZE, 4)),
    }
    for words, shortlist in wrong.items():
        with pytest.raises(DecodingError, match=words):
            engine.use_shortlist(shortlist)
    with pytest.raises(DecodingError, match="not in the vocabulary"):
        engine.use_shortlist(dataclasses.replace(good, always=np.array([-1], dtype=np.int32)))
    with pytest.raises(ConfigError, match="no shortlist"):
        engine.translate_ids([[5, EOS]], DecodingConfig(shortlist=True), SPECIAL, max_lengths=[5])
