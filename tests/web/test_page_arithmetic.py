"""The arithmetic of the page's views, in Node: equal to numpy's on random numbers and to the trace's on a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from heedful import Translator
from heedful.inspection import Trace, trace
from heedful.inspection.torch_trace import torch_trace
from heedful.model.positions import rotate, shift_matrix, sinusoidal_encoding
from tests.native.native_models import BOS, EOS, SPECIAL, random_model, small_config
from tests.web.web_build import WEB, bundle, needs_node, run_node

pytestmark = needs_node


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(WEB / "tests" / "run_arithmetic.ts", tmp_path_factory.mktemp("node") / "run_arithmetic.mjs")


@pytest.fixture(scope="module")
def traced() -> Trace:
    """A sentence through the bundled model, without the logits."""
    wanted = ("*layers.1.*", "source_positions", "memory")
    return trace(Translator.load(engine="native"), "Where is the train station?", target_language="de", wanted=wanted)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def test_terms_add_up_to_the_dot_product(script: Path) -> None:
    left, right = random(50), random(51)[:50]
    [found] = run_node(script, [{"kind": "terms", "left": left.tolist(), "right": right.tolist(), "bias": 0.5}])
    products = left.astype(np.float64) * right
    assert found["products"] == pytest.approx(products.tolist())
    assert found["sum"] == pytest.approx(products.sum() + 0.5)
    shown = found["shown"]
    assert {0, 1, 2, 47, 48, 49} | set(np.argsort(-np.abs(products))[:6].tolist()) == set(shown)
    assert shown == sorted(shown)
    assert len(shown) + found["numRest"] == 50
    assert products[shown].sum() + found["rest"] == pytest.approx(products.sum())


def test_softmax_of_masked_scores_and_its_entropy(script: Path) -> None:
    scores = [*(3 * random(9)).tolist(), None, None]
    uniform = [1.0] * 8
    found, flat = run_node(script, [{"kind": "softmax", "scores": scores}, {"kind": "softmax", "scores": uniform}])
    visible = np.array(scores[:9], dtype=np.float64)
    exponentials = np.exp(visible - visible.max())
    weights = exponentials / exponentials.sum()
    assert found["exponentials"] == pytest.approx([*exponentials.tolist(), 0, 0])
    assert found["sum"] == pytest.approx(exponentials.sum())
    assert found["weights"] == pytest.approx([*weights.tolist(), 0, 0])
    assert found["weights"][9:] == [0, 0]
    assert found["entropy"] == pytest.approx(-(weights * np.log2(weights)).sum())
    assert flat["entropy"] == pytest.approx(3)


def test_shifting_a_position_is_a_rotation_of_each_pair(script: Path, traced: Trace) -> None:
    count, width, offset = 40, 24, 7
    vector = random(width)
    request = {"kind": "positions", "count": count, "width": width, "offset": offset, "vector": vector.tolist()}
    own = {**request, "width": traced["source_positions"].shape[1], "vector": traced["memory"][0].tolist()}
    found, real = run_node(script, [request, own])
    table = np.array(found["table"]).reshape(count, width)
    assert table == pytest.approx(sinusoidal_encoding(torch.arange(count)[None], width)[0].numpy(), abs=2e-6)
    shifted = np.array(found["shifted"])
    assert shifted == pytest.approx(table @ shift_matrix(offset, width).numpy().T, abs=2e-6)
    assert shifted[: count - offset] == pytest.approx(table[offset:], abs=2e-6)
    assert found["similarity"] == pytest.approx((table @ table[0]).tolist(), abs=1e-4)
    assert found["means"] == pytest.approx(found["similarity"], abs=1e-4)
    turned = rotate(torch.from_numpy(vector)[None, None, None], torch.tensor([[offset]]))
    assert found["rotated"] == pytest.approx(turned.flatten().tolist(), abs=1e-5)
    positions = traced["source_positions"]
    assert np.array(real["table"]).reshape(count, -1)[: len(positions)] == pytest.approx(positions, abs=2e-6)


def test_norm_statistics_with_and_without_padding(script: Path, traced: Trace) -> None:
    width, epsilon = 12, 1e-5
    sentences = [random(length, width) + 0.5 for length in (5, 3, 8, 1)]
    norm = traced["encoder.layers.1.feed_forward_norm.input"]
    batches = [(sentences, width), ([norm], norm.shape[1])]
    found, real = run_node(
        script,
        [
            {"kind": "norms", "sentences": [one.flatten().tolist() for one in batch], "width": size, "epsilon": epsilon}
            for batch, size in batches
        ],
    )
    padded = np.zeros((4, 8, width))
    for index, one in enumerate(sentences):
        padded[index, : len(one)] = one
    tokens, everything = np.concatenate(sentences).astype(np.float64), padded.reshape(-1, width)
    statistics = found["statistics"]
    assert found["lengths"] == [5, 3, 8, 1]
    for name, rows in (("real", tokens), ("padded", everything)):
        assert statistics[name]["count"] == len(rows)
        assert statistics[name]["mean"] == pytest.approx(rows.mean(axis=0).tolist())
        assert statistics[name]["deviation"] == pytest.approx(np.sqrt(rows.var(axis=0) + epsilon).tolist())
    assert statistics["layer"]["mean"] == pytest.approx(everything.mean(axis=1).tolist())
    assert statistics["rms"]["mean"] == [0] * len(everything)
    assert statistics["rms"]["deviation"] == pytest.approx(np.sqrt((everything**2).mean(axis=1) + epsilon).tolist())
    expected = torch.nn.functional.layer_norm(torch.from_numpy(everything), (width,), eps=epsilon)
    assert found["layer"] == pytest.approx(expected.flatten().tolist(), abs=1e-5)
    by_batch = (everything - tokens.mean(axis=0)) / np.sqrt(tokens.var(axis=0) + epsilon)
    assert found["batch"] == pytest.approx(by_batch.flatten().tolist(), abs=1e-5)
    for part in ("mean", "deviation"):  # of the engine
        own = traced[f"encoder.layers.1.feed_forward_norm.{part}"]
        assert real["statistics"]["layer"][part] == pytest.approx(own.tolist(), rel=1e-4, abs=1e-4)


def test_lengths_and_directions_of_the_stream(script: Path, traced: Trace) -> None:
    place = "encoder.layers.1.feed_forward"
    x, added = traced[f"{place}.residual_before"], traced[f"{place}.output"]
    request = {"kind": "stream", "left": added.flatten().tolist(), "right": x.flatten().tolist(), "width": x.shape[1]}
    zeros = {"kind": "stream", "left": [0, 0, 3, 4], "right": [1, 1, 4, -3], "width": 2}
    found, small = run_node(script, [request, zeros])
    norms, cosines = found["columns"]
    assert norms == pytest.approx(np.linalg.norm(added, axis=1).tolist(), rel=1e-5)
    expected = (x * added).sum(axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(added, axis=1)
    assert cosines == pytest.approx(expected.tolist(), abs=1e-5)
    assert small == {"columns": [[0, 5], [0, 0]], "together": [0, 0, 5, 0]}


def test_units_that_fire(script: Path, traced: Trace) -> None:
    post = traced["encoder.layers.1.feed_forward.post_activation"]
    width = post.shape[1]
    small = [0.0, 0.005, -0.02, 3.0, -1.0, 0.0, 1.0, -3.0]
    requests = [{"kind": "units", "values": post.flatten().tolist(), "width": width, "activation": "relu"}]
    requests += [
        {"kind": "units", "values": small, "width": 8, "activation": one} for one in ("relu", "gelu", "swiglu")
    ]
    real, relu, gelu, swiglu = run_node(script, requests)
    assert real["shares"] == pytest.approx((post == 0).mean(axis=1).tolist(), abs=1e-6)
    quantile = np.quantile(np.abs(post), 0.995)
    assert real["colour"] == (pytest.approx(quantile, rel=0.02) if 3 * quantile < post.max() else post.max())
    assert relu["colour"] == 3
    assert real["top"] == np.argsort(-np.abs(post[0]), kind="stable")[:5].tolist()
    assert (relu["shares"], gelu["shares"], swiglu["shares"]) == ([2 / 8], [3 / 8], [3 / 8])
    assert relu["top"] == [3, 7, 4, 6, 2]
    bins = relu["histogram"]
    edges = bins["start"] + bins["width"] * np.arange(len(bins["counts"]) + 1)
    assert bins["counts"] == np.histogram(small, edges)[0].tolist()
    assert np.abs(edges).min() == pytest.approx(0, abs=1e-9)


STAGES = (
    "query",
    "key",
    "value",
    "scores",
    "scaled_scores",
    "mask",
    "weights",
    "head_outputs",
    "concatenation",
    "output",
)
OPTIONS: dict[str, dict[str, object]] = {
    "paper": {},
    "pre_norm": {"norm_placement": "pre"},
    "rotary": {"positions": "rotary", "norm": "rms", "norm_placement": "pre"},
    "without_bias": {"bias": False, "head_dim": 10},
    "unscaled": {"attention_scoring": "dot"},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_number_of_a_head_is_what_its_terms_give(option: str, script: Path) -> None:
    model = random_model(small_config(**OPTIONS[option]))
    config = model.config
    _, tensors = torch_trace(model, [9, 31, 5, 44, 12, EOS], [BOS, 17, 8, 40, 26], SPECIAL)
    requests, expected = [], []
    for name in (
        "encoder.layers.1.self_attention",
        "decoder.layers.0.self_attention",
        "decoder.layers.0.cross_attention",
    ):
        is_cross = name.endswith("cross_attention")
        pre = config.norm_placement == "pre"
        last = f"encoder.layers.{config.num_encoder_layers - 1}.feed_forward_norm"
        origins = {
            "inputOrigin": input_origin(name, pre=pre),
            "memoryOrigin": {"norm": "encoder.norm" if pre else last},
        }
        source = f"{name}_norm.output" if pre else f"{name}.residual_before"
        named = {**tensors, f"{name}.input": tensors[source], f"{name}.memory": tensors["memory"]}
        stages = ("input", *(("memory",) if is_cross else ()), *STAGES)
        cells = [cell for stage in stages for cell in some_cells(named, name, stage, head=1)]
        options = {
            "name": name,
            "head": 1,
            "input": source,
            **origins,
            "rotary": config.positions == "rotary" and not is_cross,
            "additive": False,
            "isScaled": config.attention_scoring == "scaled_dot",
            **({"memory": "memory"} if is_cross else {}),
        }
        parts = [one.get("norm", "target_") for one in origins.values()]
        sent = {one: tensor for one, tensor in tensors.items() if one.startswith((name, "memory", *parts))}
        sent |= parameters(model, name)
        for norm in {one["norm"] for one in origins.values() if "norm" in one}:
            for kind, tensor in model.get_submodule(norm).named_parameters():
                sent[f"{norm}.{kind}"] = tensor.detach().numpy()
        numbers = {one: {"shape": tensor.shape, "values": json_numbers(tensor)} for one, tensor in sent.items()}
        requests.append({"kind": "head", "tensors": numbers, "options": options, "cells": cells})
        expected.append([stage_matrix(named, name, stage, head=1)[row, column] for stage, row, column in cells])
    for request, found, values in zip(requests, run_node(script, requests), expected, strict=True):
        assert {*STAGES, "input"} <= set(found["present"])
        assert ("memory" in found["present"]) == ("memory" in request["options"])
        for cell, one, value in zip(request["cells"], found["cells"], values, strict=True):
            if not np.isfinite(value):
                assert (cell[0], one["kind"], one["value"]) == ("mask", "mask", None)
                continue
            assert one["value"] == pytest.approx(value, abs=1e-6), cell
            if one["kind"] != "mask":
                assert one["computed"] == pytest.approx(value, rel=1e-4, abs=1e-4), cell
    kinds = {one["kind"] for one in found["cells"]}
    assert kinds == {"norm", "dot", "scale", "mask", "softmax", "copy"}


def test_a_head_without_parameters_gives_its_numbers_only(script: Path, traced: Trace) -> None:
    name = "encoder.layers.1.self_attention"
    sent = {one: traced[f"{name}.{one}"] for one in ("query", "weights", "output")}
    numbers = {f"{name}.{one}": {"shape": tensor.shape, "values": json_numbers(tensor)} for one, tensor in sent.items()}
    options = {"name": name, "head": 2, "input": "none", "rotary": False, "additive": False, "isScaled": True}
    cells = [["query", 1, 3], ["weights", 0, 2], ["output", 2, 5]]
    [found] = run_node(script, [{"kind": "head", "tensors": numbers, "options": options, "cells": cells}])
    assert found["present"] == ["query", "weights", "output"]
    assert [one["kind"] for one in found["cells"]] == ["given"] * 3
    values = [sent["query"][2, 1, 3], sent["weights"][2, 0, 2], sent["output"][2, 5]]
    assert [one["value"] for one in found["cells"]] == pytest.approx(values, abs=1e-7)


def input_origin(name: str, *, pre: bool) -> dict[str, object]:
    """What the queries' input was computed from: its norm, or the embedding and the position."""
    if pre:
        return {"norm": f"{name}_norm"}
    if name == "decoder.layers.0.self_attention":
        return {"parts": ["target_embedding", "target_positions"]}
    return {"norm": "decoder.layers.0.self_attention_norm" if "cross" in name else "encoder.layers.0.feed_forward_norm"}


def stage_matrix(tensors: dict[str, np.ndarray], name: str, stage: str, *, head: int) -> np.ndarray:
    if stage == "concatenation":
        return np.concatenate(list(tensors[f"{name}.head_outputs"]), axis=1)
    tensor = tensors[f"{name}.{stage}"]
    return tensor[head] if tensor.ndim == 3 else tensor


def some_cells(tensors: dict[str, np.ndarray], name: str, stage: str, *, head: int) -> list[tuple[str, int, int]]:
    """Cells of every row and of about twelve columns."""
    rows, columns = stage_matrix(tensors, name, stage, head=head).shape
    return [(stage, row, column) for row in range(rows) for column in range(0, columns, max(1, columns // 12))]


def parameters(model: torch.nn.Module, name: str) -> dict[str, np.ndarray]:
    """W_Q, W_K, W_V as (H, Dh, D), W_O as (D, H·Dh), and the biases, if there are any."""
    attention = model.get_submodule(name)
    found: dict[str, np.ndarray] = {}
    for part in ("query", "key", "value", "output"):
        layer = attention.get_submodule(part)
        for kind, tensor in layer.named_parameters():
            array = tensor.detach().numpy()
            heads = (attention.num_heads, -1, *array.shape[1:])
            found[f"{name}.{part}_{kind}"] = array if part == "output" else array.reshape(heads)
    return found


def json_numbers(tensor: np.ndarray) -> list[float]:
    """The numbers for JSON, which has no infinity: in float32, -1e308 becomes one."""
    return np.where(np.isneginf(tensor), -1e308, tensor.astype(np.float64)).flatten().tolist()
