"""The tree of a beam search belongs to the search that translates: same hypotheses, sums along paths, true states."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from heedful.config import DecodingConfig
from heedful.errors import ConfigError, DecodingError
from heedful.native.bindings import TreeNode, kernel_names
from heedful.search_types import Hypothesis, length_penalty
from tests.native.native_models import BOS, EOS, SPECIAL, engine_of, random_model, random_sources, small_config

KEPT, FINISHED, PRUNED = range(3)
SEARCHES = {
    "greedy": DecodingConfig(method="greedy"),
    "beam_of_one": DecodingConfig(beam_size=1),
    "paper": DecodingConfig(beam_size=2, num_best=2, length_penalty="paper", length_penalty_alpha=1.0),
    "average": DecodingConfig(beam_size=4, num_best=2, length_penalty="average"),
    "none": DecodingConfig(beam_size=5, num_best=5, length_penalty="none"),
    "limits": DecodingConfig(beam_size=3, num_best=3, min_length=4, no_repeat_ngram_size=2),
}


def path_to(nodes: list[TreeNode], index: int) -> list[TreeNode]:
    """The nodes from the start of the sentence to a node."""
    path: list[TreeNode] = []
    while index >= 0:
        path.append(nodes[index])
        index = nodes[index].parent
    return path[::-1]


def check_tree(
    nodes: list[TreeNode], hypotheses: list[Hypothesis], config: DecodingConfig, prefix: list[int], limit: int
) -> None:
    by_step: dict[int, list[TreeNode]] = defaultdict(list)
    for index, node in enumerate(nodes):
        assert node.parent < index
        before = np.float32(0.0)
        if node.parent >= 0:
            parent = nodes[node.parent]
            assert (parent.state, parent.step) == (KEPT, node.step - 1)
            before = np.float32(parent.total)
        else:
            assert node.step == 0
        assert np.float32(node.total) == before + np.float32(node.log_prob)
        assert node.step < len(prefix) or node.step >= limit or node.token not in (0, 1, BOS)
        if node.step < len(prefix):
            assert node.token == prefix[node.step]
        by_step[node.step].append(node)
    beam = 1 if config.method == "greedy" else config.beam_size
    for step, found in by_step.items():
        check_step(found, beam, is_forced=step < len(prefix) or step == limit)
        for node in found:
            if node.state == FINISHED:
                divisor = length_penalty(float(step + 1), config)
                assert node.token == EOS
                assert node.score == pytest.approx(node.total / divisor, rel=1e-6)
            else:
                assert (node.score, node.rank) == (0.0, -1)
    ranked = {node.rank: index for index, node in enumerate(nodes) if node.rank >= 0}
    assert sorted(ranked) == list(range(len(hypotheses)))
    for rank, hypothesis in enumerate(hypotheses):
        path = path_to(nodes, ranked[rank])
        assert [node.token for node in path] == hypothesis.tokens
        assert [node.log_prob for node in path] == hypothesis.token_log_probs
        assert path[-1].total == pytest.approx(hypothesis.log_prob, rel=1e-5)
        assert path[-1].score == pytest.approx(hypothesis.score, rel=1e-5)
    best = [nodes[ranked[rank]].score for rank in range(len(hypotheses))]
    others = [node.score for node in nodes if node.state == FINISHED and node.rank < 0]
    assert best == sorted(best, reverse=True)
    assert not others or max(others) <= best[-1]


def check_step(found: list[TreeNode], beam: int, *, is_forced: bool) -> None:
    """Of one step: the best first; exactly the best `beam` tokens are kept, and end tokens among the best finish."""
    totals = [node.total for node in found]
    assert totals == sorted(totals, reverse=True)
    assert len(found) <= 2 * beam
    if not is_forced and found[0].step > 0:
        assert len(found) == 2 * beam
    others = [node for node in found if node.token != EOS]
    assert [node.state for node in others] == [KEPT if place < beam else PRUNED for place in range(len(others))]
    worst_kept = min((node.total for node in others if node.state == KEPT), default=-np.inf)
    assert all(node.total <= worst_kept for node in others if node.state == PRUNED)
    for place, node in enumerate(found):
        if node.token == EOS:
            assert node.state == (FINISHED if place < beam else PRUNED)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_tree_is_that_of_the_translation(search: str, precision: str, tmp_path: Path) -> None:
    config = SEARCHES[search]
    engine = engine_of(random_model(small_config()), tmp_path, precision=precision)
    for index, source in enumerate(random_sources(8, longest=15)):
        prefix, limit = [[], [7, 8, 9]][index % 2], 12 - index % 3
        arguments = {"max_length": limit, "prefix": prefix}
        hypotheses, nodes = engine.beam_tree_ids(source, config, SPECIAL, **arguments)
        [expected] = engine.translate_ids([source], config, SPECIAL, max_lengths=[limit], prefix=[prefix])
        assert hypotheses == expected
        check_tree(nodes, hypotheses, config, prefix, limit)


def test_wide_beam_keeps_more_hypotheses_than_the_vocabulary_has_tokens(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    config = DecodingConfig(beam_size=100, num_best=100)
    hypotheses, nodes = engine.beam_tree_ids([5, 6, EOS], config, SPECIAL, max_length=3)
    assert hypotheses == engine.translate_ids([[5, 6, EOS]], config, SPECIAL, max_lengths=[3])[0]
    assert sum(node.step == 0 for node in nodes) == 67  # without the padding, unknown and start tokens
    assert sum(node.step == 1 for node in nodes) == 200


def test_tree_is_the_same_with_all_kernels_and_threads(tmp_path: Path) -> None:
    model, config = random_model(small_config()), DecodingConfig(beam_size=4, num_best=2)
    found = []
    for kernels in kernel_names():
        for threads in (1, 3):
            engine = engine_of(model, tmp_path, precision="int8", kernels=kernels, num_threads=threads)
            hypotheses, nodes = engine.beam_tree_ids([5, 9, 30, EOS], config, SPECIAL, max_length=15)
            found.append((hypotheses, [bytes(node) for node in nodes]))
    assert all(other == found[0] for other in found)


def test_limit_of_zero_and_single_steps(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    config = DecodingConfig(beam_size=2)
    [hypothesis], [node] = engine.beam_tree_ids([5, EOS], config, SPECIAL, max_length=0)
    assert (node.parent, node.step, node.token, node.state, node.rank) == (-1, 0, EOS, FINISHED, 0)
    assert [node.log_prob] == hypothesis.token_log_probs


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    with pytest.raises(DecodingError, match="token 70 is not in the vocabulary"):
        engine.beam_tree_ids([70], DecodingConfig(), SPECIAL, max_length=5)
    with pytest.raises(DecodingError, match="target tokens"):
        engine.beam_tree_ids([5], DecodingConfig(), SPECIAL, max_length=40)
    with pytest.raises(ConfigError, match="sampling"):
        engine.beam_tree_ids([5], DecodingConfig(method="sampling"), SPECIAL, max_length=5)
    engine.close()
    with pytest.raises(DecodingError, match="closed"):
        engine.beam_tree_ids([5], DecodingConfig(), SPECIAL, max_length=5)
