"""`heedful export --to web`: the same ids, translations and traces as in Python, in Node and in a browser."""

from __future__ import annotations

import http.server
import importlib.util
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful import Translator
from heedful.errors import ConfigError
from heedful.inspection import beam_tree, trace
from heedful.interop.web import export_web
from heedful.model_dir.registry import default_model
from heedful.native import NativeEngine
from heedful.native.convert import native_weights
from heedful.text.tokenizer import Tokenizer
from tests.web.web_build import BUILT, WEB, bundle, needs_node, run_node

ROOT = WEB.parent
needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
SENTENCES = [
    ("Where is the train station?", "de"),
    ("Guten Morgen, Anna!", "en"),
    ("我们明天去学校。", "en"),
    ("A 🙂 b", "zh"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model below a folder that is served."""
    return export_web(default_model(), tmp_path_factory.mktemp("site") / "sub" / "path")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(WEB / "tests" / "run_model.ts", tmp_path_factory.mktemp("node") / "run_model.mjs")


def random_lines(count: int) -> list[str]:
    spec = importlib.util.spec_from_file_location("unicode_fuzz", ROOT / ".ci" / "unicode_fuzz.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.random_lines(count, seed=7))


@needs_node
def test_tokenizer_gives_the_ids_of_sentencepiece(site: Path, script: Path) -> None:
    tokenizer = Tokenizer.load(
        site.parent,
        paths={"tokenizer.json": default_model() / "tokenizer.json", "tokenizer.model": site / "tokenizer.model"},
    )
    folder = ROOT / "examples" / "data"
    lines = [
        line for side in ("en", "de") for line in (folder / f"tatoeba.{side}").read_text("utf-8").splitlines()[::2]
    ]
    pages = [*(ROOT / "docs").rglob("*.zh-CN.md"), *(ROOT / "recipes" / "bundled-model").glob("*.tsv")]
    chinese = [line for page in sorted(pages) for line in page.read_text("utf-8").splitlines()]
    lines += [
        *chinese,
        "",
        " ",
        "  a  b ",
        "\u2581",
        "a\u2581b",
        "\ufdd0\u2581",
        "\ud800",
        "a\udc00b",
        "ﬁ①Ａ",
        *random_lines(4000),
    ]
    assert len(lines) > 24_000
    found = run_node(script, {"folder": str(site), "lines": lines})
    for line, ids, text in zip(lines, found["ids"], found["decoded"], strict=True):
        expected = tokenizer.encode_target(line)[:-1]
        assert ids == expected, repr(line)
        assert text == tokenizer.decode(expected), repr(line)
    assert found["pieces"] == tokenizer.pieces(found["ids"][0])


@needs_node
def test_translations_and_traces_are_those_of_python(site: Path, script: Path) -> None:
    translator = Translator.load(default_model(), engine="native")
    request: dict[str, Any] = {
        "folder": str(site),
        "translate": [[text, {"targetLanguage": language}] for text, language in SENTENCES],
        "trace": [[text, {"targetLanguage": language}] for text, language in SENTENCES],
    }
    request["translate"] += [
        ["Hello", {}],
        ["Hello", {"targetLanguage": "fr"}],
        ["word " * 2000, {"targetLanguage": "de"}],
    ]
    found = run_node(script, request)
    for (text, language), (best,), shown in zip(SENTENCES, found["translations"], found["traces"], strict=False):
        [expected] = translator.translate([text], target_language=language, checks=False, protect=False, split="never")
        assert best["text"] == expected.text
        assert best["log_prob"] == pytest.approx(expected.log_prob, rel=1e-12)
        assert best["score"] == pytest.approx(expected.score, rel=1e-12)
        traced = trace(translator, text, target_language=language)
        assert shown["text"] == traced.text
        assert (shown["source"], shown["target"]) == (traced.source_ids, traced.target_ids)
        assert (shown["sourcePieces"], shown["targetPieces"]) == (traced.source_tokens, traced.target_tokens)
        assert {name: tuple(shape) for name, shape in shown["shapes"].items()} == {
            name: tensor.shape for name, tensor in traced.items()
        }
    no_language, unknown, too_long = found["translations"][len(SENTENCES) :]
    assert no_language["error"] == "this model translates into de, en, zh; no target language was given"
    assert unknown["error"] == "this model translates into de, en, zh; not into fr"
    assert "the model takes at most" in too_long["error"]


@needs_node
def test_candidates_are_the_most_probable_tokens_of_the_logits(site: Path, script: Path) -> None:
    translator = Translator.load(default_model(), engine="native")
    tokenizer, eos = translator.tokenizer, translator.special.eos_id
    options = {"candidates": 10, "wanted": ["*.cross_attention.weights", "decoder.layers.0.logits"]}
    request = [[text, {"targetLanguage": language, **options}] for text, language in SENTENCES]
    found = run_node(script, {"folder": str(site), "trace": request})["traces"]
    for (text, language), shown in zip(SENTENCES, found, strict=True):
        traced = trace(translator, text, target_language=language)
        wanted = [name for name in traced if name.endswith("cross_attention.weights")]
        assert sorted(shown["shapes"]) == sorted([*wanted, "decoder.layers.0.logits"])  # no other logits
        next_tokens = [*traced.target_ids[1:], eos]
        for step, token, row in zip(shown["candidates"], next_tokens, log_softmax(traced["logits"]), strict=True):
            order = np.argsort(-row, kind="stable")
            assert [one["token"] for one in step["best"]] == order[:10].tolist()
            for one in (*step["best"], step["next"]):
                assert one["log_prob"] == pytest.approx(row[one["token"]], abs=1e-9)
                assert one["probability"] == pytest.approx(np.exp(row[one["token"]]), rel=1e-9)
                assert [one["piece"]] == tokenizer.pieces([one["token"]])
            assert step["next"]["token"] == token
            assert step["next"]["rank"] == order.tolist().index(token) + 1
        assert len(shown["layerCandidates"]) == sum(name.endswith("cross_attention.weights") for name in traced)
        for layer, steps in enumerate(shown["layerCandidates"]):
            for step, row in zip(steps, log_softmax(traced[f"decoder.layers.{layer}.logits"]), strict=True):
                assert [one["token"] for one in step] == np.argsort(-row, kind="stable")[:3].tolist()
                assert step[0]["log_prob"] == pytest.approx(row.max(), abs=1e-9)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


@needs_node
def test_beam_trees_are_those_of_python(site: Path, script: Path) -> None:
    translator = Translator.load(default_model(), engine="native")
    prefix = translator.tokenizer.encode_prefix("Der")
    requests: list[Any] = [[text, {"targetLanguage": language}] for text, language in SENTENCES]
    requests.append(["The house is small.", {"targetLanguage": "de", "beamSize": 2, "numBest": 2, "prefix": prefix}])
    for (text, options), found in zip(
        requests, run_node(script, {"folder": str(site), "beamTree": requests})["beamTrees"], strict=True
    ):
        expected = beam_tree(
            translator,
            text,
            target_language=options["targetLanguage"],
            target_prefix="Der" if "prefix" in options else None,
            beam_size=options.get("beamSize"),
            num_best=options.get("numBest"),
        )
        assert found["nodes"] == [
            {**asdict(node), "parent": -1 if node.parent is None else node.parent} for node in expected.nodes
        ]
        assert (found["source"], found["sourcePieces"]) == (expected.source_ids, expected.source_tokens)
        assert found["best"] == expected.best
        assert [one["text"] for one in found["translations"]] == expected.texts
        assert [one["score"] for one in found["translations"]] == pytest.approx(
            [one.score for one in expected.hypotheses], rel=1e-12
        )
        for name in ("beam_size", "length_penalty", "length_penalty_alpha"):
            assert found[name] == getattr(expected, name)


@needs_node
def test_trace_of_source_ids_leaves_tokens_out(site: Path, script: Path) -> None:
    translator = Translator.load(default_model(), engine="native")
    text = "Where is the train station?"
    ids = translator.tokenizer.encode_source(text, "de")
    whole = trace(translator, text, target_language="de")
    target = whole.target_ids[1:]
    sources = [ids, *(ids[:place] + ids[place + 1 :] for place in range(1, len(ids) - 1))]
    request = {
        "folder": str(site),
        "trace": [["", {"source": source, "target": target, "candidates": 1, "wanted": []}] for source in sources],
        "sourceIds": [[text, "de"], [text]],
        "pieces": [[ids, "source"], [target, "target"], [[-1], "source"]],
    }
    found = run_node(script, request)
    assert found["sourceIds"][0] == ids
    assert "no target language" in found["sourceIds"][1]["error"]
    assert found["pieces"][:2] == [translator.tokenizer.source_pieces(ids), translator.tokenizer.pieces(target)]
    assert "id -1 is not in the vocabulary" in found["pieces"][2]["error"]
    engine = NativeEngine(native_weights(default_model()))
    for source, shown in zip(sources, found["traces"], strict=True):
        assert (shown["source"], shown["shapes"]) == (source, {})
        logits = engine.trace_ids(source, whole.target_ids, translator.special, wanted=["logits"])[1]["logits"]
        rows = log_softmax(np.frombuffer(logits.data, np.float32).reshape(logits.shape))
        expected = [row[token] for row, token in zip(rows, [*target, translator.special.eos_id], strict=True)]
        assert [step["next"]["log_prob"] for step in shown["candidates"]] == pytest.approx(expected, abs=1e-9)


def test_export_replaces_only_its_own_folders(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty and not an export for web pages"):
        export_web(default_model(), other, overwrite=True)
    assert (other / "notes.txt").read_text() == "mine"
    place = export_web(default_model(), tmp_path / "site")
    with pytest.raises(ConfigError, match="add --overwrite"):
        export_web(default_model(), place)
    before = (place / "model.json").read_bytes()
    assert (export_web(default_model(), place, overwrite=True) / "model.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "site"]


def test_exported_search_settings_are_those_of_the_model(site: Path) -> None:
    config = Translator.load(default_model(), engine="native").config
    exported = json.loads((site / "model.json").read_text("utf-8"))["decoding"]
    assert exported == {name: getattr(config, name) for name in exported}
    assert {"min_length", "no_repeat_ngram_size", "max_length", "length_penalty_alpha"} <= exported.keys()


def test_exported_alignment_is_that_of_the_model(site: Path) -> None:
    translator = Translator.load(default_model(), engine="native")
    exported = json.loads((site / "model.json").read_text("utf-8"))["alignment"]
    assert exported == translator.engine.alignment.to_dict()  # type: ignore[attr-defined]


class Server(http.server.SimpleHTTPRequestHandler):
    """A plain file server that keeps the paths of its requests."""

    paths: list[str]

    is_isolated = False
    """Whether the pages are isolated from other origins, which allows threads."""

    def end_headers(self) -> None:
        if self.is_isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        self.paths.append(self.path)


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The address of the exported model, served from a path below the root."""
    Server.paths = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(site.parents[1])))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/sub/path/"
    server.shutdown()
    server.server_close()


@needs_node
@needs_chromium
def test_relaxed_products_and_threads_give_the_same_bits(
    address: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "is_isolated", True)
    shutil.copyfile(BUILT / "engine_threads.wasm", site / "engine_threads.wasm")
    translations = [
        [text, {"targetLanguage": language, "beamSize": beam_size}]
        for text, language in SENTENCES
        for beam_size in (1, 4)
    ]
    weight = {
        "kind": "set_weight", "stack": "encoder", "sublayer": "self_attention", "layer": 1, "head": 2,
        "query": 0, "key": 1, "value": 0.5,
    }  # fmt: skip
    request = {
        "address": address,
        "executablePath": shutil.which("chromium"),
        "variants": [{"relaxed": relaxed, "threads": threads} for relaxed in (False, True) for threads in (1, 2, 4)],
        "translations": translations,
        "traces": [[SENTENCES[0][0], {"targetLanguage": "de", "interventions": changes}] for changes in ([], [weight])],
    }
    found = run_node(WEB / "tests" / "engine_variants.mjs", request)
    assert found["isolated"]
    results = found["results"]
    assert [{"relaxed": one["isRelaxed"], "threads": one["numThreads"]} for one in results] == request["variants"]
    for one in results:
        assert one["first"] == one["again"] == results[0]["first"]
        assert "token -1 is not in the vocabulary" in one["error"]
    translator = Translator.load(default_model(), engine="native")
    for (text, options), [best] in zip(translations, results[0]["first"]["translations"], strict=True):
        [expected] = beam_tree(
            translator, text, target_language=options["targetLanguage"], beam_size=options["beamSize"], num_best=1
        ).hypotheses
        assert (best["tokens"], best["log_probs"]) == (expected.tokens, expected.token_log_probs)


@needs_node
@needs_chromium
def test_example_page_translates_in_a_browser_without_other_requests(address: str) -> None:
    done = subprocess.run(
        ["node", str(WEB / "tests" / "example_page.mjs"), address, shutil.which("chromium") or ""],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["translations"] == {
        "de": "Wo ist der Bahnhof?",
        "zh": Translator.load(default_model()).translate(["Where is the train station?"], target_language="zh")[0].text,
    }
    assert found["errors"] == [] and found["outside"] == []
    assert "no target language" not in found["empty"]
    fetched = [path.rsplit("/", 1)[-1] for path in Server.paths]
    assert fetched.count("weights.bin") == 1  # the second visit takes it from the browser's cache
