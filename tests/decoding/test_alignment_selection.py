"""Alignment error rate on hand-aligned pairs, and the choice of an alignment source without them."""

from __future__ import annotations

import importlib
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.decoding.alignment_selection import (
    TokenPair,
    choose_alignment,
    choose_source,
    evenly_spaced,
    intersected_links,
    link_recall,
    list_sources,
    train_lexicons,
)
from heedful.decoding.translator import Translator
from heedful.errors import DecodingError
from heedful.model_dir import load_model
from heedful.model_dir.registry import bundled_model
from heedful.model_dir.save_load import AlignmentSource
from heedful.native import available
from heedful.search_types import special_tokens

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"
BEFORE = AlignmentSource(layer=0, offset=0)
"""The second-to-last decoder layer of the bundled model, which has two."""


@pytest.mark.skipif(not available(), reason=available().reason)
@pytest.mark.parametrize(
    ("model", "direction", "bound"),
    [("en-de-zh", "en-de", 9), ("en-de-zh", "de-en", 10), ("en-zh", "en-zh", 17), ("en-zh", "zh-en", 25)],
)
def test_bundled_models_alignment_error_rate(model: str, direction: str, bound: float) -> None:
    script = importlib.import_module("benchmarks.quality.alignment_error_rate")
    translator = Translator.load(model, engine="native")
    gold, language = script.read_gold(direction)[::3], direction[-2:]
    assert script.measure_translator(translator, gold, language) < bound
    recorded, translator.engine.alignment = translator.engine.alignment, BEFORE
    assert script.measure_translator(translator, gold, language) > 2 * bound
    assert recorded == AlignmentSource(layer=0, offset=1, head=4)


@pytest.mark.skipif(not available(), reason=available().reason)
def test_align_words_of_a_short_sentence() -> None:
    source = "Ich habe gestern ein rotes Auto gekauft."
    [found] = Translator.load(engine="native").translate([source], target_language="en", align=True)
    assert found.text == "I bought a red car yesterday."
    words = {found.text[slice(*target)]: source[slice(*origin)] for origin, target in found.word_alignment or []}
    expected = {"I": "Ich", "bought": "gekauft", "a": "ein", "red": "rotes", "car": "Auto", "yesterday": "gestern"}
    assert words == expected | {".": "."}


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_alignment_with_prefix_several_sentences_and_length_limit(engine: str) -> None:
    if engine == "native" and not available():
        pytest.skip(available().reason)
    translator = Translator.load(engine=engine, device="cpu")
    source = "Das Haus ist alt. Die Katze schläft."
    for settings in ({"target_prefix": ["The house"]}, {"split": "always"}, {"max_length": 3}, {"max_length": 1}):
        [found] = translator.translate([source], target_language="en", align=True, method="greedy", **settings)
        shape = (len(found.tokens), len(found.source_tokens))
        assert found.attention is not None and found.attention.shape == shape
        assert [token for _, token in found.alignment or []] == list(range(len(found.tokens)))
        assert (
            "▁Haus" not in found.source_tokens
            or ("▁house" not in found.tokens)
            or ((found.source_tokens.index("▁Haus"), found.tokens.index("▁house")) in (found.alignment or []))
        )


def test_choose_alignment_of_bundled_model() -> None:
    model_path = bundled_model()
    assert model_path is not None
    loaded = load_model(model_path)
    tokenizer = loaded.tokenizer
    lines = []
    for language in ("en", "de"):
        with open(EXAMPLES / f"tatoeba.{language}", encoding="utf-8") as file:
            lines.append([line.strip() for line in islice(file, 1500)])
    english, german = lines
    pairs = [
        TokenPair(*ids)
        for sources, targets, language in ((english, german, "de"), (german, english, "en"))
        for ids in zip(tokenizer.encode_sources(sources, language), tokenizer.encode_targets(targets), strict=True)
    ]
    held_out, learned = pairs[::60], [pair for number, pair in enumerate(pairs) if number % 60]
    chosen = choose_alignment(loaded.model, tokenizer, learned, held_out)
    assert chosen == AlignmentSource(layer=0, offset=1, head=4)
    assert choose_alignment(loaded.model, tokenizer, learned[:10], held_out[:3]) is None  # too few links


def test_single_head_needs_margin() -> None:
    recall = dict.fromkeys(list_sources(2, 3), 0.4)
    mean, head = AlignmentSource(1, 0), AlignmentSource(0, 1, head=2)
    recall |= {mean: 0.7, head: 0.705}
    assert choose_source(recall) == mean
    assert choose_source(recall | {head: 0.72}) == head
    assert choose_source(dict.fromkeys(list_sources(2, 3), 0.5)) == AlignmentSource(0, 0)


def test_intersected_links_keep_links_of_both_directions() -> None:
    vocabulary = np.arange(4, 24)
    random = np.random.default_rng(1)
    sources = [random.permutation(vocabulary)[: random.integers(2, 7)] for _ in range(300)]
    pairs = [(source, source[::-1] + 20) for source in sources]  # each word has one translation, in reverse order
    lexicons = train_lexicons(pairs, 50, 50)
    links = intersected_links(*pairs[0], *lexicons)
    length = len(pairs[0][0])
    assert links.tolist() == [[place, length - 1 - place] for place in range(length)]
    assert intersected_links(pairs[0][0], pairs[0][1][:0], *lexicons).shape == (0, 2)


def test_model_without_attention_has_no_alignment_source() -> None:
    model_path = bundled_model()
    assert model_path is not None
    tokenizer = load_model(model_path).tokenizer

    class Blind(torch.nn.Module):
        max_length = 50

        def encode(self, source: object, mask: object) -> None: ...
        def start(self, memory: object, **_: object) -> None: ...
        def step(self, tokens: torch.Tensor, state: object, **_: object) -> object:
            return type("Output", (), {"logits": torch.zeros(len(tokens), 30_000), "attention": None})()

    pair = TokenPair([1, 5, 3], [5, 3])
    with pytest.raises(DecodingError, match="no cross-attention"):
        link_recall(
            Blind(), special_tokens(tokenizer), [pair], [np.array([[0, 0]])], num_tags=1, device=torch.device("cpu")
        )


@pytest.mark.parametrize(("count", "most"), [(0, 5), (3, 5), (5, 5), (1000, 7)])
def test_pairs_are_taken_evenly(count: int, most: int) -> None:
    places = evenly_spaced(count, most)
    assert len(places) == min(count, most) == len(set(places))
    assert all(0 <= place < count for place in places) and places == sorted(places)
