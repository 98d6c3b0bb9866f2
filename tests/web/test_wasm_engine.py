"""The engine in WebAssembly gives the bits of the native engine; its committed file is what the source builds to."""

from __future__ import annotations

import base64
import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from heedful import Translator
from heedful.config import DecodingConfig
from heedful.inspection import Intervention
from heedful.model_dir.registry import default_model
from heedful.native import NativeEngine
from heedful.native.convert import native_weights
from heedful.search_types import Hypothesis, SpecialTokens
from tests.native.native_models import BOS, EOS, SPECIAL, engine_of, random_model, random_sources, small_config
from tests.web.web_build import BUILT, WEB, bundle, needs_node, run_node

pytestmark = needs_node

MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "paper": ("int8", {}),
    "rotary": ("int8", {"positions": "rotary", "norm": "rms", "norm_placement": "pre", "activation": "swiglu"}),
    "separate": ("int8", {"tying": "none", "target_vocab_size": 50, "activation": "gelu", "positions": "learned"}),
    "odd": ("int8", {"d_model": 36, "num_heads": 3, "head_dim": 10, "d_ff": 50, "tying": "target"}),
    "float32": ("float32", {}),
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(WEB / "tests" / "run_engine.ts", tmp_path_factory.mktemp("node") / "run_engine.mjs")


def tokens(special: SpecialTokens) -> dict[str, Any]:
    forbidden = sorted({special.pad_id, special.bos_id, *special.forbidden})
    return {
        "bos_id": special.bos_id, "eos_id": special.eos_id, "forbidden": forbidden, "byte_ids": list(special.byte_ids),
    }  # fmt: skip


def run(script: Path, weights: Path, special: SpecialTokens, requests: list[dict[str, Any]]) -> Any:
    request = {
        "wasm": str(BUILT / "engine.wasm"),
        "weights": str(weights),
        "special": tokens(special),
        "requests": requests,
    }
    return run_node(script, request)


def compare(script: Path, engine: NativeEngine, special: SpecialTokens, requests: list[dict[str, Any]]) -> None:
    """Run all requests with both engines and compare every bit."""
    for request, found in zip(requests, run(script, engine.path, special, requests)["answers"], strict=True):
        if search := request.get("search"):
            limit, prefix = search["max_length"], search.get("prefix", [])
            [expected] = engine.translate_ids(
                [request["source"]], config_of(search), special, max_lengths=[limit], prefix=[prefix]
            )
            compare_hypotheses(found, expected)
        elif search := request.get("tree"):
            expected, nodes = engine.beam_tree_ids(
                request["source"],
                config_of(search),
                special,
                max_length=search["max_length"],
                prefix=search.get("prefix", []),
            )
            compare_hypotheses(found["hypotheses"], expected)
            fields = ("parent", "step", "token", "log_prob", "total", "state", "score")
            states = ("kept", "finished", "pruned")
            assert [tuple(one[name] for name in fields) for one in found["nodes"]] == [
                (*(getattr(one, name) for name in fields[:5]), states[one.state], one.score if one.state == 1 else None)
                for one in nodes
            ]
            assert [nodes[index].rank for index in found["best"]] == list(range(len(expected)))
        else:
            arguments = dict(request["trace"])
            changes = [Intervention(**one).native() for one in arguments.pop("interventions", [])]
            target, tensors = engine.trace_ids(
                request["source"], arguments.pop("target"), special, interventions=changes, **arguments
            )
            assert found["target"] == [special.bos_id, *target]
            assert [(name, tuple(shape)) for name, shape, _ in found["tensors"]] == [
                (name, one.shape) for name, one in tensors.items()
            ]
            for name, _, values in found["tensors"]:
                assert base64.b64decode(values) == tensors[name].data.tobytes(), name


def config_of(search: dict[str, Any]) -> DecodingConfig:
    settings = {name: value for name, value in search.items() if name not in ("max_length", "prefix")}
    return DecodingConfig(method="greedy" if search["beam_size"] == 1 else "beam", **settings)


def compare_hypotheses(found: list[dict[str, Any]], expected: list[Hypothesis]) -> None:
    assert [one["tokens"] for one in found] == [one.tokens for one in expected]
    assert [one["log_probs"] for one in found] == [one.token_log_probs for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert math.isclose(one["score"], other.score, rel_tol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_wasm_engine_gives_the_bits_of_the_native_engine(name: str, script: Path, tmp_path: Path) -> None:
    precision, options = MODELS[name]
    engine = engine_of(random_model(small_config(**options)), tmp_path, precision=precision)
    requests: list[dict[str, Any]] = []
    for source in random_sources(6, vocab_size=50, longest=20):
        requests.append({"source": source, "search": {"beam_size": 1, "num_best": 1, "max_length": 15}})
        search = {
            "beam_size": 4,
            "num_best": 3,
            "max_length": 12,
            "length_penalty": "paper",
            "length_penalty_alpha": 0.6,
        }
        requests.append({"source": source, "search": search})
        requests.append(
            {"source": source, "search": {"beam_size": 2, "num_best": 1, "max_length": 9, "prefix": [7, 8]}}
        )
        limits = {"min_length": 4, "no_repeat_ngram_size": 2, "length_penalty": "average", "length_penalty_alpha": 1.0}
        requests.append({"source": source, "search": {"beam_size": 3, "num_best": 2, "max_length": 10, **limits}})
        requests += [{"source": source, "tree": one["search"]} for one in requests[-4:]]
        requests.append({"source": source, "trace": {"target": [BOS, 9, 8, 7], "wanted": ["*"]}})
        change = {"kind": "remove", "stack": "decoder", "sublayer": "cross_attention", "layer": 1, "head": 0}
        weight = {
            "kind": "set_weight", "stack": "encoder", "sublayer": "self_attention", "layer": 0, "head": 1,
            "query": 0, "key": 0, "value": 0.25,
        }  # fmt: skip
        trace = {
            "target": [BOS],
            "max_length": 10,
            "wanted": ["logits", "*.weights"],
            "interventions": [change, weight],
        }
        requests.append({"source": source, "trace": trace})
    compare(script, engine, SPECIAL, requests)


def test_wasm_engine_translates_with_the_bundled_model(script: Path) -> None:
    translator = Translator.load(default_model(), engine="native")
    engine = NativeEngine(native_weights(translator.loaded_from.path))  # type: ignore[union-attr]
    assert engine.path.stat().st_size <= 32_000_000
    requests: list[dict[str, Any]] = []
    for text, language in (("Where is the train station?", "de"), ("你好，世界！", "en"), ("Good morning 🙂", "zh")):
        source = translator.tokenizer.encode_source(text, language)
        requests.append({"source": source, "search": {"beam_size": 4, "num_best": 2, "max_length": 40}})
        requests.append({"source": source, "tree": {"beam_size": 4, "num_best": 2, "max_length": 40}})
        requests.append({"source": source, "trace": {"target": [translator.special.bos_id], "max_length": 40}})
    compare(script, engine, translator.special, requests)


def test_errors_are_messages_and_the_engine_stays_usable(script: Path, tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config()), tmp_path, precision="int8")
    good = {"source": [5, EOS], "search": {"beam_size": 1, "num_best": 1, "max_length": 5}}
    bad = {"source": [5, 70], "search": {"beam_size": 1, "num_best": 1, "max_length": 5}}
    first, error, again = run(script, engine.path, SPECIAL, [good, bad, good])["answers"]
    assert "token 70 is not in the vocabulary of 70" in error["error"]
    assert first == again
    data = bytearray(engine.path.read_bytes())
    data[-100] ^= 1
    damaged = tmp_path / "damaged.bin"
    damaged.write_bytes(data)
    assert "its checksum is wrong" in run(script, damaged, SPECIAL, [good])["error"]
    damaged.write_bytes(data[:150])
    assert "it is cut short" in run(script, damaged, SPECIAL, [good])["error"]


def test_traces_of_long_sentences_fit_or_name_the_remedy(script: Path, tmp_path: Path) -> None:
    many = small_config(max_length=512, num_heads=32, num_encoder_layers=15)
    engine = engine_of(random_model(many), tmp_path, precision="int8")
    source = [5 + index % 60 for index in range(512)]
    some = ["encoder.layers.14.self_attention.weights", "*.cross_attention.weights", "memory"]
    requests: list[dict[str, Any]] = [
        {"source": source, "trace": {"target": [BOS, *source[1:]], "wanted": wanted}} for wanted in (["*"], some)
    ]
    everything, few = run(script, engine.path, SPECIAL, requests)["answers"]
    assert "not enough memory" in everything["error"] and "tensors of a trace that are needed" in everything["error"]
    assert [name for name, _, _ in few["tensors"]] == [
        "encoder.layers.14.self_attention.weights", "memory",
        *(f"decoder.layers.{layer}.cross_attention.weights" for layer in range(2)),
    ]  # fmt: skip
    compare(script, engine, SPECIAL, requests[1:])


def test_shape_is_read_from_the_weight_file(script: Path, tmp_path: Path) -> None:
    engine = engine_of(random_model(small_config(positions="rotary")), tmp_path, precision="int8")
    found = run(script, engine.path, SPECIAL, [])["shape"]
    assert found["activation"] == "relu"
    for name, value in found.items():
        if name != "activation":
            assert value == getattr(engine.shape, name), name


def test_committed_engine_is_what_the_source_builds_to(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="needs the Zig compiler: pip install 'heedful[dev]'")
    spec = importlib.util.spec_from_file_location("web_build_script", WEB / "build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    build.build_engine(tmp_path / "engine.wasm")
    build.build_engine(tmp_path / "engine_threads.wasm", threads=True)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (BUILT / path.name).read_bytes(), "run python web/build.py"
    assert build.RELAXED_DOT.read_text() == build.relaxed_dot_modules(), "run python web/build.py"


def test_wasm_is_small_and_imports_nothing_but_errors() -> None:
    import gzip

    files = [path.read_bytes() for path in BUILT.glob("*.wasm")]
    assert len(files) == 3
    assert sum(len(gzip.compress(data)) for data in files) < 1_000_000
    assert all(data[:4] == b"\0asm" for data in files)


def test_npm_package_has_the_engine_and_its_types(tmp_path: Path) -> None:
    import shutil
    import subprocess
    import tarfile

    shutil.copytree(WEB / "engine", tmp_path / "web" / "engine", ignore=shutil.ignore_patterns("dist"))
    shutil.copytree(BUILT, tmp_path / "heedful" / "web")
    shutil.copyfile(WEB / "tsconfig.json", tmp_path / "web" / "tsconfig.json")
    (tmp_path / "web" / "node_modules").symlink_to(WEB / "node_modules")
    subprocess.run(["npm", "pack", "--offline"], cwd=tmp_path / "web" / "engine", check=True, capture_output=True)
    [archive] = (tmp_path / "web" / "engine").glob("*.tgz")
    with tarfile.open(archive) as file:
        names = {name.removeprefix("package/") for name in file.getnames()}
    built = {f"dist/{path.name}" for path in BUILT.glob("*.wasm")} | {"dist/engine.js", "dist/worker.js"}
    types = {f"dist/{name}.d.ts" for name in ("index", "engine", "model")}
    assert built | types | {"package.json", "README.md"} <= names
    assert not any(name.startswith(("src", "tokenizer")) for name in names)
