"""The measures of the page, such as entropies, rank correlations and alignments, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful import Translator
from heedful.inspection import trace
from heedful.model_dir.save_load import AlignmentSource
from tests.web.web_build import WEB, bundle, needs_node, run_node

pytestmark = needs_node

Array = np.ndarray
SENTENCES = [("I would like a cup of coffee, please.", "zh"), ("Where is the next train station?", "de")]
SIZES = {"numHeads": 3, "numLayers": {"encoder": 2, "decoder": 4}}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(WEB / "tests" / "run_measures.ts", tmp_path_factory.mktemp("node") / "run_measures.mjs")


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load(engine="native")


def random_weights(rng: np.random.Generator, queries: int, keys: int, *, causal: bool = False) -> Array:
    scores = rng.normal(size=(queries, keys)) * rng.uniform(0.1, 6)
    if causal:
        scores[np.triu_indices(queries, 1, keys)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def rank(values: Array) -> Array:
    """Ranks from 1; equal values share their mean."""
    smaller = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    return np.asarray(smaller + (equal + 1) / 2)


def spearman(first: Array, second: Array) -> float:
    a, b = rank(first), rank(second)
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else float("nan")


def expected_summary(weights: Array, places: dict[str, Any]) -> dict[str, float]:
    """The same numbers by numpy, in float64."""
    wide = weights.astype(np.float64)
    num_queries, num_keys = wide.shape
    kind = places["kind"]
    query, key = np.indices(wide.shape)
    visible = key <= query if kind == "decoder" else np.ones(wide.shape, bool)
    counted = visible.sum(axis=1) >= 2
    entropy = -(wide * np.log2(wide, where=wide > 0, out=np.zeros_like(wide))).sum(axis=1)
    found = {
        "entropy": entropy[counted].mean(),
        "spread": (entropy[counted] / np.log2(visible.sum(axis=1)[counted])).mean(),
        "punctuation": wide[counted][:, places["punctuation"]].sum(axis=1).mean(),
        "first": wide[counted, : places["numFirst"]].sum(axis=1).mean(),
        "end": wide[counted, places["end"]].mean() if places["end"] >= 0 else float("nan"),
        "monotonicity": float("nan"),
    }
    if kind == "cross":
        found["monotonicity"] = spearman((wide * key).sum(axis=1), np.arange(num_queries))
        return {**found, **dict.fromkeys(("distance", "self", "previous", "next", "near"), float("nan"))}

    def diagonal(offset: int) -> float:
        rows = [i for i in range(num_queries) if counted[i] and 0 <= i + offset < num_keys]
        return float(np.mean([wide[i, i + offset] for i in rows]))

    return {
        **found,
        "distance": (wide * abs(query - key)).sum(axis=1)[counted].mean(),
        "near": (wide * (abs(query - key) <= 2)).sum(axis=1)[counted].mean(),
        "self": diagonal(0),
        "previous": diagonal(-1),
        "next": diagonal(1) if kind == "encoder" else float("nan"),
    }


def assert_summaries(found: list[dict[str, Any]], cases: list[tuple[Array, dict[str, Any]]]) -> None:
    assert len(found) == len(cases)
    for summary, (weights, places) in zip(found, cases, strict=True):
        for name, value in expected_summary(weights, places).items():
            number = float("nan") if summary[name] is None else summary[name]
            np.testing.assert_allclose(number, value, rtol=1e-5, atol=1e-7, err_msg=f"{name} of {places['kind']}")


def heads_call(cases: list[tuple[Array, dict[str, Any]]]) -> dict[str, Any]:
    return {"heads": [[weights.ravel().tolist(), places] for weights, places in cases]}


def places_of(kind: str, queries: int, keys: int, punctuation: list[bool]) -> dict[str, Any]:
    return {
        "kind": kind,
        "numQueries": queries,
        "numKeys": keys,
        "punctuation": punctuation,
        "end": -1 if kind == "decoder" else keys - 1,
        "numFirst": 1,
    }


def test_summaries_of_random_heads_are_those_of_numpy(script: Path) -> None:
    rng = np.random.default_rng(1)
    cases = []
    for kind, queries, keys in [("encoder", 7, 7), ("decoder", 9, 9), ("cross", 6, 11), ("encoder", 2, 2)] * 3:
        weights = random_weights(rng, queries, keys, causal=kind == "decoder")
        cases.append((weights, places_of(kind, queries, keys, (rng.random(keys) < 0.3).tolist())))
    assert_summaries(run_node(script, heads_call(cases))["heads"], cases)


def test_summaries_of_all_heads_of_a_translation_are_those_of_numpy(script: Path) -> None:
    found = trace(None, SENTENCES[0][0], target_language=SENTENCES[0][1], wanted=["*.weights"])
    cases = []
    for name, tensor in found.items():
        kind = "cross" if "cross" in name else name.split(".", maxsplit=1)[0]
        tokens = found.target_tokens if kind == "decoder" else found.source_tokens
        marks = [token.strip("▁") in (",", ".", "，", "。") for token in tokens]
        cases += [(head, places_of(kind, *head.shape, marks)) for head in tensor]
    assert len(cases) == 14 * 6
    assert_summaries(run_node(script, heads_call(cases))["heads"], cases)


def test_labels_name_what_a_head_attends_to(script: Path) -> None:
    size = 8
    plain = places_of("encoder", size, size, [False] * size)
    eye, uniform = np.eye(size), np.full((size, size), 1 / size)
    column = np.zeros((size, size))
    column[:, 3] = 1
    tokens = {**plain, "punctuation": [index == 3 for index in range(size)]}
    cross = {**plain, "kind": "cross"}
    half = 0.35 * np.roll(eye, -1, axis=0) + 0.65 * np.roll(eye, 3, axis=0)
    half[-1] = eye[0]
    cases = {
        "self mostly": (eye, plain),
        "previous mostly": (np.vstack([eye[:1], eye[:-1]]), plain),
        "next mostly": (np.vstack([eye[1:], eye[-1:]]), plain),
        "end mostly": (np.tile(eye[-1], (size, 1)), plain),
        "first mostly": (np.tile(eye[0], (size, 1)), plain),
        "punctuation mostly": (column, tokens),
        "spread None": (uniform, plain),
        "content None": (column, plain),
        "near None": (
            0.45 * np.vstack([eye[1:], eye[-1:]]) + 0.45 * np.vstack([eye[:1], eye[:-1]]) + 0.1 / size,
            plain,
        ),
        "in_order None": (0.8 * eye + 0.2 * np.roll(eye, 1, axis=1), {**cross, "end": -1, "numFirst": 0}),
        "next partly": (half, {**plain, "end": -1, "numFirst": 0}),
    }
    found = run_node(script, heads_call(list(cases.values())))["heads"]
    assert [f"{one['label']} {one['strength']}" for one in found] == list(cases)


def test_means_over_heads_are_those_of_numpy(script: Path) -> None:
    weights = np.random.default_rng(2).random((4, 3, 5)).astype(np.float32)
    [mean] = run_node(script, {"means": [[weights.ravel().tolist(), 4]]})["means"]
    np.testing.assert_allclose(mean, weights.mean(axis=0).ravel(), rtol=1e-6)


def test_rank_correlations_with_ties_are_those_of_numpy(script: Path) -> None:
    rng = np.random.default_rng(3)
    pairs = [(rng.integers(0, high, size), rng.normal(size=size)) for size in (2, 5, 30) for high in (2, 4, 100)]
    pairs += [
        (rng.integers(0, 4, 50), rng.integers(0, 4, 50)),
        (np.ones(4), np.arange(4)),
        (np.arange(4), -np.arange(4)),
    ]
    found = run_node(script, {"correlations": [[a.tolist(), b.tolist()] for a, b in pairs]})["correlations"]
    for one, (a, b) in zip(found, pairs, strict=True):
        assert one["ranks"] == rank(a).tolist()
        np.testing.assert_allclose(float("nan") if one["rho"] is None else one["rho"], spearman(a, b), atol=1e-12)


def test_divergences_are_those_of_numpy(script: Path) -> None:
    rng = np.random.default_rng(4)
    pairs = [rng.normal(size=(2, size), scale=5).astype(np.float32) for size in (2, 10, 1000)]
    pairs.append(np.stack([pairs[0][0], pairs[0][0]]))
    found = run_node(script, {"distributions": [pair.tolist() for pair in pairs]})["distributions"]
    for one, pair in zip(found, pairs, strict=True):
        wide = pair.astype(np.float64)
        p, q = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(one["log_probs"], p, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one["divergence"], (np.exp(p) * (p - q)).sum(), rtol=1e-9, atol=1e-12)
        assert one["best"] == int(pair[0].argmax())
    assert found[-1]["divergence"] == 0


@pytest.mark.parametrize(("sentence", "language"), SENTENCES)
def test_alignment_is_that_of_translate(script: Path, translator: Translator, sentence: str, language: str) -> None:
    [translated] = translator.translate([sentence], target_language=language, align=True, method="greedy")
    found = trace(translator, sentence, target_language=language, wanted=["*.cross_attention.weights"])
    assert found.text == translated.text
    source: AlignmentSource = translator.engine.alignment  # type: ignore[attr-defined]
    weights = found[f"decoder.layers.{source.layer}.cross_attention.weights"]
    chosen = weights.mean(axis=0) if source.head is None else weights[source.head]
    call = [chosen.ravel().tolist(), *chosen.shape, source.offset, 1]
    [one] = run_node(script, {"alignments": [call]})["alignments"]
    rows = source.rows(chosen, 1)
    np.testing.assert_array_equal(np.float32(one["weights"]).reshape(rows.shape), rows)
    assert translated.alignment is not None
    assert [tuple(link) for link in one["links"]] == translated.alignment
    assert one["pharaoh"] == " ".join(f"{s}-{t}" for s, t in translated.alignment)


def test_of_equal_weights_the_first_is_linked(script: Path) -> None:
    weights = [0.1, 0.4, 0.4, 0.1] * 3
    [one] = run_node(script, {"alignments": [[weights, 3, 4, 0, 0]]})["alignments"]
    assert (one["numTargets"], one["numSources"], one["pharaoh"]) == (2, 3, "1-0 1-1")


def test_differences_leave_a_longest_common_subsequence(script: Path) -> None:
    rng = np.random.default_rng(5)
    pairs = [
        (rng.integers(0, 4, rng.integers(0, 12)).tolist(), rng.integers(0, 4, rng.integers(0, 12)).tolist())
        for _ in range(40)
    ]
    found = run_node(script, {"sequences": pairs})["sequences"]
    for one, (a, b) in zip(found, pairs, strict=True):
        kept_a = [token for token, differs in zip(a, one["first"], strict=True) if not differs]
        kept_b = [token for token, differs in zip(b, one["second"], strict=True) if not differs]
        assert kept_a == kept_b
        assert len(kept_a) == longest_common_subsequence(a, b)
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        assert one["place"] == (-1 if a == b else same)


def longest_common_subsequence(a: list[int], b: list[int]) -> int:
    lengths = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            lengths[i + 1, j + 1] = lengths[i, j] + 1 if x == y else max(lengths[i, j + 1], lengths[i + 1, j])
    return int(lengths[-1, -1])


def all_switches() -> list[dict[str, Any]]:
    return [
        {"stack": stack, "sublayer": sublayer, "layer": layer, "head": head}
        for stack, sublayers in (("encoder", ["self_attention"]), ("decoder", ["self_attention", "cross_attention"]))
        for sublayer in sublayers
        for layer in range(SIZES["numLayers"][stack])  # type: ignore[index]
        for head in range(3)
    ]


@pytest.mark.parametrize(
    "wide",
    [
        {"kind": "remove", "stack": "decoder"},
        {"kind": "remove", "stack": "decoder", "sublayer": "cross_attention"},
        {"kind": "uniform", "stack": "decoder", "layer": 1},
        {"kind": "remove", "stack": "decoder", "sublayer": "cross_attention", "layer": 1},
        {"kind": "uniform", "stack": "decoder", "sublayer": "cross_attention", "head": 2},
    ],
    ids=str,
)
def test_switching_one_head_on_keeps_the_other_changes(script: Path, wide: dict[str, Any]) -> None:
    place = {"stack": "decoder", "sublayer": "cross_attention", "layer": 1, "head": 2}
    before, after = run_node(script, {"switches": [[[wide], [], SIZES], [[wide], [[place, "normal"]], SIZES]]})[
        "switches"
    ]
    changed = dict(zip(map(str, all_switches()), zip(before["states"], after["states"], strict=True), strict=True))
    assert changed[str(place)] == (wide["kind"], "normal")
    others = [states for name, states in changed.items() if name != str(place)]
    assert all(one == two for one, two in others)
    if "head" not in wide and wide["kind"] == "remove" and "sublayer" not in wide:
        assert {"kind": "remove", "stack": "decoder", "sublayer": "feed_forward"} in after["after"]


def test_a_whole_sublayer_replaces_its_heads(script: Path) -> None:
    head = {"stack": "encoder", "sublayer": "self_attention", "layer": 0, "head": 1}
    whole = {"stack": "encoder", "sublayer": "self_attention", "layer": 0}
    changes = [[head, "remove"], [whole, "uniform"]]
    [one, two] = run_node(script, {"switches": [[[], changes, SIZES], [[], [*changes, [whole, "normal"]], SIZES]]})[
        "switches"
    ]
    assert one["after"] == [{"kind": "uniform", **whole}]
    assert two["after"] == []
    assert set(two["states"]) == {"normal"}


def test_only_one_head_is_left_by_its_example(script: Path) -> None:
    [one] = run_node(script, {"switches": [[[], [], SIZES]]})["switches"]
    example = one["presets"][3]
    [applied] = run_node(script, {"switches": [[example, [], SIZES]]})["switches"]
    left = {place["head"] for place, state in zip(all_switches(), applied["states"], strict=True) if state == "normal"}
    assert left == {0}
    assert len(example) == 2 * 3
