"""The page's attention views and experiments in a real browser: their numbers are those of traces in Python."""

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

from heedful import Translator
from heedful.inspection import Intervention, Trace, trace
from heedful.inspection.static_site import named_models, site_models, write_site
from heedful.inspection.trace import trace_ids
from tests.web.test_page import QuietServer
from tests.web.test_page_measures import spearman
from tests.web.web_build import WEB, needs_node

pytestmark = [
    needs_node,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium"),
    pytest.mark.slow,
]

SENTENCE, LANGUAGE = "I would like a cup of coffee, please.", "de"
CHANGES = [
    Intervention("remove", "decoder", "cross_attention", layer=0, head=4),
    Intervention("uniform", "encoder", "self_attention", layer=1),
]
Array = np.ndarray
close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("site")
    write_site(site_models(named_models([])), root / "page")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietServer, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/page/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def found(address: str) -> dict[str, Any]:
    """What the views show."""
    request = {"address": address, "executablePath": shutil.which("chromium"), "sentence": SENTENCE, "to": LANGUAGE}
    script = Path(WEB / "tests" / "attention_views.mjs")
    done = subprocess.run(
        ["node", str(script)], input=json.dumps(request), capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load(engine="native")


@pytest.fixture(scope="module")
def traced(translator: Translator) -> Trace:
    return trace(translator, SENTENCE, target_language=LANGUAGE)


def weights_name(kind: str, layer: int) -> str:
    stack = "encoder" if kind == "encoder" else "decoder"
    return f"{stack}.layers.{layer}.{'cross' if kind == 'cross' else 'self'}_attention.weights"


def log_probs(logits: Array, tokens: list[int]) -> Array:
    return np.asarray(log_softmax(logits)[np.arange(len(tokens)), tokens])


def log_softmax(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=1, keepdims=True)))


def chosen_tokens(one: Trace, translator: Translator) -> list[int]:
    """What the steps of a translation predict."""
    return [*one.target_ids[1:], translator.special.eos_id]


def test_the_browser_reports_no_errors(found: dict[str, Any]) -> None:
    assert found["errors"] == []


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_cells_heads_and_curves_are_those_of_the_trace(kind: str, found: dict[str, Any], traced: Trace) -> None:
    shown = found["attention"][kind]
    name = weights_name(kind, shown["layer"])
    weights = traced[name][shown["head"]]
    place = (shown["head"], 3, 2)
    cell = shown["cell"]
    close(float(cell["weight"]), traced[name][place])
    close(float(cell["score"]), traced[name.replace("weights", "scores")][place])
    close(float(cell["scaledScore"]), traced[name.replace("weights", "scaled_scores")][place])
    assert shown["moved"] == ["3", "1"]
    close(float(shown["mean"]), traced[weights_name(kind, 1)][:, 3, 1].mean())

    for curve in shown["curves"]:
        close(float(curve["weight"]), weights[int(curve["row"]), int(curve["column"])])
    large = np.float32(weights) >= 0.1
    assert len(shown["curves"]) == large.sum()
    assert int(shown["hidden"]["hidden"]) == ((weights > 0) & ~large).sum()

    num_layers = sum(
        1 for other in traced if other.startswith(name.split(".")[0]) and other.endswith(name.split(".", 3)[3])
    )
    assert len(shown["heads"]) == num_layers * 7
    for one in shown["heads"]:
        tensor = traced[weights_name(kind, int(one["layer"]))].astype(np.float64)
        head = tensor.mean(axis=0) if one["head"] == "-1" else tensor[int(one["head"])]
        rows = head[1:] if kind == "decoder" else head
        entropy = -(rows * np.log2(rows, where=rows > 0, out=np.zeros_like(rows))).sum(axis=1)
        close(float(one["entropy"]), entropy.mean())


def test_rows_of_later_steps_are_dark(found: dict[str, Any]) -> None:
    assert found["steps"]["rows"] == "4"
    assert {int(curve["row"]) for curve in found["steps"]["curves"]} <= {0, 1, 2, 3}


def test_alignment_is_what_translate_writes(found: dict[str, Any], translator: Translator) -> None:
    [translated] = translator.translate([SENTENCE], target_language=LANGUAGE, align=True, method="greedy")
    assert translated.alignment is not None
    pairs = " ".join(f"{source}-{target}" for source, target in translated.alignment)
    assert found["alignment"]["subwords"] == pairs
    words = [tuple(map(int, pair.split("-"))) for pair in found["alignment"]["words"].split()]
    assert [target for _, target in words] == list(range(len(words)))
    assert len(words) < len(translated.alignment)
    assert found["alignment"]["downloaded"] == found["alignment"]["words"] + "\n"


def test_leaving_tokens_out_is_what_python_computes(
    found: dict[str, Any], traced: Trace, translator: Translator
) -> None:
    chosen = chosen_tokens(traced, translator)
    before = log_probs(traced["logits"], chosen)
    places = range(1, len(traced.source_ids) - 1)
    losses = np.zeros((len(chosen), len(places)), np.float32)
    for column, left_out in enumerate(places):
        source = [token for place, token in enumerate(traced.source_ids) if place != left_out]
        without = trace_ids(translator, source, traced.target_ids, wanted=["logits"])
        losses[:, column] = before - log_probs(without["logits"], chosen)
    attention = traced[weights_name("cross", 1)].mean(axis=0)[:, 1:-1]
    rows = found["explanation"]["rows"]
    assert len(rows) == len(chosen)
    for row, weights, loss in zip(rows, attention, losses, strict=True):
        assert (int(row["most"]), int(row["needed"])) == (weights.argmax() + 1, loss.argmax() + 1)
        close(float(row["rho"]), spearman(weights, loss), atol=0.03)
    overall = found["explanation"]["overall"]
    close(float(overall["rho"]), spearman(attention.ravel(), losses.ravel()), atol=0.01)
    assert int(overall["same"]) == (attention.argmax(axis=1) == losses.argmax(axis=1)).sum()


def forced(translator: Translator, one: Trace, changes: list[Intervention]) -> Array:
    """The logits that a changed model gives the same tokens."""
    return trace_ids(translator, one.source_ids, one.target_ids, wanted=["logits"], interventions=changes)["logits"]


def test_experiments_are_what_python_computes(found: dict[str, Any], traced: Trace, translator: Translator) -> None:
    shown = found["experiment"]
    changed = trace(translator, SENTENCE, target_language=LANGUAGE, interventions=CHANGES)
    assert [one["output"] for one in shown["outputs"]] == [traced.text, changed.text]
    original, other = chosen_tokens(traced, translator), chosen_tokens(changed, translator)
    same = [a == b for a, b in zip(original, other, strict=False)]
    assert int(shown["first"]) == (
        same.index(False) if False in same else -1 if len(original) == len(other) else len(same)
    )

    theirs = forced(translator, traced, CHANGES)
    assert_probabilities(shown["tables"][0], log_probs(traced["logits"], original), log_probs(theirs, original))
    p, q = log_softmax(traced["logits"]), log_softmax(theirs)
    close([float(row["divergence"]) for row in shown["tables"][0]], (np.exp(p) * (p - q)).sum(axis=1), rtol=1e-3)
    if traced.text != changed.text:
        back = forced(translator, changed, [])
        assert_probabilities(shown["tables"][1], log_probs(back, other), log_probs(changed["logits"], other))
        assert len(shown["shown"]) == len(other)

    heads = {(one["stack"], one["sublayer"], one["layer"], one["head"], one["state"]) for one in shown["switches"]}
    assert ("decoder", "cross_attention", "0", "4", "remove") in heads
    assert {one for one in heads if one[0] == "encoder"} == {
        ("encoder", "self_attention", "1", head, "uniform") for head in ("all", "0", "1", "2", "3", "4", "5")
    }
    assert shown["banner"] == "changed"
    assert (shown["left"], shown["reset"]) == ("uniform,encoder,self_attention,1", None)


def assert_probabilities(rows: list[dict[str, str]], before: Array, after: Array) -> None:
    close([float(row["before"]) for row in rows], np.exp(before), rtol=1e-3)
    close([float(row["after"]) for row in rows], np.exp(after), rtol=1e-3)


def test_ranked_heads_cost_what_python_computes(found: dict[str, Any], traced: Trace, translator: Translator) -> None:
    ranking = found["ranking"]
    losses = [float(one["loss"]) for one in ranking]
    assert losses == sorted(losses, reverse=True)
    chosen = chosen_tokens(traced, translator)
    before = log_probs(traced["logits"], chosen).sum()
    for one in ranking[:4]:
        change = Intervention("remove", one["stack"], one["sublayer"], layer=int(one["layer"]), head=int(one["head"]))
        close(
            float(one["loss"]),
            before - log_probs(forced(translator, traced, [change]), chosen).sum(),
            rtol=1e-3,
            atol=1e-3,
        )


def test_a_weight_set_by_hand_is_an_intervention(found: dict[str, Any], traced: Trace, translator: Translator) -> None:
    assert found["hand"]["change"] == "set_weight,decoder,cross_attention,0,4,2,1,0.75"
    change = Intervention("set_weight", "decoder", "cross_attention", layer=0, head=4, query=2, key=1, value=0.75)
    chosen = chosen_tokens(traced, translator)
    after = log_probs(forced(translator, traced, [change]), chosen)
    assert_probabilities(found["hand"]["rows"][: len(chosen)], log_probs(traced["logits"], chosen), after)


def test_a_beginning_is_compared_with_the_free_translation(
    found: dict[str, Any], traced: Trace, translator: Translator
) -> None:
    begun = trace(translator, SENTENCE, target_language=LANGUAGE, target_prefix="Ja")
    assert [one["output"] for one in found["beginning"]["outputs"]] == [traced.text, begun.text]
    assert found["beginning"]["prefix"] == "-".join(map(str, translator.tokenizer.encode_prefix("Ja")))
