"""The page's views of one head, positions, norms, the residual stream and feed-forward units: Python's numbers."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heedful import Translator
from heedful.inspection import Intervention, Trace, trace
from heedful.inspection.static_site import named_models, site_models, write_site
from heedful.model.positions import sinusoidal_encoding
from tests.web.test_page import QuietServer
from tests.web.web_build import WEB, needs_node

pytestmark = [
    needs_node,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium"),
    pytest.mark.slow,
]

SENTENCE, LANGUAGE = "I would like a cup of coffee, please.", "de"
EPSILON = 1e-5
close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the views show."""
    root = tmp_path_factory.mktemp("site")
    write_site(site_models(named_models([])), root / "page")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietServer, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    request = {
        "address": f"http://127.0.0.1:{server.server_port}/page/",
        "executablePath": shutil.which("chromium"),
        "sentence": SENTENCE,
        "to": LANGUAGE,
    }
    script = Path(WEB / "tests" / "number_views.mjs")
    done = subprocess.run(
        ["node", str(script)], input=json.dumps(request), capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load(engine="native")


@pytest.fixture(scope="module")
def traced(translator: Translator) -> Trace:
    return trace(translator, SENTENCE, target_language=LANGUAGE)


def test_browser_reports_no_error(found: dict[str, Any]) -> None:
    assert found["errors"] == []


def test_a_query_is_written_out_term_by_term(found: dict[str, Any], traced: Trace, translator: Translator) -> None:
    shown, name = found["head"], "encoder.layers.2.self_attention"
    parameters = [f"{name}.query_weight", f"{name}.query_bias"]
    given = trace(translator, SENTENCE, target_language=LANGUAGE, wanted=parameters)
    weight, bias = (given[one] for one in parameters)
    x = traced[f"{name}_norm.output"][3].astype(np.float64)
    products = x * weight[1, 5]
    assert shown["few"] < len(shown["terms"]) == len(x)
    close([float(term["product"]) for term in shown["terms"]], products)
    close([float(shown["sum"]["bias"]), float(shown["sum"]["sum"])], [bias[1, 5], products.sum() + bias[1, 5]])
    close([float(shown["query"][one]) for one in ("value", "computed")], traced[f"{name}.query"][1, 3, 5])


def test_the_softmax_of_a_row_without_scaling(found: dict[str, Any], traced: Trace) -> None:
    shown, name = found["head"], "encoder.layers.2.self_attention"
    row, column = int(shown["weight"]["row"]), int(shown["weight"]["column"])
    close(float(shown["weight"]["value"]), traced[f"{name}.weights"][1, row, column])
    rows = [traced[f"{name}.{part}"][1, row].astype(np.float64) for part in ("scaled_scores", "scores")]
    weights = [np.exp(one - one.max()) / np.exp(one - one.max()).sum() for one in rows]
    close(shown["entropies"], [-(one[one > 0] * np.log2(one[one > 0])).sum() for one in weights])
    moved = shown["moved"]
    assert (int(moved["row"]), int(moved["column"])) == (row, column + 1)
    assert shown["address"] == [f"weights-{row}-{column + 1}", "1", str(row), str(column + 1)]
    assert shown["band"] == "4"


def test_positions_are_rotated_by_the_offset(found: dict[str, Any], traced: Trace, translator: Translator) -> None:
    shown = found["positions"]
    width = traced["source_positions"].shape[1]
    table = sinusoidal_encoding(torch.arange(40)[None], width)[0].double().numpy()
    close(float(shown["cell"]["value"]), table[7, 11])
    assert float(shown["difference"]) < 1e-5 and float(shown["error"]) < 1e-5
    for clock in shown["clocks"]:
        angle = 5 * 10_000.0 ** (-2 * int(clock["pair"]) / width)
        close([float(clock["cos"]), float(clock["sin"])], [np.cos(angle), np.sin(angle)])
    assert [int(mark["x"]) for mark in shown["marks"]] == [place - 2 for place in range(len(traced.source_ids))]
    expected = table[: len(traced.source_ids)] @ table[2]
    np.testing.assert_allclose([float(mark["y"]) for mark in shown["marks"]], expected, rtol=1e-4)
    changes = [Intervention("no_positions", "encoder"), Intervention("no_positions", "decoder")]
    without = trace(translator, SENTENCE, target_language=LANGUAGE, interventions=changes)
    assert shown["outputs"] == [traced.text, without.text]
    assert shown["change"] == "no_positions,encoder~no_positions,decoder"
    assert shown["after"] == [None, None]


def test_norms_of_the_sentence_alone_and_in_a_batch(found: dict[str, Any], translator: Translator) -> None:
    shown, name, token, feature = found["norms"], "encoder.layers.1.feed_forward_norm", 3, 9
    assert shown["sentences"][0] == SENTENCE and len(shown["sentences"]) == 4
    wanted = [f"{name}.{part}" for part in ("input", "mean", "deviation", "output", "weight", "bias")]
    traces = [trace(translator, text, target_language=LANGUAGE, wanted=wanted) for text in shown["sentences"]]
    own = {part: traces[0][f"{name}.{part}"] for part in ("input", "mean", "deviation", "output", "weight", "bias")}
    value, mean, deviation = own["input"][token, feature], own["mean"][token], own["deviation"][token]
    parts = {part["part"]: part for part in shown["parts"]}
    expected = {
        "input": value, "mean": mean, "deviation": deviation, "standardised": (value - mean) / deviation,
        "gain": own["weight"][feature], "bias": own["bias"][feature], "output": own["output"][token, feature],
    }  # fmt: skip
    assert parts.keys() == expected.keys()
    for part, number in expected.items():
        close(float(parts[part]["value"]), number, err_msg=part)
        if "computed" in parts[part]:
            close(float(parts[part]["computed"]), number, err_msg=part)

    inputs = [one[f"{name}.input"].astype(np.float64) for one in traces]
    longest = max(len(one) for one in inputs)
    padded = np.concatenate([np.pad(one, ((0, longest - len(one)), (0, 0))) for one in inputs])
    assert int(shown["batch"]["places"]) == len(padded)
    assert int(shown["batch"]["padding"]) == len(padded) - sum(len(one) for one in inputs) > 0
    rows = {"alone": inputs[0], "batch": np.concatenate(inputs), "padding": padded}
    columns = {setting: one[:, feature] for setting, one in rows.items()} | {"layer": inputs[0][token]}
    settings = {one["setting"]: one for one in shown["settings"]}
    assert settings.keys() == columns.keys()
    for setting, numbers in columns.items():
        mean, deviation = numbers.mean(), np.sqrt(numbers.var() + EPSILON)
        one = settings[setting]
        assert int(one["count"]) == len(numbers)
        close(
            [float(one[key]) for key in ("mean", "deviation", "value")],
            [mean, deviation, (value - mean) / deviation],
            err_msg=setting,
        )
    alone, batch, counted = (
        (inputs[0] - one.mean(axis=0)) / np.sqrt(one.var(axis=0) + EPSILON) for one in rows.values()
    )
    close(float(shown["changes"]["changeByOthers"]), np.abs(alone - batch).max())
    close(float(shown["changes"]["changeByPadding"]), np.abs(batch - counted).max())


def test_what_each_sublayer_adds_and_each_layer_would_predict(found: dict[str, Any], traced: Trace) -> None:
    shown, step = found["residual"], 2
    expected = [
        f"decoder.layers.{layer}.{sublayer}"
        for layer in range(len(shown["layers"]))
        for sublayer in ("self_attention", "cross_attention", "feed_forward")
    ]
    assert [one["sublayer"] for one in shown["sublayers"]] == expected
    for one in shown["sublayers"]:
        x, added = (traced[f"{one['sublayer']}.{part}"][step] for part in ("residual_before", "output"))
        norms = np.linalg.norm(x), np.linalg.norm(added)
        close([float(one[key]) for key in ("before", "added", "cosine")], [*norms, x @ added / norms[0] / norms[1]])
    chosen = traced.target_ids[1:]
    for layer, steps in enumerate(shown["layers"]):
        logits = traced[f"decoder.layers.{layer}.logits"].astype(np.float64)
        probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        assert [int(one["token"]) for one in steps] == probabilities.argmax(axis=1).tolist()
        close([float(one["probability"]) for one in steps], probabilities.max(axis=1))
        agrees = [one["agrees"] for one in steps[: len(chosen)]]
        assert agrees == [int(one["token"]) == token for one, token in zip(steps, chosen, strict=False)]
    assert shown["chosen"] == ["0", expected[-1]]


def test_units_of_a_token(found: dict[str, Any], traced: Trace) -> None:
    shown, name, token = found["feed_forward"], "encoder.layers.3.feed_forward", 2
    pre, post = (traced[f"{name}.{part}"][token] for part in ("pre_activation", "post_activation"))
    assert int(shown["counts"]["silent"]) == (post == 0).sum()
    assert int(shown["counts"]["units"]) == len(post)
    order = np.argsort(-post, kind="stable")[: len(shown["top"])]
    assert [int(one["unit"]) for one in shown["top"]] == order.tolist()
    close([float(one["value"]) for one in shown["top"]], post[order])
    assert int(shown["unit"]["unit"]) == order[0]
    close([float(shown["unit"]["pre"]), float(shown["unit"]["post"])], [pre[order[0]], post[order[0]]])
    close(float(shown["sum"]), pre[order[0]])
    close([float(one["value"]) for one in shown["tokens"]], traced[f"{name}.post_activation"][:, order[0]])
    assert sum(int(bar["count"]) for bar in shown["bars"]) == len(pre)
    assert sum(int(bar["count"]) for bar in shown["bars"] if float(bar["from"]) < -1e-9) == (pre < 0).sum()
    assert shown["address"] == str(order[3])
