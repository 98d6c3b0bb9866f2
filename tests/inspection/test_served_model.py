"""Models that the server runs: traces equal those of Python to the bit, in the page's reader too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.decoding.translator import Translator
from heedful.errors import DecodingError
from heedful.inspection import trace
from heedful.inspection.page_server import PageServer
from heedful.inspection.static_site import site_model
from heedful.inspection.trace_format import read_trace_bytes
from tests.inspection.small_sites import Client, connected, running, save_small
from tests.web.web_build import WEB, bundle, needs_node, run_node

KINDS: dict[str, dict[str, Any]] = {
    "recurrent": {"architecture": "recurrent", "attention_scoring": "additive"},
    "convolutional": {"architecture": "convolutional"},
    "batch_norm": {"norm": "batch"},
    "additive": {"attention_scoring": "additive"},
    "local": {"self_attention": "local", "cross_attention": "local_predictive", "attention_window": 2},
    "native": {},
}
"""The last one is a model that the engine supports, run by the server all the same."""
SENTENCE = "Where is the cat, Anna?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, changes in KINDS.items():
        save_small(folder / name, **changes)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PageServer]:
    with running([site_model(folder / name, name=name, kind="server") for name in KINDS]) as server:
        yield server


@pytest.fixture
def client(server: PageServer) -> Iterator[Client]:
    with connected(server) as client:
        yield client


def ask(client: Client, call: str, model: str, **request: Any) -> Any:
    found = client.post(f"/api/{call}", {"model": model, **request})
    assert found.status == 200, found.body
    return found


@pytest.mark.parametrize("name", KINDS)
def test_traces_are_those_of_python_to_the_bit(name: str, folder: Path, client: Client) -> None:
    translator = Translator.load(folder / name, device="cpu")
    expected = trace(translator, SENTENCE, target_language="de")
    found = ask(client, "trace", name, text=SENTENCE, target_language="de")
    assert found.headers["content-type"] == "application/octet-stream"
    header, tensors = read_trace_bytes(found.body)
    assert header["text"] == expected.text
    for field in ("source_ids", "target_ids", "source_tokens", "target_tokens"):
        assert header[field] == getattr(expected, field)
    assert list(tensors) == list(expected)
    assert "candidates" not in header
    for tensor_name, tensor in tensors.items():
        assert tensor.shape == expected[tensor_name].shape
        assert tensor.tobytes() == expected[tensor_name].astype("<f4").tobytes(), tensor_name


@pytest.mark.parametrize("name", KINDS)
def test_given_ids_and_wanted_tensors_are_those_of_the_request(name: str, client: Client) -> None:
    source = ask(client, "encode", name, text=SENTENCE, target_language="de").json["ids"]
    target = ask(client, "encode", name, text="A dog sat.", side="target").json["ids"]
    wanted = ["logits", "*.cross_attention.weights"]
    header, tensors = read_trace_bytes(ask(client, "trace", name, source=source, target=target, wanted=wanted).body)
    assert header["source_ids"] == source
    assert header["target_ids"][1:] == target
    assert {tensor.split(".")[-1] for tensor in tensors} == {"logits", "weights"}
    assert tensors["logits"].shape[0] == len(target) + 1
    prefix, _ = read_trace_bytes(ask(client, "trace", name, source=source, prefix=target[:2], wanted=[]).body)
    assert prefix["target_ids"][1:3] == target[:2]
    assert len(prefix["target_ids"]) > 3
    pieces = ask(client, "pieces", name, ids=source, side="source").json["pieces"]
    assert pieces == header["source_tokens"]


@pytest.mark.parametrize("name", KINDS)
def test_candidates_are_the_most_probable_tokens(name: str, client: Client) -> None:
    request = {"text": SENTENCE, "target_language": "zh", "candidates": 5}
    header, tensors = read_trace_bytes(ask(client, "trace", name, **request).body)
    eos = header["candidates"][-1]["next"]["token"]
    nexts = [*header["target_ids"][1:], eos]
    assert len(header["candidates"]) == len(nexts)
    for step, logits, chosen in zip(header["candidates"], tensors["logits"].astype(np.float64), nexts, strict=True):
        probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
        assert [one["token"] for one in step["best"]] == order[:5]
        assert step["next"]["token"] == chosen
        assert step["next"]["rank"] == order.index(chosen) + 1
        for one in (*step["best"], step["next"]):
            assert one["probability"] == pytest.approx(probabilities[one["token"]], rel=1e-9)
            assert one["log_prob"] == pytest.approx(np.log(probabilities[one["token"]]), rel=1e-9)
    layers = [tensor for tensor in tensors if tensor.startswith("decoder.layers.") and tensor.endswith(".logits")]
    assert len(header["layer_candidates"]) == len(layers)
    for rows, layer in zip(header["layer_candidates"], layers, strict=True):
        assert [row[0]["token"] for row in rows] == tensors[layer].argmax(-1).tolist()
        assert all(len(row) == 3 for row in rows)
    alone, none = read_trace_bytes(ask(client, "trace", name, **request, wanted=[]).body)
    assert none == {}
    assert alone["candidates"] == header["candidates"]


@pytest.mark.parametrize("name", KINDS)
def test_translations_are_those_of_python(name: str, folder: Path, client: Client) -> None:
    translator = Translator.load(folder / name, device="cpu")
    for beam_size in (1, 3):
        [expected] = translator.translate(
            [SENTENCE], target_language="de", method="beam" if beam_size > 1 else "greedy", beam_size=beam_size,
            num_best=1, checks=False, protect=False, split="never",
        )  # fmt: skip
        answer = ask(client, "translate", name, text=SENTENCE, target_language="de", beam_size=beam_size)
        [found] = answer.json["translations"]
        assert found["text"] == expected.text
        assert found["log_prob"] == pytest.approx(expected.log_prob, rel=1e-9)
        assert sum(found["log_probs"]) == pytest.approx(found["log_prob"], rel=1e-6)
    several = ask(client, "translate", name, text=SENTENCE, target_language="de", num_best=3).json["translations"]
    assert len(several) == 3
    assert [one["score"] for one in several] == sorted((one["score"] for one in several), reverse=True)


def test_greedy_translation_is_the_traced_one(client: Client) -> None:
    for name in KINDS:
        header, _ = read_trace_bytes(ask(client, "trace", name, text=SENTENCE, target_language="de", wanted=[]).body)
        answer = ask(client, "translate", name, text=SENTENCE, target_language="de", beam_size=1)
        assert answer.json["translations"][0]["text"] == header["text"]


def test_interventions_change_the_pass_of_models_that_have_them(client: Client) -> None:
    change = {"kind": "remove", "stack": "decoder", "sublayer": "cross_attention", "layer": 0, "head": 1}
    request = {"text": SENTENCE, "target_language": "de", "target": [9, 8], "wanted": ["logits"]}
    _, plain = read_trace_bytes(ask(client, "trace", "native", **request).body)
    _, changed = read_trace_bytes(ask(client, "trace", "native", **request, interventions=[change]).body)
    assert not np.array_equal(plain["logits"], changed["logits"])


@pytest.mark.parametrize(
    ("call", "request_", "problem"),
    [
        ("trace", {"text": SENTENCE, "target_language": "fr"}, "this text cannot be translated into 'fr'"),
        ("trace", {"text": SENTENCE}, "Name one of them"),
        ("trace", {"text": "cat " * 100, "target_language": "de"}, "and the model takes at most 32; shorten it"),
        ("trace", {"source": [5, 100_000]}, "source id 100000 is not in the vocabulary"),
        ("trace", {"source": [-1]}, "source id -1 is not in the vocabulary"),
        ("trace", {"source": []}, "there are no source ids"),
        ("trace", {"source": [5] * 33}, "there are 33 source ids, and the model takes at most 32"),
        ("trace", {"source": [5], "target": [5] * 32}, "there are 32 target ids, and the model takes at most 31"),
        ("trace", {"source": [5], "prefix": [10_000_000]}, "target id 10000000 is not in the vocabulary"),
        ("trace", {"source": "abc"}, "trace.source[0]: expected a whole number, not 'abc'"),
        ("trace", {"source": [5], "candidates": 1000}, "candidates is a number from 0 to 100, not 1000"),
        ("trace", {"source": [5], "candidates": "many"}, "trace.candidates: expected a whole number"),
        ("trace", {"source": [5], "wanted": 7}, "trace.wanted: expected a list, not 7"),
        ("trace", {"source": [5], "sourc": []}, "trace.sourc: unknown key"),
        ("trace", {"source": [5], "interventions": [{"kind": "burn", "stack": "encoder"}]}, "'burn' is not one of"),
        ("trace", {"source": [5], "interventions": [{"kind": "remove"}]}, "needs a kind and a stack"),
        ("translate", {"text": "A cat", "target_language": "de", "beam_size": 0}, "beam_size is a number from 1 to 64"),
        ("translate", {"text": SENTENCE, "target_language": "de", "num_best": 65}, "num_best is a number from 1 to 64"),
        ("translate", {"text": SENTENCE, "target_language": "de", "prefix": [5] * 60}, "there are 60 target ids"),
        ("pieces", {"ids": [1 << 40]}, "is not in the vocabulary"),
        ("pieces", {"ids": [5], "side": "middle"}, "pieces.side: 'middle' is not one of source, target"),
        ("encode", {"text": {}}, "encode.text: expected text"),
        ("encode", {"text": "\ud800 broken", "target_language": "fr"}, "cannot be translated"),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["recurrent", "additive", "native"])
def test_bad_requests_name_the_problem(
    name: str, call: str, request_: dict[str, Any], problem: str, client: Client
) -> None:
    found = client.post(f"/api/{call}", {"model": name, **request_})
    assert found.status == 400, found.body
    assert problem in found.json["error"], found.json
    assert client.post("/api/pieces", {"model": name, "ids": [5]}).status == 200


def test_models_without_interventions_refuse_them(client: Client) -> None:
    change = {"kind": "unscaled", "stack": "encoder"}
    request = {"model": "recurrent", "text": SENTENCE, "target_language": "de", "interventions": [change]}
    assert "does not support this model" in client.post("/api/trace", request).json["error"]


def test_damaged_model_is_an_error_of_the_call(tmp_path: Path) -> None:
    model = site_model(save_small(tmp_path / "gru", architecture="recurrent"), name="gru")
    weights = tmp_path / "gru" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with running([model]) as server, connected(server) as client:
        found = client.post("/api/trace", {"model": "gru", "text": "a", "target_language": "de"})
    assert found.status == 400
    assert "bytes instead of" in found.json["error"]


def test_other_bytes_are_not_a_trace() -> None:
    with pytest.raises(DecodingError, match="are not a trace"):
        read_trace_bytes(b"HEEDFUL")
    with pytest.raises(DecodingError, match="has version 9; this version of heedful reads 1"):
        read_trace_bytes(b"HEEDFULT\x09\0\0\0\0\0\0\0")


@needs_node
def test_page_reads_what_the_server_sends(folder: Path, server: PageServer, client: Client, tmp_path: Path) -> None:
    script = bundle(WEB / "tests" / "run_server_model.ts", tmp_path / "run_server_model.mjs")
    with running([site_model(folder / "native", name="native")]) as site:
        request = {
            "address": server.url(),
            "text": SENTENCE,
            "language": "de",
            "models": list(KINDS),
            "site": site.url(),
        }
        report = run_node(script, request)
    native = dict(zip(KINDS, report["answers"], strict=True))["native"]
    for field in ("text", "source", "target", "sourcePieces", "targetPieces", "tensors"):
        assert native[field] == report["engine"][field], field  # the engine in WebAssembly, to the bit
    for ours, theirs in zip(native["candidates"], report["engine"]["candidates"], strict=True):
        for one, other in zip([*ours["best"], ours["next"]], [*theirs["best"], theirs["next"]], strict=True):
            assert {**one, "probability": 0, "log_prob": 0} == {**other, "probability": 0, "log_prob": 0}
            assert one["log_prob"] == pytest.approx(other["log_prob"], rel=1e-12)
            assert one["probability"] == pytest.approx(other["probability"], rel=1e-12)
    for name, found in zip(KINDS, report["answers"], strict=True):
        manifest = json.loads(client.get(f"/models/{name}/model.json").body)
        assert found["manifest"] == manifest
        assert manifest["files"] == {}
        assert found["shape"]["d_model"] == manifest["model"]["d_model"] == 16
        body = ask(client, "trace", name, text=SENTENCE, target_language="de", candidates=4).body
        header, tensors = read_trace_bytes(body)
        assert found["text"] == header["text"]
        assert (found["source"], found["target"]) == (header["source_ids"], header["target_ids"])
        assert (found["sourcePieces"], found["targetPieces"]) == (header["source_tokens"], header["target_tokens"])
        assert found["candidates"] == header["candidates"]
        assert found["layerCandidates"] == header["layer_candidates"]
        assert list(found["tensors"]) == list(tensors)
        for tensor, (shape, bits) in found["tensors"].items():
            assert tuple(shape) == tensors[tensor].shape
            assert bytes.fromhex(bits) == tensors[tensor].tobytes()
        assert (
            found["translation"]
            == ask(client, "translate", name, text=SENTENCE, target_language="de").json["translations"]
        )
        assert found["sourceIds"] == found["source"]
        assert found["pieces"] == found["sourcePieces"]
        assert found["prefix"] == ask(client, "encode", name, text="A dog", side="target").json["ids"]
        assert found["error"] == "there are no source ids."
        assert found["closed"] == "the model was closed"
