"""`heedful.inspection.beam_tree` explains the translation of the bundled model."""

from __future__ import annotations

import pytest

from heedful import Translator
from heedful.errors import ConfigError
from heedful.inspection import BeamTree, beam_tree
from heedful.model_dir.registry import default_model
from heedful.search_types import length_penalty

PLAIN = {"checks": False, "protect": False, "split": "never"}


def pieces_to(tree: BeamTree, index: int | None) -> list[str]:
    pieces: list[str] = []
    while index is not None:
        pieces.append(tree.nodes[index].piece)
        index = tree.nodes[index].parent
    return pieces[::-1]


@pytest.mark.parametrize("beam_size", [1, 2, 4, 7])
def test_tree_explains_the_translations_of_the_bundled_model(beam_size: int) -> None:
    translator = Translator.load(default_model(), engine="native")
    text, best_of = "Where is the train station?", min(beam_size, 3)
    for target_prefix in (None, "Der"):
        tree = beam_tree(
            translator, text, target_language="de", target_prefix=target_prefix, beam_size=beam_size, num_best=best_of
        )
        [expected] = translator.translate(
            [text],
            target_language="de",
            target_prefix=[target_prefix] if target_prefix else None,
            method="beam",
            beam_size=beam_size,
            num_best=best_of,
            **PLAIN,
        )
        assert tree.texts[0] == expected.text
        assert tree.hypotheses[0].log_prob == pytest.approx(expected.log_prob, rel=1e-12)
        assert tree.hypotheses[0].score == pytest.approx(expected.score, rel=1e-12)
        assert (len(tree.best), len(tree.texts), tree.beam_size) == (best_of, best_of, beam_size)
        for index, hypothesis in zip(tree.best, tree.hypotheses, strict=True):
            node = tree.nodes[index]
            assert node.state == "finished"
            assert pieces_to(tree, index) == translator.tokenizer.pieces(hypothesis.tokens)
            assert node.score == pytest.approx(hypothesis.score, rel=1e-5)
            config = translator.config
            assert (tree.length_penalty, tree.length_penalty_alpha) == (
                config.length_penalty,
                config.length_penalty_alpha,
            )
            assert node.score == pytest.approx(node.total / length_penalty(node.step + 1.0, config), rel=1e-6)
        assert all((node.score is None) == (node.state != "finished") for node in tree.nodes)
        assert tree.source_tokens == translator.tokenizer.source_pieces(tree.source_ids)


def test_defaults_are_those_of_the_model() -> None:
    translator = Translator.load(default_model(), engine="native")
    tree = beam_tree(translator, "你好，世界！", target_language="en")
    assert tree.beam_size == translator.config.beam_size
    assert len(tree.best) == translator.config.num_best
    assert tree.texts == [one.text for one in translator.translate(["你好，世界！"], target_language="en", **PLAIN)]


def test_engine_without_trees_is_refused() -> None:
    with pytest.raises(ConfigError, match="the tree of a search needs the native engine"):
        beam_tree(Translator.load(default_model(), engine="torch"), "Hello", target_language="de")
